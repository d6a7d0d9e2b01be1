// `rabbit quantize --calibrate`, and what the other commands make of its checkpoints, run as a user runs them.

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { basename } from "@std/path/basename";
import { join } from "@std/path/join";
import { inTemporary, sha256, temporary, tree, write } from "../support/files.ts";
import { ROOT, TINY } from "../support/fixtures.ts";
import { execute, PROGRAM, rabbit, type Ran, shellLine } from "../support/program.ts";
import { tokenizerJson } from "../support/tokenizers.ts";

/** The tiny model with a byte-level vocabulary of printable ASCII and the space (Ġ), without merges. */
const VOCABULARY = Array.from({ length: 320 }, (_, n) => n < 94 ? String.fromCharCode(33 + n) : `<unused${n}>`);
VOCABULARY[94] = "Ġ";

/** A flag that changes nothing, and the engine's flags. */
const PLAIN = "--wasm-bounds-checks";
const FLAGS = await engine();

async function engine(): Promise<string> {
  const args = ["run", "--allow-env", `${ROOT}lib/kernels/engine_flags.ts`];
  const { stdout } = await new Deno.Command(Deno.execPath(), { args, env: { RABBIT_CHECKED: "" } }).output();
  return new TextDecoder().decode(stdout).trim();
}

const made = temporary();
const FLOAT = join(made, "float");
Deno.mkdirSync(FLOAT);
for (const name of ["model.safetensors", "config.json"]) Deno.copyFileSync(join(TINY, name), join(FLOAT, name));
write(FLOAT, { "tokenizer.json": tokenizerJson(VOCABULARY) });
const words = (count: number, factor: number) => {
  return Array.from({ length: count }, (_, n) => "aeiou".repeat(9).slice(n * factor % 7, 3 + n * n % 5)).join(" ");
};
write(made, {
  "one.txt": words(900, 1),
  "two.txt": words(900, 3),
  "short.txt": "Too short.",
  "letter.txt": "a",
  "empty.txt": "",
});
const [ONE, TWO, SHORT, LETTER, EMPTY] = ["one", "two", "short", "letter", "empty"].map((name) =>
  join(made, `${name}.txt`)
);
const SIZE = ["--tokens", "1280", "--window", "64"];

function run(args: readonly string[], env?: Record<string, string>): Promise<Ran> {
  return rabbit(ROOT, args, env);
}

/** A run that must end with 0 and say nothing on standard error but warnings of missing files. */
async function good(args: readonly string[], env?: Record<string, string>): Promise<string> {
  const { code, out, err } = await run(args, env);
  const said = err.split("\n").filter((line) => line !== "" && !line.includes("so the new checkpoint has none"));
  assertEquals([code, said], [0, []], args.join(" "));
  return out;
}

const CALIBRATED = join(made, "calibrated");
const PRINTED = await good(["quantize", FLOAT, CALIBRATED, "--calibrate", ONE, "--calibrate", TWO, ...SIZE]);

Deno.test("rabbit quantize --calibrate says what each matrix lost, and where the blocks came from", async () => {
  const lines = PRINTED.trimEnd().split("\n");
  assertMatch(lines[0], / quantized=15 kept=5 bits=4 block=32 scale=f16 method=calibrated tokens=1280$/);
  assertEquals(lines.length, 2 + 15);
  for (const line of lines.slice(1, -1)) {
    const [, before, after] = /^QUANT tensor=\S+ loss_before=(\S+) loss_after=(\S+)$/.exec(line)!.map(Number);
    assert(after < before, line);
  }
  const said = JSON.parse(Deno.readTextFileSync(join(CALIBRATED, "quantization.json")));
  assertEquals(said.digest, await sha256(join(CALIBRATED, "model.safetensors")));
  assertEquals(lines.at(-1), `QUANT ratio=0.292 digest=${said.digest}`);
  assertEquals(said.calibration.texts, [
    { file: "one.txt", sha256: await sha256(ONE) },
    { file: "two.txt", sha256: await sha256(TWO) },
  ]);
  assertEquals([said.method, said.calibration.window, said.calibration.seed], ["calibrated", 64, 1]);
  const { __metadata__ } = JSON.parse(headerOf(join(CALIBRATED, "model.safetensors")));
  assertEquals(__metadata__, { format: "rabbit-q4b32", block: "32", scale: "f16" });
});

