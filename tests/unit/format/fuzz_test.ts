// Damaged files: whatever the bytes, the readers end in a CheckpointError or in a parse that holds what it says.

import { assert, assertEquals } from "@std/assert";
import { parseConfig } from "../../../lib/model/config.ts";
import { readVocabulary, vocabularyMetadata } from "../../../lib/gguf/vocabulary.ts";
import { openCheckpoint } from "../../../lib/format/checkpoint.ts";
import { exists } from "../../../lib/files/read.ts";
import { parseGguf, serializeGguf } from "../../../lib/gguf/container.ts";
import { type Header, parseHeader } from "../../../lib/format/safetensors.ts";
import { DTYPES, importGguf, planImport } from "../../../lib/gguf/import.ts";
import { verify } from "../../../lib/quantize/verify.ts";
import { blockBytes, DECLARED, known, knownBlocks } from "../../support/blocks.ts";
import { concat, utf8 } from "../../support/bytes.ts";
import { inTemporary, write } from "../../support/files.ts";
import { ROOT } from "../../support/fixtures.ts";
import { rounds, Tally } from "../../support/fuzz.ts";
import { byteSource } from "../../support/gguf.ts";
import { Random } from "../../support/random.ts";
import { checkRefusal } from "../../support/refusals.ts";
import { type Entry, f32, headerText, safetensors, writeShards } from "../../support/safetensors.ts";
import { tokenizerJson } from "../../support/tokenizers.ts";

/** Bits of an element; of blocks, bits of 32. */
const BITS: Record<string, number> = { F32: 32, BF16: 16, U8: 8, I8: 8, Q4B32: 144, Q8B32: 272 };

/** What mutations put in: what a header is made of, and what it should not be made of. */
const TOKENS = [
  ...'{}[]:,"\\0123456789-+.eE \t\n\0u',
  "true",
  "null",
  "1e3",
  "9007199254740993",
  "18446744073709551615",
  '"shape"',
  '"dtype"',
  '"data_offsets"',
  '"__metadata__"',
  '"Q4B32"',
  '"Q8B32"',
  '"F32"',
  "\\ud800",
  "\u00e9",
  "\u2028",
  "[".repeat(40),
].map(utf8);

/** `bytes` with one to four mistakes: a bit or a byte changed, bytes put in, taken out, doubled, moved, or cut off. */
function damaged(bytes: Uint8Array, random: Random): Uint8Array<ArrayBuffer> {
  let out = bytes.slice();
  for (let count = 1 + random.below(4); count > 0; count--) {
    const at = random.below(out.length + 1);
    const length = 1 + random.below(random.pick([2, 8, 64]));
    const [before, after] = [out.subarray(0, at), out.subarray(at)];
    switch (random.below(8)) {
      case 0:
        out[at] ^= 1 << random.below(8);
        break;
      case 1:
        out[at] = random.bits();
        break;
      case 2:
        out = concat(before, random.pick(TOKENS), after);
        break;
      case 3: {
        const token = random.pick(TOKENS);
        out = concat(before, token, after.subarray(token.length));
        break;
      }
      case 4:
        out = concat(before, after.subarray(length));
        break;
      case 5:
        out = concat(before, after.subarray(0, length), after);
        break;
      case 6: {
        const from = random.below(out.length);
        out = concat(before, out.subarray(from, from + length), after);
        break;
      }
      default:
        if (random.below(4) === 0) out = before.slice();
        // A digit of a number, where one is: the mistakes that leave valid JSON.
        else {
          const digits = [...out.keys()].filter((n) => out[n] >= 48 && out[n] <= 57);
          if (digits.length > 0) out[random.pick(digits)] = 48 + random.below(10);
        }
    }
  }
  return out;
}

/** A header that was accepted must keep what the format promises. */
function checkHeader({ tensors, metadata, width, dataStart }: Header, fileBytes: number): void {
  let covered = 0;
  for (const { dtype, shape, begin, end } of tensors) {
    assert(begin === covered || begin === end && begin <= covered, `${begin} after ${covered}`);
    covered = Math.max(covered, end);
    assert(shape.every((n) => Number.isSafeInteger(n) && n >= 0), String(shape));
    const block = dtype.startsWith("Q");
    if (BITS[dtype]) {
      const units = shape.reduce((a, b) => a * b, 1) / (block ? 32 : 1);
      assertEquals(end - begin, units * BITS[dtype] / 8);
    }
    if (block) assertEquals([width?.name, shape.length, shape[1] % 32], [dtype, 2, 0]);
    if (width && shape.length === 2) assertEquals(dtype, width.name);
  }
  assertEquals(dataStart + covered, fileBytes);
  if (width) {
    const { format, block, scale } = Object.fromEntries(metadata!);
    assertEquals({ format, block, scale }, DECLARED[width.bits as 4 | 8]);
  }
}

