import { assert, assertEquals, assertInstanceOf, assertMatch, assertRejects } from "@std/assert";
import { CHUNK_BYTES } from "../../../lib/quantize/chunks.ts";
import { CheckpointError, Refusal, SystemError } from "../../../lib/errors.ts";
import { type BlockFormat, Q4B32, Q8B32, WIDTHS } from "../../../lib/format/blocks.ts";
import { openCheckpoint } from "../../../lib/format/checkpoint.ts";
import { planQuantize, quantize } from "../../../lib/quantize/quantize.ts";
import { blockBytes, DECLARED, exactBytes, known, type KnownBlock, knownBlocks } from "../../support/blocks.ts";
import { concat, utf8 } from "../../support/bytes.ts";
import { inTemporary, sha256, tree, write } from "../../support/files.ts";
import { fixture, TINY, WEIGHTS } from "../../support/fixtures.ts";
import { assertRefused } from "../../support/refusals.ts";
import {
  container,
  type Entry,
  f32,
  headerText,
  quantizedFile,
  safetensors,
  writeShards,
} from "../../support/safetensors.ts";

const blocks = knownBlocks();

/** The known blocks that are exact in `dtype` and that both widths hold. */
function soundBlocks(dtype: string): KnownBlock[] {
  return blocks.filter(({ weights, q4, q8 }) => !q4.refused && !q8.refused && exactBytes(dtype, weights));
}

/** A matrix of known blocks, and what `bits` must make of it. */
function matrix(name: string, dtype: string, of: KnownBlock[], columns: number, bits: number) {
  const shape = [of.length * 32 / columns, columns];
  const source: Entry = { name, dtype, shape, bytes: concat(...of.map(({ weights }) => exactBytes(dtype, weights)!)) };
  const bytes = concat(...of.map((block) => blockBytes(known(block, bits))));
  return { source, target: { name, dtype: `Q${bits}B32`, shape, bytes } };
}

/** Quantizes `source` to `out`; the bytes of the new file. */
async function run(source: string, out: string, format: BlockFormat, threads = 1): Promise<Uint8Array> {
  const plan = planQuantize(openCheckpoint(source), format);
  const { model, digest } = await quantize(plan, out, { threads, force: false });
  const bytes = Deno.readFileSync(model);
  assertEquals(model, `${out}/${WEIGHTS}`);
  assertEquals(digest, await sha256(model));
  assertEquals(bytes.length, plan.bytes);
  return bytes;
}

/** Compares files; says where they differ instead of printing them. */
function assertSameFile(actual: Uint8Array, expected: Uint8Array): void {
  assertEquals(headerText(actual), headerText(expected));
  const at = actual.findIndex((byte, n) => byte !== expected[n]);
  assertEquals([actual.length, at], [expected.length, -1]);
}

