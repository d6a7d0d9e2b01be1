/**
 * The definition of the numeric core (calibration.ts): every sum in its order, one value after the other. Slow.
 *
 * @module
 */

import { NumericError } from "../../errors.ts";
import { BLOCK, type BlockFormat, BlockRefusal, encodeBlock } from "../../format/blocks.ts";
import { f32ToF16 } from "../../format/floats.ts";
import {
  type Calibration,
  checkInputs,
  checkRows,
  checkShape,
  type Inputs,
  type Loss,
  PANEL,
  type Rows,
  type Shape,
  type Solution,
  TILE,
} from "./calibration.ts";
import { dot, gradient, type Hessian, solveRow } from "./descent.ts";

/** The sums of a group, and what is made of them; matrices are [columns, …] row by row. */
interface Group {
  readonly shape: Shape;
  tokens: number;
  readonly h: Float64Array;
  readonly c: Float64Array;
  readonly p: Float64Array;
  factored?: Factored;
}

/** A group that is ready. */
interface Factored {
  /** The mean of H's diagonal. */
  readonly mean: number;
  readonly lower: Float64Array;
  readonly upper: Float64Array;
  readonly hessian: Hessian;
}

/** See the module. */
export class Definition implements Calibration {
  #group?: Group;

  begin(shape: Shape): void {
    checkShape(shape);
    const { columns, target, residual } = shape;
    const [h, c] = [columns ** 2, target ? columns ** 2 : 0].map((size) => new Float64Array(size));
    this.#group = { shape, tokens: 0, h, c, p: new Float64Array(columns * residual) };
  }

  // deno-lint-ignore require-await
  async add(inputs: Inputs): Promise<void> {
    const group = this.#group!;
    checkInputs(group.shape, inputs);
    if (group.factored) throw new RangeError("inputs after the group is factored");
    const { tokens, x, x0, r, r0, factors } = inputs;
    group.tokens += tokens;
    const scaled = scaledRows(x, tokens, factors);
    addProducts(group.h, scaled, scaled, tokens);
    if (x0) addProducts(group.c, scaled, differences(scaledRows(x0, tokens, factors), scaled), tokens);
    if (r && r0) {
      const short = differences(scaledRows(r0, tokens, factors), scaledRows(r, tokens, factors));
      addProducts(group.p, scaled, short, tokens);
    }
  }

  // deno-lint-ignore require-await
  async factor(damping: number): Promise<number> {
    const group = this.#group!;
    const { shape: { columns: n }, h } = group;
    if (group.factored) throw new RangeError("the group is factored already");
    let trace = 0;
    for (let j = 0; j < n; j++) trace += h[j * n + j];
    if (!Number.isFinite(trace)) throw new NumericError("an input is not finite");
    const mean = trace === 0 ? 1 : trace / n;
    const damped = h.map((value, at) => value * (1 / mean) + (at % (n + 1) === 0 ? damping : 0));
    const lower = new Float64Array(n * n);
    const failed = factorLower(damped, lower, n);
    if (failed >= 0) return failed;
    const upper = new Float64Array(n * n);
    for (let c = 0; c < n; c++) {
      const column = new Float64Array(n);
      column[c] = 1;
      substitute(lower, column, c);
      for (let j = 0; j <= c; j++) upper[j * n + c] = column[j];
    }
    const hessian = { columns: n, h: Float32Array.from(damped), u: Float32Array.from(upper) };
    group.factored = { mean, lower, upper, hessian };
    return -1;
  }

  // deno-lint-ignore require-await
  async solve(rows: Rows): Promise<Solution> {
    const group = this.#group!;
    const { shape: { columns }, tokens, factored } = group;
    checkRows(group.shape, rows);
    if (factored === undefined) throw new RangeError("the group is not factored");
    const { hessian, mean } = factored;
    const { format, first, weights } = rows;
    const blocks = new Uint8Array(weights.length / BLOCK * format.blockBytes);
    const loss: Loss = { energy: 0, before: 0, after: 0 };
    for (let r = 0, at = 0; r < rows.rows; r++) {
      const w = weights.slice(r * columns, (r + 1) * columns);
      const aim = target(group, factored, w, first + r);
      const lost = (v: Float32Array) => {
        const d = v.map((value, j) => value - aim[j]);
        return dot(d, gradient(hessian, d));
      };
      const { levels, scales, loss: after } = solveRow(format, aim, hessian);
      loss.energy += lost(new Float32Array(columns));
      loss.before += lost(byRule(format, w));
      loss.after += after;
      for (let b = 0; b < scales.length; b++, at += format.blockBytes) {
        new DataView(blocks.buffer).setUint16(at, f32ToF16(scales[b]), true);
        format.pack(levels.subarray(b * BLOCK, (b + 1) * BLOCK), blocks.subarray(at + 2));
      }
    }
    for (const part of ["energy", "before", "after"] as const) loss[part] *= mean / tokens;
    return { blocks, loss };
  }

