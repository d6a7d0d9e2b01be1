/**
 * Quantizes the matrices of a model one after the other, in the order in which a token meets them, so that each makes up
 * for what those before it have changed. Two residual streams go through the layers side by side: the float model's, and
 * that of the model as far as it is quantized. What a matrix reads in both decides its blocks: see lib/quantize/calibrate.
 *
 * @module
 */

import { NumericError } from "../errors.ts";
import { BLOCK } from "../format/blocks.ts";
import { TensorReader } from "../format/checkpoint.ts";
import type { MatrixLoss } from "../format/quantization.ts";
import type { Operations } from "../kernels/operations.ts";
import type { Model } from "../model/load.ts";
import { checkTensors, nameOfPart, type Part, type TensorSource } from "../model/tensors.ts";
import { pacer } from "../pace.ts";
import type { Calibration as Core } from "../quantize/calibrate/calibration.ts";
import { squaredNorms, tokenFactors } from "../quantize/calibrate/factors.ts";
import type { Plan } from "../quantize/quantize.ts";
import { attentionHalf, gatedHalf, type Half, loaderOf, normalize, readWeights, type Rows } from "./streams.ts";
import { Costs, type Step } from "./costs.ts";

/** The damping of the embedding when it is the head too: what it is as the input is that much of what it is worth. */
const TIED_DAMPING = 0.1;

/** Tokens for each column that the Hessian of a tied head is made of: more than enough for one that nothing precedes. */
const HEAD_TOKENS = 16;

/**
 * The most bytes of inputs that are kept between the passes that need them; what does not fit is computed again. Large
 * residual streams leave them less, but at least a quarter: both together have HELD_BYTES.
 */
const KEPT_BYTES = 3 << 26;
const HELD_BYTES = 9 << 25;

/** The most weights of a matrix that are solved at once. */
export const SOLVED_WEIGHTS = 1 << 22;

/** A matrix whose Hessian needed more damping than was asked for. */
export interface Raised {
  /** The name of the tensor. */
  readonly name: string;
  /** The damping that was used. */
  readonly damping: number;
}

/** What {@link calibrate} takes. */
export interface CalibrateTask {
  readonly model: Model;
  /** What all of it costs; what was sampled before is done. */
  readonly costs: Costs;
  /** What is to be written: its format, and which tensors are quantized. */
  readonly plan: Plan;
  /** The windows of token ids, all of one length. */
  readonly windows: readonly (readonly number[])[];
  readonly damping: number;
  /** Gets the blocks of a matrix from row `first` on, in the order in which they are made. */
  readonly sink: (name: string, first: number, blocks: Uint8Array) => void;
  /** What the matrices are multiplied with; it is reset, and left open. */
  readonly ops: Operations;
  readonly core: Core;
  readonly signal?: AbortSignal;
  /** Called with what is done and the whole, in operations; and with the loss of each matrix. */
  readonly progress?: (done: number, total: number, last?: MatrixLoss) => void;
}

/** The costs of calibrating with some windows of one length. */
export function costsOf({ config }: Model, windows: number, window: number, sampled: boolean): Costs {
  const head = config.tied ? Math.min(windows, headWindows(config.hidden, window)) * window : 0;
  return new Costs(config, windows * window, head, sampled ? windows * (window - 1) : 0);
}

/** How many windows the Hessian of a tied head is made of. */
export function headWindows(hidden: number, window: number): number {
  return Math.ceil(HEAD_TOKENS * hidden / window);
}

/** Numbers of the places for inputs of windows: of as many as are kept, and of one that is not. */
export function placesFor(
  { config: { hidden, heads, headDim, intermediate } }: Model,
  count: number,
  window: number,
): number {
  const place = 2 * window * Math.max(hidden, heads * headDim, intermediate);
  const left = HELD_BYTES - 4 * 2 * count * window * hidden;
  const most = Math.floor(Math.min(KEPT_BYTES, Math.max(left, KEPT_BYTES / 4)) / 4 / place);
  return place * Math.max(1, Math.min(count, most) + 1);
}

/** What {@link calibrate} found. */
export interface Calibrated {
  /** The loss of each matrix, in the order in which they were quantized. */
  readonly matrices: readonly MatrixLoss[];
  /** Those whose Hessian needed more damping. */
  readonly raised: readonly Raised[];
}