const [q4, q8] = [4, 8].map((bits) => concat(...knownBlocks().slice(0, 6).map((b) => blockBytes(known(b, bits)))));
const VECTOR: Entry = { name: "norm", dtype: "BF16", shape: [3], bytes: new Uint8Array(6) };
const FILES: Record<string, Uint8Array<ArrayBuffer>> = {
  plain: safetensors([f32("a.\u00e9", [2, 3], (n) => n), VECTOR, {
    ...VECTOR,
    name: "none",
    shape: [0, 2],
    bytes: new Uint8Array(),
  }], {
    format: "pt",
  }),
  Q4B32: safetensors([{ name: "w", dtype: "Q4B32", shape: [3, 64], bytes: q4 }, VECTOR], DECLARED[4]),
  Q8B32: safetensors([VECTOR, { name: "w", dtype: "Q8B32", shape: [2, 96], bytes: q8 }], DECLARED[8]),
};

/** Calls `read`; whether it gave something. @throws {Error} anything but a CheckpointError, with the bytes */
async function accepted<T>(
  bytes: Uint8Array,
  read: () => T | Promise<T>,
  check: (result: T) => void | Promise<void>,
  tally?: Tally,
): Promise<boolean> {
  const start = performance.now();
  let good = true;
  try {
    await check(await read());
  } catch (error) {
    good = false;
    try {
      checkRefusal(error);
    } catch {
      throw new Error(`these bytes, in base64: ${bytes.toBase64()}`, { cause: error });
    }
  }
  tally?.add(good, start);
  return good;
}

for (const [name, file] of Object.entries(FILES)) {
  Deno.test(`parseHeader of damaged headers refuses, or keeps its promises (${name})`, async () => {
    const random = new Random(name.charCodeAt(1));
    const header = utf8(headerText(file));
    const dataBytes = file.length - 8 - header.length;
    const tally = new Tally(`headers (${name})`);
    const runs = rounds(5000);
    for (let run = 0; run < runs; run++) {
      const bytes = damaged(header, random);
      const fileBytes = 8 + bytes.length + dataBytes;
      await accepted(bytes, () => parseHeader("m", bytes, fileBytes), (h) => checkHeader(h, fileBytes), tally);
    }
    tally.print();
    // Some mistakes change a name, or nothing that matters; most are seen.
    assert(tally.accepted > 20 && tally.accepted < runs / 2, `${tally.accepted} of ${runs} are accepted`);
  });

  Deno.test(`parseHeader of every header cut short refuses (${name})`, async () => {
    const header = utf8(headerText(file));
    for (let length = 0; length < header.length; length++) {
      const cut = header.subarray(0, length);
      assertEquals(await accepted(cut, () => parseHeader("m", cut, file.length), () => {}), false);
    }
  });

  Deno.test(`openCheckpoint and verify of damaged files refuse, or read every byte (${name})`, () =>
    inTemporary(async (directory) => {
      const random = new Random(name.charCodeAt(1) + 1000);
      const path = `${directory}/m`;
      const tally = new Tally(`files that verify reads (${name})`);
      for (let run = 0; run < rounds(500); run++) {
        const start = performance.now();
        const bytes = damaged(file, random);
        Deno.writeFileSync(path, bytes);
        const checkpoint = { value: undefined as ReturnType<typeof openCheckpoint> | undefined };
        const opened = await accepted(bytes, () => openCheckpoint(path), (result) => {
          assertEquals(result.files.map(({ path, bytes }) => ({ path, bytes })), [{ path, bytes: bytes.length }]);
          checkpoint.value = result;
        });
        if (!opened) {
          tally.add(false, start);
          continue;
        }
        const blocks = checkpoint.value!.tensors.filter(({ dtype }) => dtype.startsWith("Q"));
        const sound = await accepted(bytes, () => verify(checkpoint.value!, { threads: 1 }), (result) => {
          const count = blocks.reduce((sum, { dtype, bytes }) => sum + bytes * 8 / BITS[dtype], 0);
          assertEquals(result.blocks, count);
        });
        tally.add(sound, start);
      }
      tally.print();
      assert(tally.accepted > 0, "no damage was harmless");
    }));

  Deno.test(`openCheckpoint of every file cut short, and of every length in its header, refuses (${name})`, () =>
    inTemporary(async (directory) => {
      const path = `${directory}/m`;
      for (let length = 0; length < file.length; length++) {
        Deno.writeFileSync(path, file.subarray(0, length));
        assertEquals(await accepted(file.subarray(0, length), () => openCheckpoint(path), () => {}), false);
      }
      const right = file[0] + 256 * file[1];
      for (let n = 0; n < 500; n++) {
        if (n === right) continue;
        const bytes = file.slice();
        bytes.set([n & 255, n >> 8]);
        Deno.writeFileSync(path, bytes);
        assertEquals(await accepted(bytes, () => openCheckpoint(path), () => {}), false, String(n));
      }
    }));
}

