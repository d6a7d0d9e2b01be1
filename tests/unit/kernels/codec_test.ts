// The kernels on blocks: one suite for every implementation, then the WebAssembly one against the scalar one, bit for
// bit, and against whole numbers for every ratio of a weight to a scale that matters.

import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import { BF16, BLOCK, type BlockFormat, F16, F32, F64, type FloatFormat, WIDTHS } from "../../../lib/format/blocks.ts";
import { type BlockKernels, scalarKernels } from "../../../lib/kernels/codec.ts";
import { allocate, FIRST_ADDRESS, wasmKernels } from "../../../lib/kernels/codec_wasm.ts";
import {
  blockBytes,
  exactBytes,
  half,
  known,
  knownBlocks,
  levelOf,
  valuesOf,
  writeFloat,
} from "../../support/blocks.ts";
import { concat } from "../../support/bytes.ts";
import { Random } from "../../support/random.ts";

const FLOATS: readonly FloatFormat[] = [BF16, F16, F32, F64];

/** Kernels over a memory of their own. */
interface Machine {
  kernels: BlockKernels;
  memory: Uint8Array;
}

const IMPLEMENTATIONS: Record<string, (bytes: number) => Machine> = {
  scalarKernels(bytes) {
    const memory = new Uint8Array(FIRST_ADDRESS + bytes);
    return { kernels: scalarKernels(memory.buffer), memory };
  },
  wasmKernels(bytes) {
    const memory = allocate(FIRST_ADDRESS + 16 + bytes);
    const end = memory.buffer.byteLength - 16;
    return { kernels: wasmKernels(memory, end), memory: new Uint8Array(memory.buffer) };
  },
};

/** Encodes the blocks of `source` on a machine: the index of the first that is refused, and all bytes of the result. */
function encode(make: (bytes: number) => Machine, from: FloatFormat, to: BlockFormat, source: Uint8Array) {
  const blocks = source.length / BLOCK / from.blockBytes;
  const { kernels, memory } = make(source.length + blocks * to.blockBytes + 1);
  const target = FIRST_ADDRESS + source.length;
  memory.set(source, FIRST_ADDRESS);
  memory.fill(0xaa, target, target + blocks * to.blockBytes + 1);
  const refused = kernels.encode(from, to, FIRST_ADDRESS, target, blocks);
  assertEquals(memory[target + blocks * to.blockBytes], 0xaa, "a byte after the blocks is touched");
  return { refused, bytes: memory.slice(target, target + blocks * to.blockBytes) };
}

const blocks = knownBlocks();