/**
 * Quantizes every matrix of a model.
 *
 * @throws {CheckpointError} a tensor is missing, has another shape, is not used, or has a weight that is not finite
 * @throws {NumericError} a value of a forward pass is not finite, naming the matrix
 * @throws {SystemError} the source can't be read
 * @throws the reason of the signal
 */
export async function calibrate(task: CalibrateTask): Promise<Calibrated> {
  using source = new TensorReader(task.model.checkpoint);
  checkTensors(task.model.config, source);
  const run = new Run(task, source);
  await run.all();
  source.checkUnchanged();
  return { matrices: run.matrices, raised: run.raised };
}

/** The inputs of one window in both streams. */
interface Pair {
  readonly x: Rows;
  readonly x0: Rows;
}

class Run {
  readonly matrices: MatrixLoss[] = [];
  readonly raised: Raised[] = [];
  /** The blocks of the matrices of the layer at hand. */
  readonly #made = new Map<string, Uint8Array>();
  readonly #pause: () => Promise<void>;
  #rows: Rows = new Float32Array(0);
  /** Places for inputs of windows; what is read again is kept, as far as it fits. */
  readonly #places: Rows;
  /** The residual streams, window by window: of the quantized model, and of the float one. */
  #streams: Pair[] = [];

  constructor(readonly task: CalibrateTask, readonly source: TensorSource) {
    this.#pause = pacer(task.signal);
    const { model, windows } = task;
    this.#places = new Float32Array(placesFor(model, windows.length, windows[0].length));
  }

