/**
 * Checks the arguments of the operations; all implementations call these functions. Sizes and indexes become addresses
 * in the kernels, which check nothing: one that is too large would read or overwrite other data.
 *
 * @module
 */

import type { Format } from "../format/blocks.ts";
import type { ActivationBuffer, Attention, Input, Matrix, Norm, Projection } from "./operations.ts";
import { CHUNK } from "./wasm/layout.ts";

/** @throws {RangeError} `value` is not a whole number from `least` to `most` */
function checkWhole(what: string, value: number, least: number, most = Number.MAX_SAFE_INTEGER): void {
  if (Number.isSafeInteger(value) && value >= least && value <= most) return;
  throw new RangeError(`${what} is ${value}, expected a whole number from ${least} to ${most}`);
}

/** @throws {RangeError} the sizes differ */
function checkSize(what: string, size: number, expected: number): void {
  if (size !== expected) throw new RangeError(`${what} is ${size}, expected ${expected}`);
}

/** Checks the arguments of {@link Operations.matrix}. @throws {RangeError} */
export function checkMatrix({ name, blockWeights }: Format, rows: number, columns: number): void {
  checkWhole("the number of rows", rows, 1);
  checkWhole("the number of columns", columns, 1);
  if (columns % blockWeights !== 0) {
    throw new RangeError(`a ${name} matrix has ${columns} columns, expected a multiple of ${blockWeights}`);
  }
}

/** Checks the arguments of {@link Operations.vector}. @throws {RangeError} */
export function checkVector({ name, kind }: Format, length: number): void {
  if (kind !== "float") throw new RangeError(`a vector can't have the format ${name}`);
  checkWhole("the length of a vector", length, 1);
}

/** Checks the arguments of {@link Operations.buffer}. @throws {RangeError} */
export function checkBuffer(tokens: number, width: number): void {
  checkWhole("the number of tokens of a buffer", tokens, 1);
  checkWhole("the width of a buffer", width, 1);
}

/** Checks the arguments of {@link Operations.cache}. @throws {RangeError} */
export function checkCache(positions: number, heads: number, headDim: number): void {
  checkWhole("the number of positions of a cache", positions, 1);
  checkWhole("the number of heads of a cache", heads, 1);
  checkWhole("the head dimension", headDim, 4);
  if (headDim % 4 !== 0) throw new RangeError(`the head dimension is ${headDim}, expected a multiple of 4`);
}

/** Checks the arguments of {@link Operations.ropeTable}. @throws {RangeError} */
export function checkRopeTable(positions: number, values: Float32Array): void {
  checkWhole("the number of positions of a table", positions, 1);
  checkWhole("the number of values for each position of a table", values.length / positions, 2);
}

/** Checks the index of a row of a buffer. @throws {RangeError} */
export function checkRow({ tokens }: Pick<ActivationBuffer, "tokens">, token: number): void {
  checkWhole("the row of a buffer", token, 0, tokens - 1);
}

/** Checks the arguments of {@link Operations.embed}. @throws {RangeError} */
export function checkEmbed({ rows, columns }: Matrix, ids: readonly number[], out: ActivationBuffer): void {
  checkWhole("the number of ids", ids.length, 1, out.tokens);
  checkSize("the width of the output", out.width, columns);
  for (const id of ids) checkWhole("a token id", id, 0, rows - 1);
}

/** Checks the arguments of {@link Operations.project} and of the other projections. @throws {RangeError} */
export function checkProject(
  { from, first = 0, norm }: Input,
  tokens: number,
  projections: readonly Projection[],
): void {
  checkWhole("the first row of the input", first, 0, from.tokens - 1);
  checkWhole("the number of tokens of the input", tokens, 1, from.tokens - first);
  checkNorm(norm, from.width);
  for (const { matrix, bias, out } of projections) {
    checkSize("the number of columns of a matrix", matrix.columns, from.width);
    checkWhole("the number of tokens of the output", tokens, 1, out.tokens);
    checkSize("the width of the output", out.width, matrix.rows);
    if (bias !== undefined) checkSize("the length of a bias", bias.length, matrix.rows);
  }
}

/** Checks the arguments of {@link Operations.attend}. @throws {RangeError} */
export function checkAttend(attention: Attention, tokens: number): void {
  const { q, k, v, out, cache, rope, heads, first = 0, position, start = 0, qNorm, kNorm } = attention;
  const { headDim } = cache;
  for (const buffer of [q, k, v, out]) {
    checkWhole("the first row", first, 0, buffer.tokens - 1);
    checkWhole("the number of tokens", tokens, 1, buffer.tokens - first);
  }
  checkWhole("the place of position 0, in chunks", start / CHUNK, 0);
  checkWhole("the first position", position, 0, Math.min(cache.positions - start, rope.positions) - tokens);
  checkWhole("the number of query heads for each key head", heads / cache.heads, 1);
  for (const buffer of [q, out]) checkSize("the width of the queries or the output", buffer.width, heads * headDim);
  for (const buffer of [k, v]) checkSize("the width of the keys or the values", buffer.width, cache.heads * headDim);
  checkSize("the number of values for each position of the table", rope.width, headDim);
  checkNorm(qNorm, headDim);
  checkNorm(kNorm, headDim);
}

/** Checks the arguments of {@link Operations.compare}. @throws {RangeError} */
export function checkCompare(p: ActivationBuffer, q: ActivationBuffer, tokens: number): void {
  for (const buffer of [p, q]) checkWhole("the number of tokens to compare", tokens, 1, buffer.tokens);
  checkSize("the width of the second buffer", q.width, p.width);
}

function checkNorm(norm: Norm | undefined, width: number): void {
  if (norm !== undefined) checkSize("the length of a norm's weight", norm.weight.length, width);
}