for (const [name, make] of Object.entries(IMPLEMENTATIONS)) {
  for (const to of WIDTHS) {
    for (const from of FLOATS) {
      const cases = blocks.flatMap((block) => {
        const bytes = exactBytes(from.name, block.weights);
        return bytes ? [{ name: block.name, bytes, answer: known(block, to.bits) }] : [];
      });

      Deno.test(`${name}.encode of ${from.name} to ${to.name} gives the known blocks, one by one and in a row`, () => {
        assert(cases.length >= 15);
        const good = cases.filter(({ answer }) => !answer.refused);
        for (const { name, bytes, answer } of cases) {
          const result = encode(make, from, to, bytes);
          assertEquals(result.refused, answer.refused ? 0 : -1, name);
          if (!answer.refused) assertEquals(result.bytes.toHex(), blockBytes(answer).toHex(), name);
        }
        const row = encode(make, from, to, concat(...good.map(({ bytes }) => bytes)));
        assertEquals(row.refused, -1);
        assertEquals(row.bytes.toHex(), concat(...good.map(({ answer }) => blockBytes(answer))).toHex());
      });

      Deno.test(`${name}.encode of ${from.name} to ${to.name} says which block is the first that it refuses`, () => {
        const bad = cases.filter(({ answer }) => answer.refused);
        const good = cases.find(({ answer }) => !answer.refused)!;
        for (const { name, bytes } of bad) {
          for (let first = 0; first < 9; first++) {
            const row = Array.from({ length: 9 }, (_, b) => b === first || b === 8 ? bytes : good.bytes);
            assertEquals(encode(make, from, to, concat(...row)).refused, first, name);
          }
        }
        assert(bad.length > 0);
      });

      Deno.test(`${name}.encode of ${from.name} to ${to.name} finds a weight that is not finite at any position`, () => {
        // NaNs of both signs, the smallest and the largest, and the infinities.
        const patterns: Record<string, string[]> = {
          F64: ["000000000000f07f", "000000000000f0ff", "010000000000f07f", "ffffffffffffffff"],
          F32: ["0000807f", "000080ff", "0100807f", "ffffffff"],
          BF16: ["807f", "80ff", "817f", "ffff"],
          F16: ["007c", "00fc", "017c", "ffff"],
        };
        // Seven blocks, so that kernels that take four at a time have some of both kinds.
        const plain = exactBytes(from.name, new Float32Array(7 * BLOCK).fill(0.5))!;
        for (const pattern of patterns[from.name].map((hex) => Uint8Array.fromHex(hex))) {
          for (let n = 0; n < 7 * BLOCK; n++) {
            const bytes = plain.slice();
            bytes.set(pattern, n * from.blockBytes);
            const { refused } = encode(make, from, to, bytes);
            assertEquals(refused, Math.floor(n / BLOCK), `${pattern.toHex()} at weight ${n}`);
          }
        }
      });

      Deno.test(`${name}.error of ${from.name} and ${to.name} is the sum over the weights of the known blocks`, () => {
        const good = cases.filter(({ answer }) => !answer.refused);
        const source = concat(...good.map(({ bytes }) => bytes));
        const stored = concat(...good.map(({ answer }) => blockBytes(answer)));
        const { kernels, memory } = make(source.length + stored.length);
        memory.set(source, FIRST_ADDRESS);
        memory.set(stored, FIRST_ADDRESS + source.length);
        let at = FIRST_ADDRESS;
        let errors = 0;
        let squares = 0;
        for (const { name, answer } of good) {
          const { weights } = blocks.find((block) => block.name === name)!;
          const values = valuesOf(to.bits, blockBytes(answer));
          const wanted = {
            errors: values.reduce((sum, v, n) => sum + (weights[n] - v) ** 2, 0),
            squares: weights.reduce((sum, w) => sum + w ** 2, 0),
          };
          const index = (at - FIRST_ADDRESS) / BLOCK / from.blockBytes;
          const found = kernels.error(from, to, at, FIRST_ADDRESS + source.length + index * to.blockBytes, 1);
          assertClose(found.errors, wanted.errors, name);
          assertClose(found.squares, wanted.squares, name);
          errors += wanted.errors;
          squares += wanted.squares;
          at += BLOCK * from.blockBytes;
        }
        const all = kernels.error(from, to, FIRST_ADDRESS, FIRST_ADDRESS + source.length, good.length);
        assertClose(all.errors, errors, "all");
        assertClose(all.squares, squares, "all");
        assertEquals(kernels.error(from, to, FIRST_ADDRESS, FIRST_ADDRESS, 0), { errors: 0, squares: 0 });
      });
    }

    Deno.test(`${name}.error with ${to.name} takes negative scales and the lowest level as they are`, () => {
      const weights = exactBytes("F32", new Float32Array(32))!;
      const stored = new Uint8Array(to.blockBytes);
      stored.set([0x00, 0xbc]); // -1
      stored[2] = 0x80; // Q8B32: weight 0 has the level -128; Q4B32: weight 1 has -8
      const { kernels, memory } = make(256);
      memory.set(weights, FIRST_ADDRESS);
      memory.set(stored, FIRST_ADDRESS + 128);
      const errors = to.bits === 8 ? 16384 : 64;
      assertEquals(kernels.error(F32, to, FIRST_ADDRESS, FIRST_ADDRESS + 128, 1), { errors, squares: 0 });
    });

    Deno.test(`${name}.checkScales of ${to.name} finds the first scale that is not finite`, () => {
      const { kernels, memory } = make(9 * to.blockBytes);
      const view = new DataView(memory.buffer);
      const scaleAt = (n: number) => FIRST_ADDRESS + n * to.blockBytes;
      const reset = () => {
        // Payloads that would be infinite scales, were they read for one.
        memory.fill(0x7c, FIRST_ADDRESS, scaleAt(9));
        for (const [n, bits] of [0, 0x8000, 1, 0x03ff, 0x0400, 0x3c00, 0x7bff, 0xfbff, 0xbc00].entries()) {
          view.setUint16(scaleAt(n), bits, true);
        }
      };
      reset();
      assertEquals(kernels.checkScales(to, FIRST_ADDRESS, 9), -1);
      assertEquals(kernels.checkScales(to, FIRST_ADDRESS, 0), -1);
      for (const bits of [0x7c00, 0xfc00, 0x7c01, 0x7e00, 0xffff]) {
        for (let n = 0; n < 9; n++) {
          reset();
          view.setUint16(scaleAt(n), bits, true);
          assertEquals(kernels.checkScales(to, FIRST_ADDRESS, 9), n);
          assertEquals(kernels.checkScales(to, FIRST_ADDRESS, n), -1);
          view.setUint16(scaleAt(8), 0x7c00, true);
          assertEquals(kernels.checkScales(to, FIRST_ADDRESS, 9), n);
        }
      }
    });
  }

  Deno.test(`${name}.firstDifference finds the first byte, whatever the lengths and the addresses`, () => {
    const { kernels, memory } = make(400);
    for (const [a, b] of [[0, 200], [3, 201], [16, 216]]) {
      for (const length of [0, 1, 2, 15, 16, 17, 31, 32, 33, 100]) {
        memory.fill(0x55);
        assertEquals(kernels.firstDifference(FIRST_ADDRESS + a, FIRST_ADDRESS + b, length), -1);
        memory[FIRST_ADDRESS + b + length] ^= 1; // just after it
        assertEquals(kernels.firstDifference(FIRST_ADDRESS + a, FIRST_ADDRESS + b, length), -1);
        for (let n = length - 1; n >= 0; n--) {
          memory[FIRST_ADDRESS + b + n] ^= 0x80;
          assertEquals(kernels.firstDifference(FIRST_ADDRESS + a, FIRST_ADDRESS + b, length), n);
        }
      }
    }
  });
}