for (const bits of [4, 8] as const) {
  const format = bits === 4 ? Q4B32 : Q8B32;

  for (const threads of [1, 2, 3]) {
    Deno.test(`quantize gives the known file of the tiny model at ${bits} bits, with ${threads} threads`, () =>
      inTemporary(async (directory) => {
        const expected = fixture<Record<string, { bytes: number; sha256: string }>>("tiny/expected.json");
        assertEquals(await sha256(`${TINY}/${WEIGHTS}`), expected.float.sha256);
        const bytes = await run(TINY, `${directory}/out`, format, threads);
        assertEquals(bytes.length, expected[`q${bits}`].bytes);
        assertEquals(await sha256(`${directory}/out/${WEIGHTS}`), expected[`q${bits}`].sha256);
      }));
  }

  for (const dtype of ["F64", "F32", "F16", "BF16"]) {
    Deno.test(`quantize of ${dtype} to ${format.name} gives the known blocks`, () =>
      inTemporary(async (directory) => {
        const of = soundBlocks(dtype);
        const even = of.slice(0, of.length - of.length % 2);
        const one = matrix("one", dtype, of, 32, bits);
        const two = matrix("two", dtype, even.toReversed(), 64, bits);
        write(directory, { [WEIGHTS]: safetensors([one.source, two.source]) });
        const bytes = await run(directory, `${directory}/out`, format);
        assertSameFile(bytes, quantizedFile(bits, [one.target, two.target]));
      }));
  }

  Deno.test(`quantize to ${format.name} keeps tensors of 0, 1, 3 and 4 dimensions byte for byte, of any dtype`, () =>
    inTemporary(async (directory) => {
      const kept: Entry[] = [
        { name: "scalar", dtype: "F32", shape: [], bytes: Uint8Array.from([1, 2, 3, 0xff]) },
        { name: "vector", dtype: "BF16", shape: [3], bytes: Uint8Array.from([0x80, 0x7f, 0xc0, 0xff, 1, 0]) }, // inf, NaN
        { name: "wide", dtype: "F16", shape: [64], bytes: new Uint8Array(128).fill(0x7c) },
        { name: "three", dtype: "F32", shape: [1, 2, 1], bytes: Uint8Array.from([0, 1, 2, 3, 4, 5, 6, 7]) },
        { name: "four", dtype: "I8", shape: [1, 1, 1, 3], bytes: Uint8Array.from([9, 8, 7]) },
        { name: "f8", dtype: "F8_E4M3", shape: [2], bytes: Uint8Array.from([0x7f, 0xff]) },
        { name: "f4", dtype: "F4", shape: [2], bytes: Uint8Array.from([0x12]) },
        { name: "flags", dtype: "BOOL", shape: [2], bytes: Uint8Array.from([0, 1]) },
      ];
      const { source, target } = matrix("m", "F32", soundBlocks("F32").slice(0, 4), 64, bits);
      write(directory, { [WEIGHTS]: safetensors([...kept.slice(0, 3), source, ...kept.slice(3)], { format: "pt" }) });
      const plan = planQuantize(openCheckpoint(directory), format);
      assertEquals([plan.tensors.length, plan.quantized], [9, 1]);
      const bytes = await run(directory, `${directory}/out`, format);
      assertSameFile(bytes, quantizedFile(bits, [...kept.slice(0, 3), target, ...kept.slice(3)]));
    }));

  Deno.test(`quantize to ${format.name} takes the order of the data, not that of the header`, () =>
    inTemporary(async (directory) => {
      const { source, target } = matrix("m", "F32", soundBlocks("F32").slice(0, 2), 64, bits);
      const header = `{"last":{"dtype":"U8","shape":[2],"data_offsets":[257,259]},` +
        `"__metadata__":{"format":"pt"},` +
        `"m":{"shape":[1,64],"data_offsets":[1,257],"dtype":"F32"},` +
        `"empty":{"dtype":"F32","shape":[0],"data_offsets":[257,257]},` +
        `"first":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`;
      const bytes = [Uint8Array.from([1]), source.bytes, Uint8Array.from([2, 3])];
      write(directory, { [WEIGHTS]: container(header, ...bytes) });
      assertSameFile(
        await run(directory, `${directory}/out`, format),
        quantizedFile(bits, [
          { name: "first", dtype: "U8", shape: [1], bytes: bytes[0] },
          target,
          { name: "last", dtype: "U8", shape: [2], bytes: bytes[2] },
          { name: "empty", dtype: "F32", shape: [0], bytes: new Uint8Array() },
        ]),
      );
    }));

  Deno.test(`quantize to ${format.name} reads shards in the order of their names`, () =>
    inTemporary(async (directory) => {
      const of = soundBlocks("BF16");
      const a = matrix("a", "BF16", of.slice(0, 3), 32, bits);
      const b = matrix("b", "BF16", of.slice(3, 7), 64, bits);
      const c = f32("c", [5], (n) => n);
      writeShards(directory, { "model-2.safetensors": [a.source], "model-1.safetensors": [b.source, c] });
      for (const threads of [1, 3]) {
        const bytes = await run(directory, `${directory}/out${threads}`, format, threads);
        assertSameFile(bytes, quantizedFile(bits, [b.target, c, a.target]));
      }
      const plan = planQuantize(openCheckpoint(directory), format);
      const sizes = [1, 2].map((n) => Deno.statSync(`${directory}/model-${n}.safetensors`).size);
      assertEquals(plan.sourceBytes, sizes[0] + sizes[1]);
    }));

  Deno.test(`quantize to ${format.name} takes empty tensors of every kind, and a file of nothing else`, () =>
    inTemporary(async (directory) => {
      const empty = (name: string, shape: number[], dtype: string) => ({ name, shape, dtype, bytes: new Uint8Array() });
      const shapes = [[0, 32], [5, 0], [0, 0]];
      const vector = empty("v", [0], "I64");
      write(directory, {
        [WEIGHTS]: safetensors([vector, ...shapes.map((shape) => empty(`m${shape}`, shape, "BF16"))]),
      });
      const expected = [vector, ...shapes.map((shape) => empty(`m${shape}`, shape, format.name))];
      for (const threads of [1, 2]) {
        const bytes = await run(directory, `${directory}/out${threads}`, format, threads);
        assertSameFile(bytes, quantizedFile(bits, expected));
      }
      write(`${directory}/nothing`, { [WEIGHTS]: container("{}") });
      assertSameFile(await run(`${directory}/nothing`, `${directory}/none`, format), quantizedFile(bits, []));
    }));

  Deno.test(`quantize to ${format.name} gives the same bytes at 1, 2 and 3 threads for tensors of several chunks`, () =>
    inTemporary(async (directory) => {
      // A matrix of a little more than three chunks between kept tensors, one of which is two chunks and one byte.
      const of = soundBlocks("F32").filter((_, n) => n < 52);
      const rows = Math.ceil(3.1 * CHUNK_BYTES / (of.length * 128));
      const large = matrix("large", "F32", of, of.length * 32, bits);
      const repeat = ({ name, dtype, bytes }: Entry): Entry => {
        const all = new Uint8Array(rows * bytes.length);
        for (let row = 0; row < rows; row++) all.set(bytes, row * bytes.length);
        return { name, dtype, shape: [rows, of.length * 32], bytes: all };
      };
      const kept = Uint8Array.from({ length: 2 * CHUNK_BYTES + 1 }, (_, n) => n % 251);
      const before: Entry = { name: "before", dtype: "U8", shape: [kept.length], bytes: kept };
      const after = f32("after", [3], (n) => n);
      write(directory, { [WEIGHTS]: safetensors([before, repeat(large.source), after]) });
      const expected = quantizedFile(bits, [before, repeat(large.target), after]);
      const done: number[] = [];
      for (const threads of [1, 2, 3]) {
        assertSameFile(await run(directory, `${directory}/out${threads}`, format, threads), expected);
      }
      const plan = planQuantize(openCheckpoint(directory), format);
      await quantize(plan, `${directory}/again`, { threads: 2, force: false, progress: (n) => void done.push(n) });
      assert(done.length > 6 && done.every((n, at) => at === 0 || n > done[at - 1]), String(done));
      assertEquals(done.at(-1), kept.length + rows * of.length * 128 + 12);
    }));
}

