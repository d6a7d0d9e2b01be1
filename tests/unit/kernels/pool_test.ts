// The operations of the pool against their definition in reference.ts, bit for bit, and both against plain arithmetic
// in binary64 whose inputs this file made itself.

import { assert, assertEquals, assertThrows } from "@std/assert";
import { LimitError } from "../../../lib/errors.ts";
import { BF16, F32, F64, type FloatFormat, type Format, FORMATS, Q4B32, Q8B32 } from "../../../lib/format/blocks.ts";
import {
  type ActivationBuffer,
  type Activations,
  BadScale,
  type Matrix,
  type Operations,
  padded,
} from "../../../lib/kernels/operations.ts";
import { MAX_COMMANDS } from "../../../lib/kernels/program.ts";
import { Pool } from "../../../lib/kernels/pool.ts";
import { exp } from "../../../lib/kernels/exponential.ts";
import { Reference } from "../../../lib/kernels/reference.ts";
import { TOKEN_TILE } from "../../../lib/kernels/view.ts";
import { readFloat, writeFloat } from "../../support/blocks.ts";
import { inTemporary, write } from "../../support/files.ts";
import { MODELS, ROOT, TINY } from "../../support/fixtures.ts";
import { load, using } from "../../support/models.ts";
import { assertSameBits } from "../../support/numbers.ts";
import { execute } from "../../support/program.ts";
import { Random } from "../../support/random.ts";

const ACTIVATIONS: readonly Activations[] = ["f32", "i16", "i8"];
const THREADS = [1, 2, 3];
/** Around every number at which the kernels change their way: 1, 4 and 64. */
const TOKENS = [1, 2, 3, 4, 5, 9, 64, 65, 70];
const MOST_TOKENS = 70;

/** Half a unit in the last place of 1 in binary32. */
const U = 2 ** -24;

// ---------------------------------------------------------------- inputs

/** A matrix as its file has it, and the weights that those bytes stand for. */
interface Weights {
  readonly format: Format;
  readonly rows: number;
  readonly columns: number;
  readonly bytes: Uint8Array;
  readonly values: Float64Array;
}

/** Scales of blocks: ordinary, negative, subnormal, zero, the smallest, the largest. */
const ODD_SCALES = [-0.0123, 2 ** -24, -3 * 2 ** -24, 0, -0, 2 ** -14, 65504];

/** @param odd whether to have values that are rare: negative and subnormal scales, zero blocks, subnormal weights */
function weights(format: Format, rows: number, columns: number, random: Random, odd = true): Weights {
  const bytes = new Uint8Array(rows * columns / format.blockWeights * format.blockBytes);
  const view = new DataView(bytes.buffer);
  const values = new Float64Array(rows * columns);
  if (format.kind === "block") {
    for (let at = 0, first = 0; at < bytes.length; at += format.blockBytes, first += 32) {
      const scale = odd && random.below(4) === 0
        ? ODD_SCALES[random.below(7)]
        : 0.02 * (1 + Math.abs(random.gaussian()));
      view.setFloat16(at, scale, true);
      const exact = view.getFloat16(at, true);
      for (let n = 0; n < 32; n++) {
        // Both ends of the range are frequent.
        const low = -format.levels - 1;
        const level = [low, format.levels, low + random.below(2 - 2 * low - 2)][Math.min(2, random.below(12))];
        values[first + n] = level * exact;
        if (format === Q8B32) bytes[at + 2 + n] = level;
        else bytes[at + 2 + (n >> 1)] |= (level & 15) << (4 * (n & 1));
      }
    }
    return { format, rows, columns, bytes, values };
  }
  for (let n = 0; n < values.length; n++) {
    let x = random.gaussian() * 0.1;
    if (odd && random.below(10) === 0) x = [0, -0, 6e-8, -1e-7, 1e-40, 100][random.below(6)];
    writeFloat(view, format.blockBytes * n, format.name, x);
    values[n] = readFloat(view, format.blockBytes * n, format.name);
  }
  return { format, rows, columns, bytes, values };
}

function loadMatrix(ops: Operations, { format, rows, columns, bytes }: Weights): Matrix {
  return ops.matrix(format, rows, columns, (offset, into) => into.set(bytes.subarray(offset, offset + into.length)));
}

function loadVector(ops: Operations, values: Float32Array) {
  const bytes = new Uint8Array(values.buffer);
  return ops.vector(F32, values.length, (offset, into) => into.set(bytes.subarray(offset, offset + into.length)));
}

function numbers(length: number, random: Random, scale = 1): Float32Array {
  return Float32Array.from({ length }, () => random.gaussian() * scale);
}

/** Columns that a format may have. */
function columnsOf(format: Format, blocks: number, odd: number): number {
  return format.kind === "block" ? 32 * blocks : odd;
}

// ---------------------------------------------------------------- agreement

/** What a test of one program leaves: buffers, row after row, by name. */
type Results = Map<string, Float32Array>;

/** All rows of a buffer, those too that should not have been written. */
function keep(results: Results, name: string, ops: Operations, buffer: ActivationBuffer): void {
  const all = new Float32Array(buffer.tokens * buffer.width);
  for (let t = 0; t < buffer.tokens; t++) all.set(ops.row(buffer, t), t * buffer.width);
  results.set(name, all);
}

const pools = new Map<Activations, Pool[]>();

/** Runs `program` by the definition and in pools of 1, 2 and 3 threads, which must agree; the definition's results. */
async function agree(activations: Activations, program: (ops: Operations) => Results): Promise<Results> {
  const defined = program(new Reference(activations));
  if (!pools.has(activations)) {
    pools.set(activations, THREADS.map((threads) => new Pool({ threads, activations, guardBytes: 1024 })));
  }
  for (const pool of pools.get(activations)!) {
    await pool.reset();
    const results = program(pool);
    assert(pool.checkGuards() > 0);
    assertEquals(results.size, defined.size);
    for (const [name, row] of results) assertSameBits(row, defined.get(name)!, `${pool.threads} threads: ${name}`);
  }
  return defined;
}

/** The pools live as long as the module's tests: a test of their own would each start threads. */
globalThis.addEventListener("unload", () => [...pools.values()].flat().forEach((pool) => pool.close()));

const unsanitized = { sanitizeResources: false, sanitizeOps: false };

/** Activations that a program is run on. */
const INPUTS: readonly { name: string; make(width: number, random: Random): Float32Array }[] = [
  { name: "ordinary", make: (width, random) => numbers(width, random) },
  {
    name: "zeros, subnormal and large ones, by blocks and mixed",
    make(width, random) {
      const scales = [1, 0, 1e-30, 1e-36, 1e-38, 1e-42, 1e4];
      const mixed = random.below(4) === 0;
      let scale = 1;
      return numbers(width, random).map((x, n) => {
        if (mixed || n % 32 === 0) scale = scales[random.below(7)];
        return x * scale;
      });
    },
  },
  {
    name: "huge, so that sums overflow",
    make: (width, random) => numbers(width, random).map((x) => x * (random.below(3) === 0 ? 1e38 : 1e30)),
  },
];

