/**
 * The definition of the solver: a row of weights becomes blocks. Every step is in binary32 and rounded on its own.
 *
 * @module
 */

import { NumericError } from "../../errors.ts";
import { BLOCK, type BlockFormat } from "../../format/blocks.ts";
import { f16ToF32, f32ToF16 } from "../../format/floats.ts";

/** Sweeps of descent. */
export const SWEEPS = 3;

/** What is wrong with a row that no scale fits. */
export const NO_SCALE = "a weight, or what it is to become, is not finite or too large for a scale";

const { fround } = Math;

/** The scales that a block tries: see {@link searchFor}. */
export interface Search {
  /** A candidate is the block's weight of largest magnitude over one of these. */
  readonly divisors: Float32Array;
  /** Then the best candidate times one of these. */
  readonly finer: Float32Array;
}

/** What is searched for a format: -6.4 to -9.2 in steps of 0.2 and 6.4 to 9.2 for four bits, then steps of 0.8 %. */
export function searchFor({ levels }: BlockFormat): Search {
  const steps = Array.from({ length: 15 }, (_, k) => levels + 1 + (k - 8) / 5);
  const finer = [-2, -1, 1, 2].map((k) => 1 + k * 0.064 / (levels + 1));
  return { divisors: Float32Array.from([...steps.map((c) => -c), ...steps]), finer: Float32Array.from(finer) };
}

/** A Hessian that rows are solved against, in binary32. */
export interface Hessian {
  readonly columns: number;
  /** Hd, [columns, columns]. */
  readonly h: Float32Array;
  /** U, [columns, columns]: U' U = Hd^-1, upper triangular. */
  readonly u: Float32Array;
}

/** A quantized row. */
export interface QuantizedRow {
  /** [columns] */
  readonly levels: Int8Array;
  /** [columns / 32], values of binary16. */
  readonly scales: Float32Array;
  /** (v - w)' Hd (v - w) */
  readonly loss: number;
}

/** `x` rounded to binary16; zero is always positive. */
function half(x: number): number {
  return f16ToF32(f32ToF16(x)) + 0;
}

/** 1 / x, and 0 for 0. */
function inverse(x: number): number {
  return x === 0 ? 0 : fround(1 / x);
}

/** The level nearest to `x`, ties to even. */
function level(x: number, levels: number): number {
  const clamped = Math.min(Math.max(x, -levels - 1), levels);
  // 1.5 * 2^23, from where on binary32 has integers only.
  return fround(fround(clamped + 12582912) - 12582912);
}

/** y + a * x, element by element: each of `count` values of y from `at` on, and of x from `from` on. */
function addTimes(y: Float32Array, at: number, a: number, x: Float32Array, from: number, count: number): void {
  for (let i = 0; i < count; i++) y[at + i] += fround(a * x[from + i]);
}

/** The gradient Hd d, summed over the columns of d in their order. */
export function gradient({ columns, h }: Hessian, d: Float32Array): Float32Array {
  const g = new Float32Array(columns);
  for (let j = 0; j < columns; j++) addTimes(g, 0, d[j], h, j * columns, columns);
  return g;
}

/** d' g: products and sums in binary64, in the order of columns. */
export function dot(d: Float32Array, g: Float32Array): number {
  let sum = 0;
  for (let j = 0; j < d.length; j++) sum += d[j] * g[j];
  return sum;
}

/**
 * Quantizes a row.
 *
 * @param w the weights to come near to, [columns]
 * @throws {NumericError} a weight is not finite, or too large for every scale
 */
export function solveRow(format: BlockFormat, w: Float32Array, hessian: Hessian): QuantizedRow {
  const row = propagate(format, w, hessian);
  const values = new Float32Array(w.length);
  const store = (b: number) => {
    for (let j = 0; j < BLOCK; j++) values[b + j] = row.q[b + j] * row.scales[b / BLOCK];
  };
  for (let b = 0; b < w.length; b += BLOCK) store(b);
  const g = gradient(hessian, values.map((v, j) => v - w[j]));
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    for (let b = 0; b < w.length; b += BLOCK) {
      descend(format, row, g.slice(b, b + BLOCK), hessian, b);
      const old = values.slice(b, b + BLOCK);
      store(b);
      for (let j = 0; j < BLOCK; j++) {
        addTimes(g, 0, fround(values[b + j] - old[j]), hessian.h, (b + j) * w.length, w.length);
      }
    }
  }
  return { levels: Int8Array.from(row.q), scales: row.scales, loss: dot(values.map((v, j) => v - w[j]), g) };
}