  /** Place `n` of inputs of some columns. */
  #place(n: number, columns: number): Pair {
    const size = this.task.windows[0].length * columns;
    return {
      x: this.#places.subarray(2 * n * size, (2 * n + 1) * size),
      x0: this.#places.subarray((2 * n + 1) * size, (2 * n + 2) * size),
    };
  }

  /** Counts a part of a step as done, and lets events be handled. */
  async #did(step: Step, part = 1): Promise<void> {
    const { progress, costs } = this.task;
    const done = costs.add(step, part);
    progress?.(done, costs.total, this.matrices.at(-1));
    await this.#pause();
  }

  async all(): Promise<void> {
    const { config } = this.task.model;
    await this.#embedding();
    for (let layer = 0; layer < config.layers; layer++) {
      await this.#normedGroup("attentionNorm", ["q", "k", "v"], layer);
      await this.#half(attentionHalf, ["q", "k", "v"], "o", layer);
      await this.#normedGroup("mlpNorm", ["gate", "up"], layer);
      await this.#half(gatedHalf, ["gate", "up"], "down", layer);
      this.#made.clear();
    }
    if (!config.tied) await this.#normedGroup("norm", ["head"], undefined);
  }

  /** The embedding, and the streams that begin with it. */
  async #embedding(): Promise<void> {
    const { model: { config }, windows, plan: { format } } = this.task;
    const { hidden, tied } = config;
    const name = nameOfPart("embedding");
    this.task.core.begin({ columns: hidden, target: false, residual: 0 });
    if (tied) {
      for (const rows of await this.#headInputs()) {
        // The first position is the attention sink, at which nobody asks what comes next.
        const x = rows.subarray(hidden);
        if (x.length > 0) await this.task.core.add({ tokens: x.length / hidden, x });
        await this.#pause();
      }
    } else {
      // Each row is used alone: what counts is the error of its weights.
      const x = new Float32Array(hidden * hidden);
      for (let n = 0; n < hidden; n++) x[n * (hidden + 1)] = 1;
      await this.task.core.add({ tokens: hidden, x });
    }
    this.#streams = windows.map(({ length }) => {
      return { x: new Float32Array(length * hidden), x0: new Float32Array(length * hidden) };
    });
    // Only the rows of the tokens at hand are needed again.
    const rowBytes = hidden / BLOCK * format.blockBytes;
    await this.#solve(tied ? TIED_DAMPING : this.task.damping, [name], (first, weights, blocks) => {
      const rows = weights.length / hidden;
      const view = new DataView(blocks.buffer, blocks.byteOffset, blocks.length);
      for (const [n, ids] of windows.entries()) {
        const { x, x0 } = this.#streams[n];
        for (const [t, id] of ids.entries()) {
          if (id < first || id >= first + rows) continue;
          const at = (id - first) * hidden;
          x0.set(weights.subarray(at, at + hidden), t * hidden);
          format.decode(view, (id - first) * rowBytes, hidden / BLOCK, x.subarray(t * hidden, (t + 1) * hidden));
        }
      }
    });
  }

  /** What the float model's head reads: the normed last states. */
  async #headInputs(): Promise<Rows[]> {
    const { model: { config }, windows } = this.task;
    const { hidden } = config;
    const name = nameOfPart("embedding");
    const streams = windows.slice(0, headWindows(hidden, windows[0].length)).map((ids) => {
      const x = new Float32Array(ids.length * hidden);
      for (const [t, id] of ids.entries()) x.set(this.#weights(name, id, 1), t * hidden);
      return x;
    });
    for (let layer = 0; layer < config.layers; layer++) {
      for (const [make, parts] of HALVES) {
        const half = await this.#load(make, parts, layer, false);
        const last = nameOfPart(parts.at(-1)!, layer);
        const inner = this.#place(0, this.source.find(last)!.shape[1]).x;
        for (const x of streams) {
          half.inner(x, inner);
          half.add(inner, x);
          if (!allFinite(x)) throw notFiniteAt(allFinite(inner) ? last : nameOfPart(parts[0], layer));
          await this.#did({ kind: "float", parts }, 1 / streams.length);
        }
      }
    }
    const norm = this.#norm("norm");
    for (const x of streams) {
      normalize(x, norm, config.normEps, x);
      if (!allFinite(x)) throw notFiniteAt(nameOfPart("norm"));
    }
    return streams;
  }

  /** Matrices whose input is the normed residual stream. */
  async #normedGroup(normPart: Part, parts: readonly Part[], layer: number | undefined): Promise<void> {
    const { hidden, normEps } = this.task.model.config;
    const norm = this.#norm(normPart, layer);
    const inputs = (n: number): Pair => {
      const { x, x0 } = this.#streams[n];
      const place = this.#place(0, hidden);
      normalize(x, norm, normEps, place.x);
      normalize(x0, norm, normEps, place.x0);
      return place;
    };
    const names = parts.map((part) => nameOfPart(part, layer));
    await this.#gather(names, hidden, inputs, 0);
    await this.#solve(this.task.damping, names);
  }

  /** The last matrix of a half, and the way of both streams through the half. */
  async #half(make: MakeHalf, parts: readonly Part[], last: Part, layer: number): Promise<void> {
    const { hidden } = this.task.model.config;
    const name = nameOfPart(last, layer);
    const columns = this.source.find(name)!.shape[1];
    let [quant, float] = await this.#loadBoth(make, parts, layer);
    const { windows } = this.task;
    const kept = new Set<number>();
    const places = Math.floor(this.#places.length / (2 * windows[0].length * columns));
    const inputs = (n: number): Pair => {
      const keep = n < places - 1;
      const place = this.#place(keep ? n : places - 1, columns);
      if (kept.has(n)) return place;
      const { x, x0 } = this.#streams[n];
      quant.inner(x, place.x);
      float.inner(x0, place.x0);
      if (keep) kept.add(n);
      return place;
    };
    await this.#gather([name], columns, inputs, hidden);
    await this.#solve(this.task.damping, [name]);
    [quant, float] = await this.#loadBoth(make, [...parts, last], layer);
    for (const [n, { x, x0 }] of this.#streams.entries()) {
      const pair = inputs(n);
      quant.add(pair.x, x);
      float.add(pair.x0, x0);
      await this.#did({ kind: "streams", parts: [...parts, last] }, 1 / windows.length);
    }
  }

  /** Adds the inputs of a group to its sums. */
  async #gather(
    names: readonly string[],
    columns: number,
    inputs: (window: number) => Pair,
    residual: number,
  ): Promise<void> {
    const { core, windows } = this.task;
    const tokens = windows[0].length;
    const norms = new Float64Array(windows.length * tokens);
    for (const n of windows.keys()) {
      norms.set(squaredNorms(inputs(n).x, tokens), n * tokens);
      await this.#pause();
    }
    if (!norms.every(Number.isFinite)) throw notFiniteAt(names[0]);
    const factors = tokenFactors(norms);
    core.begin({ columns, target: true, residual });
    for (const n of windows.keys()) {
      const { x: r, x0: r0 } = this.#streams[n];
      const { x, x0 } = inputs(n);
      const own = factors.subarray(n * tokens, (n + 1) * tokens);
      await core.add({ tokens, x, x0, factors: own, ...residual > 0 && { r, r0 } });
      await this.#did({ kind: "gather", columns, residual }, 1 / windows.length);
    }
  }

  /** Quantizes the matrices of the group whose sums are made; `visit` gets the weights and the blocks of some rows. */
  async #solve(
    damping: number,
    names: readonly string[],
    visit?: (first: number, weights: Float32Array, blocks: Uint8Array) => void,
  ): Promise<void> {
    const { core, plan: { format }, sink } = this.task;
    let used = damping;
    const naming = async <T>(name: string, work: () => Promise<T>): Promise<T> => {
      try {
        return await work();
      } catch (error) {
        throw error instanceof NumericError ? notFiniteAt(name) : error;
      }
    };
    while (await naming(names[0], () => core.factor(used)) >= 0) used *= 2;
    for (const name of names) {
      if (used !== damping) this.raised.push({ name, damping: used });
      const { shape: [rows, columns] } = this.source.find(name)!;
      const most = Math.max(BLOCK, Math.floor(SOLVED_WEIGHTS / columns / BLOCK) * BLOCK);
      const sum = { energy: 0, before: 0, after: 0 };
      const all = visit === undefined ? new Uint8Array(rows * columns / BLOCK * format.blockBytes) : undefined;
      for (let first = 0; first < rows; first += most) {
        const count = Math.min(most, rows - first);
        const weights = this.#weights(name, first, count);
        const { blocks, loss } = await naming(name, () => core.solve({ format, rows: count, first, weights }));
        for (const part of ["energy", "before", "after"] as const) sum[part] += loss[part];
        all?.set(blocks, first * columns / BLOCK * format.blockBytes);
        visit?.(first, weights, blocks);
        sink(name, first, blocks);
        await this.#did({ kind: "solve", rows: count, columns });
      }
      if (all !== undefined) this.#made.set(name, all);
      const share = (loss: number) => sum.energy > 0 ? loss / sum.energy : 0;
      this.matrices.push({ name, before: share(sum.before), after: share(sum.after) });
    }
  }

  async #loadBoth(make: MakeHalf, parts: readonly Part[], layer: number): Promise<[Half, Half]> {
    const quant = await this.#load(make, parts, layer, true);
    return [quant, this.#with(make, parts, layer, false)];
  }

  async #load(make: MakeHalf, parts: readonly Part[], layer: number, quantized: boolean): Promise<Half> {
    await this.task.ops.reset();
    return this.#with(make, parts, layer, quantized);
  }

  #with(make: MakeHalf, parts: readonly Part[], layer: number, quantized: boolean): Half {
    const { ops, model: { config }, windows, plan: { format } } = this.task;
    const made = quantized ? { format, blocks: this.#made } : undefined;
    return make(ops, loaderOf(config, this.source, parts, made), layer, windows[0].length);
  }

  #norm(part: Part, layer?: number): Float32Array {
    const name = nameOfPart(part, layer);
    return readWeights(this.source, name, 0, new Float32Array(this.source.find(name)!.shape[0]));
  }

  /** Rows of a matrix of the float model, which are there until the next are read. */
  #weights(name: string, first: number, rows: number): Rows {
    const { shape: [, columns] } = this.source.find(name)!;
    const count = rows * columns;
    if (this.#rows.length < count) this.#rows = new Float32Array(count);
    return readWeights(this.source, name, first * columns, this.#rows.subarray(0, count));
  }
}

type MakeHalf = typeof attentionHalf;

/** The halves of a layer and their matrices. */
export const HALVES: readonly (readonly [MakeHalf, readonly Part[]])[] = [
  [attentionHalf, ["q", "k", "v", "o"]],
  [gatedHalf, ["gate", "up", "down"]],
];

/** Whether all values are finite. */
function allFinite(values: Rows): boolean {
  let zero = 0;
  for (let n = 0; n < values.length; n++) zero += values[n] * 0;
  return zero === 0;
}

function notFiniteAt(name: string): NumericError {
  return new NumericError(
    `calibrating ${name}: a value is not finite; the weights are damaged, or too large for binary32 arithmetic`,
  );
}