for (const format of FORMATS.values()) {
  for (const activations of format.kind === "block" ? ACTIVATIONS : ACTIVATIONS.slice(0, 1)) {
    const name = `${format.name} with ${activations} activations`;
    Deno.test({
      name: `Pool.project, projectAdd, projectGated and embed of ${name} give the bits of Reference`,
      ...unsanitized,
      async fn() {
        for (const { name: kind, make } of INPUTS) {
          await agree(activations, (ops) => {
            const random = new Random(format.blockBytes);
            const columns = columnsOf(format, 3, 77);
            const first = loadMatrix(ops, weights(format, 21, columns, random));
            const second = loadMatrix(ops, weights(format, 5, columns, random));
            const third = loadMatrix(ops, weights(format, 16, columns, random));
            const up = loadMatrix(ops, weights(format, 21, columns, random));
            const bias = loadVector(ops, numbers(21, random));
            const norm = { weight: loadVector(ops, numbers(columns, random)), eps: 1e-5 };
            const from = ops.buffer(MOST_TOKENS, columns);
            const inputs = Array.from({ length: MOST_TOKENS }, () => make(columns, random));
            const outs = [21, 5, 16, 21].map((width) => ops.buffer(MOST_TOKENS, width));
            const sums = ops.buffer(MOST_TOKENS, 21);
            const gated = ops.buffer(MOST_TOKENS, 21);
            const embedded = ops.buffer(MOST_TOKENS, columns);
            const results: Results = new Map();
            for (const tokens of TOKENS) {
              inputs.forEach((x, t) => ops.row(from, t).set(x));
              for (let t = 0; t < MOST_TOKENS; t++) ops.row(sums, t).fill(0.25);
              // One program of all that a layer asks for, and more.
              ops.embed(first, Array.from({ length: tokens }, (_, t) => (t * 8 + 20) % 21), embedded);
              ops.project({ from, norm }, tokens, [
                { matrix: first, bias, out: outs[0] },
                { matrix: second, out: outs[1] },
                { matrix: third, out: outs[2] },
              ]);
              ops.project({ from, first: MOST_TOKENS - tokens }, tokens, [{ matrix: up, out: outs[3] }]);
              ops.projectAdd({ from, norm, first: MOST_TOKENS - tokens }, tokens, up, sums, bias);
              ops.projectAdd({ from }, tokens, first, sums);
              ops.projectGated({ from, norm }, tokens, first, up, gated);
              ops.run();
              for (const [n, out] of [...outs, sums, gated, embedded].entries()) {
                keep(results, `${name}, ${kind}, ${tokens} tokens, buffer ${n}`, ops, out);
              }
            }
            return results;
          });
        }
      },
    });

    Deno.test({
      name: `The product of ${name} is within its error bound of the product in binary64`,
      ...unsanitized,
      async fn() {
        const random = new Random(5);
        const columns = columnsOf(format, 9, 270);
        const w = weights(format, 19, columns, random);
        const inputs = Array.from({ length: 6 }, () => numbers(columns, random, 3));
        const results = await agree(activations, (ops) => {
          const matrix = loadMatrix(ops, w);
          const from = ops.buffer(6, columns);
          const out = ops.buffer(6, 19);
          inputs.forEach((x, t) => ops.row(from, t).set(x));
          ops.project({ from }, 6, [{ matrix, out }]);
          ops.run();
          const results: Results = new Map();
          keep(results, "out", ops, out);
          return results;
        });
        inputs.forEach((x, t) => {
          for (let r = 0; r < w.rows; r++) {
            const { sum, bound } = exactProduct(w, r, x, activations);
            const error = Math.abs(results.get("out")![t * w.rows + r] - sum);
            assert(error <= bound, `row ${r} of token ${t}: off by ${error}, the bound is ${bound}`);
          }
        });
      },
    });
  }
}

/**
 * A row's product in binary64, and how far off binary32 arithmetic may be.
 *
 * With f32 a weight's share passes 1 rounding of its product, at most 15 of the sum of its half (the first addition, to
 * zero, is exact), 1 of the two halves, 1 of the scale and one for each block: k = 18 + blocks roundings, each a factor
 * of 1 + d with |d| <= 2^-24, so that it is off by at most k U / (1 - k U) of its magnitude. No product here is
 * subnormal but by a weight that is; 2^-149 a rounding covers those.
 *
 * With integers an activation is off by half a unit, max / top / 2, plus what two roundings in its division can move it
 * by (2^-22 of top units); the block's sum is exact, and 3 roundings and one for each block follow, one more being in the
 * activations' scale.
 */
function exactProduct(w: Weights, row: number, x: Float32Array, activations: Activations) {
  const blocks = padded(w.columns) / 32;
  const top = activations === "i8" ? 127 : 32767;
  let [sum, magnitude, moved] = [0, 0, 0];
  for (let b = 0; b < blocks; b++) {
    let [max, ofWeights] = [0, 0];
    for (let c = 32 * b; c < Math.min(32 * b + 32, w.columns); c++) {
      const value = w.values[row * w.columns + c];
      sum += value * x[c];
      magnitude += Math.abs(value * x[c]);
      ofWeights += Math.abs(value);
      max = Math.max(max, Math.abs(x[c]));
    }
    moved += ofWeights * max / top * (0.5 + top * 2 ** -22);
  }
  if (activations === "f32") moved = 0;
  const k = (activations === "f32" ? 18 : 4) + blocks;
  // The sum in binary64 is off by less than one rounding in binary32.
  return { sum, bound: moved + (k + 1) * U / (1 - k * U) * (magnitude + moved) + k * 32 * 2 ** -149 };
}

for (const format of FORMATS.values()) {
  for (const activations of format.kind === "block" ? ACTIVATIONS : ACTIVATIONS.slice(0, 1)) {
    Deno.test({
      name: `Pool gives the bits of Reference for ${format.name} matrices of 1 to 96 columns, ${activations}`,
      ...unsanitized,
      async fn() {
        const step = format.blockWeights;
        const decoded = new Map<string, Float64Array>();
        const results = await agree(activations, (ops) => {
          const random = new Random(6);
          const cases = Array.from({ length: 96 / step }, (_, n) => (n + 1) * step).flatMap((columns) => {
            const [from, embedded] = [ops.buffer(5, columns), ops.buffer(13, columns)];
            for (let t = 0; t < 5; t++) ops.row(from, t).set(numbers(columns, random));
            return [1, 8, 13].map((rows) => {
              const w = weights(format, rows, columns, random);
              decoded.set(`${rows} x ${columns}, 13 x ${columns}`, w.values);
              const matrix = loadMatrix(ops, w);
              return { from, embedded, matrix, outs: [1, 5].map((tokens) => ops.buffer(tokens, rows)) };
            });
          });
          const results: Results = new Map();
          for (const { from, embedded, matrix, outs } of cases) {
            for (const out of outs) ops.project({ from }, out.tokens, [{ matrix, out }]);
            ops.embed(matrix, Array.from({ length: matrix.rows }, (_, row) => row), embedded);
            ops.run();
            for (const buffer of [...outs, embedded]) {
              keep(results, `${matrix.rows} x ${matrix.columns}, ${buffer.tokens} x ${buffer.width}`, ops, buffer);
            }
          }
          return results;
        });
        assertEquals([results.size, decoded.size], [3 * 3 * 96 / step, 3 * 96 / step]);
        for (const [name, values] of decoded) {
          assertSameBits(results.get(name)!.subarray(0, values.length), Float32Array.from(values), name);
        }
      },
    });
  }
}

Deno.test({
  name: "Matrices of several formats for one input give the bits of Reference",
  ...unsanitized,
  async fn() {
    for (const activations of ACTIVATIONS) {
      for (const formats of [[Q4B32, Q8B32, BF16], [BF16, Q4B32, Q4B32], [Q8B32, F32, Q4B32]]) {
        for (const tokens of [1, 6]) {
          await agree(activations, (ops) => {
            const random = new Random(4);
            const [a, b, c] = formats.map((format) => loadMatrix(ops, weights(format, 40, 64, random)));
            const norm = { weight: loadVector(ops, numbers(64, random)), eps: 1e-5 };
            const from = ops.buffer(6, 64);
            for (let t = 0; t < 6; t++) ops.row(from, t).set(numbers(64, random));
            const outs = [1, 2, 3, 4, 5].map(() => ops.buffer(6, 40));
            ops.project({ from, norm }, tokens, [a, b, c].map((matrix, n) => ({ matrix, out: outs[n] })));
            ops.projectGated({ from, norm }, tokens, a, b, outs[3]);
            ops.projectGated({ from }, tokens, b, c, outs[4]);
            ops.run();
            const results: Results = new Map();
            outs.forEach((out, n) => {
              keep(
                results,
                `${formats.map(({ name }) => name)}, ${activations}, ${tokens} tokens, buffer ${n}`,
                ops,
                out,
              );
            });
            return results;
          });
        }
      }
    }
  },
});

