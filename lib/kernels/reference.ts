/**
 * The operations of a decoder in plain TypeScript: the definition of every result, down to the order of the additions.
 * All arithmetic is in binary32 (Math.fround after each step, fma for two) unless a comment says otherwise.
 *
 * @module
 */

import { type BlockFormat, F16, type Format, matrixBytes } from "../format/blocks.ts";
import { f16IsFinite, f16ToF32 } from "../format/floats.ts";
import { Distribution } from "../measure/distribution.ts";
import {
  checkAttend,
  checkBuffer,
  checkCache,
  checkCompare,
  checkEmbed,
  checkMatrix,
  checkProject,
  checkRopeTable,
  checkRow,
} from "./checks.ts";
import { exp, roundHalfEven } from "./exponential.ts";
import { fma } from "./fused.ts";
import { Handles } from "./handles.ts";
import {
  type ActivationBuffer,
  type Activations,
  activationsFor,
  type Attention,
  ATTENTION_CHUNK,
  ATTENTION_TOP,
  BadScale,
  cacheFor,
  COLUMNS,
  type Input,
  type KeyValueCache,
  type Matrix,
  type Norm,
  type Operations,
  padded,
  type Pair,
  type Projection,
  type ReadBytes,
  type RopeTable,
  type Vector,
  vectorOf,
} from "./operations.ts";

const { fround } = Math;

/** A matrix with its bytes, as in the file. */
interface PlainMatrix extends Matrix {
  readonly bytes: DataView;
}
/** The keys and values of a cache, by position, then by head. */
interface PlainCache {
  readonly keys: Row[][];
  readonly values: Row[][];
}
/** A head in a cache. */
type Row = Float32Array | IntegerBlock;

/** An RMSNorm with the values of its weight. */
interface PlainNorm {
  readonly weight: Float32Array;
  readonly eps: number;
}

/** A block of activations, or a head, as integers: value n is about integers[n] * scale. */
interface IntegerBlock {
  readonly integers: number[];
  readonly scale: number;
}

/** The definition. Single-threaded, and slow. */
export class Reference implements Operations {
  readonly threads = 1;
  readonly #matrices = new Handles<Matrix, PlainMatrix>("matrix");
  readonly #vectors = new Handles<Vector, Float32Array>("vector");
  readonly #buffers = new Handles<ActivationBuffer, Float32Array[]>("buffer");
  readonly #caches = new Handles<KeyValueCache, PlainCache>("cache");
  readonly #tables = new Handles<RopeTable, Float32Array>("table");
  #pairs: Pair[] = [];

  /**
   * Creates an instance without matrices.
   *
   * @param activations the type of the activations that block formats are multiplied with
   */
  constructor(readonly activations: Activations = "f32") {}

  matrix(format: Format, rows: number, columns: number, read: ReadBytes): Matrix {
    checkMatrix(format, rows, columns);
    const bytes = new DataView(new ArrayBuffer(matrixBytes(format, rows, columns)));
    const matrix = { format, rows, columns };
    this.#matrices.add(matrix, { ...matrix, bytes });
    this.replace(matrix, read);
    return matrix;
  }

  replace(matrix: Matrix, read: ReadBytes): void {
    const { format, bytes } = this.#matrices.of(matrix);
    read(0, new Uint8Array(bytes.buffer));
    if (format.kind !== "block" && format !== F16) return;
    for (let at = 0; at < bytes.byteLength; at += format.blockBytes) {
      if (!f16IsFinite(bytes.getUint16(at, true))) throw new BadScale(at / format.blockBytes);
    }
  }

  vector(format: Format, length: number, read: ReadBytes): Vector {
    return this.#vectors.add({ length }, vectorOf(format, length, read));
  }

  replaceVector(vector: Vector, format: Format, read: ReadBytes): void {
    this.#vectors.of(vector).set(vectorOf(format, vector.length, read));
  }

  buffer(tokens: number, width: number): ActivationBuffer {
    checkBuffer(tokens, width);
    return this.#buffers.add({ tokens, width }, Array.from({ length: tokens }, () => new Float32Array(width)));
  }

  cache(positions: number, heads: number, headDim: number): KeyValueCache {
    checkCache(positions, heads, headDim);
    return this.#caches.add({ positions, heads, headDim }, { keys: [], values: [] });
  }

