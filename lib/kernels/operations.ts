/**
 * The operations of a decoder, and their operands. Two classes implement them: Reference (reference.ts) in plain
 * TypeScript, which is the definition, and Pool (pool.ts) in WebAssembly on several threads. Both give the same
 * results, bit for bit, at any number of threads.
 *
 * @module
 */

import { type Activations, type Format, matrixBytes } from "../format/blocks.ts";
import type { Pair } from "../measure/distribution.ts";
import { checkVector } from "./checks.ts";
import { CHUNK, COLUMNS } from "./wasm/layout.ts";

export type { Activations, Pair };
export { CHUNK as ATTENTION_CHUNK, COLUMNS };

/** A loaded matrix of rows x columns weights. */
export interface Matrix {
  /** The format of the weights. */
  readonly format: Format;
  /** The number of outputs. */
  readonly rows: number;
  /** The number of inputs. */
  readonly columns: number;
}

/** A loaded vector of weights, in binary32. */
export interface Vector {
  /** The number of weights. */
  readonly length: number;
}

/** Activations: up to `tokens` rows of `width` binary32 values. */
export interface ActivationBuffer {
  /** The maximum number of rows. */
  readonly tokens: number;
  /** Values in a row. */
  readonly width: number;
}

/**
 * Keys and values of one layer: up to `positions` rows of heads x headDim each, in binary32 or, with integer
 * activations, as integers with one scale per head (see {@link cacheFor}).
 */
export interface KeyValueCache {
  /** The maximum number of positions. */
  readonly positions: number;
  /** The number of key and value heads. */
  readonly heads: number;
  /** Values in a head. */
  readonly headDim: number;
}

/** Cosines and sines of the rotary embedding: headDim / 2 of each per position. */
export interface RopeTable {
  /** The number of positions. */
  readonly positions: number;
  /** Values per position: headDim. */
  readonly width: number;
}

/** The rows of a buffer that an operation reads, with optional RMSNorm. */
export interface Input {
  /** The buffer. */
  readonly from: ActivationBuffer;
  /** The first row; 0 by default. */
  readonly first?: number;
  /** RMSNorm of each row: x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019). */
  readonly norm?: Norm;
}

/** The parameters of an RMSNorm. */
export interface Norm {
  /** A factor for each value of a row. */
  readonly weight: Vector;
  /** Added to the mean of the squares. */
  readonly eps: number;
}

/** One matrix of a projection, and the destination of its product. */
export interface Projection {
  /** The matrix. */
  readonly matrix: Matrix;
  /** Added to the product. */
  readonly bias?: Vector;
  /** The destination. */
  readonly out: ActivationBuffer;
}

/** The parameters of {@link Operations.attend}. */
export interface Attention {
  /** The queries. */
  readonly q: ActivationBuffer;
  /** The keys. */
  readonly k: ActivationBuffer;
  /** The values. */
  readonly v: ActivationBuffer;
  /** The destination. */
  readonly out: ActivationBuffer;
  /** The keys and values of all positions. */
  readonly cache: KeyValueCache;
  /** The rotary embedding of the queries and keys. */
  readonly rope: RopeTable;
  /** The number of query heads; the cache has the number of key and value heads. */
  readonly heads: number;
  /** The row of the first token in `q`, `k`, `v` and `out`; 0 if it is not given. */
  readonly first?: number;
  /** The position of the first token. */
  readonly position: number;
  /** Where the cache holds position 0: a multiple of {@link ATTENTION_CHUNK}; 0 if it is not given. */
  readonly start?: number;
  /** RMSNorm of each query head before the rotation (Qwen3). */
  readonly qNorm?: Norm;
  /** RMSNorm of each key head before the rotation. */
  readonly kNorm?: Norm;
}

/** Fills `into` with bytes of a tensor, starting at byte `offset` of the tensor. */
export type ReadBytes = (offset: number, into: Uint8Array) => void;

/** Where a tensor is, so that other threads can read it. */
export interface Place {
  /** The path of the file. */
  readonly path: string;
  /** The version of the file: see reopen in lib/files/read.ts. */
  readonly version: string;
  /** The offset of its first byte in the file. */
  readonly offset: number;
}

/**
 * A matrix can't be loaded: the scale of a block, or a binary16 weight, is not finite. Weights of other formats are not
 * checked; their infinities and NaNs show in the logits.
 */
export class BadScale extends Error {
  /** The name of the class. */
  override name = "BadScale";

  /**
   * Creates the error.
   *
   * @param block the index of the block in the matrix, or of the weight
   */
  constructor(readonly block: number) {
    super(`block ${block} is not finite`);
  }
}

