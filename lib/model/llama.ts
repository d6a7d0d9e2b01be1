/**
 * The forward pass of the Llama family: loads the weights and calls the operations of lib/kernels in order. A matrix
 * may have any format.
 *
 * Touvron et al. 2023 (Llama); Qwen2 adds biases to q, k and v, Qwen3 norms of the heads.
 *
 * @module
 */

import { LimitError } from "../errors.ts";
import { finish, type Work } from "../pace.ts";
import type { ActivationBuffer, KeyValueCache, Operations, RopeTable } from "../kernels/operations.ts";
import type { Config } from "./config.ts";
import { ropeValues } from "./rope.ts";
import type { TensorSource } from "./tensors.ts";
import { loadWeights, readWeights, type Weights } from "./weights.ts";

/** The activations of a forward pass, one row per token. */
interface State {
  readonly x: ActivationBuffer; // hidden: the residual stream
  readonly q: ActivationBuffer; // heads * headDim
  readonly k: ActivationBuffer; // kvHeads * headDim
  readonly v: ActivationBuffer; // kvHeads * headDim
  readonly mixed: ActivationBuffer; // heads * headDim: the result of attention
  readonly inner: ActivationBuffer; // intermediate: silu(gate) * up
  readonly logits: ActivationBuffer; // vocabulary
  readonly caches: readonly KeyValueCache[]; // one per layer, or one for all
  readonly rope: RopeTable;
}

/** The largest batch of a forward pass, in tokens. */
export const BATCH = 512;

/** Consecutive tokens of one sequence. */
export interface Run {
  /** The tokens. */
  readonly ids: readonly number[];
  /** The position of the first of them. */
  readonly position: number;
  /** Where the caches hold position 0 of the sequence: a multiple of ATTENTION_CHUNK. */
  readonly start: number;
}

/** How a model is held whose layers are read from the source whenever they are needed, one at a time. */
export interface ByLayer {
  /** Whether all tokens pass through a layer before the next, so that all layers share one KV cache. */
  readonly oneCache: boolean;
}

/** A loaded model. */
export class Llama {
  readonly config: Config;
  /** The capacity of the KV caches, in tokens. */
  readonly context: number;
  readonly #ops: Operations;
  readonly #weights: Weights;
  readonly #state: State;
  /** Whether a layer is read from the source whenever it is needed. */
  readonly byLayer: boolean;
  #position = 0;

  /**
   * Loads a model.
   *
   * @param context the maximum number of tokens to feed
   * @param logitRows the maximum number of tokens in a batch whose logits are returned
   * @param weights the weights, if they are already loaded
   * @param byLayer how they are held, unless all are in memory
   * @throws {CheckpointError} a tensor is missing or unexpected or has the wrong shape, or a scale is not finite
   * @throws {LimitError} the context is longer than the model's, or than its sliding window
   */
  constructor(
    ops: Operations,
    config: Config,
    source: TensorSource,
    context: number,
    logitRows = 1,
    weights?: Weights,
    byLayer?: ByLayer,
  ) {
    checkContext(config, context);
    this.#ops = ops;
    this.config = config;
    this.context = context;
    this.byLayer = byLayer !== undefined;
    this.#weights = weights ?? finish(loadWeights(ops, config, source));
    this.#state = makeState(ops, config, context, logitRows, byLayer?.oneCache ? 1 : config.layers);
  }

  /**
   * Loads a model like the constructor, as a generator that yields after each layer.
   *
   * @param byLayer read the layers from the source whenever they are needed; it must stay open
   */
  static *loading(
    ops: Operations,
    config: Config,
    source: TensorSource,
    context: number,
    logitRows = 1,
    byLayer?: ByLayer,
  ): Work<Llama> {
    checkContext(config, context);
    const weights = byLayer === undefined
      ? yield* loadWeights(ops, config, source)
      : yield* readWeights(ops, config, source, Math.min(context, BATCH));
    return new Llama(ops, config, source, context, logitRows, weights, byLayer);
  }

  /** The number of tokens in the context. */
  get position(): number {
    return this.#position;
  }

  /** Forgets all tokens from `position` on. */
  rewind(position: number): void {
    this.#position = position;
  }

  /**
   * Feeds tokens, which are appended to the context.
   *
   * @returns the logits after the last token, one per token of the vocabulary, valid until the next call
   */
  feed(ids: readonly number[]): Float32Array {
    for (let at = 0; at < ids.length; at += BATCH) {
      const batch = ids.slice(at, at + BATCH);
      this.#follow(batch);
      if (at + BATCH >= ids.length) this.predict(batch.length - 1, 1);
      this.#ops.run();
    }
    return this.#ops.row(this.#state.logits, 0);
  }

