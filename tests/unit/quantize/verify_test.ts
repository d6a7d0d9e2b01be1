import { assert, assertAlmostEquals, assertEquals, assertRejects } from "@std/assert";
import { CHUNK_BYTES } from "../../../lib/quantize/chunks.ts";
import { CheckpointError } from "../../../lib/errors.ts";
import { Q4B32, Q8B32 } from "../../../lib/format/blocks.ts";
import { openCheckpoint } from "../../../lib/format/checkpoint.ts";
import { planQuantize, quantize } from "../../../lib/quantize/quantize.ts";
import { type Against, type TensorReport, verify, verifyAgainst } from "../../../lib/quantize/verify.ts";
import { blockBytes, DECLARED, exactBytes, known, knownBlocks, valuesOf } from "../../support/blocks.ts";
import { concat } from "../../support/bytes.ts";
import { inTemporary, sha256, write } from "../../support/files.ts";
import { fixture, TINY, WEIGHTS } from "../../support/fixtures.ts";
import { type Entry, f32, quantizedFile, safetensors } from "../../support/safetensors.ts";

const WIDTHS = { 4: Q4B32, 8: Q8B32 } as const;
const SIZES = { 4: 18, 8: 34 } as const;

/** Sixteen known blocks that every format holds: a matrix of 4 x 128. */
const of = knownBlocks().filter(({ weights, q4, q8 }) => {
  return !q4.refused && !q8.refused && exactBytes("BF16", weights) && weights.some((w) => Math.abs(w) > 1e-3);
}).slice(0, 16);