function headerOf(path: string): string {
  const bytes = Deno.readFileSync(path);
  const length = Number(new DataView(bytes.buffer).getBigUint64(0, true));
  return new TextDecoder().decode(bytes.subarray(8, 8 + length));
}

Deno.test("rabbit quantize --calibrate gives one digest at 1, 2 and 3 threads, with and without the engine's flags", async () => {
  await inTemporary(async (directory) => {
    const developed = join(directory, "developed");
    await good(["gen", developed]);
    for (
      const [source, ...options] of [
        [FLOAT, "--calibrate", ONE, "--calibrate", TWO, ...SIZE],
        [FLOAT, "--calibrate", "self", ...SIZE],
        [developed, "--calibrate", "self", "--tokens", "64", "--window", "32"],
      ]
    ) {
      const digests = new Set<string>();
      for (const [threads, flags] of [["1", PLAIN], ["2", FLAGS], ["3", PLAIN]]) {
        const out = `${directory}/${basename(source)}-out`;
        const args = ["quantize", source, out, "--force", ...options, "--threads", threads];
        const { code, err } = await run(args, { DENO_V8_FLAGS: flags });
        assertEquals(code, 0, err);
        digests.add(
          await sha256(join(out, "model.safetensors")) + Deno.readTextFileSync(join(out, "quantization.json")),
        );
      }
      assertEquals(digests.size, 1, `${source} ${options.join(" ")}`);
    }
  });
});

Deno.test("rabbit verify of a calibrated checkpoint compares what is kept, and runs the calibration again", async () => {
  assertMatch(await good(["verify", CALIBRATED]), / method=calibrated\n.*\nVERIFY OK\n$/);
  const against = ["verify", CALIBRATED, "--against", FLOAT];
  const found = await good(against);
  assertMatch(found, /VERIFY tensor=model\.embed_tokens\.weight calibrated=true rms=0\.\d+\n/);
  assertMatch(found, /VERIFY tensor=model\.norm\.weight equal=true\n/);
  assertMatch(found, / equal=5 calibrated=15 different=0 rms=0\.\d+\nVERIFY OK\n$/);

  const again = [...against, "--rederive"];
  const SHORT = `${TWO}.short`;
  Deno.writeTextFileSync(SHORT, "word");
  assertMatch(
    await good([...again, "--calibrate", ONE, "--calibrate", TWO]),
    /VERIFY rederived equal=true\nVERIFY OK\n$/,
  );
  for (
    const [texts, message] of [
      [[], "was calibrated with 2 texts: one.txt, two.txt; give these"],
      [[ONE], "was calibrated with 2 texts: one.txt, two.txt; give these"],
      [[TWO, ONE], `${TWO}: its digest is ${await sha256(TWO)}, but the checkpoint was made with ${await sha256(ONE)}`],
      // Too short for a window; but it is another text, and a longer one would be another too.
      [[SHORT, TWO], `${SHORT}: its digest is ${await sha256(SHORT)}, but the checkpoint was made with`],
    ] as const
  ) {
    const { code, out, err } = await run([...again, ...texts.flatMap((text) => ["--calibrate", text])]);
    assert(code > 0);
    assertEquals(out, "");
    assertStringIncludes(err, message);
    assertEquals(err.trimEnd().split("\n").length, 1);
  }

  await inTemporary(async (directory) => {
    // A pipe can be read once.
    const pipe = join(directory, "pipe");
    assertEquals(new Deno.Command("mkfifo", { args: [pipe] }).outputSync().code, 0);
    const writer = new Deno.Command("sh", { args: ["-c", 'cat "$0" > "$1"', ONE, pipe] }).spawn();
    assertMatch(await good([...again, "--calibrate", pipe, "--calibrate", TWO]), /VERIFY rederived equal=true\n/);
    await writer.status;
  });

  await inTemporary(async (directory) => {
    const other = join(directory, "other");
    Deno.mkdirSync(other);
    for (const name of tree(CALIBRATED)) Deno.copyFileSync(join(CALIBRATED, name), join(other, name));
    // Another integer in the last matrix: sound, and not what was written.
    const model = join(other, "model.safetensors");
    const bytes = Deno.readFileSync(model);
    bytes[bytes.length - 200] ^= 1;
    Deno.writeFileSync(model, bytes);
    const changed = await run(["verify", other]);
    assertEquals([changed.code, changed.out], [1, ""]);
    assertStringIncludes(changed.err, "the weights were changed, or the file belongs to another checkpoint");
    // With a digest to match, only running it again tells.
    const said = JSON.parse(Deno.readTextFileSync(join(other, "quantization.json")));
    Deno.writeTextFileSync(join(other, "quantization.json"), JSON.stringify({ ...said, digest: await sha256(model) }));
    const args = ["verify", other, "--against", FLOAT, "--rederive", "--calibrate", ONE, "--calibrate", TWO];
    const { code, out } = await run(args);
    assertEquals(code, 1);
    assertMatch(out, /VERIFY rederived equal=false tensor=\S+ row=\d+ block=\d+\nVERIFY DIFFER\n$/);
  });
});