/** A source of fixtures/quantize.json, its files in base64, and what fixtures/quantize.py makes of it. */
type KnownSource =
  & { files: Record<string, string> }
  & Record<"q4" | "q8", { bytes: number; sha256: string } | { refused: string }>;

Deno.test("quantize gives the files of the implementation in Python, and refuses the same tensors", () =>
  inTemporary(async (directory) => {
    const counts = { same: 0, refused: 0 };
    for (const [n, source] of fixture<KnownSource[]>("quantize.json").entries()) {
      const from = `${directory}/${n}`;
      const files = Object.entries(source.files).map(([name, base64]) => [name, Uint8Array.fromBase64(base64)]);
      write(from, Object.fromEntries(files));
      for (const [key, format] of [["q4", Q4B32], ["q8", Q8B32]] as const) {
        const known = source[key];
        if ("refused" in known) {
          const error = await assertRejects(
            () => run(from, `${from}-${key}`, format),
            CheckpointError,
            undefined,
            `${n}`,
          );
          assertEquals([error.place.tensor, error.message.includes("\n")], [known.refused, false]);
          counts.refused++;
          continue;
        }
        const bytes = await run(from, `${from}-${key}`, format);
        assertEquals([n, bytes.length, await sha256(`${from}-${key}/${WEIGHTS}`)], [n, known.bytes, known.sha256]);
        counts.same++;
      }
    }
    assertEquals(counts, { same: 56, refused: 24 });
  }));