Deno.test("openCheckpoint of damaged indexes refuses, or reads the shards in the directory and no others", () =>
  inTemporary(async (directory) => {
    const random = new Random(77);
    write(directory, { "outside.safetensors": safetensors([VECTOR]) });
    const inside = `${directory}/in`;
    writeShards(inside, {
      "a.safetensors": [VECTOR],
      "b.safetensors": [f32("x", [2], (n) => n), f32("y", [], () => 1)],
    });
    const path = `${inside}/model.safetensors.index.json`;
    const index = Deno.readFileSync(path);
    const climbing = utf8("../../../");
    const tally = new Tally("index.json");
    for (let run = 0; run < rounds(2000); run++) {
      let bytes = damaged(index, random);
      if (random.below(4) === 0) {
        const at = random.below(bytes.length);
        bytes = concat(bytes.subarray(0, at), climbing, bytes.subarray(at));
      }
      Deno.writeFileSync(path, bytes);
      await accepted(bytes, () => openCheckpoint(inside), ({ files, tensors }) => {
        assertEquals(files.map((file) => file.path), ["a", "b"].map((name) => `${inside}/${name}.safetensors`));
        assertEquals(tensors.map(({ name }) => name), ["norm", "x", "y"]);
      }, tally);
    }
    tally.print();
    assert(tally.accepted > 0, "no damage was harmless");
  }));

/** Numbers that counts, lengths, offsets and types are replaced by. */
const COUNTS = [0n, 1n, 2n, 3n, 8n, 9n, 31n, 255n, 256n, 1000n, 65535n, 65536n, 65537n, 20_000_000n, 2n ** 31n - 1n]
  .concat([2n ** 31n, 2n ** 32n - 1n, 2n ** 32n, 2n ** 53n - 1n, 2n ** 53n, 2n ** 63n - 1n, 2n ** 63n, 2n ** 64n - 1n]);

/** A GGUF file with mistakes in what stands before the data, where most of its counts are, or anywhere. */
function damagedGguf(file: Uint8Array, start: number, random: Random): Uint8Array<ArrayBuffer> {
  const end = random.below(8) === 0 ? file.length : start;
  if (random.below(2) === 0) return concat(damaged(file.subarray(0, end), random), file.subarray(end));
  const out = file.slice();
  const view = new DataView(out.buffer);
  for (let count = 1 + random.below(3); count > 0; count--) {
    // The first numbers count keys and tensors; the number of layers is among the first keys.
    const at = random.below(4) === 0 ? random.below(400) : random.below(end - 8);
    if (random.below(2) === 0) view.setBigUint64(at, random.pick(COUNTS), true);
    else view.setUint32(at, Number(random.pick(COUNTS) & 0xffffffffn), true);
  }
  return out;
}

const GGUF_FILES = ["mixed", "types"].map((name) => {
  const file = Deno.readFileSync(`${ROOT}fixtures/gguf/${name}.gguf`);
  return { file, start: parseGguf(byteSource(file)).tensors[0].offset };
});