  close(): void {}
}

/** Each token's values times its factor. */
function scaledRows(x: Float32Array, tokens: number, factors: Float32Array | undefined): Float32Array {
  const columns = x.length / tokens;
  return factors ? x.map((value, at) => value * factors[Math.floor(at / columns)]) : x;
}

function differences(a: Float32Array, b: Float32Array): Float32Array {
  return a.map((value, at) => value - b[at]);
}

/** Adds X' Y: panels in binary32, token after token, and their sums in binary64. */
function addProducts(sum: Float64Array, x: Float32Array, y: Float32Array, tokens: number): void {
  const { fround } = Math;
  const [m, n] = [x.length / tokens, y.length / tokens];
  for (let first = 0; first < tokens; first += PANEL) {
    const end = Math.min(first + PANEL, tokens);
    for (let i = 0; i < m; i++) {
      for (let j = 0; j < n; j++) {
        let part = 0;
        for (let t = first; t < end; t++) part = fround(part + fround(x[t * m + i] * y[t * n + j]));
        sum[i * n + j] += part;
      }
    }
  }
}

/** The first column of the tile after that of column k. */
function tileEnd(k: number): number {
  return k - k % TILE + TILE;
}

/** The lower triangular L with L' L = `h`, from the last row to the first. @returns -1, or the column of a pivot that is not positive */
function factorLower(h: Float64Array, lower: Float64Array, n: number): number {
  for (let k = n - 1; k >= 0; k--) {
    for (let i = k; i >= 0; i--) {
      let sum = h[k * n + i];
      for (let m = tileEnd(k); m < n; m++) sum -= lower[m * n + k] * lower[m * n + i];
      for (let m = k + 1; m < tileEnd(k); m++) sum -= lower[m * n + k] * lower[m * n + i];
      if (i === k && !(sum > 0)) return k;
      lower[k * n + i] = i === k ? Math.sqrt(sum) : sum * (1 / lower[k * n + k]);
    }
  }
  return -1;
}

/** Solves L' y = b in place; b is zero after its element `last`. */
function substitute(lower: Float64Array, b: Float64Array, last: number): void {
  const n = b.length;
  for (let i = last; i >= 0; i--) {
    let sum = b[i];
    for (let k = tileEnd(i); k <= last; k++) sum -= lower[k * n + i] * b[k];
    for (let k = i + 1; k < tileEnd(i); k++) sum -= lower[k * n + i] * b[k];
    b[i] = sum * (1 / lower[i * n + i]);
  }
}

/** W* of row `row`, whose weights are w. */
function target({ shape, c, p }: Group, { mean, lower, upper }: Factored, w: Float32Array, row: number): Float32Array {
  const { columns: n, target, residual } = shape;
  if (!target && residual === 0) return w;
  const b = new Float64Array(n);
  for (let i = 0; i < n; i++) {
    let sum = residual > 0 ? p[i * residual + row] : 0;
    if (target) { for (let k = 0; k < n; k++) sum += c[i * n + k] * w[k]; }
    b[i] = sum * (1 / mean);
  }
  substitute(lower, b, n - 1);
  return w.map((weight, i) => {
    let sum = 0;
    for (let j = 0; j <= i; j++) sum += upper[j * n + i] * b[j];
    return weight + sum;
  });
}

/** The values of the blocks that the format's rule gives. @throws {NumericError} a weight is not finite, or too large */
function byRule(format: BlockFormat, w: Float32Array): Float32Array {
  const block = new Uint8Array(format.blockBytes);
  const values = new Float32Array(w.length);
  for (let b = 0; b < w.length; b += BLOCK) {
    try {
      encodeBlock(format, w.subarray(b, b + BLOCK), block);
    } catch (error) {
      throw error instanceof BlockRefusal ? new NumericError(error.message) : error;
    }
    format.decode(new DataView(block.buffer), 0, 1, values.subarray(b));
  }
  return values;
}