  /**
   * Feeds tokens and calls `visit` with the logits after each.
   *
   * @param visit gets the index of the token and the logits, which are valid during the call
   */
  feedAll(ids: readonly number[], visit: (index: number, logits: Float32Array) => void): void {
    for (let at = 0; at < ids.length; at += BATCH) {
      const batch = ids.slice(at, at + BATCH);
      this.#follow(batch);
      for (let first = 0; first < batch.length; first += this.logitRows) {
        const count = Math.min(this.logitRows, batch.length - first);
        const logits = this.predict(first, count);
        this.#ops.run();
        for (let n = 0; n < count; n++) visit(at + first + n, this.#ops.row(logits, n));
      }
    }
  }

  #follow(ids: readonly number[]): void {
    this.pass([{ ids, position: this.#position, start: 0 }]);
    this.#position += ids.length;
  }

  /** The most tokens whose logits {@link predict} computes at once. */
  get logitRows(): number {
    return this.#state.logits.tokens;
  }

  /**
   * The logits after tokens `first` to `first + count - 1` of the last {@link pass}, at most `logitRows` of them.
   *
   * @returns the buffer that has them from row 0 on, after the next run of the operations
   */
  predict(first: number, count: number): ActivationBuffer {
    const { x, logits } = this.#state;
    const { norm, head } = this.#weights;
    this.#ops.project({ from: x, first, norm }, count, [{ matrix: head, out: logits }]);
    return logits;
  }

  /** One pass over the weights, for at most {@link BATCH} tokens of one or several sequences. */
  pass(runs: readonly Run[]): void {
    this.embed(runs);
    for (let layer = 0; layer < this.config.layers; layer++) this.through(layer, runs);
  }

  /** Begins a pass: the residual stream of its tokens. */
  embed(runs: readonly Run[]): void {
    for (const { ids, position, start } of runs) {
      if (start + position + ids.length > this.context) {
        throw new RangeError(`${start + position} + ${ids.length} tokens, room for ${this.context}`);
      }
    }
    this.#weights.embed(runs.flatMap(({ ids }) => ids), this.#state.x);
  }

  /** The way of the residual stream through a layer. */
  through(index: number, runs: readonly Run[]): void {
    const n = tokensOf(runs);
    const { heads } = this.config;
    const { x, q, k, v, mixed, inner, caches, rope } = this.#state;
    const ops = this.#ops;
    const layer = this.#weights.layer(index);
    ops.project({ from: x, norm: layer.attentionNorm }, n, [
      { matrix: layer.q, bias: layer.qBias, out: q },
      { matrix: layer.k, bias: layer.kBias, out: k },
      { matrix: layer.v, bias: layer.vBias, out: v },
    ]);
    const { qNorm, kNorm } = layer;
    const cache = caches[index % caches.length];
    let first = 0;
    for (const { ids, position, start } of runs) {
      const places = { first, position, start };
      ops.attend({ q, k, v, out: mixed, cache, rope, heads, ...places, qNorm, kNorm }, ids.length);
      first += ids.length;
    }
    ops.projectAdd({ from: mixed }, n, layer.o, x, layer.oBias);
    ops.projectGated({ from: x, norm: layer.mlpNorm }, n, layer.gate, layer.up, inner);
    ops.projectAdd({ from: inner }, n, layer.down, x);
  }

  /** The residual stream of the first tokens of a pass, [tokens, hidden]. Runs the operations. */
  takeStream(into: Float32Array): void {
    this.#ops.run();
    this.#rows(into, (row, own) => own.set(row));
  }

  /** Sets what {@link takeStream} took. */
  putStream(from: Float32Array): void {
    this.#ops.run();
    this.#rows(from, (row, own) => row.set(own));
  }

  #rows(values: Float32Array, visit: (row: Float32Array, own: Float32Array) => void): void {
    const { x } = this.#state;
    for (let t = 0; t * x.width < values.length; t++) {
      visit(this.#ops.row(x, t), values.subarray(t * x.width, (t + 1) * x.width));
    }
  }
}

/** The number of tokens of a pass. */
export function tokensOf(runs: readonly Run[]): number {
  return runs.reduce((sum, { ids }) => sum + ids.length, 0);
}

/** @throws {LimitError} as {@link Llama} */
function checkContext(config: Config, context: number): void {
  if (context > config.maxPositions) {
    throw new LimitError(
      `${context} tokens are more than the model's context of ${config.maxPositions} (max_position_embeddings); ` +
        "use a shorter prompt or fewer steps",
    );
  }
  if (config.window !== undefined && context > config.window) {
    throw new LimitError(
      `${context} tokens are more than the model's window of ${config.window} (sliding_window), and the decoder ` +
        "knows no windows; use a shorter prompt or fewer steps",
    );
  }
}

function makeState(ops: Operations, config: Config, context: number, logitRows: number, caches: number): State {
  const { hidden, intermediate, heads, kvHeads, headDim, vocabulary } = config;
  const tokens = Math.min(context, BATCH);
  return {
    x: ops.buffer(tokens, hidden),
    q: ops.buffer(tokens, heads * headDim),
    k: ops.buffer(tokens, kvHeads * headDim),
    v: ops.buffer(tokens, kvHeads * headDim),
    mixed: ops.buffer(tokens, heads * headDim),
    inner: ops.buffer(tokens, intermediate),
    logits: ops.buffer(Math.min(logitRows, tokens), vocabulary),
    caches: Array.from({ length: caches }, () => ops.cache(context, kvHeads, headDim)),
    rope: ops.ropeTable(context, ropeValues(config.ropeFrequencies, context)),
  };
}