Deno.test("parseGguf of damaged files refuses, or gives tensors that lie in the file", async () => {
  const random = new Random(123);
  const tally = new Tally("GGUF files, parsed");
  for (let run = 0; run < rounds(4000); run++) {
    const { file, start } = random.pick(GGUF_FILES);
    const bytes = damagedGguf(file, start, random);
    await accepted(bytes, () => parseGguf(byteSource(bytes)), ({ tensors }) => {
      let end = 0;
      for (const { name, type, shape, offset, bytes: size } of tensors) {
        assert(offset >= end && offset + size <= bytes.length, name);
        assertEquals(shape.reduce((a, b) => a * b, 1) / type.blockWeights * type.blockBytes, size);
        end = offset + size;
      }
    }, tally);
  }
  tally.print();
  assert(tally.accepted > 100, `only ${tally.accepted} were read at all`);
});

Deno.test("import of damaged files refuses, or writes a checkpoint that opens", () =>
  inTemporary(async (directory) => {
    const random = new Random(321);
    const [{ file, start }] = GGUF_FILES;
    const path = `${directory}/m.gguf`;
    const out = `${directory}/out`;
    const tally = new Tally("GGUF files, imported to the end");
    for (let run = 0; run < rounds(400); run++) {
      const bytes = damagedGguf(file, start, random);
      Deno.writeFileSync(path, bytes);
      const dtype = random.pick([undefined, ...DTYPES]);
      await accepted(bytes, async () => {
        const plan = planImport(path, dtype);
        await importGguf(plan, out, { force: false });
        return plan;
      }, async (plan) => {
        const checkpoint = openCheckpoint(out);
        const { layers, vocabulary } = parseConfig("config.json", Deno.readTextFileSync(`${out}/config.json`));
        assertEquals([checkpoint.files[0].bytes, checkpoint.tensors.length], [plan.bytes, plan.tensors.length]);
        assertEquals(layers, 1);
        assertEquals(checkpoint.tensors.find(({ name }) => name === "model.embed_tokens.weight")!.shape[0], vocabulary);
        await verify(checkpoint, { threads: 1 });
      }, tally);
      if (exists(out)) Deno.removeSync(out, { recursive: true });
    }
    tally.print();
    assert(tally.accepted > 20, `only ${tally.accepted} were imported`);
  }));

Deno.test("readVocabulary of damaged vocabulary files refuses, or gives tokens and merges that GGUF holds", () =>
  inTemporary(async (directory) => {
    const random = new Random(99);
    const words = [..."abcdefgh\u0120\u00e9", "ab", "abc", "\u0120a", "<|end|>"];
    const files: Record<string, Uint8Array<ArrayBuffer>> = {
      "vocab.json": utf8(JSON.stringify(Object.fromEntries(words.map((word, id) => [word, id])))),
      "merges.txt": utf8("#version: 0.2\na b\nab c\n\u0120 a\n"),
      "tokenizer_config.json": utf8('{"bos_token":{"content":"<|end|>"},"eos_token":"<|end|>","add_bos_token":true}'),
      "tokenizer.json": utf8(tokenizerJson(words, [13])),
    };
    const tally = new Tally("vocabulary files");
    write(directory, files);
    for (let run = 0; run < rounds(600); run++) {
      // tokenizer.json counts alone, and the first two files where it is missing.
      const which = random.pick(Object.keys(files));
      const bytes = damaged(files[which], random);
      if (which.length < 11) Deno.removeSync(`${directory}/tokenizer.json`);
      write(directory, { [which]: bytes });
      await accepted(bytes, () => readVocabulary(directory, 14, { eos_token_id: 13 }), (vocabulary) => {
        assertEquals(vocabulary!.tokens.length, 14);
        const { metadata } = parseGguf(byteSource(serializeGguf(new Map(vocabularyMetadata(vocabulary)), [])));
        assertEquals(metadata.get("tokenizer.ggml.tokens"), { type: "string", values: vocabulary!.tokens });
        assertEquals(metadata.get("tokenizer.ggml.merges"), { type: "string", values: vocabulary!.merges });
        assert(vocabulary!.merges.every((merge) => /^[^ ]+ [^ ]+$/.test(merge)));
      }, tally);
      write(directory, { [which]: files[which], "tokenizer.json": files["tokenizer.json"] });
    }
    tally.print();
    assert(tally.accepted > 100, `only ${tally.accepted} were read at all`);
  }));
