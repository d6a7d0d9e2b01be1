/**
 * The forward pass of the Llama family: loads the weights and calls the operations of lib/kernels in order. A matrix
 * may have any format.
 *
 * Touvron et al. 2023 (Llama); Qwen2 adds biases to q, k and v, Qwen3 norms of the heads.
 *
 * @module
 */

import { CheckpointError, LimitError } from "../errors.ts";
import { finish, type Work } from "../pace.ts";
import { FORMATS } from "../format/blocks.ts";
import { notFinite } from "../format/not_finite.ts";
import {
  type ActivationBuffer,
  BadScale,
  type KeyValueCache,
  type Matrix,
  type Norm,
  type Operations,
  type RopeTable,
  type Vector,
} from "../kernels/operations.ts";
import type { Config } from "./config.ts";
import { ropeValues } from "./rope.ts";
import { checkTensors, nameOfPart, type Part, type TensorSource } from "./tensors.ts";

/** The weights of one layer. */
interface Layer {
  readonly attentionNorm: Norm;
  readonly q: Matrix; // heads * headDim x hidden
  readonly k: Matrix; // kvHeads * headDim x hidden
  readonly v: Matrix; // kvHeads * headDim x hidden
  readonly qBias?: Vector;
  readonly kBias?: Vector;
  readonly vBias?: Vector;
  readonly qNorm?: Norm; // headDim
  readonly kNorm?: Norm;
  readonly o: Matrix; // hidden x heads * headDim
  readonly oBias?: Vector;
  readonly mlpNorm: Norm;
  readonly gate: Matrix; // intermediate x hidden
  readonly up: Matrix; // intermediate x hidden
  readonly down: Matrix; // hidden x intermediate
}

/** The weights of a model. */
interface Weights {
  readonly embedding: Matrix; // vocabulary x hidden
  readonly layers: readonly Layer[];
  readonly norm: Norm;
  readonly head: Matrix; // vocabulary x hidden; the embedding if they are tied
}

/** The activations of a forward pass, one row per token. */
interface State {
  readonly x: ActivationBuffer; // hidden: the residual stream
  readonly q: ActivationBuffer; // heads * headDim
  readonly k: ActivationBuffer; // kvHeads * headDim
  readonly v: ActivationBuffer; // kvHeads * headDim
  readonly mixed: ActivationBuffer; // heads * headDim: the result of attention
  readonly inner: ActivationBuffer; // intermediate: silu(gate) * up
  readonly logits: ActivationBuffer; // vocabulary
  readonly caches: readonly KeyValueCache[]; // one per layer
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

/** A loaded model. */
export class Llama {
  readonly config: Config;
  /** The capacity of the KV caches, in tokens. */
  readonly context: number;
  readonly #ops: Operations;
  readonly #weights: Weights;
  readonly #state: State;
  #position = 0;