Deno.test("planQuantize gives the sizes of the real model from its shapes alone", () =>
  inTemporary((directory) => {
    const real = fixture<
      { files: Record<string, { bytes: number; tensors: number; quantized: number }> }
    >("real.json").files;
    // SmolLM2-135M: 30 layers, hidden 576, intermediate 1536, 3 of 9 heads for keys and values, tied embeddings.
    const layers = Array.from({ length: 30 }, (_, n) => `model.layers.${n}.`).sort();
    const shapes: [string, number[]][] = [
      ["model.embed_tokens.weight", [49152, 576]],
      ...layers.flatMap((layer): [string, number[]][] => [
        [`${layer}input_layernorm.weight`, [576]],
        [`${layer}mlp.down_proj.weight`, [576, 1536]],
        [`${layer}mlp.gate_proj.weight`, [1536, 576]],
        [`${layer}mlp.up_proj.weight`, [1536, 576]],
        [`${layer}post_attention_layernorm.weight`, [576]],
        [`${layer}self_attn.k_proj.weight`, [192, 576]],
        [`${layer}self_attn.o_proj.weight`, [576, 576]],
        [`${layer}self_attn.q_proj.weight`, [576, 576]],
        [`${layer}self_attn.v_proj.weight`, [192, 576]],
      ]),
      ["model.norm.weight", [576]],
    ];
    let at = 0;
    const header: Record<string, unknown> = { __metadata__: { format: "pt" } };
    for (const [name, shape] of shapes) {
      header[name] = { dtype: "BF16", shape, data_offsets: [at, at += 2 * shape.reduce((a, b) => a * b)] };
    }
    const text = JSON.stringify(header);
    write(directory, { [WEIGHTS]: container(text.padEnd(Math.ceil(text.length / 8) * 8)) });
    Deno.truncateSync(`${directory}/${WEIGHTS}`, real.float.bytes); // a hole: nothing of the data is on the disk
    for (const format of WIDTHS) {
      const plan = planQuantize(openCheckpoint(directory), format);
      const { bytes, tensors, quantized } = real[`q${format.bits}`];
      assertEquals([plan.bytes, plan.tensors.length, plan.quantized], [bytes, tensors, quantized]);
      assertEquals(plan.sourceBytes, real.float.bytes);
    }
  }));

// Refusals

function refusedPlan(entries: Entry[], message: string, metadata?: Record<string, string>): Promise<void> {
  return inTemporary((directory) => {
    write(directory, { [WEIGHTS]: safetensors(entries, metadata) });
    for (const format of WIDTHS) {
      assertRefused(
        () => planQuantize(openCheckpoint(directory), format),
        `${directory}/${WEIGHTS}: ${message}`,
      );
    }
  });
}

/** Quantizes `entry` at `bits` with one and two threads; must be refused, and leave the directory as it was. */
function refusedBlock(entry: Entry, bits: number, message: string): Promise<void> {
  return inTemporary(async (directory) => {
    const good = f32("before", [64, 32], (n) => n);
    write(`${directory}/in`, { [WEIGHTS]: safetensors([good, entry, { ...good, name: "after" }]) });
    const before = tree(directory);
    const format = bits === 4 ? Q4B32 : Q8B32;
    const plan = planQuantize(openCheckpoint(`${directory}/in`), format);
    for (const threads of [1, 2]) {
      const error = await assertRejects(
        () => quantize(plan, `${directory}/new/out`, { threads, force: false }),
        CheckpointError,
      );
      assertEquals(error.message, `${directory}/in/${WEIGHTS}: tensor "t": ${message}`);
      assertEquals(tree(directory), before);
    }
  });
}