/** A row on its way: its integers, and the scales of its blocks. */
interface Row {
  readonly q: Float32Array;
  readonly scales: Float32Array;
}

/**
 * GPTQ: block after block, where the errors of the earlier ones are made good by later weights. A block tries scales, and
 * takes the one with the least sum of squares of scaled errors, which is what the loss grows by if all later weights are
 * free; the first of equals.
 */
function propagate(format: BlockFormat, w: Float32Array, { columns, u }: Hessian): Row {
  const { divisors, finer } = searchFor(format);
  const row = { q: new Float32Array(columns), scales: new Float32Array(columns / BLOCK) };
  const rest = w.slice();
  const errors = new Float32Array(BLOCK);
  for (let b = 0; b < columns; b += BLOCK) {
    let least = Infinity;
    let scale = 0;
    const attempt = (s: number) => {
      const loss = tryScale(format.levels, s, rest.slice(b, b + BLOCK), u, columns, b, row.q, errors);
      if (loss < least) [least, scale] = [loss, s];
    };
    let peak = 0;
    for (let j = b; j < b + BLOCK; j++) if (Math.abs(rest[j]) > Math.abs(peak)) peak = rest[j];
    for (const divisor of divisors) attempt(half(peak / divisor));
    const middle = scale;
    for (const factor of finer) attempt(half(middle * factor));
    if (least === Infinity) throw new NumericError(NO_SCALE);
    row.scales[b / BLOCK] = scale;
    tryScale(format.levels, scale, rest.slice(b, b + BLOCK), u, columns, b, row.q, errors);
    const next = b + BLOCK;
    for (let j = 0; j < BLOCK; j++) {
      addTimes(rest, next, -errors[j], u, (b + j) * columns + next, columns - next);
    }
  }
  return row;
}

/** Quantizes the block `t` at column `b` with a scale: its integers, and its errors over U's diagonal. @returns their squares */
function tryScale(
  levels: number,
  scale: number,
  t: Float32Array,
  u: Float32Array,
  columns: number,
  b: number,
  q: Float32Array,
  errors: Float32Array,
): number {
  const inverted = inverse(scale);
  let loss = 0;
  for (let j = 0; j < BLOCK; j++) {
    const at = (b + j) * columns + b;
    q[b + j] = level(fround(t[j] * inverted), levels);
    errors[j] = fround(t[j] - fround(q[b + j] * scale)) * inverse(u[at + j]);
    loss = fround(loss + fround(errors[j] * errors[j]));
    addTimes(t, j + 1, -errors[j], u, at + j + 1, BLOCK - 1 - j);
  }
  return loss;
}

/**
 * One sweep over the block at column `b`: each integer becomes the best one with all others as they are, then the scale
 * the best one, if that lowers the loss.
 *
 * @param g the gradient at the block, which is followed
 */
function descend(
  { levels }: BlockFormat,
  { q, scales }: Row,
  g: Float32Array,
  { columns, h }: Hessian,
  b: number,
): void {
  const scale = scales[b / BLOCK];
  const inverted = inverse(scale);
  for (let j = 0; j < BLOCK; j++) {
    const at = (b + j) * columns + b;
    const better = level(fround(q[b + j] - fround(fround(g[j] * inverse(h[at + j])) * inverted)), levels);
    addTimes(g, 0, fround((better - q[b + j]) * scale), h, at, BLOCK);
    q[b + j] = better;
  }
  let slope = 0;
  let curvature = 0;
  for (let j = 0; j < BLOCK; j++) {
    let product = 0;
    for (let i = 0; i < BLOCK; i++) product = fround(product + fround(h[(b + j) * columns + b + i] * q[b + i]));
    slope = fround(slope + fround(q[b + j] * g[j]));
    curvature = fround(curvature + fround(product * q[b + j]));
  }
  if (!(curvature > 0)) return;
  const better = half(fround(scale - fround(slope / curvature)));
  const change = fround(better - scale);
  const gain = fround(change * fround(fround(change * curvature) + fround(2 * slope)));
  if (gain < 0 && better !== 0) scales[b / BLOCK] = better;
}