  /**
   * Loads a model.
   *
   * @param context the maximum number of tokens to feed
   * @param logitRows the maximum number of tokens in a batch whose logits are returned
   * @param weights the weights, if they are already loaded
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
  ) {
    checkContext(config, context);
    this.#ops = ops;
    this.config = config;
    this.context = context;
    this.#weights = weights ?? finish(loadWeights(ops, config, source));
    this.#state = makeState(ops, config, context, logitRows);
  }

  /** Loads a model like the constructor, as a generator that yields after each layer. */
  static *loading(
    ops: Operations,
    config: Config,
    source: TensorSource,
    context: number,
    logitRows = 1,
  ): Work<Llama> {
    checkContext(config, context);
    const weights = yield* loadWeights(ops, config, source);
    return new Llama(ops, config, source, context, logitRows, weights);
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
    const ids = runs.flatMap(({ ids }) => ids);
    const n = ids.length;
    const { heads } = this.config;
    const { x, q, k, v, mixed, inner, caches, rope } = this.#state;
    const ops = this.#ops;
    const { embedding, layers } = this.#weights;
    for (const { ids, position, start } of runs) {
      if (start + position + ids.length > this.context) {
        throw new RangeError(`${start + position} + ${ids.length} tokens, room for ${this.context}`);
      }
    }

    ops.embed(embedding, ids, x);
    for (const [index, layer] of layers.entries()) {
      ops.project({ from: x, norm: layer.attentionNorm }, n, [
        { matrix: layer.q, bias: layer.qBias, out: q },
        { matrix: layer.k, bias: layer.kBias, out: k },
        { matrix: layer.v, bias: layer.vBias, out: v },
      ]);
      const { qNorm, kNorm } = layer;
      let first = 0;
      for (const { ids, position, start } of runs) {
        const places = { first, position, start };
        ops.attend({ q, k, v, out: mixed, cache: caches[index], rope, heads, ...places, qNorm, kNorm }, ids.length);
        first += ids.length;
      }
      ops.projectAdd({ from: mixed }, n, layer.o, x, layer.oBias);
      ops.projectGated({ from: x, norm: layer.mlpNorm }, n, layer.gate, layer.up, inner);
      ops.projectAdd({ from: inner }, n, layer.down, x);
    }
  }
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

/** Loads the weights, as a generator that yields after each layer. @throws {CheckpointError} as {@link Llama} */
function* loadWeights(ops: Operations, config: Config, source: TensorSource): Work<Weights> {
  const tensors = checkTensors(config, source);
  const find = (part: Part, layer?: number) => {
    const name = nameOfPart(part, layer);
    const { dtype, shape, path } = tensors.get(name)!;
    const format = FORMATS.get(dtype);
    if (format === undefined || (shape.length === 1 && format.kind !== "float")) {
      throw new CheckpointError({ path, tensor: name, field: "dtype" }, `the decoder does not know ${dtype}`);
    }
    return { name, format, shape, path };
  };
  const matrix = (part: Part, layer?: number): Matrix => {
    const { name, format, shape: [rows, columns], path } = find(part, layer);
    try {
      return ops.matrix(format, rows, columns, (offset, into) => source.read(name, offset, into), source.place?.(name));
    } catch (error) {
      if (!(error instanceof BadScale)) throw error;
      throw notFinite({ path, tensor: name }, format.blockWeights, columns, error.block);
    }
  };
  const vector = (part: Part, layer?: number): Vector => {
    const { name, format, shape: [length] } = find(part, layer);
    return ops.vector(format, length, (offset, into) => source.read(name, offset, into));
  };
  const norm = (part: Part, layer?: number): Norm => ({ weight: vector(part, layer), eps: config.normEps });
  const { qkvBias, outputBias, headNorm, tied } = config;

  const embedding = matrix("embedding");
  const layers: Layer[] = [];
  for (let n = 0; n < config.layers; n++) {
    layers.push({
      attentionNorm: norm("attentionNorm", n),
      q: matrix("q", n),
      k: matrix("k", n),
      v: matrix("v", n),
      qBias: qkvBias ? vector("qBias", n) : undefined,
      kBias: qkvBias ? vector("kBias", n) : undefined,
      vBias: qkvBias ? vector("vBias", n) : undefined,
      qNorm: headNorm ? norm("qNorm", n) : undefined,
      kNorm: headNorm ? norm("kNorm", n) : undefined,
      o: matrix("o", n),
      oBias: outputBias ? vector("oBias", n) : undefined,
      mlpNorm: norm("mlpNorm", n),
      gate: matrix("gate", n),
      up: matrix("up", n),
      down: matrix("down", n),
    });
    yield;
  }
  return { embedding, layers, norm: norm("norm"), head: tied ? embedding : matrix("head") };
}

function makeState(ops: Operations, config: Config, context: number, logitRows: number): State {
  const { hidden, intermediate, heads, kvHeads, headDim, vocabulary, layers } = config;
  const tokens = Math.min(context, BATCH);
  return {
    x: ops.buffer(tokens, hidden),
    q: ops.buffer(tokens, heads * headDim),
    k: ops.buffer(tokens, kvHeads * headDim),
    v: ops.buffer(tokens, kvHeads * headDim),
    mixed: ops.buffer(tokens, heads * headDim),
    inner: ops.buffer(tokens, intermediate),
    logits: ops.buffer(Math.min(logitRows, tokens), vocabulary),
    caches: Array.from({ length: layers }, () => ops.cache(context, kvHeads, headDim)),
    rope: ops.ropeTable(context, ropeValues(config.ropeFrequencies, context)),
  };
}