  ropeTable(positions: number, values: Float32Array): RopeTable {
    checkRopeTable(positions, values);
    return this.#tables.add({ positions, width: values.length / positions }, values);
  }

  embed(table: Matrix, ids: readonly number[], out: ActivationBuffer): void {
    checkEmbed(table, ids, out);
    const matrix = this.#matrices.of(table);
    for (const [t, id] of ids.entries()) this.row(out, t).set(decodeRow(matrix, id).subarray(0, table.columns));
  }

  project(input: Input, tokens: number, projections: readonly Projection[]): void {
    checkProject(input, tokens, projections);
    for (const { matrix, bias, out } of projections) {
      for (let t = 0; t < tokens; t++) this.row(out, t).set(this.#product(matrix, input, t, bias));
    }
  }

  projectAdd(input: Input, tokens: number, matrix: Matrix, to: ActivationBuffer, bias?: Vector): void {
    checkProject(input, tokens, [{ matrix, bias, out: to }]);
    for (let t = 0; t < tokens; t++) {
      const sum = this.row(to, t);
      this.#product(matrix, input, t, bias).forEach((y, n) => sum[n] += y);
    }
  }

  projectGated(input: Input, tokens: number, gate: Matrix, up: Matrix, out: ActivationBuffer): void {
    checkProject(input, tokens, [{ matrix: gate, out }, { matrix: up, out }]);
    for (let t = 0; t < tokens; t++) {
      const g = this.#product(gate, input, t);
      const u = this.#product(up, input, t);
      this.row(out, t).set(g.map((g, n) => fround(fround(g / fround(1 + exp(-g))) * u[n])));
    }
  }

  attend(attention: Attention, tokens: number): void {
    checkAttend(attention, tokens);
    const { q, k, v, out, cache, rope, heads, first = 0, position, start = 0 } = attention;
    const { headDim, heads: groups } = cache;
    const { keys, values } = this.#caches.of(cache);
    const scale = fround(1 / Math.sqrt(headDim));
    const held = cacheFor(headDim, this.activations);
    const hold = (x: Float32Array) => held === "f32" ? x.slice() : integerBlock(x, ATTENTION_TOP[held]);
    const table = this.#tables.of(rope);
    const [qNorm, kNorm] = [this.#norm(attention.qNorm), this.#norm(attention.kNorm)];
    const head = (row: Float32Array, n: number) => row.subarray(n * headDim, (n + 1) * headDim);
    const turned = (x: Float32Array, norm: PlainNorm | undefined, at: number) => {
      return rotate(norm ? rmsNorm(x, norm) : x, table.subarray(at * headDim, (at + 1) * headDim));
    };
    for (let t = 0; t < tokens; t++) {
      const at = position + t;
      const all = Array.from({ length: groups }, (_, g) => g);
      keys[start + at] = all.map((g) => hold(turned(head(this.row(k, first + t), g), kNorm, at)));
      values[start + at] = all.map((g) => hold(head(this.row(v, first + t), g)));
      for (let h = 0; h < heads; h++) {
        const group = Math.floor(h / (heads / groups));
        const query = turned(head(this.row(q, first + t), h), qNorm, at);
        const own = <T>(rows: unknown[][]) => rows.slice(start, start + at + 1).map((row) => row[group] as T);
        const mixed = held === "f32"
          ? attendHead(query, own<Float32Array>(keys), own<Float32Array>(values), scale)
          : attendIntegers(integerBlock(query, ATTENTION_TOP.query), own(keys), own(values), scale);
        head(this.row(out, first + t), h).set(mixed);
      }
    }
  }

  compare(p: ActivationBuffer, q: ActivationBuffer, tokens: number): void {
    checkCompare(p, q, tokens);
    this.#pairs = Array.from({ length: tokens }, (_, t) => {
      const [first, second] = [p, q].map((buffer) => {
        const distribution = new Distribution(buffer.width);
        distribution.set(this.row(buffer, t));
        return distribution;
      });
      return first.with(second);
    });
  }

  run(): void {}

  row(buffer: ActivationBuffer, token: number): Float32Array {
    checkRow(buffer, token);
    return this.#buffers.of(buffer)[token];
  }

