/**
 * A float model and quantized ones in one pool: what they predict is compared there, and sequences share passes over the
 * weights.
 *
 * @module
 */

import { capacityFor } from "../kernels/cache.ts";
import type { Operations, Pair } from "../kernels/operations.ts";
import type { Counted } from "../pace.ts";
import { greedy } from "../text/sample.ts";
import type { Config } from "./config.ts";
import { BATCH, type Llama, type Run, tokensOf } from "./llama.ts";

/** A part of a sequence. */
interface Piece extends Run {
  /** The index of the sequence. */
  readonly sequence: number;
}

/** Tokens that follow nothing, and the index of the first token after which logits are compared. */
interface Sequence {
  readonly ids: readonly number[];
  readonly first: number;
}

type Visit = (sequence: number, index: number, quant: number, pair: Pair) => void;

/** See the module. Implements ModelGroup of lib/measure/group.ts. */
export class LlamaGroup {
  readonly #ops: Operations;
  readonly #float: Llama;
  readonly #quants: readonly Llama[];

  /**
   * Models of one pool, with the same context and the same number of logit rows; all are read by layer, or none.
   *
   * @param rows the most tokens whose activations are held if they are read by layer; for more, layers are read again
   */
  constructor(ops: Operations, float: Llama, quants: readonly Llama[], readonly rows = Infinity) {
    this.#ops = ops;
    this.#float = float;
    this.#quants = quants;
  }

  /** The number of quantized models. */
  get quants(): number {
    return this.#quants.length;
  }