/**
 * The operations. A product is y = W x: the rows of a matrix are its outputs, the columns its inputs.
 *
 * A matrix, vector, buffer, cache or table belongs to the implementation that created it, until that is reset. The
 * methods throw a RangeError for one that belongs to another implementation, and for sizes and indexes that do not fit
 * (see checks.ts).
 *
 * Create all of them before the first operation, at which an implementation may fix its memory layout. After that,
 * until {@link reset}, it may throw a RangeError for a matrix, buffer or cache that is larger than the existing ones.
 */
export interface Operations {
  /** The number of threads. */
  readonly threads: number;
  /**
   * Loads a matrix.
   *
   * @param place where `read` reads, to find a matrix that was loaded ahead
   * @throws {BadScale}
   */
  matrix(format: Format, rows: number, columns: number, read: ReadBytes, place?: Place): Matrix;
  /** Loads a vector of a float format. */
  vector(format: Format, length: number, read: ReadBytes): Vector;
  /** Gives a matrix other weights of the same format, from the next operation on. @throws {BadScale} */
  replace(matrix: Matrix, read: ReadBytes): void;
  /** Gives a vector other values, of any float format. */
  replaceVector(vector: Vector, format: Format, read: ReadBytes): void;
  /** Creates a buffer of zeros. */
  buffer(tokens: number, width: number): ActivationBuffer;
  /** Creates a cache. */
  cache(positions: number, heads: number, headDim: number): KeyValueCache;
  /** Creates a table of `positions` rows: the cosines of each position, then its sines. */
  ropeTable(positions: number, values: Float32Array): RopeTable;

  /** out[t] = row ids[t] of the table. */
  embed(table: Matrix, ids: readonly number[], out: ActivationBuffer): void;
  /** out[t] = W input[t] + bias, for several W with the same input; t counts from 0. */
  project(input: Input, tokens: number, projections: readonly Projection[]): void;
  /** to[t] += W input[t] + bias. */
  projectAdd(input: Input, tokens: number, matrix: Matrix, to: ActivationBuffer, bias?: Vector): void;
  /** out[t] = silu(gate input[t]) * (up input[t]), silu(g) = g / (1 + exp(-g)) (Shazeer 2020). */
  projectGated(input: Input, tokens: number, gate: Matrix, up: Matrix, out: ActivationBuffer): void;
  /**
   * Rotates q and k (Su et al. 2021, halves), appends k and v to the cache, and attends causally: for each head out =
   * sum of softmax(q k / sqrt(headDim)) v over the positions up to the token's own. Query heads share key heads
   * (grouped-query attention, Ainslie et al. 2023).
   */
  attend(attention: Attention, tokens: number): void;

  /** Compares row t of p with row t of q, for each t below `tokens`; {@link compared} returns the results. */
  compare(p: ActivationBuffer, q: ActivationBuffer, tokens: number): void;

  /** Runs the operations called since the last run. Afterwards buffers can be read. */
  run(): void;
  /** A view of a row of a buffer, valid until the next run. */
  row(buffer: ActivationBuffer, token: number): Float32Array;
  /** The result of the last {@link compare} for row `token`, with views of both rows, valid until the next run. */
  compared(token: number): Pair;
  /** Frees all matrices, vectors, buffers and caches, so that another model can be loaded. */
  reset(): Promise<void>;
  /** Terminates the threads. */
  close(): void;
}

/** `width` rounded up to whole blocks: the length of a row in memory. */
export function padded(width: number): number {
  return Math.ceil(width / COLUMNS) * COLUMNS;
}

/** The values of a vector. @throws {RangeError} as {@link Operations.vector} */
export function vectorOf(format: Format, length: number, read: ReadBytes): Float32Array {
  checkVector(format, length);
  const bytes = new Uint8Array(matrixBytes(format, 1, length));
  read(0, bytes);
  const values = new Float32Array(length);
  format.decode(new DataView(bytes.buffer), 0, length, values);
  return values;
}

/** The activations that a format supports, given the requested ones: float formats support f32 only. */
export function activationsFor(format: Format, asked: Activations): Activations {
  return format.kind === "block" ? asked : "f32";
}

/**
 * The largest magnitudes of integers in attention: of keys and values (by the type of activations), queries, and
 * softmax weights.
 */
export const ATTENTION_TOP = { i8: 127, i16: 2047, query: 2047, weight: 32767 } as const;

/**
 * The type of the values in a cache: integers only if the dot product of two heads fits in 32 bits (512 * 2047^2 <
 * 2^31).
 */
export function cacheFor(headDim: number, asked: Activations): Activations {
  return headDim <= 512 ? asked : "f32";
}