/** More than a tile, and a tile that does not end with four. */
const MORE_TOKENS = TOKEN_TILE + 5;

Deno.test({
  name: "Pool.project of more rows and tokens than a tile gives the bits of Reference",
  ...unsanitized,
  async fn() {
    for (const format of [Q4B32, BF16]) {
      for (const tokens of [1, MORE_TOKENS]) {
        await agree("f32", (ops) => {
          const random = new Random(9);
          const matrix = loadMatrix(ops, weights(format, 1043, 32, random));
          const up = loadMatrix(ops, weights(format, 1043, 32, random));
          const from = ops.buffer(MORE_TOKENS, 32);
          const [out, sum, gated] = [1, 2, 3].map(() => ops.buffer(MORE_TOKENS, 1043));
          for (let t = 0; t < MORE_TOKENS; t++) ops.row(from, t).set(numbers(32, random));
          ops.project({ from }, tokens, [{ matrix, out }]);
          ops.projectAdd({ from }, tokens, up, sum);
          ops.projectGated({ from }, tokens, matrix, up, gated);
          ops.run();
          const results: Results = new Map();
          [out, sum, gated].forEach((buffer, n) => keep(results, `${format.name}, buffer ${n}`, ops, buffer));
          return results;
        });
      }
    }
  },
});

Deno.test({
  name: "Pool.projectGated is silu(g) times u",
  ...unsanitized,
  async fn() {
    // Identity matrices: the products are the activations themselves.
    const bytes = new Uint8Array(Float32Array.from({ length: 1024 }, (_, n) => n % 33 === 0 ? 1 : 0).buffer);
    const identity: Weights = { format: F32, rows: 32, columns: 32, bytes, values: new Float64Array() };
    const inputs = Float32Array.from({ length: 32 * 20 }, (_, n) => n * 0.55 - 176);
    const results = await agree("f32", (ops) => {
      const matrix = loadMatrix(ops, identity);
      const [from, out] = [ops.buffer(20, 32), ops.buffer(20, 32)];
      for (let t = 0; t < 20; t++) ops.row(from, t).set(inputs.subarray(32 * t, 32 * t + 32));
      ops.projectGated({ from }, 20, matrix, matrix, out);
      ops.run();
      const results: Results = new Map();
      keep(results, "out", ops, out);
      return results;
    });
    inputs.forEach((x, n) => {
      const y = results.get("out")![n];
      const wanted = x / (1 + Math.exp(-x)) * x;
      // exp stops at 88, where silu is below 1e-36.
      assert(Math.abs(y - wanted) <= 5e-7 * Math.abs(wanted) + 1e-32, `silu(${x}) * ${x} = ${y}, not ${wanted}`);
    });
  },
});

// ---------------------------------------------------------------- attention

/** RMSNorm, rotation and attention in binary64. */
class PlainAttention {
  readonly #keys: Float64Array[][] = [];
  readonly #values: Float64Array[][] = [];

  constructor(
    readonly heads: number,
    readonly groups: number,
    readonly d: number,
    readonly table: Float32Array,
    readonly norms: readonly [Float32Array, Float32Array] | undefined,
  ) {}

  #turned(x: Float32Array, norm: Float32Array | undefined): Float64Array {
    const { d, table } = this;
    const at = (this.#keys.length - 1) * d;
    let v = Float64Array.from(x);
    if (norm) {
      const root = Math.sqrt(v.reduce((sum, x) => sum + x * x, 0) / d + 1e-6);
      v = v.map((x, n) => x / root * norm[n]);
    }
    const half = d / 2;
    return v.map((_, n) => {
      const [c, s] = [table[at + n % half], table[at + half + n % half]];
      return n < half ? v[n] * c - v[n + half] * s : v[n] * c + v[n - half] * s;
    });
  }