  compared(token: number): Pair {
    checkRow({ tokens: this.#pairs.length }, token);
    return this.#pairs[token];
  }

  reset(): Promise<void> {
    for (const handles of [this.#matrices, this.#vectors, this.#buffers, this.#caches, this.#tables]) handles.clear();
    return Promise.resolve();
  }

  close(): void {}

  #norm(norm: Norm | undefined): PlainNorm | undefined {
    return norm && { weight: this.#vectors.of(norm.weight), eps: norm.eps };
  }

  #product(matrix: Matrix, { from, first = 0, norm }: Input, token: number, bias?: Vector): Float32Array {
    const source = this.row(from, first + token);
    const x = new Float32Array(padded(matrix.columns));
    const known = this.#norm(norm);
    x.set(known ? rmsNorm(source, known) : source);
    const y = product(this.#matrices.of(matrix), x, activationsFor(matrix.format, this.activations));
    const added = bias && this.#vectors.of(bias);
    return added ? y.map((y, n) => y + added[n]) : y;
  }
}

/** A row of a matrix as binary32, padded with zeros to whole blocks. */
function decodeRow({ format, columns, bytes }: PlainMatrix, row: number): Float32Array {
  const out = new Float32Array(padded(columns));
  format.decode(bytes, row * matrixBytes(format, 1, columns), columns / format.blockWeights, out);
  return out;
}

/** The levels and the scales of a row of blocks. */
function integersOf({ columns, bytes }: PlainMatrix, format: BlockFormat, row: number) {
  const blocks = columns / COLUMNS;
  const levels = new Int8Array(columns);
  const scales = new Float32Array(blocks);
  const start = row * blocks * format.blockBytes;
  for (let b = 0; b < blocks; b++) {
    const at = start + b * format.blockBytes;
    scales[b] = f16ToF32(bytes.getUint16(at, true));
    format.unpack(bytes, at + 2, levels.subarray(b * COLUMNS, (b + 1) * COLUMNS));
  }
  return { levels, scales };
}

/**
 * y[r] = sum over the columns n of W[r][n] x[n].
 *
 * With f32 activations, the two halves of a block of 32 columns are summed separately, each from left to right; the sum
 * of both, times the block's scale, is added to the row's sum. Each multiplication and addition is fused. Float formats
 * are summed in the same way, without a scale. With integer activations, the sum of a block is exact; it is rounded to binary32, multiplied by the
 * activations' scale, then by the block's.
 *
 * @param x padded to whole blocks with zeros
 */
function product(matrix: PlainMatrix, x: Float32Array, activations: Activations): Float32Array {
  const { format, rows, columns } = matrix;
  const blocks = padded(columns) / COLUMNS;
  const y = new Float32Array(rows);
  const inputs = activations === "f32" ? [] : integerBlocks(x, activations);
  for (let r = 0; r < rows; r++) {
    const { levels: w, scales } = format.kind === "block"
      ? integersOf(matrix, format, r)
      : { levels: decodeRow(matrix, r), scales: undefined };
    let sum = 0;
    for (let b = 0; b < blocks; b++) {
      const at = b * COLUMNS;
      if (activations === "f32") {
        let low = 0;
        let high = 0;
        for (let n = at; n < at + 16; n++) {
          low = fma(w[n], x[n], low);
          high = fma(w[n + 16], x[n + 16], high);
        }
        const block = fround(low + high);
        sum = scales ? fma(block, scales[b], sum) : fround(sum + block);
      } else {
        let dot = 0;
        for (let n = 0; n < COLUMNS; n++) dot += w[at + n] * inputs[b].integers[n];
        sum = fround(sum + fround(fround(fround(dot) * inputs[b].scale) * scales![b]));
      }
    }
    y[r] = sum;
  }
  return y;
}

/** If the largest magnitude of a block is less than this, the block counts as zeros: 32767 / max could overflow. */
const TINY = 2 ** -100;

/** Quantizes activations in blocks of 32. */
function integerBlocks(x: Float32Array, activations: Activations): IntegerBlock[] {
  const top = activations === "i8" ? 127 : 32767;
  return Array.from(
    { length: x.length / COLUMNS },
    (_, b) => integerBlock(x.subarray(b * COLUMNS, (b + 1) * COLUMNS), top),
  );
}

/** Quantizes values so that the largest magnitude becomes `top`. Ties round to even. */
function integerBlock(x: Float32Array, top: number): IntegerBlock {
  const max = x.reduce((max, x) => Math.max(max, Math.abs(x)), 0);
  const inverse = max >= TINY ? fround(top / max) : 0;
  return { integers: [...x].map((x) => roundHalfEven(fround(x * inverse))), scale: fround(max / top) };
}

/** x / sqrt(mean(x^2) + eps) * weight. The squares are summed in binary64, in four interleaved partial sums. */
function rmsNorm(x: Float32Array, { weight, eps }: PlainNorm): Float32Array {
  const sums = [0, 0, 0, 0];
  x.forEach((x, n) => sums[n % 4] += x * x);
  const mean = (sums[0] + sums[1] + (sums[2] + sums[3])) / x.length;
  const scale = fround(1 / Math.sqrt(mean + eps));
  return x.map((x, n) => fround(x * scale) * weight[n]);
}

/** Rotates a head. The first half of `table` is cosines, the second sines. */
function rotate(x: Float32Array, table: Float32Array): Float32Array {
  const half = x.length / 2;
  const out = new Float32Array(x.length);
  for (let n = 0; n < half; n++) {
    const [a, b, cos, sin] = [x[n], x[n + half], table[n], table[n + half]];
    out[n] = fround(a * cos) - fround(b * sin);
    out[n + half] = fround(b * cos) + fround(a * sin);
  }
  return out;
}

/** Sums every fourth value, times its factor, from left to right, then adds (0 + 2) + (1 + 3). */
function sumOfFour(values: ArrayLike<number>, factors?: ArrayLike<number>): number {
  const sums = [0, 0, 0, 0];
  for (let n = 0; n < values.length; n++) sums[n % 4] = fma(values[n], factors ? factors[n] : 1, sums[n % 4]);
  return fround(fround(sums[0] + sums[2]) + fround(sums[1] + sums[3]));
}

function attendHead(q: Float32Array, keys: Float32Array[], values: Float32Array[], scale: number): Float32Array {
  const scores = keys.map((k) => fround(sumOfFour(k, q) * scale));
  const top = scores.reduce((a, b) => Math.max(a, b));
  const weights = scores.map((s) => exp(fround(s - top)));
  const inverse = fround(1 / sumOfFour(weights));
  const out = new Float32Array(q.length);
  for (const [p, v] of values.entries()) v.forEach((v, n) => out[n] = fma(weights[p], v, out[n]));
  return out.map((x) => x * inverse);
}

/**
 * Attention over integers. A score is the exact dot product of query and key, rounded to binary32, times the key's
 * scale, times the query's (with 1 / sqrt(headDim)). The softmax weights, each times the scale of its value, are
 * quantized; their products with the values are summed exactly over {@link ATTENTION_CHUNK} positions, and these sums
 * are added in binary32.
 */
function attendIntegers(q: IntegerBlock, keys: IntegerBlock[], values: IntegerBlock[], scale: number): Float32Array {
  const factor = fround(q.scale * scale);
  const scores = keys.map((k) => {
    const dot = k.integers.reduce((sum, k, n) => sum + k * q.integers[n], 0);
    return fround(fround(fround(dot) * k.scale) * factor);
  });
  const top = scores.reduce((a, b) => Math.max(a, b));
  const parts = scores.map((s) => exp(fround(s - top)));
  const weights = integerBlock(Float32Array.from(parts, (e, p) => e * values[p].scale), ATTENTION_TOP.weight);
  const last = fround(weights.scale * fround(1 / sumOfFour(parts)));
  return Float32Array.from(q.integers, (_, n) => {
    let sum = 0;
    for (let from = 0; from < values.length; from += ATTENTION_CHUNK) {
      let dot = 0;
      for (let p = from; p < Math.min(from + ATTENTION_CHUNK, values.length); p++) {
        dot += weights.integers[p] * values[p].integers[n];
      }
      sum = fround(sum + fround(dot));
    }
    return sum * last;
  });
}
