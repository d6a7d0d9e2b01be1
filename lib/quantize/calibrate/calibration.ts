/**
 * The numeric core of calibrated quantization: from the inputs that a matrix sees on a text to blocks whose products with
 * those inputs are near the float model's. `definition.ts` is its definition in plain TypeScript, `engine.ts` has it on
 * WebAssembly kernels and several threads; their results are equal bit for bit.
 *
 * With X the inputs of the quantized model so far [tokens, columns], X0 those of the float model, and R the amount by which
 * the residual stream of the quantized model falls short of the float model's [tokens, rows], each row multiplied with its
 * token's factor:
 *
 *     H  = X' X                           one sum for all matrices with the same input
 *     C  = X' (X0 - X)                    only with `target`
 *     P  = X' R                           only with `residual`
 *     Hd = H / mean(diag H) + damping I
 *     W* = W + (Hd^-1 (C W' + P) / mean(diag H))'
 *     U  upper triangular with U' U = Hd^-1
 *     q, s: least (q s - w*)' Hd (q s - w*) for each row, by GPTQ with a search for the scales, then by descent
 *
 * The steps are those of GPTQ (Frantar et al., 2022), aimed at the float model's outputs as in GPTAQ (Li et al., 2025) and
 * QEP (Arai and Ichikawa, 2025).
 *
 * @module
 */

import { BLOCK, type BlockFormat } from "../../format/blocks.ts";

/** Tokens whose products are summed in binary32 before they are added in binary64. */
export const PANEL = 256;

/**
 * Rows and columns of the tiles that matrices are factored by. Sums over an index are over the later tiles first, then over
 * the rest of its own tile.
 */
export const TILE = 16;

/** What the matrices of a group share. */
export interface Shape {
  /** Columns of the matrices: a multiple of 32. */
  readonly columns: number;
  /** Whether to aim at the float model's outputs. */
  readonly target: boolean;
  /** Rows of the one matrix whose output is added to the residual stream, a multiple of 32; 0: there is none. */
  readonly residual: number;
}

/** What some tokens give. Matrices are row by row: the values of the first token, then those of the second. */
export interface Inputs {
  /** How many tokens. */
  readonly tokens: number;
  /** The input in the quantized model, [tokens, columns]. */
  readonly x: Float32Array;
  /** The input in the float model, [tokens, columns]; exactly with {@link Shape.target}. */
  readonly x0?: Float32Array;
  /** The residual stream of the quantized model before the matrix adds to it, [tokens, residual]; with {@link Shape.residual}. */
  readonly r?: Float32Array;
  /** The same of the float model. */
  readonly r0?: Float32Array;
  /** What the values of a token are multiplied with: the square root of its weight; 1 if there are none. See tokenFactors. */
  readonly factors?: Float32Array;
}

/** Rows of a matrix to be quantized. */
export interface Rows {
  /** The block format that is made. */
  readonly format: BlockFormat;
  /** How many rows. */
  readonly rows: number;
  /** The first of them in the matrix: it says which columns of P are theirs. A multiple of {@link TILE}. */
  readonly first: number;
  /** The weights, [rows, columns]. */
  readonly weights: Float32Array;
}

/** The quantized rows. */
export interface Solution {
  /** The blocks of the format, row by row: rows * columns / 32 * format.blockBytes bytes. */
  readonly blocks: Uint8Array<ArrayBuffer>;
  /** What is lost, summed over rows: see {@link Loss}. */
  readonly loss: Loss;
}

/**
 * Squares of outputs, weighted and summed over rows, as a mean over tokens: (v - w*)' (H / tokens + damping) (v - w*) of
 * values v. To add up those of parts of a matrix, add them in the order of rows.
 */
export interface Loss {
  /** With v = 0: the outputs themselves. */
  energy: number;
  /** With the blocks that the format's rule gives for W. */
  before: number;
  /** With the blocks of the solution. */
  after: number;
}

/** One group of matrices after the other: begin, add inputs, factor, solve each matrix. */
export interface Calibration {
  /** Begins a group: no inputs yet. */
  begin(shape: Shape): void;
  /**
   * Adds what tokens give. They are cut into panels of {@link PANEL}, the last of which may be shorter; so calls with other
   * numbers of tokens may give other bits.
   */
  add(inputs: Inputs): Promise<void>;
  /**
   * Makes what {@link solve} needs, once all inputs are added. If it finds fault, it may be called again with more damping.
   *
   * @param damping added to the diagonal, as a part of its mean: 0.3 is a good value
   * @returns -1, or the column at which the matrix was found not to be positive definite: it needs more damping
   * @throws {NumericError} an input was not finite
   */
  factor(damping: number): Promise<number>;
  /**
   * Quantizes rows.
   *
   * @throws {NumericError} a value is not finite, or too large for the format's scales
   */
  solve(rows: Rows): Promise<Solution>;
  /** Ends the threads. */
  close(): void;
}

/** Checks a shape. @throws {RangeError} it is none */
export function checkShape({ columns, residual }: Shape): void {
  const blocks = (size: number) => Number.isSafeInteger(size) && size >= 0 && size % BLOCK === 0;
  check(columns > 0 && blocks(columns), `${columns} columns`);
  check(blocks(residual), `${residual} rows of the residual stream`);
}

/** Checks inputs of a group. @throws {RangeError} their lengths are not those of its shape */
export function checkInputs({ columns, target, residual }: Shape, { tokens, x, x0, r, r0, factors }: Inputs): void {
  check(Number.isSafeInteger(tokens) && tokens > 0, `${tokens} tokens`);
  const lengths = [x, x0, r, r0, factors].map((values) => values?.length);
  const stream = residual > 0 ? tokens * residual : undefined;
  const wanted = [tokens * columns, target ? tokens * columns : undefined, stream, stream];
  check(wanted.every((length, n) => lengths[n] === length), `${tokens} tokens of ${lengths} values`);
  check(factors === undefined || factors.length === tokens, `${factors?.length} factors for ${tokens} tokens`);
}

/** Checks rows of a matrix of a group. @throws {RangeError} they don't fit its shape */
export function checkRows({ columns, residual }: Shape, { rows, first, weights }: Rows): void {
  check(Number.isSafeInteger(rows) && rows > 0 && weights.length === rows * columns, `${weights.length} weights`);
  check(first % TILE === 0 && first >= 0, `rows from ${first} on`);
  check(residual === 0 || (first >= 0 && first + rows <= residual), `rows ${first} to ${first + rows - 1}`);
}

function check(right: boolean, found: string): void {
  if (!right) throw new RangeError(`${found} don't fit`);
}