  /** The greedy answers of the float model, as work that is counted in tokens. */
  *answers(prompts: readonly (readonly number[])[], steps: number): Counted<number[][]> {
    const [ops, float] = [this.#ops, this.#float];
    const answers = prompts.map((): number[] => []);
    let done = 0;
    for (const passes of this.#plan(prompts, steps)) {
      for (const runs of passes) {
        yield done += this.#feed(float, runs);
        let end = 0;
        for (const { sequence, ids, position } of runs) {
          end += ids.length;
          if (position + ids.length < prompts[sequence].length) continue;
          const logits = float.predict(end - 1, 1);
          ops.run();
          answers[sequence].push(greedy(ops.row(logits, 0)));
        }
      }
      const last = passes.at(-1)!;
      for (let step = 1; step < steps; step++) {
        const runs = last.map(({ sequence, start }): Piece => {
          const position = prompts[sequence].length + step - 1;
          return { sequence, start, position, ids: answers[sequence].slice(-1) };
        });
        float.pass(runs);
        for (let first = 0; first < runs.length; first += float.logitRows) {
          const some = runs.slice(first, first + float.logitRows);
          const logits = float.predict(first, some.length);
          ops.run();
          for (const [n, { sequence }] of some.entries()) answers[sequence].push(greedy(ops.row(logits, n)));
        }
        yield done += runs.length;
      }
      yield done += last.length;
    }
    return answers;
  }

  /** Feeds sequences to all models and compares what they predict: see ModelGroup. */
  *compare(
    sequences: readonly Sequence[],
    visit: Visit,
  ): Counted<void> {
    const models = [this.#float, ...this.#quants];
    const shares = this.#plan(sequences.map(({ ids }) => ids), 0);
    if (this.#float.byLayer) return yield* this.#compareByLayer(shares, sequences, visit);
    let done = 0;
    for (const runs of shares.flat()) {
      for (const model of models) {
        done += this.#feed(model, runs) / models.length;
        yield Math.floor(done);
      }
      yield done = Math.round(done);
      for (const _ of this.#visit(runs, sequences, visit)) yield done;
    }
  }

  /** {@link compare}, where all tokens pass through a layer before the next: so a layer is read once. */
  *#compareByLayer(shares: readonly Piece[][][], sequences: readonly Sequence[], visit: Visit): Counted<void> {
    const models = [this.#float, ...this.#quants];
    const { hidden, layers } = this.#float.config;
    const headShare = headShareOf(this.#float.config);
    let before = 0;
    for (const passes of this.#groups(shares)) {
      const tokens = passes.reduce((sum, runs) => sum + tokensOf(runs), 0);
      let done = before;
      const streams = models.map(() => passes.map((runs) => new Float32Array(tokensOf(runs) * hidden)));
      for (const [m, model] of models.entries()) {
        for (const [n, runs] of passes.entries()) {
          model.embed(runs);
          model.takeStream(streams[m][n]);
        }
        for (let layer = 0; layer < layers; layer++) {
          for (const [n, runs] of passes.entries()) {
            model.putStream(streams[m][n]);
            model.through(layer, runs);
            model.takeStream(streams[m][n]);
            done += tokensOf(runs) * (1 - headShare) / layers / models.length;
            yield Math.floor(done);
          }
        }
      }
      for (const [n, runs] of passes.entries()) {
        for (const [m, model] of models.entries()) model.putStream(streams[m][n]);
        for (const _ of this.#visit(runs, sequences, visit)) yield Math.floor(done);
        done += tokensOf(runs) * headShare;
      }
      yield before += tokens;
    }
  }

  /** Divides passes into groups, each with the activations of at most {@link LlamaGroup.rows} tokens if possible. */
  *#groups(shares: readonly Piece[][][]): Generator<Piece[][]> {
    let group: Piece[][] = [];
    let tokens = 0;
    for (const passes of shares) {
      const more = tokensOf(passes.flat());
      if (group.length > 0 && tokens + more > this.rows) {
        yield group;
        [group, tokens] = [[], 0];
      }
      group.push(...passes);
      tokens += more;
    }
    if (group.length > 0) yield group;
  }

  /** Compares what the models predict after the tokens of the last pass. */
  *#visit(runs: readonly Piece[], sequences: readonly Sequence[], visit: Visit): Generator<void> {
    const [ops, float] = [this.#ops, this.#float];
    let row = 0;
    for (const { sequence, ids, position } of runs) {
      const least = Math.max(0, sequences[sequence].first - position);
      for (let from = least; from < ids.length; from += float.logitRows) {
        const count = Math.min(float.logitRows, ids.length - from);
        const p = float.predict(row + from, count);
        for (const [which, quant] of this.#quants.entries()) {
          ops.compare(p, quant.predict(row + from, count), count);
          ops.run();
          for (let n = 0; n < count; n++) visit(sequence, position + from + n, which, ops.compared(n));
        }
        yield;
      }
      row += ids.length;
    }
  }

  #feed(model: Llama, runs: readonly Piece[]): number {
    model.pass(runs);
    this.#ops.run();
    return tokensOf(runs);
  }

  /**
   * Which sequences share passes, each with room for `more` tokens: as many as the caches and a batch have room for, in
   * one pass; or one that takes several.
   */
  #plan(sequences: readonly (readonly number[])[], more: number): Piece[][][] {
    const shares: Piece[][][] = [];
    let [start, tokens] = [Infinity, 0];
    for (const [sequence, ids] of sequences.entries()) {
      if (start + ids.length + more > this.#float.context || tokens + ids.length > BATCH) {
        shares.push([]);
        [start, tokens] = [0, 0];
      }
      const passes = shares.at(-1)!;
      for (let position = 0; position < ids.length; position += BATCH) {
        const piece = { sequence, start, position, ids: ids.slice(position, position + BATCH) };
        if (position === 0 && tokens > 0) passes[0].push(piece);
        else passes.push([piece]);
      }
      start += capacityFor(ids.length + more);
      tokens += ids.length;
    }
    return shares;
  }
}

/** The share of the head in the work for a token. */
function headShareOf({ intermediate, heads, kvHeads, headDim, vocabulary, layers }: Config): number {
  const layer = 2 * (heads + kvHeads) * headDim + 3 * intermediate;
  return vocabulary / (vocabulary + layers * layer);
}
