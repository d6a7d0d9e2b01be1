/**
 * The numeric core of calibrated quantization (calibration.ts) on WebAssembly kernels and threads. A matrix in the shared
 * memory is a sequence of panels of 16 columns: lib/kernels/wasm/tiles.as.ts.
 *
 * @module
 */

import { LimitError, NumericError } from "../../errors.ts";
import { BLOCK } from "../../format/blocks.ts";
import { f32ToF16 } from "../../format/floats.ts";
import { MARGIN_BYTES, MAX_PAGES, PAGE } from "../../kernels/codec_wasm.ts";
import {
  type Calibration,
  checkInputs,
  checkRows,
  checkShape,
  type Inputs,
  PANEL,
  type Rows,
  type Shape,
  type Solution,
  TILE,
} from "./calibration.ts";
import { NO_SCALE, searchFor } from "./descent.ts";
import { FIRST_AREA, Threads } from "./threads.ts";

/**
 * Panels of tokens whose products are summed at once, at most: the sums in binary64 are then read and written less often. And
 * the bytes of X and X0 - X in them, at most, if that is more than a panel: every thread reads all of them over and over.
 */
const PANELS = 8;
const PANEL_BYTES = 24e6;

/** The words of the record that threads share, in the order of `Group` in tiles.as.ts. */
const WORDS = [
  ...["columns", "raw", "raw0", "factors", "room", "x", "d", "e", "residual", "h", "c", "p", "diagonal", "pivots"],
  ...["h32", "u32", "hInverse", "uInverse", "rows", "weights", "firstPanel", "levels", "scales", "losses"],
  ...["highest", "divisors", "divisorCount", "finer", "finerCount"],
] as const;

/** A group on its way. */
interface Group {
  readonly shape: Shape;
  /** What the record says. */
  readonly record: Record<typeof WORDS[number], number>;
  /** Where the areas of the rows to be quantized begin. */
  readonly end: number;
  readonly scratch: readonly number[];
  tokens: number;
  /** Panels of tokens that are packed and not yet summed. */
  panels: number;
  /** The mean of H's diagonal, once it is factored. */
  mean?: number;
}

/** Tokens of a group whose inputs are packed and not yet summed. */
function roomFor(columns: number): number {
  const fitting = Math.floor(PANEL_BYTES / (PANEL * columns * 2 * 4));
  return Math.min(Math.max(fitting, 1), PANELS) * PANEL;
}

/** Bytes for each column that a thread needs to solve rows: scratch_bytes of solve.as.ts, and more. */
const SCRATCH_BYTES = 1024;

/**
 * The memory that an {@link Engine} takes for a group, in bytes.
 *
 * @param weights the most weights that are solved at once
 */
export function engineBytes({ columns: n, residual }: Shape, weights: number, threads: number): number {
  const inputs = 4 * (2 * PANEL * Math.max(n, residual) + roomFor(n) * (2 * n + residual));
  const factored = 4 * 2 * n * n + 6 * weights;
  const sums = 8 * (2 * n * n + n * residual + n * TILE);
  // What is factored takes the place of the inputs.
  return sums + Math.max(inputs, factored) + threads * SCRATCH_BYTES * n;
}

/** Options of {@link Engine}. */
export interface EngineOptions {
  /** Threads in all, the calling one among them. */
  readonly threads: number;
  /** Aborts a call with its reason; only close may be called then. */
  readonly signal?: AbortSignal;
}

/** See the module. Memory is kept from group to group. */
export class Engine implements Calibration {
  readonly #threads: Threads;
  #group?: Group;

  /** Starts the threads. */
  constructor({ threads, signal }: EngineOptions) {
    this.#threads = new Threads(threads, signal);
  }