Deno.test("rabbit verify finds what quantization.json says falsely, and refuses a part", async () => {
  const again = ["--against", FLOAT, "--rederive", "--calibrate", ONE, "--calibrate", TWO];
  const said = JSON.parse(Deno.readTextFileSync(join(CALIBRATED, "quantization.json")));
  const changed = (change: Record<string, unknown>) => ({ ...said, calibration: { ...said.calibration, ...change } });
  await inTemporary(async (directory) => {
    for (const name of tree(CALIBRATED)) Deno.copyFileSync(join(CALIBRATED, name), join(directory, name));
    for (
      const [json, message] of [
        [changed({ ids: "0".repeat(64) }), "calibration ids: is 0000"],
        [changed({ texts: [] }), "calibration texts: is empty, but the method is calibrated"],
        [changed({ damping: 0 }), "calibration damping: expected a number above 0, to 100"],
        [changed({ window: 1 }), "calibration window: expected a whole number of at least 2"],
        [changed({ tokens: 127 }), "calibration tokens: expected a whole number from 128 to 1048576"],
        [changed({ tokens: 2 ** 40 }), "calibration tokens: expected a whole number from 128 to 1048576"],
        [{ ...said, source: [] }, `source: the checkpoint was made from 0 files, and ${FLOAT} has 1; give its source`],
        [
          { ...said, source: [{ ...said.source[0], sha256: "0".repeat(64) }] },
          `source: the checkpoint was made from a file with the SHA-256 ${"0".repeat(64)}, and ${FLOAT}/`,
        ],
        [{ ...said, matrices: [...said.matrices, said.matrices[0]] }, `matrices ${said.matrices.length}: is not what`],
        [{ ...said, matrices: [] }, "matrices 0: is not what the calibration gives when it runs again"],
        [
          { ...said, matrices: said.matrices.map((one: object, n: number) => n === 3 ? { ...one, after: 0.5 } : one) },
          "matrices 3: is not what the calibration gives when it runs again",
        ],
      ] as const
    ) {
      write(directory, { "quantization.json": JSON.stringify(json) });
      const { code, out, err } = await run(["verify", directory, ...again]);
      assertEquals([code, out.includes("VERIFY OK"), err.trimEnd().split("\n").length], [1, false, 1], message);
      assertStringIncludes(err, `${join(directory, "quantization.json")}: ${message}`);
    }
  });
  const { code, out, err } = await run(["verify", CALIBRATED, "--against", FLOAT, "--shard", "1/2"]);
  assertEquals([code, out], [2, ""]);
  assertStringIncludes(err, "verify it in one run");
});