Deno.test("planQuantize refuses matrices of other dtypes by name, each with what to do", async () => {
  for (const dtype of ["I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2"]) {
    await refusedPlan(
      [f32("n", [2], () => 1), { name: "t", dtype, shape: [1, 32], bytes: new Uint8Array(32) }],
      `tensor "t": dtype: ${dtype} is not a float format that can be quantized (F64, F32, F16, BF16); ` +
        "convert the checkpoint to BF16 first",
    );
  }
  await refusedPlan(
    [{ name: "t", dtype: "I32", shape: [0, 7], bytes: new Uint8Array(0) }],
    'tensor "t": dtype: I32 is not a float format that can be quantized (F64, F32, F16, BF16); ' +
      "convert the checkpoint to BF16 first",
  );
});

Deno.test("planQuantize refuses columns that are not a multiple of 32, of an empty matrix too", async () => {
  for (const [rows, columns] of [[1, 1], [32, 31], [32, 33], [64, 40], [0, 16]]) {
    await refusedPlan(
      [f32("t", [rows, columns], () => 1)],
      `tensor "t": shape: [${rows},${columns}]: ${columns} columns are not a multiple of 32; ` +
        "the format has no partial block",
    );
  }
});

Deno.test("planQuantize refuses a file that is quantized already", async () => {
  for (const bits of [4, 8] as const) {
    await refusedPlan(
      [f32("n", [2], () => 1)],
      `__metadata__ "format": already quantized to Q${bits}B32; give the float checkpoint that it was made from`,
      DECLARED[bits],
    );
  }
});

Deno.test("quantize refuses a weight that is not finite, naming tensor, row, column, block and value", async () => {
  for (const [value, text] of [[NaN, "NaN"], [Infinity, "Infinity"], [-Infinity, "-Infinity"]] as const) {
    for (const bits of [4, 8]) {
      const entry = f32("t", [4, 96], (n) => n === 2 * 96 + 70 || n === 3 * 96 ? value : n % 7);
      await refusedBlock(
        entry,
        bits,
        `row 2 column 70 (block 2): weight is ${text}; only finite weights can be quantized`,
      );
    }
  }
  const half: Entry = { name: "t", dtype: "F16", shape: [2, 32], bytes: new Uint8Array(128) };
  half.bytes[64 + 63] = 0xfc;
  await refusedBlock(half, 8, "row 1 column 31 (block 0): weight is -Infinity; only finite weights can be quantized");
  const brain: Entry = { name: "t", dtype: "BF16", shape: [2, 32], bytes: new Uint8Array(128) };
  brain.bytes.set([0xc0, 0x7f]);
  await refusedBlock(brain, 4, "row 0 column 0 (block 0): weight is NaN; only finite weights can be quantized");
});

Deno.test("quantize says where the first float is that is not finite in a tensor that it keeps", async () => {
  const cases: [Entry, number[], string][] = [
    [{ name: "t", dtype: "BF16", shape: [3], bytes: new Uint8Array(6) }, [4, 0xc0, 0x7f], "row 0 column 2"],
    [{ name: "t", dtype: "F32", shape: [], bytes: new Uint8Array(4) }, [2, 0x80, 0xff], "row 0 column 0"],
    [{ name: "t", dtype: "F16", shape: [2, 1, 3], bytes: new Uint8Array(12) }, [8, 1, 0x7c], "row 1 column 1"],
    [{ name: "t", dtype: "F64", shape: [2], bytes: new Uint8Array(16) }, [14, 0xf0, 0x7f], "row 0 column 1"],
    // In the second chunk of the tensor.
    [
      { name: "t", dtype: "BF16", shape: [CHUNK_BYTES], bytes: new Uint8Array(2 * CHUNK_BYTES) },
      [CHUNK_BYTES + 2, 0x80, 0x7f],
      `row 0 column ${CHUNK_BYTES / 2 + 1}`,
    ],
  ];
  for (const [entry, [at, ...bytes], place] of cases) {
    entry.bytes.set(bytes, at);
    await inTemporary(async (directory) => {
      const later = { ...entry, name: "u" };
      write(directory, { [WEIGHTS]: safetensors([f32("ok", [3], (n) => n), entry, later]) });
      for (const threads of [1, 2]) {
        const { damage } = await quantize(directory, `${directory}/out`, { threads, force: true });
        const end = "the weight is not finite; the file is damaged, make or download it again";
        assertEquals(damage, `${directory}/${WEIGHTS}: tensor "t": ${place}: ${end}`);
      }
    });
  }
});