function assertClose(actual: number, expected: number, name: string): void {
  assertAlmostEquals(actual, expected, Math.abs(expected) * 1e-12, name);
}

// The WebAssembly kernels against the scalar ones

const BLOCKS = 3000;

/** Random blocks of a source format; every 20th or so can't be encoded. */
function randomBlocks(from: FloatFormat, random: Random): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(BLOCKS * BLOCK * from.blockBytes);
  const view = new DataView(bytes.buffer);
  for (let b = 0; b < BLOCKS; b++) {
    const kind = random.below(5);
    // From below the smallest binary32 to above what both widths can hold.
    const sigma = 10 ** (random.unit() * (from === F16 ? 11 : 20) - (from === F16 ? 7 : 12));
    const scale = half(1 + random.below(0x7bff)) * 2 ** -random.below(12);
    const top = random.pick([7, 127]);
    for (let n = 0; n < BLOCK; n++) {
      const at = (b * BLOCK + n) * from.blockBytes;
      if (kind === 0) { // any bits, but seldom those of NaNs and infinities
        for (let byte = 0; byte < from.blockBytes; byte++) bytes[at + byte] = random.bits();
        if (random.below(100) > 0) bytes[at + from.blockBytes - 1] &= 0xbf;
        continue;
      }
      // Of the other kinds one is gaussian; one lies on and beside multiples of half a scale, where ties are.
      let value = kind < 4
        ? random.gaussian() * sigma
        : n === 0
        ? top * scale
        : (random.below(4 * top + 1) - 2 * top) / 2 * scale * (1 + random.pick([0, 0, 1, -1, 3]) * 2 ** -23);
      if (kind === 3 && random.below(2)) value = 0;
      writeFloat(view, at, from.name, value);
    }
    if (random.below(40) === 0) {
      writeFloat(
        view,
        (b * BLOCK + random.below(BLOCK)) * from.blockBytes,
        from.name,
        random.pick([NaN, Infinity, -Infinity]),
      );
    }
  }
  return bytes;
}