Deno.test("rabbit verify --rederive reads the shards of a calibrated checkpoint", async () => {
  await inTemporary(async (directory) => {
    for (const name of tree(CALIBRATED)) Deno.copyFileSync(join(CALIBRATED, name), join(directory, name));
    Deno.removeSync(join(directory, "model.safetensors"));
    const bytes = Deno.readFileSync(join(CALIBRATED, "model.safetensors"));
    const { __metadata__, ...tensors } = JSON.parse(headerOf(join(CALIBRATED, "model.safetensors")));
    const data = bytes.subarray(8 + Number(new DataView(bytes.buffer).getBigUint64(0, true)));
    const map: Record<string, string> = {};
    const names = Object.keys(tensors).sort((a, b) => tensors[a].data_offsets[0] - tensors[b].data_offsets[0]);
    for (const [n, own] of [names.slice(0, 9), names.slice(9)].entries()) {
      const file = `model-0000${n + 1}-of-00002.safetensors`;
      const [begin] = tensors[own[0]].data_offsets;
      const end = tensors[own.at(-1)!].data_offsets[1];
      const header: Record<string, unknown> = { __metadata__ };
      for (const name of own) {
        map[name] = file;
        const at = tensors[name].data_offsets.map((offset: number) => offset - begin);
        header[name] = { ...tensors[name], data_offsets: at };
      }
      const text = JSON.stringify(header);
      const start = new TextEncoder().encode(text.padEnd(Math.ceil(text.length / 8) * 8));
      const length = new Uint8Array(new BigUint64Array([BigInt(start.length)]).buffer);
      Deno.writeFileSync(join(directory, file), new Uint8Array([...length, ...start, ...data.subarray(begin, end)]));
    }
    write(directory, { "model.safetensors.index.json": JSON.stringify({ metadata: {}, weight_map: map }) });
    const args = ["verify", directory, "--against", FLOAT, "--rederive", "--calibrate", ONE, "--calibrate", TWO];
    assertMatch(await good(args), /VERIFY rederived equal=true\nVERIFY OK\n$/);
  });
});

Deno.test("inspect, compare, export and report say how a checkpoint was calibrated", async () => {
  await inTemporary(async (directory) => {
    const parameters = /quantization method=calibrated version=1 texts=one\.txt,two\.txt tokens=1280 window=64 seed=1 /;
    assertMatch(await good(["inspect", CALIBRATED]), parameters);
    const compared = await run(["compare", FLOAT, CALIBRATED, "--ids", "1 2 3"]);
    assertMatch(compared.out, parameters);
    assertMatch(await good(["export", CALIBRATED, join(directory, "out.gguf")]), parameters);
    const page = join(directory, "page.html");
    const out = await good(["report", FLOAT, CALIBRATED, "--ids", "1 2 3", "--out", page]);
    assertMatch(out, / format=Q4B32 method=calibrated .* equal=5 calibrated=15 different=0 /);
    const html = Deno.readTextFileSync(page);
    assertStringIncludes(html, "Loss by layer");
    const { quants: [quant] } = JSON.parse(
      /<script type="application\/json" id="data">(.*?)<\/script>/s.exec(html)![1],
    );
    assertEquals([quant.method, quant.calibrated, quant.losses.length], ["calibrated", 15, 2]);
    assert(quant.losses.every(({ before, after }: { before: number; after: number }) => after < before));
  });
});

Deno.test("the quantization.json of another checkpoint is shown by no command", async () => {
  await inTemporary(async (directory) => {
    const other = join(directory, "other");
    await good(["quantize", FLOAT, other, "--rule", "signed"]);
    Deno.copyFileSync(join(CALIBRATED, "quantization.json"), join(other, "quantization.json"));
    const [own, described] = await Promise.all([other, CALIBRATED].map((at) => sha256(join(at, "model.safetensors"))));
    const warning =
      `${other}/quantization.json: does not belong to ${other}/model.safetensors: it describes weights of ` +
      `the digest ${described}, and these have ${own}; what it says of the method is left out`;
    for (
      const args of [
        ["inspect", other],
        ["compare", FLOAT, other, "--ids", "1 2 3"],
        ["compare", FLOAT, other, "--text", TWO],
        ["compare", FLOAT, other, "--text", TWO, "--shard", "1/2"],
        ["export", other, join(directory, "out.gguf")],
      ]
    ) {
      const { code, out, err } = await run(args);
      assert(code <= (args.includes("--ids") ? 1 : 0), err);
      assertStringIncludes(err, `rabbit: warning: ${warning}\n`, args.join(" "));
      assert(!out.includes("calibrated"), out);
    }
    const page = join(directory, "page.html");
    for (
      const [args, status] of [
        [["report", FLOAT, other, "--ids", "1 2 3", "--out", page], 2],
        [["verify", other], 1],
        [["verify", other, "--against", FLOAT], 1],
      ] as const
    ) {
      const { code, out, err } = await run(args);
      assertEquals([code, out], [status, ""]);
      assertStringIncludes(err, "the weights were changed, or the file belongs to another checkpoint");
    }
  });
});