  begin(shape: Shape): void {
    checkShape(shape);
    const { columns: n, target, residual } = shape;
    const take = this.#areas(FIRST_AREA, n);
    take(WORDS.length * 4);
    const room = roomFor(n);
    const raw = PANEL * Math.max(n, residual) * 4;
    const sums = {
      columns: n,
      residual,
      h: take(n * n * 8),
      c: target ? take(n * n * 8) : 0,
      p: residual > 0 ? take(n * residual * 8) : 0,
      diagonal: take(n * TILE * 8),
      pivots: take(n * 8),
    };
    const scratchBytes = this.#threads.scratchBytes(n);
    const scratch = Array.from({ length: this.#threads.count }, () => take(scratchBytes));
    const shared = take(0);
    const inputs = {
      raw: take(raw),
      raw0: take(raw),
      factors: take(PANEL * 4),
      room,
      x: take(room * n * 4),
      d: target ? take(room * n * 4) : 0,
      e: take(room * residual * 4),
    };
    // What is made of the sums takes the place of the inputs, which are not needed any more.
    const again = this.#areas(shared, n);
    const factored = {
      h32: again(n * n * 4),
      u32: again(n * n * 4),
      hInverse: again(n * 4),
      uInverse: again(n * 4),
    };
    const end = again(0);
    const record = { ...sums, ...inputs, ...factored };
    const bytes = new Uint8Array(this.#threads.memory.buffer);
    for (const [at, length] of [[record.h, n * n], [record.c, target ? n * n : 0], [record.p, n * residual]]) {
      bytes.fill(0, at, at + length * 8);
    }
    const later = Object.fromEntries(WORDS.map((word) => [word, 0])) as Record<typeof WORDS[number], number>;
    this.#group = { shape, record: { ...later, ...record }, end, scratch, tokens: 0, panels: 0 };
    this.#write();
  }

  /** Gives out areas from an address on, for matrices of so many columns. */
  #areas(first: number, columns: number): (bytes: number) => number {
    let top = first;
    return (bytes) => {
      const at = Math.ceil(top / 64) * 64;
      top = at + bytes;
      if (top > MAX_PAGES * PAGE - MARGIN_BYTES) {
        throw new LimitError(`matrices of ${columns} columns need more memory than there can be`);
      }
      this.#threads.grow(top);
      return at;
    };
  }

  /** Writes the record. */
  #write(): void {
    const { record } = this.#group!;
    new Uint32Array(this.#threads.memory.buffer, FIRST_AREA, WORDS.length).set(WORDS.map((word) => record[word]));
  }

  async add(inputs: Inputs): Promise<void> {
    const group = this.#group!;
    checkInputs(group.shape, inputs);
    if (group.mean !== undefined) throw new RangeError("inputs after the group is factored");
    const { columns, residual } = group.shape;
    const { tokens, x, x0, r, r0, factors } = inputs;
    const { record } = group;
    group.tokens += tokens;
    for (let first = 0; first < tokens; first += PANEL) {
      const count = Math.min(PANEL, tokens - first);
      const { buffer } = this.#threads.memory;
      const copy = (to: number, from: Float32Array, width: number) => {
        new Float32Array(buffer, to, count * width).set(from.subarray(first * width, (first + count) * width));
      };
      const scale = new Float32Array(buffer, record.factors, count);
      if (factors) scale.set(factors.subarray(first, first + count));
      else scale.fill(1);
      copy(record.raw, x, columns);
      if (x0) copy(record.raw0, x0, columns);
      await this.#run("pack_inputs", columns / TILE, count, group.panels);
      if (r && r0) {
        copy(record.raw, r, residual);
        copy(record.raw0, r0, residual);
        await this.#run("pack_residual", residual / TILE, count, group.panels);
      }
      if (++group.panels * PANEL === record.room) await this.#sum();
    }
  }

  /** Adds what is packed to the sums. */
  async #sum(): Promise<void> {
    const group = this.#group!;
    const { columns, residual } = group.shape;
    if (group.panels > 0) await this.#run("add_products", (columns + residual) / TILE, group.panels);
    group.panels = 0;
  }

  #run(kernel: string, pieces: number, ...given: number[]): Promise<number> {
    const { scratch } = this.#group!;
    return this.#threads.run({ kernel, pieces, arguments: [FIRST_AREA, ...given], scratch });
  }

  async factor(damping: number): Promise<number> {
    const group = this.#group!;
    const { columns: n } = group.shape;
    if (group.mean !== undefined) throw new RangeError("the group is factored already");
    await this.#sum();
    const h = new Float64Array(this.#threads.memory.buffer, group.record.h, n * n);
    let trace = 0;
    // Column j of panel floor(j / TILE), at row j.
    for (let j = 0; j < n; j++) trace += h[(Math.floor(j / TILE) * n + j) * TILE + j % TILE];
    if (!Number.isFinite(trace)) throw new NumericError("an input is not finite");
    const mean = trace === 0 ? 1 : trace / n;
    await this.#run("damp", n / TILE, 1 / mean, damping);
    for (let k = n / TILE - 1; k >= 0; k--) {
      const failed = await this.#run("factor_diagonal", 1, k);
      if (failed > 0) return failed - 1;
      await this.#run("factor_rows", k, k);
    }
    await this.#run("invert", n / TILE);
    group.mean = mean;
    return -1;
  }

  async solve(rows: Rows): Promise<Solution> {
    const group = this.#group!;
    checkRows(group.shape, rows);
    const { record, shape: { columns }, mean } = group;
    if (mean === undefined) throw new RangeError("the group is not factored");
    const { format, rows: count, first, weights } = rows;
    const { divisors, finer } = searchFor(format);
    const take = this.#areas(group.end, columns);
    const perRow = columns / BLOCK;
    Object.assign(record, {
      rows: count,
      weights: take(weights.length * 4),
      firstPanel: first / TILE,
      levels: take(weights.length),
      scales: take(count * perRow * 4),
      losses: take(count * 24),
      highest: format.levels,
      divisors: take(divisors.length * 4),
      divisorCount: divisors.length,
      finer: take(finer.length * 4),
      finerCount: finer.length,
    });
    const { buffer } = this.#threads.memory;
    const floats = (at: number, length: number) => new Float32Array(buffer, at, length);
    floats(record.weights, weights.length).set(weights);
    floats(record.divisors, divisors.length).set(divisors);
    floats(record.finer, finer.length).set(finer);
    this.#write();
    if (await this.#run("solve_rows", Math.ceil(count / TILE), 1 / mean) > 0) {
      throw new NumericError(NO_SCALE);
    }
    const levels = new Int8Array(buffer, record.levels, weights.length);
    const scales = floats(record.scales, count * perRow);
    const blocks = new Uint8Array(scales.length * format.blockBytes);
    const view = new DataView(blocks.buffer);
    for (let b = 0; b < scales.length; b++) {
      view.setUint16(b * format.blockBytes, f32ToF16(scales[b]), true);
      format.pack(levels.subarray(b * BLOCK, (b + 1) * BLOCK), blocks.subarray(b * format.blockBytes + 2));
    }
    const sums = new Float64Array(buffer, record.losses, count * 3);
    const [energy, before, after] = [0, 1, 2].map((part) => {
      let sum = 0;
      for (let at = part; at < sums.length; at += 3) sum += sums[at];
      return sum * (mean / group.tokens);
    });
    return { blocks, loss: { energy, before, after } };
  }

  close(): void {
    this.#threads.close();
  }
}