/** Encodes block after block, going on after those that are refused: their indexes, and the bytes of the others. */
function encodeAll({ kernels, memory }: Machine, from: FloatFormat, to: BlockFormat, blocks: number) {
  const target = FIRST_ADDRESS + blocks * BLOCK * from.blockBytes;
  const refused: number[] = [];
  for (let next = 0; next < blocks;) {
    const at = kernels.encode(
      from,
      to,
      FIRST_ADDRESS + next * BLOCK * from.blockBytes,
      target + next * to.blockBytes,
      blocks - next,
    );
    if (at < 0) break;
    refused.push(next + at);
    memory.fill(0, target + (next + at) * to.blockBytes, target + (next + at + 1) * to.blockBytes);
    next += at + 1;
  }
  return { refused, bytes: memory.slice(target, target + blocks * to.blockBytes) };
}

for (const from of FLOATS) {
  for (const to of WIDTHS) {
    Deno.test(`wasmKernels.encode of ${from.name} to ${to.name} is scalarKernels.encode, bit for bit`, () => {
      const source = randomBlocks(from, new Random(from.blockBytes * 100 + to.bits));
      const results = [IMPLEMENTATIONS.scalarKernels, IMPLEMENTATIONS.wasmKernels].map((make) => {
        const machine = make(source.length + BLOCKS * to.blockBytes);
        machine.memory.set(source, FIRST_ADDRESS);
        return encodeAll(machine, from, to, BLOCKS);
      });
      const [scalar, wasm] = results;
      assertEquals(wasm.refused, scalar.refused);
      const differs = wasm.bytes.findIndex((byte, n) => byte !== scalar.bytes[n]);
      assertEquals(differs, -1, `block ${Math.floor(differs / to.blockBytes)}`);
      assert(scalar.refused.length > BLOCKS / 50 && scalar.refused.length < BLOCKS / 2, String(scalar.refused.length));
      const scales = Array.from({ length: BLOCKS }, (_, b) => wasm.bytes[b * to.blockBytes + 1] >> 2 & 31);
      assert(new Set(scales).size > 20, "the scales have too few exponents");
    });
  }
}

// Every ratio of a weight to a scale. A half weight is a whole number times a power of two, and so is a scale; ratios
// and ties are exact in binary64, so this says what the levels are without dividing as the definition does.

/** The scale of a block with this peak: the quotient to the nearest binary16, ties to even, for peaks of 11 bits. */
function scaleOf(peak: number, levels: number): number {
  const unit = 2 ** (Math.max(Math.floor(Math.log2(peak / levels)), -14) - 10);
  const below = Math.floor(peak / levels / unit);
  // peak / levels / unit against below + 1/2, without a quotient.
  const side = 2 * peak - (2 * below + 1) * unit * levels;
  return (side > 0 || side === 0 && below % 2 === 1 ? below + 1 : below) * unit;
}

/** Encodes each peak with its weights (31 to a block, positive and negative by turns) and checks every level. */
function checkRatios(
  from: FloatFormat,
  to: BlockFormat,
  pairs: Iterable<{ peak: number; weights: number[] }>,
): { weights: number; scales: number } {
  const limit = 4096;
  const machine = IMPLEMENTATIONS.wasmKernels(limit * (BLOCK * from.blockBytes + to.blockBytes));
  const view = new DataView(machine.memory.buffer);
  const values = new Float64Array(limit * BLOCK);
  const peaks = new Float64Array(limit);
  const target = FIRST_ADDRESS + limit * BLOCK * from.blockBytes;
  const scales = new Set<number>();
  let count = 0;
  let filled = 0;

  const flush = () => {
    values.subarray(0, filled * BLOCK).forEach((value, n) => {
      writeFloat(view, FIRST_ADDRESS + n * from.blockBytes, from.name, value);
    });
    assertEquals(machine.kernels.encode(from, to, FIRST_ADDRESS, target, filled), -1);
    for (let b = 0; b < filled; b++) {
      const block = machine.memory.subarray(target + b * to.blockBytes, target + (b + 1) * to.blockBytes);
      const scale = scaleOf(peaks[b], to.levels);
      if (half(block[0] + 256 * block[1]) !== scale) throw new Error(`peak ${peaks[b]}: not the scale ${scale}`);
      scales.add(scale);
      for (let n = 0; n < BLOCK; n++) {
        const weight = values[b * BLOCK + n];
        const magnitude = scale === 0 ? 0 : Math.floor((2 * Math.abs(weight) + scale) / (2 * scale));
        const level = weight < 0 ? Math.max(-magnitude, -to.levels - 1) : Math.min(magnitude, to.levels);
        if (levelOf(to.bits, block, n) !== level) {
          throw new Error(`weight ${weight}, peak ${peaks[b]}: ${levelOf(to.bits, block, n)}, not ${level}`);
        }
      }
    }
    count += filled * (BLOCK - 1);
    filled = 0;
  };

  for (const { peak, weights } of pairs) {
    for (let first = 0; first < weights.length; first += BLOCK - 1) {
      peaks[filled] = peak;
      values[filled * BLOCK] = peak;
      for (let n = 1; n < BLOCK; n++) {
        const weight = weights[first + n - 1] ?? 0;
        values[filled * BLOCK + n] = n % 2 ? weight : -weight;
      }
      if (++filled === limit) flush();
    }
  }
  flush();
  return { weights: count, scales: scales.size };
}