Deno.test("a Hessian that is not positive definite gets more damping, with a warning for each matrix", async () => {
  await inTemporary(async (directory) => {
    const out = join(directory, "out");
    // Fewer tokens than columns, and hardly any damping.
    const few = ["--calibrate", ONE, "--tokens", "16", "--window", "16"];
    const { code, err } = await run(["quantize", FLOAT, out, ...few, "--damping", "1e-20"]);
    assertEquals(code, 0, err);
    const warnings = err.split("\n").filter((line) => line.includes("positive definite"));
    const names = warnings.map((line) => {
      const pattern =
        /^rabbit: warning: --calibrate: (\S+): the Hessian is not positive definite with a damping of 1e-20; (\S+) was used$/;
      const [, name, used] = pattern.exec(line)!;
      const doublings = Math.log2(Number(used) / 1e-20);
      assert(doublings >= 1 && Math.abs(doublings - Math.round(doublings)) < 1e-9, line);
      return name;
    });
    for (const part of ["self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"]) {
      assert(names.includes(`model.layers.1.${part}.weight`), names.join());
    }
    const said = JSON.parse(Deno.readTextFileSync(join(out, "quantization.json")));
    assertEquals(said.calibration.damping, 1e-20);
    const again = ["verify", out, "--against", FLOAT, "--rederive", "--calibrate", ONE];
    assertMatch((await run(again)).out, /VERIFY rederived equal=true\nVERIFY OK\n$/);
  });
});

Deno.test("compare --text and report --text warn of a text that was calibrated with", async () => {
  await inTemporary(async (directory) => {
    const page = join(directory, "page.html");
    for (
      const args of [
        ["compare", FLOAT, CALIBRATED, "--text", ONE],
        ["report", FLOAT, CALIBRATED, "--ids", "1 2", "--out", page, "--text", ONE],
      ]
    ) {
      const { code, err } = await run(args);
      assertEquals(code, 0);
      assertEquals(
        err,
        `rabbit: warning: --text: ${CALIBRATED}/model.safetensors was calibrated with this text, so it does better on it ` +
          "than on others; use another\n",
      );
    }
    // A pipe can be read once.
    const piped = shellLine([...PROGRAM, "compare", FLOAT, CALIBRATED, "--text", "/dev/stdin"]);
    const { code, err } = await execute("sh", ["-c", `cat '${ONE}' | ${piped}`], { cwd: ROOT });
    assertEquals([code, err.includes("was calibrated with this text")], [0, true], err);
    const other = join(directory, "other.txt");
    Deno.writeTextFileSync(other, Deno.readTextFileSync(ONE).slice(1));
    await good(["compare", FLOAT, CALIBRATED, "--text", other]);
  });
});

