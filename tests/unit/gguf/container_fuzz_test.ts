// Damaged GGUF files and vocabularies: whatever the bytes, the readers refuse them or give what the bytes say.

import { assert, assertEquals } from "@std/assert";
import { exists } from "../../../lib/files/read.ts";
import { openCheckpoint, TensorReader } from "../../../lib/format/checkpoint.ts";
import { parseGguf, serializeGguf } from "../../../lib/gguf/container.ts";
import { DTYPES, importGguf, planImport } from "../../../lib/gguf/import.ts";
import { openAny } from "../../../lib/gguf/open.ts";
import { readVocabulary, vocabularyMetadata } from "../../../lib/gguf/vocabulary.ts";
import { parseConfig } from "../../../lib/model/config.ts";
import { verify } from "../../../lib/quantize/verify.ts";
import { concat, utf8 } from "../../support/bytes.ts";
import { inTemporary, write } from "../../support/files.ts";
import { ROOT } from "../../support/fixtures.ts";
import { accepted, damaged, rounds, Tally } from "../../support/fuzz.ts";
import { byteSource } from "../../support/gguf.ts";
import { Random } from "../../support/random.ts";
import { tokenizerJson } from "../../support/tokenizers.ts";

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

Deno.test("opening a damaged file as a checkpoint, and reading its tensors, refuses what an import refuses", () =>
  inTemporary(async (directory) => {
    const random = new Random(322);
    const [{ file, start }] = GGUF_FILES;
    const path = `${directory}/m.gguf`;
    const out = `${directory}/out`;
    const tally = new Tally("GGUF files, read as checkpoints to the end");
    /** What was wrong; undefined if nothing was. */
    const problem = async (work: () => unknown) => {
      try {
        await work();
        return undefined;
      } catch (error) {
        return (error as Error).message;
      }
    };
    for (let run = 0; run < rounds(200); run++) {
      const bytes = damagedGguf(file, start, random);
      Deno.writeFileSync(path, bytes);
      await accepted(bytes, () => {
        const checkpoint = openAny(path);
        using reader = new TensorReader(checkpoint);
        for (const { name, bytes } of checkpoint.tensors) reader.read(name, 0, new Uint8Array(bytes));
        return checkpoint;
      }, async () => {
        assertEquals(await problem(() => importGguf(path, out, { dtype: "f32" })), undefined);
      }, tally);
      if (!exists(out)) assert(await problem(() => importGguf(path, out, { dtype: "f32" })) !== undefined);
      if (exists(out)) Deno.removeSync(out, { recursive: true });
    }
    tally.print();
    assert(tally.accepted > 10, `only ${tally.accepted} were read`);
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
