/**
 * The operations that a decoder is made of, and what they work on. Two implementations have this interface:
 * reference.ts (plain TypeScript, the definition) and pool.ts (WebAssembly on several threads). Their results are equal
 * bit for bit, at any number of threads.
 *
 * @module
 */

import type { Activations, Format } from "../format/blocks.ts";
import { CHUNK, COLUMNS } from "./wasm/layout.ts";

export type { Activations };
export { CHUNK as ATTENTION_CHUNK, COLUMNS };

/** A loaded matrix of rows x columns weights. */
export interface Matrix {
  /** The format of the weights. */
  readonly format: Format;
  /** Values of a result. */
  readonly rows: number;
  /** Values of what is multiplied. */
  readonly columns: number;
}

/** A loaded vector of weights, in binary32. */
export interface Vector {
  /** How many weights. */
  readonly length: number;
}

/** Activations: up to `tokens` rows of `width` binary32. */
export interface Buffer {
  /** The most rows. */
  readonly tokens: number;
  /** Values of a row. */
  readonly width: number;
}

/**
 * Keys and values of one layer: up to `positions` rows of heads x headDim each, in binary32 or, with integer
 * activations, as integers with one scale a head (see {@link cacheFor}).
 */
export interface Cache {
  /** The most positions. */
  readonly positions: number;
  /** Heads of a position. */
  readonly heads: number;
  /** Values of a head. */
  readonly headDim: number;
}

/** Cosines and sines of the rotary embedding: for each position headDim / 2 of both. */
export interface RopeTable {
  /** How many positions. */
  readonly positions: number;
  /** Values for each position: headDim. */
  readonly width: number;
}

/** The rows of a buffer that an operation reads, with or without RMSNorm. */
export interface Input {
  /** The buffer. */
  readonly from: Buffer;
  /** The first row; 0 if it is not given. */
  readonly first?: number;
  /** x / sqrt(mean(x^2) + eps) * weight, over each row (Zhang and Sennrich 2019). */
  readonly norm?: Norm;
}

/** The parameters of an RMSNorm. */
export interface Norm {
  /** A factor for each value of a row. */
  readonly weight: Vector;
  /** What is added to the mean of the squares. */
  readonly eps: number;
}

/** One matrix of a projection, and where its product goes. */
export interface Projection {
  /** The matrix. */
  readonly matrix: Matrix;
  /** Added to the product. */
  readonly bias?: Vector;
  /** Where the product goes. */
  readonly out: Buffer;
}

/** The parameters of {@link Operations.attend}. */
export interface Attention {
  /** The queries. */
  readonly q: Buffer;
  /** The keys. */
  readonly k: Buffer;
  /** The values. */
  readonly v: Buffer;
  /** Where the result goes. */
  readonly out: Buffer;
  /** The keys and values of all positions. */
  readonly cache: Cache;
  /** What queries and keys are rotated with. */
  readonly rope: RopeTable;
  /** Query heads; the cache has the number of key and value heads. */
  readonly heads: number;
  /** The position of the first token. */
  readonly position: number;
  /** RMSNorm of each head before the rotation (Qwen3). */
  readonly qNorm?: Norm;
  /** The same of each key head. */
  readonly kNorm?: Norm;
}

/** Reads bytes of a tensor: fills `into` from byte `offset` of the tensor on. */
export type ReadBytes = (offset: number, into: Uint8Array) => void;

/**
 * A matrix can't be loaded: block `block` (of the whole matrix; a weight is a block of a float format) has a scale, or
 * is a binary16, that is not finite. Weights of other formats may be what they are, and show in the logits.
 */
export class BadScale extends Error {
  /** The name of the class. */
  override name = "BadScale";

  /**
   * Why a matrix is refused.
   *
   * @param block the block, counted from the first of the matrix
   */
  constructor(readonly block: number) {
    super(`block ${block} is not finite`);
  }
}

/**
 * See the module. Rows of a matrix are what the result has, columns what it reads: y = W x.
 *
 * A matrix, vector, buffer, cache or table can only be given to the implementation that made it, until that is reset. The
 * methods throw a RangeError for another one, and for sizes and indexes that do not fit (see checks.ts).
 *
 * Load and make all of them before the first operation: an implementation may lay out its memory then. Afterwards, until
 * {@link reset}, it may throw a RangeError for a matrix, buffer or cache that is larger than those that there are.
 */
export interface Operations {
  /** How many threads work. */
  readonly threads: number;
  /** Loads a matrix. @throws {BadScale} */
  matrix(format: Format, rows: number, columns: number, read: ReadBytes): Matrix;
  /** Loads a vector of a float format. */
  vector(format: Format, length: number, read: ReadBytes): Vector;
  /** Makes a buffer of zeros. */
  buffer(tokens: number, width: number): Buffer;
  /** Makes a cache. */
  cache(positions: number, heads: number, headDim: number): Cache;
  /** Makes a table of `positions` rows of cosines, then sines. */
  ropeTable(positions: number, values: Float32Array): RopeTable;

  /** out[t] = row ids[t] of the table. */
  embed(table: Matrix, ids: readonly number[], out: Buffer): void;
  /** out[t] = W input[t] + bias, for several W of one input; t counts from 0. */
  project(input: Input, tokens: number, projections: readonly Projection[]): void;
  /** to[t] += W input[t] + bias. */
  projectAdd(input: Input, tokens: number, matrix: Matrix, to: Buffer, bias?: Vector): void;
  /** out[t] = silu(gate input[t]) * (up input[t]), silu(g) = g / (1 + exp(-g)) (Shazeer 2020). */
  projectGated(input: Input, tokens: number, gate: Matrix, up: Matrix, out: Buffer): void;
  /**
   * Rotates q and k (Su et al. 2021, halves), appends k and v to the cache, and attends causally: for each head
   * out = sum of softmax(q k / sqrt(headDim)) v over the positions up to the token's own. Several query heads share a key
   * head (Ainslie et al. 2023).
   */
  attend(attention: Attention, tokens: number): void;

  /** Does all that was asked for since the last call. Buffers can be read afterwards. */
  run(): void;
  /** A view of a row of a buffer, valid until the next run. */
  row(buffer: Buffer, token: number): Float32Array;
  /** Frees all matrices, vectors, buffers and caches, so that another model can be loaded. */
  reset(): Promise<void>;
  /** Ends the threads. */
  close(): void;
}

/** `width` rounded up to whole blocks: the length of a row in memory. */
export function padded(width: number): number {
  return Math.ceil(width / COLUMNS) * COLUMNS;
}

/** The activations that a format is multiplied with when `asked` are asked for: float formats know f32 only. */
export function activationsFor(format: Format, asked: Activations): Activations {
  return format.kind === "block" ? asked : "f32";
}

/** The largest integers that attention works with, by what is asked for: keys and values, queries, softmax weights. */
export const ATTENTION_TOP = { i8: 127, i16: 2047, query: 2047, weight: 32767 } as const;

/** What the cache holds: integers when they are asked for and the dot of two heads fits 32 bits (512 * 2047^2 < 2^31). */
export function cacheFor(headDim: number, asked: Activations): Activations {
  return headDim <= 512 ? asked : "f32";
}