Deno.test("rabbit advise --calibrate tries the narrowest width again, and says the command", async () => {
  const { out: found, err } = await run(["advise", FLOAT, "--text", TWO, "--calibrate", "self"]);
  assertEquals(err.split("\n").filter((line) => line !== "" && !line.startsWith("rabbit: warning: ")), []);
  assertMatch(
    found,
    /\nADVISE bits=4 bytes=.* suffices=false .*\nADVISE bits=4 method=self-calibrated seconds=\d+ bytes=/,
  );
  assertMatch(found, /\nADVISE use=\S+ .*why="Q4B32 .*; Q4B32 self-calibrated .*; Q8B32 /);
  const { code, err: same } = await run(["advise", FLOAT, "--text", ONE, "--calibrate", ONE]);
  assertEquals(code, 2);
  assertStringIncludes(same, `shares a passage with the text that is measured (${ONE})`);
});

Deno.test("rabbit quantize --calibrate refuses in one line what it can't do, and leaves nothing", async () => {
  await inTemporary(async (directory) => {
    const out = join(directory, "new/out");
    const bare = join(directory, "bare");
    Deno.mkdirSync(bare);
    for (const name of ["model.safetensors", "config.json"]) Deno.copyFileSync(join(TINY, name), join(bare, name));
    const endless = join(directory, "endless");
    Deno.mkdirSync(endless);
    Deno.copyFileSync(join(TINY, "model.safetensors"), join(endless, "model.safetensors"));
    const config = JSON.parse(Deno.readTextFileSync(join(TINY, "config.json")));
    Deno.writeTextFileSync(join(endless, "config.json"), JSON.stringify({ ...config, bos_token_id: undefined }));
    const before = tree(directory);
    for (
      const [args, message] of [
        [
          [FLOAT, out, "--calibrate", SHORT, "--window", "64"],
          `${SHORT} has 10 tokens, a window has 64; use a longer text`,
        ],
        [
          [FLOAT, out, "--calibrate", ONE, "--calibrate", LETTER],
          `${LETTER} has 1 token, a window has 256; use a longer`,
        ],
        [[FLOAT, out, "--calibrate", EMPTY], `${EMPTY} has 0 tokens, a window has 256; use a longer text`],
        [[FLOAT, ONE, "--calibrate", TWO, ...SIZE], `${ONE} is a file, and the checkpoint needs a directory; choose`],
        [[FLOAT, out, "--calibrate", "self", "--tokens", "1048577"], "--tokens takes a whole number of 1 to 1048576"],
        [[FLOAT, out, "--calibrate", ONE, "--calibrate", "self"], "--calibrate self and a text exclude each other"],
        [[FLOAT, out, "--calibrate", `${directory}/none`], `${directory}/none: no such file or directory`],
        [[FLOAT, out, "--calibrate", ONE, "--rule", "signed"], "--rule and --calibrate exclude each other"],
        [[FLOAT, out, "--seed", "2"], "--seed is for --calibrate, which is not given"],
        [[FLOAT, out, "--calibrate", ONE, "--window", "100000"], "is more than the model's context of"],
        [
          [FLOAT, out, "--calibrate", ONE, "--tokens", "5", "--window", "64"],
          "5 tokens are less than a window of 64; use more, or a smaller window",
        ],
        [[FLOAT, out, "--calibrate", ONE, "--damping", "0"], "--damping takes a number above 0, to 100"],
        [[FLOAT, FLOAT, "--calibrate", "self", ...SIZE, "--force"], "is the directory of the source"],
        [[CALIBRATED, out, "--calibrate", "self", ...SIZE], "already quantized to Q4B32"],
        [
          [bare, out, "--calibrate", ONE, ...SIZE],
          "no tokenizer.json, and no vocab.json and merges.txt; copy them there",
        ],
        [[endless, out, "--calibrate", "self", ...SIZE], "name no bos_token_id, with which a sampled text begins"],
      ] as const
    ) {
      const { code, out, err } = await run(["quantize", ...args]);
      assertEquals([code, out], [2, ""], args.join(" "));
      const lines = err.trimEnd().split("\n").filter((line) => !line.includes("warning"));
      assertEquals(lines.length, 1, err);
      assertStringIncludes(lines[0], message);
      assertEquals(tree(directory), before, args.join(" "));
    }
    const few = await run(["quantize", FLOAT, out, "--calibrate", ONE, "--tokens", "128", "--window", "64"]);
    assertEquals(few.code, 0);
    assertStringIncludes(
      few.err,
      "128 tokens are 1.0 for each column of the widest matrix (128); with fewer than 10 (1280",
    );
  });
});