Deno.test("quantize refuses an F64 weight that binary32 does not hold, with the value that is in the file", async () => {
  const values = new Float64Array(64);
  values[33] = -1e39;
  const entry = { name: "t", dtype: "F64", shape: [1, 64], bytes: new Uint8Array(values.buffer) };
  const message = "row 0 column 33 (block 1): -1e+39 overflows binary32; only finite weights can be quantized";
  await refusedBlock(entry, 4, message);
  values[33] = NaN;
  const nan = "row 0 column 33 (block 1): weight is NaN; only finite weights can be quantized";
  await refusedBlock(entry, 8, nan);
});

Deno.test("quantize refuses a scale that overflows binary16, naming tensor, row and block", async () => {
  const message = (row: number, block: number, scale: number, bits: number) =>
    `row ${row} block ${block}: the scale ${scale} overflows binary16 (65504); the weights are too large for Q${bits}B32`;
  // The smallest peaks whose scale rounds to infinity: 65520 times the largest level.
  await refusedBlock(f32("t", [3, 64], (n) => n === 2 * 64 + 40 ? 458640 : 0), 4, message(2, 1, 65520, 4));
  await refusedBlock(f32("t", [3, 64], (n) => n === 0 ? -8321040 : 0), 8, message(0, 0, 65520, 8));
});

Deno.test("quantize names the first bad block of a tensor, in whichever chunk it is", () =>
  inTemporary(async (directory) => {
    const rows = 3 * CHUNK_BYTES / 256; // three chunks of F32 rows of 64
    const bad = new Set([CHUNK_BYTES / 256 + 5, rows - 1].map((row) => row * 64 + 63));
    write(directory, { [WEIGHTS]: safetensors([f32("t", [rows, 64], (n) => bad.has(n) ? NaN : n % 5)]) });
    const plan = planQuantize(openCheckpoint(directory), Q4B32);
    for (const threads of [1, 2, 3]) {
      const error = await assertRejects(
        () => quantize(plan, `${directory}/out`, { threads, force: false }),
        CheckpointError,
      );
      assertEquals(
        error.message,
        `${directory}/${WEIGHTS}: tensor "t": row ${CHUNK_BYTES / 256 + 5} column 63 (block 1): ` +
          "weight is NaN; only finite weights can be quantized",
      );
    }
    assertEquals(tree(directory), [WEIGHTS]);
  }));

Deno.test("quantize without force leaves what is there; with force it replaces it when the new one is whole", () =>
  inTemporary(async (directory) => {
    const out = `${directory}/out`;
    write(`${directory}/good`, { [WEIGHTS]: safetensors([f32("t", [1, 32], (n) => n)]) });
    write(`${directory}/bad`, { [WEIGHTS]: safetensors([f32("t", [1, 32], () => NaN)]) });
    write(out, { [WEIGHTS]: "old" });
    const good = planQuantize(openCheckpoint(`${directory}/good`), Q4B32);
    const bad = planQuantize(openCheckpoint(`${directory}/bad`), Q4B32);
    const options = { threads: 1, force: true };
    await assertRejects(() => quantize(good, out, { ...options, force: false }), Refusal);
    assertEquals(Deno.readTextFileSync(`${out}/${WEIGHTS}`), "old");
    await assertRejects(() => quantize(bad, out, options), CheckpointError);
    assertEquals(Deno.readTextFileSync(`${out}/${WEIGHTS}`), "old");
    await quantize(good, out, options);
    assertEquals(openCheckpoint(out).width?.bits, 4);
    assertEquals(tree(out), [WEIGHTS]);
  }));