/** What is kept: a vector, a scalar. */
const NORM: Entry = {
  name: "norm",
  dtype: "BF16",
  shape: [5],
  bytes: Uint8Array.from([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
};
const SCALAR: Entry = { name: "scalar", dtype: "F32", shape: [], bytes: Uint8Array.from([0, 0, 0x80, 0x3f]) };
/** The known blocks as a source. */
const SOURCE: Entry = {
  name: "w",
  dtype: "BF16",
  shape: [4, 128],
  bytes: concat(...of.map(({ weights }) => exactBytes("BF16", weights)!)),
};

/** The known blocks as quantize must store them. */
function stored(bits: 4 | 8): Entry {
  return {
    name: "w",
    dtype: `Q${bits}B32`,
    shape: [4, 128],
    bytes: concat(...of.map((block) => blockBytes(known(block, bits)))),
  };
}

/** Writes the source, and what a test makes of the tensors of the good file; verifies it against the source. */
async function against(
  directory: string,
  bits: 4 | 8,
  entries: Entry[],
  { threads = 1, source = [NORM, SOURCE, SCALAR] } = {},
): Promise<Against> {
  write(`${directory}/source`, { [WEIGHTS]: safetensors(source) });
  write(`${directory}/quant`, { [WEIGHTS]: quantizedFile(bits, entries) });
  const [checkpoint, float] = [`${directory}/quant`, `${directory}/source`].map(openCheckpoint);
  return await verifyAgainst(checkpoint, float, { threads });
}

function report(result: Against, name: string): TensorReport {
  const reports = result.tensors.filter((tensor) => tensor.name === name);
  assertEquals(reports.length, 1, name);
  return reports[0];
}

/** The reports without the error, and without fields that are undefined. */
function differences(result: Against): Record<string, unknown>[] {
  return result.tensors.filter(({ equal }) => !equal).map((tensor) => {
    const fields = Object.entries(tensor).filter(([key, value]) => {
      return value !== undefined && key !== "rms" && key !== "squares";
    });
    return Object.fromEntries(fields);
  });
}

/** `entry` with one byte changed. */
function changed(entry: Entry, at: number, mask: number): Entry {
  const bytes = entry.bytes.slice();
  bytes[at] ^= mask;
  return { ...entry, bytes };
}

/** The relative RMS error of blocks that stand for the known weights, by hand. */
function rmsOf(bits: 4 | 8, blocks = of.map((block) => blockBytes(known(block, bits)))): number {
  let errors = 0;
  let squares = 0;
  for (const [b, bytes] of blocks.entries()) {
    for (const [n, value] of valuesOf(bits, bytes).entries()) {
      errors += (of[b].weights[n] - value) ** 2;
      squares += of[b].weights[n] ** 2;
    }
  }
  return Math.sqrt(errors / squares);
}

for (const bits of [4, 8] as const) {
  const size = SIZES[bits];

  Deno.test(`verify of the tiny model at ${bits} bits: every block is read, and the digest is that of the file`, () =>
    inTemporary(async (directory) => {
      const expected = fixture<Record<string, { sha256: string }>>("tiny/expected.json");
      const plan = planQuantize(openCheckpoint(TINY), WIDTHS[bits]);
      await quantize(plan, directory, { threads: 1, force: false });
      for (const threads of [1, 2, 3]) {
        const result = await verify(openCheckpoint(directory), { threads });
        // 320 x 64, and two layers of 64 x 128 three times, 64 x 64 twice and 32 x 64 twice.
        const blocks = (320 * 64 + 2 * (3 * 64 * 128 + 2 * 64 * 64 + 2 * 32 * 64)) / 32;
        const digest = expected[`q${bits}`].sha256;
        assertEquals(result, { digests: [digest], digest, blocks });
        const both = await verifyAgainst(openCheckpoint(directory), openCheckpoint(TINY), { threads });
        assertEquals([both.digests, both.blocks], [result.digests, blocks]);
        assertEquals([both.tensors.length, differences(both)], [20, []]);
      }
    }));

  Deno.test(`verifyAgainst of a good file at ${bits} bits: all equal, and the error as computed by hand`, () =>
    inTemporary(async (directory) => {
      for (const threads of [1, 2]) {
        const result = await against(directory, bits, [NORM, stored(bits), SCALAR], { threads });
        assertEquals(result.blocks, 16);
        assertEquals(result.digests, [await sha256(`${directory}/quant/${WEIGHTS}`)]);
        assertEquals(result.tensors.map(({ name, equal }) => [name, equal]), [
          ["norm", true],
          ["w", true],
          ["scalar", true],
        ]);
        const rms = rmsOf(bits);
        assert(rms > (bits === 4 ? 0.01 : 0.0005) && rms < (bits === 4 ? 0.2 : 0.02), String(rms));
        assertAlmostEquals(report(result, "w").rms!, rms, rms * 1e-12);
        assertAlmostEquals(result.rms, rms, rms * 1e-12);
        assertEquals([report(result, "norm").rms, report(result, "scalar").rms], [undefined, undefined]);
      }
    }));

  Deno.test(`verifyAgainst names row and block of a flipped bit at ${bits} bits, and measures what is stored`, () =>
    inTemporary(async (directory) => {
      for (const [index, row, block] of [[0, 0, 0], [3, 0, 3], [4, 1, 0], [10, 2, 2], [15, 3, 3]]) {
        // The lowest bit of the first and of the last nibble or byte, and of the scale.
        for (const [at, mask] of [[2, 1], [size - 1, bits === 4 ? 0x10 : 1], [0, 1]]) {
          const wrong = changed(stored(bits), index * size + at, mask);
          const result = await against(directory, bits, [NORM, wrong, SCALAR]);
          assertEquals(differences(result), [{ name: "w", equal: false, row, block }]);
          const blocks = of.map((_, b) => wrong.bytes.subarray(b * size, (b + 1) * size));
          assertAlmostEquals(report(result, "w").rms!, rmsOf(bits, blocks), 1e-12);
        }
      }
    }));

  Deno.test(`verifyAgainst names the first of several differences at ${bits} bits, in each tensor`, () =>
    inTemporary(async (directory) => {
      const wrong = changed(changed(stored(bits), 14 * size + 5, 2), 6 * size + 7, 4);
      const result = await against(directory, bits, [changed(changed(NORM, 9, 1), 6, 1), wrong, SCALAR]);
      assertEquals(differences(result), [
        { name: "norm", equal: false, byte: 6 },
        { name: "w", equal: false, row: 1, block: 2 },
      ]);
    }));

  Deno.test(`verify and verifyAgainst refuse a scale that is not finite at ${bits} bits, naming row and block`, () =>
    inTemporary(async (directory) => {
      const at = (index: number, high: number, low: number) => {
        const entry = stored(bits);
        entry.bytes.set([low, high], index * size);
        return entry;
      };
      const cases: [Entry, string][] = [
        [at(0, 0x7c, 0), "row 0 block 0: the scale"],
        [at(7, 0xfc, 0), "row 1 block 3: the scale"],
        [at(13, 0x7e, 1), "row 3 block 1: the scale"],
      ];
      for (const [entry, where] of cases) {
        const file = quantizedFile(bits, [NORM, entry, SCALAR]);
        write(`${directory}/quant`, { [WEIGHTS]: file });
        const message = `${directory}/quant/${WEIGHTS}: tensor "w": scale: ${where} is not finite; ` +
          "the file is damaged, make or download it again";
        for (const threads of [1, 2]) {
          const checkpoint = openCheckpoint(`${directory}/quant`);
          const alone = await assertRejects(() => verify(checkpoint, { threads }), CheckpointError);
          assertEquals(alone.message, message);
          const both = await assertRejects(
            () => against(directory, bits, [NORM, entry, SCALAR], { threads }),
            CheckpointError,
          );
          assertEquals(both.message, message);
        }
      }
    }));

  Deno.test(`verify takes negative and subnormal scales at ${bits} bits; against the source they differ`, () =>
    inTemporary(async (directory) => {
      const entry = stored(bits);
      entry.bytes.set([0x01, 0x80], 5 * size);
      entry.bytes.set([0x00, 0xbc], 9 * size);
      const result = await against(directory, bits, [NORM, entry, SCALAR]);
      assertEquals(differences(result), [{ name: "w", equal: false, row: 1, block: 1 }]);
      assertEquals((await verify(openCheckpoint(`${directory}/quant`), { threads: 1 })).blocks, 16);
    }));

  Deno.test(`verifyAgainst reports tensors that are on one side only, or of another shape or dtype, at ${bits} bits`, () =>
    inTemporary(async (directory) => {
      const cases: [Entry[], Record<string, unknown>[]][] = [
        [[NORM, SCALAR], [{ name: "w", equal: false, problem: "missing from the quantized checkpoint" }]],
        [[stored(bits), SCALAR], [{ name: "norm", equal: false, problem: "missing from the quantized checkpoint" }]],
        [[NORM, stored(bits), SCALAR, { ...NORM, name: "extra" }], [
          { name: "extra", equal: false, problem: "not in the source" },
        ]],
        [[NORM, { ...stored(bits), shape: [8, 64] }, SCALAR], [
          { name: "w", equal: false, problem: "shape [8,64], the source has [4,128]" },
        ]],
        [[{ ...NORM, shape: [1, 5, 1] }, stored(bits), SCALAR], [
          { name: "norm", equal: false, problem: "shape [1,5,1], the source has [5]" },
        ]],
        [[{ ...NORM, dtype: "F16" }, stored(bits), SCALAR], [
          { name: "norm", equal: false, problem: "dtype F16, the source has BF16" },
        ]],
        [[NORM, stored(bits), { ...SCALAR, shape: [1] }], [
          { name: "scalar", equal: false, problem: "shape [1], the source has []" },
        ]],
        [[{ ...SOURCE, name: "v", shape: [512] }, NORM, SCALAR], [
          { name: "v", equal: false, problem: "not in the source" },
          { name: "w", equal: false, problem: "missing from the quantized checkpoint" },
        ]],
        [[NORM, { ...SOURCE, shape: [4, 1, 128] }, SCALAR], [
          { name: "w", equal: false, problem: "shape [4,1,128], the source has [4,128]" },
        ]],
      ];
      for (const [entries, expected] of cases) {
        const result = await against(directory, bits, entries);
        assertEquals(differences(result), expected);
        assertEquals(result.digests, [await sha256(`${directory}/quant/${WEIGHTS}`)]);
      }
    }));

  Deno.test(`verifyAgainst matches tensors by name, whatever their order, at ${bits} bits`, () =>
    inTemporary(async (directory) => {
      const result = await against(directory, bits, [SCALAR, stored(bits), NORM]);
      assertEquals(differences(result), []);
      assertEquals(result.tensors.map(({ name }) => name), ["scalar", "w", "norm"]);
    }));

  Deno.test(`verify and verifyAgainst count rows, blocks and bytes across chunks, at ${bits} bits and 1 to 3 threads`, () =>
    inTemporary(async (directory) => {
      // Of all zeros, so that the quantized file is too: rows of three blocks, in three chunks on either side.
      const rows = Math.ceil(2.1 * CHUNK_BYTES / (3 * size));
      const kept = { name: "kept", dtype: "U8", shape: [3 * CHUNK_BYTES], bytes: new Uint8Array(3 * CHUNK_BYTES) };
      const zeros = { name: "zeros", dtype: "BF16", shape: [rows, 96], bytes: new Uint8Array(rows * 192) };
      const good = { ...zeros, dtype: `Q${bits}B32`, bytes: new Uint8Array(rows * 3 * size) };
      const source = [kept, zeros];
      const row = rows - 2;
      for (const threads of [1, 2, 3]) {
        const equal = await against(directory, bits, [kept, good], { threads, source });
        assertEquals([differences(equal), equal.blocks, equal.rms, report(equal, "zeros").rms], [[], rows * 3, 0, 0]);
        const wrong = [
          changed(changed(kept, 2 * CHUNK_BYTES + 77, 0x80), 3 * CHUNK_BYTES - 1, 1),
          changed(changed(good, (row * 3 + 1) * size + 3, 0x80), (row * 3 + 5) * size + 3, 0x80),
        ];
        const differs = await against(directory, bits, wrong, { threads, source });
        assertEquals(differences(differs), [
          { name: "kept", equal: false, byte: 2 * CHUNK_BYTES + 77 },
          { name: "zeros", equal: false, row, block: 1 },
        ]);
        assertEquals(differs.digests, [await sha256(`${directory}/quant/${WEIGHTS}`)]);
        const bad = changed(changed(good, (row * 3 + 2) * size + 1, 0x7c), (row * 3 + 4) * size + 1, 0x7c);
        write(`${directory}/quant`, { [WEIGHTS]: quantizedFile(bits, [kept, bad]) });
        const error = await assertRejects(
          () => verify(openCheckpoint(`${directory}/quant`), { threads }),
          CheckpointError,
        );
        assertEquals(
          error.message,
          `${directory}/quant/${WEIGHTS}: tensor "zeros": scale: row ${row} block 2: the scale is not finite; ` +
            "the file is damaged, make or download it again",
        );
      }
    }));
}

Deno.test("verifyAgainst: the error over all tensors weighs them by their squares", () =>
  inTemporary(async (directory) => {
    // One weight of each block is not exact at four bits: the scale is 1, 0.25 is stored as 0.
    const rows = (scale: number) => (n: number) => n % 32 === 0 ? 7 * scale : n % 32 === 1 ? 0.25 * scale : 0;
    const source = [f32("a", [2, 32], rows(1)), f32("b", [1, 32], rows(2)), f32("c", [1, 32], () => 0)];
    write(directory, { [WEIGHTS]: safetensors(source) });
    await quantize(planQuantize(openCheckpoint(directory), Q4B32), `${directory}/out`, { threads: 1, force: false });
    const result = await verifyAgainst(openCheckpoint(`${directory}/out`), openCheckpoint(directory), { threads: 1 });
    const one = Math.sqrt(0.0625 / 49.0625);
    for (const name of ["a", "b"]) assertAlmostEquals(report(result, name).rms!, one, 1e-15);
    assertEquals(report(result, "c").rms, 0);
    assertEquals(result.tensors.map(({ squares }) => squares), [2 * 49.0625, 4 * 49.0625, 0]);
    assertAlmostEquals(result.rms, Math.sqrt((2 * 0.0625 + 0.25) / (2 * 49.0625 + 196.25)), 1e-15);
  }));

Deno.test("verify and verifyAgainst refuse a float that is not finite, naming row and column", () =>
  inTemporary(async (directory) => {
    const changed = ({ bytes, ...entry }: Entry, at: number, ...to: number[]): Entry => {
      const copy = bytes.slice();
      copy.set(to, at);
      return { ...entry, bytes: copy };
    };
    const end = "the weight is not finite; the file is damaged, make or download it again";
    const norm = changed(NORM, 6, 0xc0, 0x7f);
    const weight = changed(SOURCE, 2 * (128 + 5), 0x80, 0xff);
    write(`${directory}/float`, { [WEIGHTS]: safetensors([NORM, weight, SCALAR]) });
    write(`${directory}/quant`, { [WEIGHTS]: quantizedFile(8, [norm, stored(8), SCALAR]) });
    for (const threads of [1, 2]) {
      for (
        const [name, place] of [["float", 'tensor "w": row 1 column 5'], ["quant", 'tensor "norm": row 0 column 3']]
      ) {
        const error = await assertRejects(() => verify(`${directory}/${name}`, { threads }), CheckpointError);
        assertEquals(error.message, `${directory}/${name}/${WEIGHTS}: ${place}: ${end}`);
      }
      for (const source of [[NORM, SOURCE, SCALAR], [norm, SOURCE, SCALAR]]) {
        const entries = [norm, stored(8), SCALAR];
        const error = await assertRejects(() => against(directory, 8, entries, { threads, source }), CheckpointError);
        assertEquals(error.message, `${directory}/quant/${WEIGHTS}: tensor "norm": row 0 column 3: ${end}`);
      }
    }
  }));

Deno.test("verify reads a file that declares no width: there are no blocks in it", () =>
  inTemporary(async (directory) => {
    const expected = fixture<Record<string, { sha256: string }>>("tiny/expected.json");
    const result = await verify(openCheckpoint(TINY), { threads: 1 });
    const digest = expected.float.sha256;
    assertEquals(result, { digests: [digest], digest, blocks: 0 });
    write(directory, { [WEIGHTS]: safetensors([]) });
    assertEquals((await verify(openCheckpoint(directory), { threads: 2 })).blocks, 0);
  }));

Deno.test("verify gives one digest for each shard, in the order of their names", () =>
  inTemporary(async (directory) => {
    const names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    write(directory, {
      [names[1]]: quantizedFile(4, [NORM]),
      [names[0]]: quantizedFile(4, [stored(4), SCALAR]),
      "model.safetensors.index.json": JSON.stringify({
        weight_map: { norm: names[1], w: names[0], scalar: names[0] },
      }),
    });
    const digests = await Promise.all(names.map((name) => sha256(`${directory}/${name}`)));
    write(`${directory}/one`, { [WEIGHTS]: quantizedFile(4, [stored(4), SCALAR, NORM]) });
    const digest = await sha256(`${directory}/one/${WEIGHTS}`);
    for (const threads of [1, 2]) {
      assertEquals(await verify(openCheckpoint(directory), { threads }), { digests, digest, blocks: 16 });
    }
    write(`${directory}/source`, { [WEIGHTS]: safetensors([SCALAR, SOURCE, NORM]) });
    const source = openCheckpoint(`${directory}/source`);
    const result = await verifyAgainst(openCheckpoint(directory), source, { threads: 2 });
    assertEquals([differences(result), result.digests, result.digest, result.blocks], [[], digests, digest, 16]);
  }));

Deno.test("verifyAgainst refuses a checkpoint that is not quantized, and a source that is", () =>
  inTemporary(async (directory) => {
    write(`${directory}/float`, { [WEIGHTS]: safetensors([SOURCE]) });
    write(`${directory}/quant`, { [WEIGHTS]: safetensors([stored(4)], DECLARED[4]) });
    const [float, quant] = [`${directory}/float`, `${directory}/quant`].map(openCheckpoint);
    const plain = await assertRejects(() => verifyAgainst(float, float, { threads: 1 }), CheckpointError);
    assertEquals(
      plain.message,
      `${directory}/float/${WEIGHTS}: __metadata__: declares no width, so it is not a quantized checkpoint; ` +
        "only those can be compared with a source",
    );
    const twice = await assertRejects(() => verifyAgainst(quant, quant, { threads: 1 }), CheckpointError);
    assertEquals(
      twice.message,
      `${directory}/quant/${WEIGHTS}: __metadata__ "format": already quantized to Q4B32; ` +
        "give the float checkpoint that it was made from",
    );
  }));

Deno.test("verifyAgainst refuses a source whose weights can't be quantized, as quantize does", () =>
  inTemporary(async (directory) => {
    const source = changed(SOURCE, 200 * 2 + 1, 0);
    source.bytes.set([0x80, 0xff], 200 * 2);
    const error = await assertRejects(() => against(directory, 8, [stored(8)], { source: [source] }), CheckpointError);
    assertEquals(
      error.message,
      `${directory}/source/${WEIGHTS}: tensor "w": row 1 column 72 (block 2): weight is -Infinity; ` +
        "only finite weights can be quantized",
    );
  }));

Deno.test("verify and verifyAgainst end with the reason of their signal", () =>
  inTemporary(async (directory) => {
    await against(directory, 4, [NORM, stored(4), SCALAR]);
    const [quant, float] = [`${directory}/quant`, `${directory}/source`].map(openCheckpoint);
    for (const threads of [1, 2]) {
      for (const run of [verify, (c: typeof quant, o: Parameters<typeof verify>[1]) => verifyAgainst(c, float, o)]) {
        const controller = new AbortController();
        const reason = new Error("stop");
        const progress = () => controller.abort(reason);
        const error = await assertRejects(() => run(quant, { threads, signal: controller.signal, progress }));
        assertEquals(error, reason);
      }
    }
  }));