  token(q: Float32Array, k: Float32Array, v: Float32Array): Float64Array {
    const { heads, groups, d, norms } = this;
    const head = (x: Float32Array, n: number) => x.subarray(n * d, n * d + d);
    const keys: Float64Array[] = [];
    this.#keys.push(keys);
    for (let g = 0; g < groups; g++) keys.push(this.#turned(head(k, g), norms?.[1]));
    this.#values.push(Array.from({ length: groups }, (_, g) => Float64Array.from(head(v, g))));
    const out = new Float64Array(heads * d);
    for (let h = 0; h < heads; h++) {
      const g = Math.floor(h * groups / heads);
      const query = this.#turned(head(q, h), norms?.[0]);
      const scores = this.#keys.map((keys) => keys[g].reduce((sum, k, n) => sum + k * query[n], 0) / Math.sqrt(d));
      const top = Math.max(...scores);
      const parts = scores.map((s) => Math.exp(s - top));
      const total = parts.reduce((a, b) => a + b);
      parts.forEach((part, p) => this.#values[p][g].forEach((v, n) => out[h * d + n] += part / total * v));
    }
    return out;
  }
}

for (const [headDim, heads, groups] of [[4, 1, 1], [4, 6, 2], [8, 4, 2], [20, 3, 3], [64, 9, 3], [128, 2, 1]]) {
  for (const [normed, activations] of [[false, "f32"], [true, "f32"], [false, "i16"], [true, "i8"]] as const) {
    const what = `${heads} heads of ${headDim} over ${groups}, ${activations}${normed ? ", normalized" : ""}`;
    const tolerance = { f32: 2e-5, i16: 5e-3, i8: 8e-2 }[activations];
    Deno.test({
      name: `Pool.attend with ${what} gives the bits of Reference, near those of binary64`,
      ...unsanitized,
      async fn() {
        for (const batches of [[1, 1, 1, 1, 1, 1], [5, 1, 1], [33, 1], [3, 4, 2, 1], [70, 1, 2]]) {
          const random = new Random(headDim + heads);
          const count = batches.reduce((a, b) => a + b);
          const q = Array.from({ length: count }, () => numbers(heads * headDim, random, 1.5));
          const k = Array.from({ length: count }, () => numbers(groups * headDim, random, 1.5));
          const v = Array.from({ length: count }, () => numbers(groups * headDim, random));
          const table = new Float32Array(count * headDim);
          for (let p = 0; p < count; p++) {
            for (let n = 0; n < headDim / 2; n++) {
              table[p * headDim + n] = Math.cos(p / (n + 1));
              table[p * headDim + headDim / 2 + n] = Math.sin(p / (n + 1));
            }
          }
          const norms = normed ? [numbers(headDim, random), numbers(headDim, random)] as const : undefined;
          const results = await agree(activations, (ops) => {
            const cache = ops.cache(count, groups, headDim);
            const rope = ops.ropeTable(count, table);
            const [qNorm, kNorm] = (norms ?? []).map((norm) => ({ weight: loadVector(ops, norm), eps: 1e-6 }));
            const most = Math.max(...batches);
            const [bq, bk, bv, out] = [heads, groups, groups, heads].map((n) => ops.buffer(most, n * headDim));
            const results: Results = new Map();
            let position = 0;
            for (const tokens of batches) {
              for (let t = 0; t < tokens; t++) {
                ops.row(bq, t).set(q[position + t]);
                ops.row(bk, t).set(k[position + t]);
                ops.row(bv, t).set(v[position + t]);
              }
              ops.attend({ q: bq, k: bk, v: bv, out, cache, rope, heads, position, qNorm, kNorm }, tokens);
              ops.run();
              for (let t = 0; t < tokens; t++) results.set(`position ${position + t}`, ops.row(out, t).slice());
              position += tokens;
            }
            return results;
          });
          const plain = new PlainAttention(heads, groups, headDim, table, norms);
          for (let p = 0; p < count; p++) {
            const wanted = plain.token(q[p], k[p], v[p]);
            results.get(`position ${p}`)!.forEach((y, n) => {
              assert(Math.abs(y - wanted[n]) < tolerance, `position ${p}, value ${n}: ${y}, not ${wanted[n]}`);
            });
          }
        }
      },
    });
  }
}

Deno.test({
  name: "Pool.attend over several sequences in one cache gives the bits of each alone",
  ...unsanitized,
  async fn() {
    const [heads, groups, headDim] = [4, 2, 20];
    const lengths = [5, 33, 1, 40];
    for (const activations of ACTIVATIONS) {
      const run = (together: boolean) => (ops: Operations) => {
        const random = new Random(12);
        const caches = lengths.map(() => ops.cache(together ? 192 : 64, groups, headDim));
        const rope = ops.ropeTable(64, numbers(64 * headDim, random));
        const [q, k, v, out] = [heads, groups, groups, heads].map((n) => ops.buffer(80, n * headDim));
        const results: Results = new Map();
        // First all tokens but one of each sequence, then that one.
        for (const last of [false, true]) {
          for (const buffer of [q, k, v]) {
            for (let t = 0; t < buffer.tokens; t++) ops.row(buffer, t).set(numbers(buffer.width, random));
          }
          let [first, start] = [0, 0];
          for (const [n, length] of lengths.entries()) {
            const tokens = last ? 1 : length - 1;
            const places = together ? { cache: caches[0], start } : { cache: caches[n] };
            const attention = { q, k, v, out, rope, heads, first, position: last ? length - 1 : 0, ...places };
            if (tokens > 0) ops.attend(attention, tokens);
            first += tokens;
            start += length > 32 ? 64 : 32;
          }
          ops.run();
          keep(results, last ? "last" : "before", ops, out);
        }
        return results;
      };
      const alone = run(false)(new Reference(activations));
      for (const [name, row] of await agree(activations, run(true))) {
        assertSameBits(row, alone.get(name)!, `${activations}: ${name}`);
      }
    }
  },
});

// ---------------------------------------------------------------- comparison

/** Rows of logits, by what is special about them. */
const LOGITS: readonly { name: string; make(width: number, random: Random): Float32Array }[] = [
  { name: "ordinary", make: (width, random) => numbers(width, random, 4) },
  { name: "alike", make: (width) => new Float32Array(width).fill(-3) },
  { name: "zeros of both signs", make: (width) => Float32Array.from({ length: width }, (_, n) => n % 2 ? 0 : -0) },
  { name: "few values", make: (width, random) => numbers(width, random).map(Math.round) },
  { name: "far apart", make: (width, random) => numbers(width, random, 1e3) },
  {
    name: "huge",
    make: (width, random) => numbers(width, random, 1e38).map((x) => Math.max(-3e38, Math.min(3e38, x))),
  },
  {
    name: "not finite",
    make(width, random) {
      const row = numbers(width, random);
      row[random.below(width)] = [NaN, Infinity, -Infinity][random.below(3)];
      return row;
    },
  },
];

Deno.test({
  name: "Pool.compare gives the bits of Reference, near those of the formulas in binary64",
  ...unsanitized,
  async fn() {
    for (const width of [1, 2, 3, 4, 5, 6, 7, 8, 31, 33, 1001]) {
      const random = new Random(width);
      const pairs = LOGITS.flatMap((a) => LOGITS.map((b) => [a.make(width, random), b.make(width, random)] as const));
      const results = await agree("f32", (ops) => {
        const [p, q] = [0, 1].map((which) => {
          const buffer = ops.buffer(pairs.length, width);
          pairs.forEach((pair, t) => ops.row(buffer, t).set(pair[which]));
          return buffer;
        });
        const results: Results = new Map();
        for (const tokens of [1, pairs.length]) {
          ops.compare(p, q, tokens);
          ops.run();
          for (let t = 0; t < tokens; t++) {
            const { topP, topQ, sumP, sumQ, cross, ...rows } = ops.compared(t);
            assertSameBits(rows.p, pairs[t][0], "p");
            assertSameBits(rows.q, pairs[t][1], "q");
            // The bits of binary64 as pairs of binary32.
            const sums = new Float32Array(Float64Array.of(topP, topQ, sumP, sumQ, cross).buffer);
            results.set(`${tokens} rows of ${width}, row ${t}`, sums);
          }
          assertThrows(() => ops.compared(tokens), RangeError, "the row of a buffer");
        }
        return results;
      });
      for (const [t, [p, q]] of pairs.entries()) {
        const sums = results.get(`${pairs.length} rows of ${width}, row ${t}`)!;
        const [topP, topQ, sumP, sumQ, cross] = new Float64Array(sums.slice().buffer);
        const finite = [p, q].map((row) => row.every(Number.isFinite));
        const tops = [p, q].map((row, n) => finite[n] ? row.indexOf(Math.max(...row)) : -1);
        assertEquals([topP, topQ], tops.map((top, n) => finite[n] && [p, q][n].every((x) => x === 0) ? 0 : top));
        if (!finite[0] || !finite[1]) {
          assertEquals([sumP, sumQ, cross], [0, 0, 0]);
          continue;
        }
        const parts = [...p].map((x) => Math.exp(x - p[topP]));
        const sum = (values: number[]) => values.reduce((a, b) => a + b, 0);
        const terms = parts.map((part, n) => part * (p[n] - q[n]));
        const wanted = [sum(parts), sum([...q].map((x) => Math.exp(x - q[topQ]))), sum(terms)];
        const sizes = [wanted[0], wanted[1], sum(terms.map(Math.abs))];
        [sumP, sumQ, cross].forEach((found, n) => {
          // What is left of exp(-708) times 1e38 is nothing.
          const off = Math.abs(found - wanted[n]);
          assert(off <= 1e-13 * sizes[n] + 1e-260, `${width}, ${t}: sum ${n} is ${found}, not ${wanted[n]}`);
        });
      }
    }
  },
});

// ---------------------------------------------------------------- memories

/** Bytes of a large matrix, made fast: words of noise, with what a weight must not be masked out. */
function noise(format: Format, rows: number, columns: number): Weights {
  const bytes = new Uint8Array(rows * columns / format.blockWeights * format.blockBytes);
  const words = new Uint32Array(bytes.buffer);
  const random = new Random(rows);
  for (let n = 0; n < words.length; n++) words[n] = random.bits();
  if (format === F32) { for (let n = 0; n < words.length; n++) words[n] = (words[n] & 0x81ffffff) | 0x3c000000; }
  if (format === BF16) { for (let n = 0; n < words.length; n++) words[n] = (words[n] & 0x81ff81ff) | 0x3c003c00; }
  if (format.kind === "block") {
    for (let at = 1; at < bytes.length; at += format.blockBytes) bytes[at] = (bytes[at] & 0x83) | 0x24;
  }
  return { format, rows, columns, bytes, values: new Float64Array() };
}

// Of 12 MiB half is kept free and one is for reading, which leaves 5 for weights. Each of these takes more than 8 and
// less than 11 as it is held: 4 bytes a weight, 2, and 1 + 1/16 or 1/2 + 1/16 with the scales.
const SMALL = 12 << 20;
const LARGE: readonly [Format, number, number, number][] = [
  [F32, 2203, 1000, 2203 * 1000 * 4],
  [F64, 2203, 1000, 2203 * 1000 * 4],
  [BF16, 2203, 2000, 2203 * 2000 * 2],
  [Q8B32, 3901, 2048, 3901 * 2048 * 1.0625],
  [Q4B32, 7401, 2048, 7401 * 2048 * 0.5625],
];

Deno.test("Pool gives the same bits when weights lie in several memories", () => {
  for (const [format, rows, columns, held] of LARGE) {
    assert(held > 8 * 2 ** 20 && held < 11 * 2 ** 20);
    const w = format === F64 ? weights(format, rows, columns, new Random(3), false) : noise(format, rows, columns);
    for (const activations of format.kind === "block" ? ACTIVATIONS : ["f32"] as const) {
      const program = (ops: Operations) => {
        const random = new Random(2);
        const matrix = loadMatrix(ops, w);
        const other = loadMatrix(ops, weights(format, rows, 32, random, false));
        const norm = { weight: loadVector(ops, numbers(columns, random)), eps: 1e-5 };
        const bias = loadVector(ops, numbers(rows, random));
        const from = ops.buffer(MORE_TOKENS, columns);
        const narrow = ops.buffer(MORE_TOKENS, 32);
        for (let t = 0; t < MORE_TOKENS; t++) {
          ops.row(from, t).set(numbers(columns, random));
          ops.row(narrow, t).set(numbers(32, random));
        }
        const results: Results = new Map();
        const out = ops.buffer(MORE_TOKENS, rows);
        const rowsOf = ops.buffer(MORE_TOKENS, columns);
        for (const tokens of format === F64 ? [2] : [1, MORE_TOKENS]) {
          const what = `${format.name} ${activations}, ${tokens} tokens`;
          ops.project({ from, norm }, tokens, [{ matrix, bias, out }]);
          ops.projectAdd({ from: narrow }, tokens, other, out);
          ops.projectAdd({ from }, tokens, matrix, out);
          ops.embed(matrix, Array.from({ length: tokens }, (_, t) => (t * 1237 + rows - 1) % rows), rowsOf);
          ops.run();
          keep(results, what, ops, out);
          keep(results, `${what}, embedded`, ops, rowsOf);
          ops.projectGated({ from }, tokens, matrix, matrix, out);
          ops.run();
          keep(results, `${what}, gated`, ops, out);
        }
        return results;
      };
      const whole = using(new Pool({ threads: 1, activations }), program);
      const pieces = using(new Pool({ threads: 2, activations, memoryBytes: SMALL }), program);
      for (const [name, row] of pieces) assertSameBits(row, whole.get(name)!, name);
    }
  }
});

Deno.test("Pool in several memories gives the bits of Reference", () => {
  const w = noise(Q8B32, 3901, 2048);
  const program = (ops: Operations) => {
    const matrix = loadMatrix(ops, w);
    const [from, out, row] = [ops.buffer(1, 2048), ops.buffer(1, 3901), ops.buffer(3, 2048)];
    ops.row(from, 0).set(numbers(2048, new Random(1)));
    ops.project({ from }, 1, [{ matrix, out }]);
    ops.embed(matrix, [0, 1900, 3900], row);
    ops.run();
    const results: Results = new Map();
    keep(results, "product", ops, out);
    keep(results, "embedded", ops, row);
    return results;
  };
  const defined = program(new Reference("i16"));
  const pieces = using(new Pool({ threads: 2, activations: "i16", memoryBytes: SMALL }), program);
  for (const [name, row] of pieces) assertSameBits(row, defined.get(name)!, name);
});

Deno.test("Pool.matrix and Reference.matrix name the block whose scale is not finite, in whichever memory it lies", () => {
  for (const [format, rows] of [[Q8B32, 3901], [Q4B32, 7001]] as const) {
    const { bytes } = noise(format, rows, 2048);
    const blocks = bytes.length / format.blockBytes;
    for (const block of [0, 64 * 9 + 5, blocks >> 1, blocks - 1]) {
      for (const bits of [0x7c00, 0xfc00, 0x7e01]) {
        const broken = bytes.slice();
        new DataView(broken.buffer).setUint16(block * format.blockBytes, bits, true);
        for (const ops of [new Reference(), new Pool({ threads: 1 }), new Pool({ threads: 1, memoryBytes: SMALL })]) {
          const weights = { format, rows, columns: 2048, bytes: broken, values: new Float64Array() };
          const error = using(ops, (ops) => assertThrows(() => loadMatrix(ops, weights), BadScale));
          assertEquals(error.block, block);
        }
      }
    }
  }
});

/** Reads as `loadMatrix` does. */
function reading({ bytes }: Pick<Weights, "bytes">) {
  return (offset: number, into: Uint8Array) => into.set(bytes.subarray(offset, offset + into.length));
}

Deno.test("a matrix or a vector that is replaced gives what a new one gives, wherever it lies", () => {
  // The last has rows that are too long for the area in which they are packed.
  for (
    const [format, rows, columns] of [[Q8B32, 3901, 2048], [BF16, 37, 100], [F32, 11, 40_000]] as const
  ) {
    const [first, second] = [noise(format, rows, columns), weights(format, rows, columns, new Random(8), false)];
    const memoryBytes = columns > 4096 ? undefined : SMALL;
    const random = new Random(4);
    const x = numbers(columns, random);
    const norms = [numbers(columns, random), numbers(columns, random)];
    const program = (ops: Operations, replaced: boolean) => {
      const [from, out] = [ops.buffer(2, columns), ops.buffer(2, rows)];
      const matrix = loadMatrix(ops, replaced ? first : second);
      const norm = { weight: loadVector(ops, norms[replaced ? 0 : 1]), eps: 1e-5 };
      for (const t of [0, 1]) ops.row(from, t).set(x);
      if (replaced) {
        // What was called before still has the weights of then.
        ops.project({ from, norm }, 1, [{ matrix, out }]);
        ops.replaceVector(norm.weight, F32, reading({ bytes: new Uint8Array(norms[1].buffer) }));
        const before = ops.row(out, 0).slice();
        ops.replace(matrix, reading(second));
        ops.run();
        assertSameBits(ops.row(out, 0), before, "before");
      }
      ops.project({ from, norm }, 2, [{ matrix, out }]);
      ops.run();
      const results: Results = new Map();
      keep(results, `${format.name}`, ops, out);
      return results;
    };
    const fresh = using(new Pool({ threads: 1 }), (ops) => program(ops, false));
    for (const ops of [new Reference(), new Pool({ threads: 1 }), new Pool({ threads: 3, memoryBytes })]) {
      if (ops instanceof Reference && rows * columns > 1e6) continue;
      for (const [name, row] of using(ops, (ops) => program(ops, true))) assertSameBits(row, fresh.get(name)!, name);
    }
  }
});

Deno.test("a replaced matrix names the block whose scale is not finite, and one of another pool is refused", () => {
  const good = noise(Q4B32, 40, 64);
  const bytes = good.bytes.slice();
  new DataView(bytes.buffer).setUint16(33 * 18, 0x7c00, true);
  for (const ops of [new Reference(), new Pool({ threads: 1 })]) {
    using(ops, (ops) => {
      const matrix = loadMatrix(ops, good);
      const error = assertThrows(() => ops.replace(matrix, reading({ bytes })), BadScale);
      assertEquals(error.block, 33);
      assertThrows(() => ops.replace({ ...matrix }, reading(good)), RangeError, "the matrix was made by another pool");
      const vector = loadVector(ops, numbers(8, new Random(1)));
      assertThrows(() => ops.replaceVector(vector, Q8B32, () => {}), RangeError, "can't have the format Q8B32");
      assertThrows(() => ops.replaceVector({ length: 8 }, F32, () => {}), RangeError, "was made by another pool");
    });
  }
});

Deno.test("Pool.reset makes room for another model, which gives what it gives in a new pool", async () => {
  const ids = [3, 60, 7, 7, 41];
  const [qwen, head] = [`${MODELS}/qwen3`, `${MODELS}/head-dim`];
  for (const threads of THREADS) {
    const fresh = (directory: string) => {
      return using(new Pool({ threads }), (ops) => load(ops, directory).feed(ids).slice());
    };
    const wanted = new Map([TINY, qwen, head].map((directory) => [directory, fresh(directory)]));
    const pool = new Pool({ threads });
    for (const directory of [TINY, qwen, head, TINY, TINY, head, qwen]) {
      const model = load(pool, directory);
      assertSameBits(model.feed(ids), wanted.get(directory)!, `${threads} threads, ${directory}`);
      model.feed([5]);
      await pool.reset();
    }
    // Also when nothing was run, and after weights in several memories.
    load(pool, qwen);
    await pool.reset();
    await pool.reset();
    assertSameBits(load(pool, TINY).feed(ids), wanted.get(TINY)!, `${threads} threads, after an unused model`);
    pool.close();
  }
  const pool = new Pool({ threads: 2, memoryBytes: SMALL });
  const matrix = loadMatrix(pool, noise(F32, 2203, 1000));
  const [from, out] = [pool.buffer(1, 1000), pool.buffer(1, 2203)];
  pool.row(from, 0).fill(1);
  pool.project({ from }, 1, [{ matrix, out }]);
  pool.run();
  await pool.reset();
  const small = using(new Pool({ threads: 1 }), (ops) => load(ops, TINY).feed(ids).slice());
  assertSameBits(load(pool, TINY).feed(ids), small, "after several memories");
  pool.close();
});

Deno.test("Pool runs programs of changing lengths one right after the other", () => {
  const random = new Random(4);
  const w = weights(BF16, 24, 32, random);
  const x = numbers(32, random);
  for (const threads of [2, 3]) {
    using(new Pool({ threads }), (ops) => {
      const matrix = loadMatrix(ops, w);
      const [from, out] = [ops.buffer(1, 32), ops.buffer(1, 24)];
      ops.row(from, 0).set(x);
      ops.project({ from }, 1, [{ matrix, out }]);
      ops.run();
      const once = ops.row(out, 0).slice();
      // Adding a product n times to zero: every addition is rounded alike here and in the loop below.
      for (let round = 0; round < 500; round++) {
        const times = 1 + (round * 7) % 11;
        const wanted = new Float32Array(24);
        ops.row(out, 0).fill(0);
        for (let n = 0; n < times; n++) {
          ops.projectAdd({ from }, 1, matrix, out);
          once.forEach((y, n) => wanted[n] += y);
        }
        ops.run();
        assertSameBits(ops.row(out, 0), wanted, `${threads} threads, round ${round}`);
      }
      ops.run();
    });
  }
});

/** A product whose matrix is damaged in the pool's memory once it is loaded: its record (see view.ts) begins with `record`. */
function damaged(pool: Pool, w: Weights, record: readonly number[], at: number, value: number): () => void {
  const matrix = loadMatrix(pool, w);
  const [from, out] = [pool.buffer(1, w.columns), pool.buffer(1, w.rows)];
  const { buffer, byteOffset } = pool.row(from, 0);
  const words = new Float64Array(buffer, 0, byteOffset >> 3);
  const start = words.findLastIndex((_, n) => record.every((word, k) => words[n + k] === word));
  assert(start > 0);
  words[start + at] = value;
  return () => {
    pool.project({ from }, 1, [{ matrix, out }]);
    pool.run();
  };
}

for (const threads of THREADS) {
  Deno.test({
    name: `Pool.run of ${threads} threads says that one has failed, and after reset the pool is as good as new`,
    ...unsanitized,
    async fn() {
      const ids = [3, 60, 7];
      const wanted = using(new Pool({ threads }), (ops) => load(ops, TINY).feed(ids).slice());
      const large = noise(F32, 2203, 1000);
      for (let round = 0; round < 4; round++) {
        const pool = new Pool({ threads, memoryBytes: SMALL });
        // Every piece fails, since the record names kind 9; or those of the rows that lie in the second memory, now the 9th.
        const fail = round % 2 === 0
          ? damaged(pool, noise(F32, 3200, 32), [4, 1, 1, 0], 0, 9)
          : damaged(pool, large, [4, 32], 7, 9);
        const said = assertThrows(fail, Error).message;
        assertThrows(fail, Error, "a thread failed: ", "the results that are there are not to be trusted");
        if (round < 2) {
          await pool.reset();
          assertSameBits(load(pool, TINY).feed(ids), wanted, `after ${said}`);
        }
        pool.close();
      }
    },
  });
}

Deno.test("Pool refuses after the first operation what its scratch has no room for", () => {
  using(new Pool({ threads: 1 }), (ops) => {
    const load = (columns: number) => loadMatrix(ops, weights(BF16, 8, columns, new Random(1), false));
    const matrix = load(64);
    const [from, out] = [ops.buffer(2, 64), ops.buffer(2, 8)];
    ops.cache(32, 1, 64);
    ops.project({ from }, 1, [{ matrix, out }]);
    ops.run();
    load(64);
    const [far, many] = [() => ops.buffer(2, 1 << 25), () => ops.cache(32, 1 << 14, 64)];
    for (const larger of [() => load(96), () => ops.buffer(3, 8), () => ops.cache(33, 1, 64), far, many]) {
      assertThrows(larger, RangeError, "fixed at the first operation");
    }
  });
  using(new Pool({ threads: 1, memoryBytes: SMALL }), (ops) => {
    const small = noise(BF16, 8, 1024);
    const matrix = loadMatrix(ops, small);
    const [from, out] = [ops.buffer(1, 1024), ops.buffer(1, 8)];
    ops.project({ from }, 1, [{ matrix, out }]);
    ops.run();
    loadMatrix(ops, small);
    assertThrows(() => loadMatrix(ops, noise(BF16, 2203, 1024)), RangeError, "fixed at the first operation");
  });
});

// ---------------------------------------------------------------- arguments

/** What of every kind an implementation makes, for two tokens. */
function handles(ops: Operations) {
  const random = new Random(1);
  return {
    matrix: loadMatrix(ops, weights(BF16, 8, 8, random, false)),
    wide: loadMatrix(ops, weights(BF16, 8, 16, random, false)),
    vector: loadVector(ops, numbers(8, random)),
    long: loadVector(ops, numbers(16, random)),
    buffer: ops.buffer(2, 8),
    out: ops.buffer(2, 8),
    single: ops.buffer(1, 8),
    broad: ops.buffer(2, 16),
    cache: ops.cache(3, 2, 4),
    rope: ops.ropeTable(4, new Float32Array(16)),
    turned: ops.ropeTable(4, new Float32Array(32)),
  };
}

type Given = ReturnType<typeof handles>;

function attention({ buffer, out, cache, rope }: Given) {
  return { q: buffer, k: buffer, v: buffer, out, cache, rope, heads: 2, position: 0 };
}

const WRONG: Record<string, [call: (ops: Operations, given: Given) => unknown, message: string]> = {
  "an id that is the number of rows": [(o, g) => o.embed(g.matrix, [0, 8], g.out), "a token id is 8, "],
  "a huge id": [(o, g) => o.embed(g.matrix, [2 ** 31 - 1], g.out), "a token id is 2147483647, "],
  "a negative id": [(o, g) => o.embed(g.matrix, [-1], g.out), "a token id is -1, "],
  "an id with a fraction": [(o, g) => o.embed(g.matrix, [1.5], g.out), "a token id is 1.5, "],
  "an id that is no number": [(o, g) => o.embed(g.matrix, [NaN], g.out), "a token id is NaN, "],
  "more ids than rows of the output": [(o, g) => o.embed(g.matrix, [1, 2, 3], g.out), "the number of ids is 3"],
  "no id": [(o, g) => o.embed(g.matrix, [], g.out), "the number of ids is 0"],
  "a table of other columns": [(o, g) => o.embed(g.wide, [1], g.out), "the width of the output is 8, expected 16"],
  "more tokens than rows of the input": [
    (o, g) => o.project({ from: g.single }, 2, [{ matrix: g.matrix, out: g.out }]),
    "the number of tokens of the input is 2",
  ],
  "rows of the input that begin too late": [
    (o, g) => o.project({ from: g.buffer, first: 1 }, 2, [{ matrix: g.matrix, out: g.out }]),
    "the number of tokens of the input is 2",
  ],
  "a first row beyond the input": [
    (o, g) => o.project({ from: g.buffer, first: 2 }, 1, [{ matrix: g.matrix, out: g.out }]),
    "the first row of the input is 2",
  ],
  "a negative first row": [
    (o, g) => o.project({ from: g.buffer, first: -1 }, 1, [{ matrix: g.matrix, out: g.out }]),
    "the first row of the input is -1",
  ],
  "more tokens than rows of the output": [
    (o, g) => o.projectAdd({ from: g.buffer }, 2, g.matrix, g.single),
    "the number of tokens of the output is 2",
  ],
  "no token": [
    (o, g) => o.projectAdd({ from: g.buffer }, 0, g.matrix, g.out),
    "the number of tokens of the input is 0",
  ],
  "a matrix of other columns than the input": [
    (o, g) => o.project({ from: g.buffer }, 1, [{ matrix: g.matrix, out: g.out }, { matrix: g.wide, out: g.out }]),
    "the number of columns of a matrix is 16, expected 8",
  ],
  "an output of another width": [
    (o, g) => o.projectGated({ from: g.buffer }, 1, g.matrix, g.matrix, g.broad),
    "the width of the output is 16, expected 8",
  ],
  "a bias of another length": [
    (o, g) => o.projectAdd({ from: g.buffer }, 1, g.matrix, g.out, g.long),
    "the length of a bias is 16, expected 8",
  ],
  "a norm of another length": [
    (o, g) => o.projectGated({ from: g.buffer, norm: { weight: g.long, eps: 1 } }, 1, g.matrix, g.matrix, g.out),
    "the length of a norm's weight is 16, expected 8",
  ],
  "a position beyond the cache": [
    (o, g) => o.attend({ ...attention(g), position: 3 }, 1),
    "the first position is 3, expected a whole number from 0 to 2",
  ],
  "tokens beyond the cache": [(o, g) => o.attend({ ...attention(g), position: 2 }, 2), "the first position is 2"],
  "a negative position": [(o, g) => o.attend({ ...attention(g), position: -1 }, 1), "the first position is -1"],
  "more tokens than keys": [(o, g) => o.attend({ ...attention(g), k: g.single }, 2), "the number of tokens is 2"],
  "values of another width": [(o, g) => o.attend({ ...attention(g), v: g.broad }, 1), "is 16, expected 8"],
  "queries of another width": [(o, g) => o.attend({ ...attention(g), q: g.broad }, 1), "is 16, expected 8"],
  "more heads than queries": [(o, g) => o.attend({ ...attention(g), heads: 4 }, 1), "is 8, expected 16"],
  "heads that can't share keys": [(o, g) => o.attend({ ...attention(g), heads: 3 }, 1), "is 1.5, "],
  "a table for other heads": [(o, g) => o.attend({ ...attention(g), rope: g.turned }, 1), "is 8, expected 4"],
  "a norm of other heads": [
    (o, g) => o.attend({ ...attention(g), kNorm: { weight: g.vector, eps: 1 } }, 1),
    "the length of a norm's weight is 8, expected 4",
  ],
  "a row of a buffer that is not there": [(o, g) => o.row(g.out, 2), "the row of a buffer is 2"],
  "a negative row of a buffer": [(o, g) => o.row(g.out, -1), "the row of a buffer is -1"],
  "a matrix without rows": [(o) => o.matrix(F32, 0, 8, () => {}), "the number of rows is 0"],
  "a matrix of half a column": [(o) => o.matrix(F32, 8, 1.5, () => {}), "the number of columns is 1.5"],
  "a part of a block": [(o) => o.matrix(Q4B32, 8, 48, () => {}), "48 columns, expected a multiple of 32"],
  "a vector of blocks": [(o) => o.vector(Q8B32, 32, () => {}), "a vector can't have the format Q8B32"],
  "a vector without values": [(o) => o.vector(F32, 0, () => {}), "the length of a vector is 0"],
  "a buffer without rows": [(o) => o.buffer(0, 8), "the number of tokens of a buffer is 0"],
  "a buffer without columns": [(o) => o.buffer(1, NaN), "the width of a buffer is NaN"],
  "a cache without positions": [(o) => o.cache(0, 1, 4), "the number of positions of a cache is 0"],
  "a cache of heads that the kernels can't read": [(o) => o.cache(1, 1, 6), "the head dimension is 6"],
  "a table whose rows are not whole": [(o) => o.ropeTable(3, new Float32Array(8)), "for each position of a table"],
};

for (const [name, make] of [["Reference", () => new Reference()], ["Pool", () => new Pool({ threads: 2 })]] as const) {
  Deno.test(`${name} refuses sizes and indexes that would become the address of something else, naming them`, () => {
    using(make(), (ops) => {
      const given = handles(ops);
      for (const [what, [call, message]] of Object.entries(WRONG)) {
        assertThrows(() => call(ops, given), RangeError, message, what);
      }
      // Nothing of what was refused is left: this would be done with it.
      ops.embed(given.matrix, [7, 0], given.out);
      ops.attend(attention(given), 2);
      ops.run();
    });
  });

  Deno.test(`${name} refuses what another implementation made, and what it made itself before a reset`, async () => {
    const [ops, other, plain] = [make(), new Pool({ threads: 1 }), new Reference()];
    try {
      const old = handles(ops);
      ops.embed(old.matrix, [7], old.out);
      ops.run();
      await ops.reset();
      const own = handles(ops);
      for (const foreign of [old, handles(other), handles(plain)]) {
        const norm = { weight: foreign.vector, eps: 1 };
        const calls: Record<string, (() => unknown)[]> = {
          matrix: [
            () => ops.embed(foreign.matrix, [1], own.out),
            () => ops.project({ from: own.buffer }, 1, [{ matrix: foreign.matrix, out: own.out }]),
            () => ops.projectAdd({ from: own.buffer }, 1, foreign.matrix, own.out),
            () => ops.projectGated({ from: own.buffer }, 1, own.matrix, foreign.matrix, own.out),
          ],
          buffer: [
            () => ops.row(foreign.out, 0),
            () => ops.embed(own.matrix, [1], foreign.out),
            () => ops.projectAdd({ from: foreign.buffer }, 1, own.matrix, own.out),
            () => ops.projectAdd({ from: own.buffer }, 1, own.matrix, foreign.out),
            () => ops.attend({ ...attention(own), q: foreign.buffer }, 1),
            () => ops.attend({ ...attention(own), k: foreign.buffer }, 1),
            () => ops.attend({ ...attention(own), v: foreign.buffer }, 1),
            () => ops.attend({ ...attention(own), out: foreign.out }, 1),
          ],
          vector: [
            () => ops.projectAdd({ from: own.buffer, norm }, 1, own.matrix, own.out),
            () => ops.projectAdd({ from: own.buffer }, 1, own.matrix, own.out, foreign.vector),
          ],
          cache: [() => ops.attend({ ...attention(own), cache: foreign.cache }, 1)],
          table: [() => ops.attend({ ...attention(own), rope: foreign.rope }, 1)],
        };
        for (const [kind, list] of Object.entries(calls)) {
          for (const call of list) {
            assertThrows(call, RangeError, `the ${kind} was made by another pool, or freed by reset`);
          }
        }
      }
    } finally {
      for (const each of [ops, other]) each.close();
    }
  });
}

Deno.test("Pool decodes weights of a float format that it has no kernels for", () => {
  // One byte, -128 to 127, in halves.
  const halves: FloatFormat = {
    ...F32,
    name: "BYTE",
    blockBytes: 1,
    decode(view, offset, count, out) {
      for (let n = 0; n < count; n++) out[n] = view.getInt8(offset + n) / 2;
    },
  };
  const run = (ops: Operations) => {
    const bytes = Uint8Array.from({ length: 24 * 128 }, (_, n) => n * 37);
    const matrix = loadMatrix(ops, { format: halves, rows: 24, columns: 128, bytes, values: new Float64Array() });
    const [from, out, rows] = [ops.buffer(1, 128), ops.buffer(1, 24), ops.buffer(24, 128)];
    ops.row(from, 0).set(numbers(128, new Random(1)));
    ops.project({ from }, 1, [{ matrix, out }]);
    ops.embed(matrix, Array.from({ length: 24 }, (_, n) => n), rows);
    ops.run();
    const results: Results = new Map();
    keep(results, "out", ops, out);
    keep(results, "rows", ops, rows);
    return results;
  };
  const [defined, pooled] = [run(new Reference()), using(new Pool({ threads: 2 }), run)];
  for (const [name, row] of defined) assertSameBits(pooled.get(name)!, row, name);
  assertEquals(defined.get("rows")!.slice(0, 5), Float32Array.of(0, 18.5, 37, 55.5, -54));
});

Deno.test({
  name: "Pool takes more of everything than one command or one program has room for",
  ...unsanitized,
  async fn() {
    for (const activations of ACTIVATIONS) {
      for (const tokens of activations === "i16" ? [3] : [1]) {
        await agree(activations, (ops) => {
          const random = new Random(8);
          const [a, b] = [Q4B32, BF16].map((format) => loadMatrix(ops, weights(format, 32, 32, random, false)));
          const [x, y] = [ops.buffer(3, 32), ops.buffer(3, 32)];
          const outs = Array.from({ length: 8 }, () => ops.buffer(3, 32));
          for (let t = 0; t < 3; t++) ops.row(x, t).set(numbers(32, random));
          const results: Results = new Map();
          // Two tables of ids in one program.
          ops.embed(a, Array.from({ length: tokens }, (_, t) => t), outs[0]);
          ops.embed(b, Array.from({ length: tokens }, (_, t) => 31 - t), outs[1]);
          ops.run();
          keep(results, "first ids", ops, outs[0]);
          keep(results, "second ids", ops, outs[1]);
          // Eight matrices for one input.
          ops.project({ from: x }, tokens, outs.map((out, n) => ({ matrix: n % 3 === 2 ? b : a, out })));
          // Each of these reads what the one before wrote.
          for (let n = 0; n < MAX_COMMANDS + 100; n++) {
            ops.projectAdd({ from: n % 2 ? y : x }, tokens, a, n % 2 ? x : y);
            if (n % 16 === 0) {
              for (const buffer of [x, y]) ops.project({ from: outs[7] }, tokens, [{ matrix: b, out: buffer }]);
            }
          }
          ops.run();
          [x, y, ...outs].forEach((buffer, n) =>
            keep(results, `${activations}, ${tokens} tokens, buffer ${n}`, ops, buffer)
          );
          return results;
        });
      }
    }
  },
});

Deno.test({
  name: "Pool.attend normalizes queries and keys each by its own norm, or one of them",
  ...unsanitized,
  async fn() {
    for (const norms of [["q"], ["k"], ["q", "k"]]) {
      for (const tokens of [1, 3]) {
        await agree("f32", (ops) => {
          const random = new Random(3);
          const [qNorm, kNorm] = [0.5, 2].map((eps) => ({ weight: loadVector(ops, numbers(8, random)), eps }));
          const cache = ops.cache(3, 1, 8);
          const rope = ops.ropeTable(3, numbers(24, random));
          const [q, k, v, out] = [16, 8, 8, 16].map((width) => ops.buffer(3, width));
          for (const buffer of [q, k, v]) {
            for (let t = 0; t < 3; t++) ops.row(buffer, t).set(numbers(buffer.width, random));
          }
          const given = { ...(norms.includes("q") ? { qNorm } : {}), ...(norms.includes("k") ? { kNorm } : {}) };
          ops.attend({ q, k, v, out, cache, rope, heads: 2, position: 0, ...given }, tokens);
          ops.run();
          const results: Results = new Map();
          keep(results, `norms ${norms}, ${tokens} tokens`, ops, out);
          return results;
        });
      }
    }
  },
});

Deno.test("Pool says that a memory has no room for eight rows of a matrix, or for the rest", () => {
  for (const memoryBytes of [1 << 20, 2 << 20, 3 << 20]) {
    using(new Pool({ threads: 1, memoryBytes }), (ops) => {
      assertThrows(
        () => loadMatrix(ops, weights(F32, 8, 20_000, new Random(1), false)),
        LimitError,
        `${memoryBytes} bytes`,
      );
    });
  }
});

Deno.test("Pool.checkGuards finds a byte that is written before or after an area, and no other", () => {
  for (
    const [at, message] of [[-1, "outside of all areas"], [0, ""], [127, ""], [128, "outside of all areas"]] as const
  ) {
    using(new Pool({ threads: 1, guardBytes: 64 }), (pool) => {
      const buffer = pool.buffer(1, 32);
      const { buffer: memory, byteOffset } = pool.row(buffer, 0);
      assert(pool.checkGuards() > 2 * 64);
      new Uint8Array(memory)[byteOffset + at] = 1;
      if (message === "") pool.checkGuards();
      else assertThrows(() => pool.checkGuards(), Error, `byte ${byteOffset + at} of memory 0, ${message}`);
    });
  }
});

Deno.test("A process that closes its pools ends by itself, workers asleep or not", async () => {
  const script = `
    import { Pool } from "${new URL("../../../lib/kernels/pool.ts", import.meta.url)}";
    import { load } from "${new URL("../../support/models.ts", import.meta.url)}";
    for (const wait of [0, 300]) {
      const pool = new Pool({ threads: 3 });
      load(pool, "${TINY}").feed([1, 2, 3]);
      await new Promise((resolve) => setTimeout(resolve, wait));
      pool.close();
    }
    new Pool({ threads: 2 }).close();
    console.log("closed");`;
  await inTemporary(async (directory) => {
    write(directory, { "pools.ts": script });
    const args = ["run", "--no-check", "--allow-all", "--config", `${ROOT}deno.json`, `${directory}/pools.ts`];
    const { code, out, err } = await execute(Deno.execPath(), args, { signal: AbortSignal.timeout(60_000) });
    assertEquals([code, out], [0, "closed\n"], err);
  });
});

// ---------------------------------------------------------------- exp

Deno.test("exp is within 2 units in the last place of Math.exp", () => {
  const single = new Float32Array(1);
  const bits = new Uint32Array(single.buffer);
  const unit = (x: number) => {
    single[0] = x;
    bits[0]++;
    const above = single[0];
    bits[0]--;
    return above - single[0];
  };
  let worst = 0;
  const check = (x: number) => {
    const y = exp(Math.fround(x));
    const wanted = Math.exp(Math.fround(x));
    const off = Math.abs(y - wanted) / unit(wanted);
    assert(off <= 2, `exp(${Math.fround(x)}) is ${y}, not ${wanted}: off by ${off} units`);
    worst = Math.max(worst, off);
  };
  for (let n = 0; n <= 200_000; n++) check(-87.29 + n * (88 + 87.29) / 200_000);
  for (let e = -40; e < 6; e++) for (const sign of [-1, 1]) for (const m of [1, 1.3, 1.7]) check(sign * m * 2 ** e);
  assert(worst > 0.4, "the sweep saw no error at all, which can't be");
});

Deno.test("exp is 1 at 0, and 0 far below", () => {
  assertEquals(exp(0), 1);
  assertEquals(exp(-0), 1);
  for (const x of [-Infinity, -1e30, -1000, -104, -88]) assert(Object.is(exp(x), 0), `exp(${x})`);
});