/** Every value of `bits` significant bits in [2^low, 2^high). */
function significands(bits: number, low: number, high: number): number[] {
  const out: number[] = [];
  for (let e = low; e < high; e++) {
    for (let m = 2 ** (bits - 1); m < 2 ** bits; m++) out.push(m * 2 ** (e - bits + 1));
  }
  return out;
}

for (const to of WIDTHS) {
  // A weight of less than 2^-5 (2^-9) of the peak is less than half a scale.
  const reach = to.bits === 4 ? 5 : 9;

  Deno.test(`wasmKernels.encode of BF16 to ${to.name} is right for every peak and every weight below it`, () => {
    // Peaks from those whose scale is zero through all subnormal scales to two binades of normal ones.
    const bottom = to.bits === 4 ? -23 : -19;
    const pairs = function* () {
      for (let e = bottom; e < bottom + 14; e++) {
        for (const peak of significands(8, e, e + 1)) {
          yield { peak, weights: significands(8, e - reach, e + 1).filter((w) => w <= peak) };
        }
      }
    };
    const done = checkRatios(BF16, to, pairs());
    assert(done.weights > 1_000_000 && done.scales > 700, JSON.stringify(done));
  });

  Deno.test(`wasmKernels.encode of F16 to ${to.name} is right for every peak of a binade and every weight below it`, () => {
    const pairs = function* () {
      const weights = significands(11, -reach, 1);
      for (const peak of significands(11, 0, 1)) yield { peak, weights: weights.filter((w) => w <= peak) };
    };
    const done = checkRatios(F16, to, pairs());
    // 1024 peaks, an average of reach + 1/2 binades of 1024 weights.
    assert(done.weights > 1024 * 1024 * reach && done.scales > 700, JSON.stringify(done));
  });

  Deno.test(`wasmKernels.encode of F16 to ${to.name} is right at and beside the ties of every subnormal scale`, () => {
    const unit = 2 ** -24;
    const pairs = function* () {
      for (let scale = 1; scale < 1024; scale++) {
        const peak = nearestHalf(scale * to.levels);
        const weights = new Set<number>();
        for (let k = 0; k <= to.levels; k++) {
          const tie = nearestHalf((2 * k + 1) * scale / 2);
          const step = 2 ** Math.max(Math.floor(Math.log2(Math.max(tie, 1))) - 10, 0);
          for (const w of [tie - step, tie, tie + step]) if (w >= 0 && w <= peak) weights.add(w);
        }
        yield { peak: peak * unit, weights: [...weights].map((w) => w * unit) };
      }
    };
    const done = checkRatios(F16, to, pairs());
    assert(done.scales > 900, JSON.stringify(done));
  });
}

/** The whole number of 11 significant bits at or below `x`. */
function nearestHalf(x: number): number {
  const step = 2 ** Math.max(Math.floor(Math.log2(Math.max(x, 1))) - 10, 0);
  return Math.floor(x / step) * step;
}