Deno.test("quantize refuses the directory of its source", () =>
  inTemporary(async (directory) => {
    write(directory, { [WEIGHTS]: safetensors([f32("t", [1, 32], (n) => n)]) });
    const before = await sha256(`${directory}/${WEIGHTS}`);
    const plan = planQuantize(openCheckpoint(directory), Q4B32);
    await assertRejects(() => quantize(plan, `${directory}/.`, { threads: 1, force: true }), Refusal);
    assertEquals([tree(directory), await sha256(`${directory}/${WEIGHTS}`)], [[WEIGHTS], before]);
  }));

Deno.test("quantize copies the files that a user needs, and says which of the needed ones are missing", () =>
  inTemporary(async (directory) => {
    const copied = {
      "config.json": "{}",
      "vocab.json": '{"a":0}',
      "tokenizer.json": "[]",
      "tokenizer_config.json": "1",
      "special_tokens_map.json": "2",
      "added_tokens.json": "{}",
      "generation_config.json": "3",
      "tokenizer.model": Uint8Array.from([0, 0xff]),
    };
    write(`${directory}/in`, { ...copied, [WEIGHTS]: safetensors([]), "README.md": "", "other.json": "" });
    const plan = planQuantize(openCheckpoint(`${directory}/in`), Q8B32);
    write(`${directory}/in/additional_chat_templates`, { "default.jinja": "" });
    const { missing, left } = await quantize(plan, `${directory}/out`, { threads: 1, force: false });
    assertEquals([missing, left], [["merges.txt"], ["additional_chat_templates"]]);
    assertEquals(tree(`${directory}/out`), [...Object.keys(copied), WEIGHTS].sort());
    for (const [name, content] of Object.entries(copied)) {
      const bytes = typeof content === "string" ? utf8(content) : content;
      assertEquals(Deno.readFileSync(`${directory}/out/${name}`), bytes, name);
    }
  }));

Deno.test("quantize refuses a sidecar that is no regular file, a link out of the directory, or beyond the limit", () =>
  inTemporary(async (directory) => {
    const make: Record<string, (path: string) => void> = {
      "not a regular file": (path) => {
        assert(new Deno.Command("mkfifo", { args: [path] }).outputSync().success);
      },
      'is a link out of the checkpoint\'s directory, to "/dev/zero"': (path) => Deno.symlinkSync("/dev/zero", path),
      "is a link out of the checkpoint's directory, to ": (path) => Deno.symlinkSync("/proc/self/environ", path),
      'it is a link to "gone", which does not exist': (path) => Deno.symlinkSync("gone", path),
      "more than 200000000 bytes, the limit": (path) => {
        Deno.writeTextFileSync(path, "");
        Deno.truncateSync(path, 200_000_001);
      },
    };
    write(`${directory}/in`, { [WEIGHTS]: safetensors([f32("t", [1, 32], (n) => n)]), "config.json": "{}" });
    const plan = planQuantize(openCheckpoint(`${directory}/in`), Q4B32);
    for (const [problem, put] of Object.entries(make)) {
      for (const name of ["tokenizer.model", "chat_template.jinja", "chat_template.json"]) {
        put(`${directory}/in/${name}`);
        const before = tree(directory);
        const error = await assertRejects(() => quantize(plan, `${directory}/out`, { threads: 1, force: false }));
        assert(error instanceof CheckpointError || error instanceof SystemError, String(error));
        assert(error.message.includes(`${directory}/in/${name}: ${problem}`), error.message);
        assertEquals(tree(directory), before);
        Deno.removeSync(`${directory}/in/${name}`);
      }
    }
  }));

