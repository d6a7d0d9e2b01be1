// The exit status of `rabbit verify`: 1 only if the checkpoint was checked and is wrong; 2 if anything else is.

import { assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path/join";
import { quantize } from "../../lib/library/quantize.ts";
import { inTemporary, write } from "../support/files.ts";
import { TINY, WEIGHTS } from "../support/fixtures.ts";
import { copyModel } from "../support/models.ts";
import { rabbit } from "../support/program.ts";
import { tokenizerJson } from "../support/tokenizers.ts";

const VOCABULARY = Array.from({ length: 320 }, (_, n) => n < 94 ? String.fromCharCode(33 + n) : `<unused${n}>`);
VOCABULARY[94] = "Ġ";

/** Copies a directory of files. */
function copy(from: string, to: string, change: (name: string, bytes: Uint8Array) => Uint8Array = (_, b) => b): string {
  Deno.mkdirSync(to);
  for (const { name } of Deno.readDirSync(from)) {
    Deno.writeFileSync(join(to, name), change(name, Deno.readFileSync(join(from, name))));
  }
  return to;
}

/** A change of the weights alone. */
function ofWeights(change: (bytes: Uint8Array, dataStart: number) => Uint8Array | void) {
  return (name: string, bytes: Uint8Array): Uint8Array => {
    if (name !== WEIGHTS) return bytes;
    return change(bytes, 8 + Number(new DataView(bytes.buffer).getBigUint64(0, true))) ?? bytes;
  };
}

const truncated = ofWeights((bytes) => bytes.subarray(0, bytes.length - 2));

Deno.test({
  name: "rabbit verify ends with 1 if the checkpoint is wrong, and with 2 if something else is",
  sanitizeOps: false,
  sanitizeResources: false,
  fn: () =>
    inTemporary(async (cwd) => {
      const at = (name: string) => join(cwd, name);
      const source = copyModel(TINY, at("source"));
      write(source, { "tokenizer.json": tokenizerJson(VOCABULARY) });
      const text = "some words of a text ".repeat(40);
      write(cwd, { "text.txt": text, "other.txt": `${text}more` });
      Deno.writeFileSync(at("latin1.txt"), new Uint8Array([0xe9]));
      const options = { calibrate: [at("text.txt")], tokens: 128, window: 64, threads: 1 };
      await quantize(source, at("calibrated"), options);
      await quantize(source, at("plain"), { bits: 4, threads: 1 });

      const said = JSON.parse(Deno.readTextFileSync(join(at("calibrated"), "quantization.json")));
      const saying = (name: string, changes: object) => {
        write(copy(at("calibrated"), at(name)), { "quantization.json": JSON.stringify({ ...said, ...changes }) });
      };
      saying("unknown-method", { method: "guessed" });
      saying("other-digest", { digest: "0".repeat(64) });
      saying("other-version", { version: 99 });
      saying("other-ids", { calibration: { ...said.calibration, ids: "0".repeat(64) } });
      copy(at("calibrated"), at("truncated"), truncated);
      copy(at("plain"), at("bad-scale"), ofWeights((bytes, start) => bytes.set([0, 0x7e], start)));
      copy(at("plain"), at("changed"), ofWeights((bytes, start) => void (bytes[start + 2] ^= 1)));
      Deno.mkdirSync(at("empty"));
      write(copy(at("plain"), at("interrupted")), { ".rabbit-incomplete": "" });

      Deno.removeSync(join(copy(source, at("no-tokenizer")), "tokenizer.json"));
      write(copy(source, at("bad-tokenizer")), { "tokenizer.json": "{" });
      write(copy(source, at("bad-config")), { "config.json": "{" });
      Deno.removeSync(join(copy(source, at("no-config")), "config.json"));
      copy(source, at("bad-source"), truncated);
      // An infinity in the first matrix.
      copy(source, at("infinite"), ofWeights((bytes, start) => bytes.set([0x80, 0x7f], start)));
      copy(source, at("moved"), ofWeights((bytes, start) => void (bytes[start + 1] ^= 0x80)));

      const again = ["--rederive", "--calibrate", "text.txt"];
      const cases: [status: number, args: string[], message: string][] = [
        [0, ["calibrated"], "VERIFY OK"],
        [0, ["calibrated", "--against", "source"], "VERIFY OK"],
        [0, ["calibrated", "--against", "source", ...again], "VERIFY OK"],
        [0, ["calibrated", "--against", "no-config"], "VERIFY OK"],

        [1, ["truncated"], "the file is truncated"],
        [1, ["truncated", "--against", "source", ...again], "the file is truncated"],
        [1, ["empty"], "is it a checkpoint?"],
        [1, ["interrupted"], "was interrupted"],
        [1, ["bad-scale"], "scale"],
        [1, ["bad-scale", "--against", "source"], "scale"],
        [1, ["changed", "--against", "source"], "VERIFY DIFFER"],
        [1, ["plain", "--against", "moved"], "VERIFY DIFFER"],
        // Its kept tensors are those of the source: only the digest tells.
        [
          1,
          ["calibrated", "--against", "moved"],
          "quantization.json: source: the checkpoint was made from a file with",
        ],
        [1, ["calibrated", "--against", "moved", ...again], "quantization.json: source: the checkpoint was made from"],
        [1, ["no-tokenizer", "--against", "source"], "declares no width"],
        [1, ["unknown-method"], "quantization.json: method: expected"],
        [1, ["other-digest"], "its digest is"],
        [1, ["other-digest", "--against", "source", ...again], "its digest is"],
        [1, ["other-ids", "--against", "source", ...again], "quantization.json: calibration ids: is 000"],

        [2, ["gone"], "no such file or directory"],
        [2, ["calibrated", "--against", "gone"], "no such file or directory"],
        [2, ["calibrated", "--against", "empty"], "is it a checkpoint?"],
        [2, ["calibrated", "--against", "bad-source"], "the file is truncated"],
        [2, ["plain", "--against", "infinite"], "only finite weights can be quantized"],
        [2, ["plain", "--against", "plain"], "already quantized"],
        [2, ["plain", "--against", "source", ...again], "is not a calibrated checkpoint"],
        [2, ["source", "--against", "source", ...again], "is not a calibrated checkpoint"],
        [2, ["other-version", "--against", "source", ...again], "by version 99 of the method"],
        [2, ["calibrated", "--against", "bad-config", ...again], "config.json: "],
        [2, ["calibrated", "--against", "no-config", ...again], "config.json: no such file"],
        [2, ["calibrated", "--against", "bad-tokenizer", ...again], "tokenizer.json: "],
        [2, ["calibrated", "--against", "no-tokenizer", ...again], "no tokenizer.json"],
        [2, ["calibrated", "--against", "source", "--rederive"], "was calibrated with 1 text: text.txt"],
        [
          2,
          ["calibrated", "--against", "source", "--rederive", "--calibrate", "other.txt"],
          "other.txt: its digest is",
        ],
        [2, ["calibrated", "--against", "source", "--rederive", "--calibrate", "latin1.txt"], "not valid UTF-8"],
        [
          2,
          ["calibrated", "--against", "source", "--rederive", "--calibrate", "gone.txt"],
          "no such file or directory",
        ],
        [2, ["calibrated", "--against", "source", "--rederive", "--calibrate", "empty"], "empty: it is a directory"],
      ];
      // Two at a time; the order is kept.
      for (let n = 0; n < cases.length; n += 2) {
        await Promise.all(
          cases.slice(n, n + 2).map(async ([status, args, message]) => {
            const { code, out, err } = await rabbit(cwd, ["verify", ...args]);
            assertEquals(code, status, `${args.join(" ")}\n${out}${err}`);
            assertStringIncludes(out + err, message, args.join(" "));
            if (err !== "") {
              assertEquals([out, err.trimEnd().split("\n").length], ["", 1], `${args.join(" ")}\n${out}${err}`);
            }
          }),
        );
      }
    }),
});