Deno.test("quantize leaves no file of another model beside its own, and replaces none without force", () =>
  inTemporary(async (directory) => {
    const out = `${directory}/out`;
    const weights = safetensors([f32("t", [1, 32], (n) => n)]);
    write(`${directory}/in`, { [WEIGHTS]: weights, "config.json": "{}" });
    const plan = planQuantize(openCheckpoint(`${directory}/in`), Q4B32);
    for (
      const [name, force] of [["config.json", false], ["tokenizer.json", false], ["tokenizer.json", true]] as const
    ) {
      write(out, { [name]: "theirs" });
      await assertRejects(() => quantize(plan, out, { threads: 1, force }), Refusal, name);
      assertEquals([tree(out), Deno.readTextFileSync(`${out}/${name}`)], [[name], "theirs"]);
      Deno.removeSync(`${out}/${name}`);
    }
  }));

Deno.test("two calls of quantize for one directory: one ends well, and its file is there; the other fails", () =>
  inTemporary(async (directory) => {
    const rows = 2 * CHUNK_BYTES / 128;
    for (const n of [1, 2, 3]) {
      write(`${directory}/${n}`, {
        [WEIGHTS]: safetensors([f32("t", [rows, 32], (k) => k % (7 * n))]),
        "config.json": `{"model": ${n}}`,
      });
    }
    const plans = [1, 2, 3].map((n) => planQuantize(openCheckpoint(`${directory}/${n}`), Q4B32));
    for (const threads of [1, 2]) {
      for (const out of ["new", "there"]) {
        if (out === "there") await quantize(plans[2], `${directory}/there`, { threads: 1, force: true });
        const runs = plans.slice(0, 2).map((plan) => quantize(plan, `${directory}/${out}`, { threads, force: true }));
        const results = await Promise.all(runs.map((run) => run.then(({ digest }) => digest, (error: Error) => error)));
        const good = results.findIndex((result) => typeof result === "string");
        const lost = results[1 - good];
        assertInstanceOf(lost, SystemError);
        assertMatch((lost as Error).message, /another process has written it in the meantime/);
        assertEquals(await sha256(`${directory}/${out}/${WEIGHTS}`), results[good]);
        assertEquals(Deno.readTextFileSync(`${directory}/${out}/config.json`), `{"model": ${good + 1}}`);
        assertEquals(tree(`${directory}/${out}`), ["config.json", WEIGHTS]);
      }
      Deno.removeSync(`${directory}/new`, { recursive: true });
    }
  }));

// Interrupted

Deno.test("quantize ends with the reason of its signal, and leaves nothing", () =>
  inTemporary(async (directory) => {
    const rows = 4 * CHUNK_BYTES / 128;
    write(`${directory}/in`, { [WEIGHTS]: safetensors([f32("t", [rows, 32], (n) => n % 9)]), "config.json": "{}" });
    write(`${directory}/there`, { [WEIGHTS]: "old" });
    const before = tree(directory);
    const plan = planQuantize(openCheckpoint(`${directory}/in`), Q4B32);
    for (const threads of [1, 2, 3]) {
      for (const out of ["new/deep", "there"]) {
        for (const when of ["before", "at the first chunk", "at the last chunk but one"]) {
          const controller = new AbortController();
          const reason = new Error("stop");
          let chunks = 0;
          const stop = when === "before" ? 0 : when === "at the first chunk" ? 1 : 3;
          if (stop === 0) controller.abort(reason);
          const error = await assertRejects(() =>
            quantize(plan, `${directory}/${out}`, {
              threads,
              force: true,
              signal: controller.signal,
              progress: () => ++chunks === stop && controller.abort(reason),
            })
          );
          assertEquals(error, reason);
          assertEquals(chunks, stop, when);
          assertEquals(tree(directory), before, when);
          assertEquals(Deno.readTextFileSync(`${directory}/there/${WEIGHTS}`), "old");
        }
      }
    }
  }));
