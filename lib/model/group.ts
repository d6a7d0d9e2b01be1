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
import { BATCH, type Llama, type Run } from "./llama.ts";

/** A part of a sequence. */
interface Piece extends Run {
  /** The index of the sequence. */
  readonly sequence: number;
}

/** See the module. Implements ModelGroup of lib/measure/group.ts. */
export class LlamaGroup {
  readonly #ops: Operations;
  readonly #float: Llama;
  readonly #quants: readonly Llama[];

  /** Models of one pool, with the same context and the same number of logit rows. */
  constructor(ops: Operations, float: Llama, quants: readonly Llama[]) {
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
    sequences: readonly { readonly ids: readonly number[]; readonly first: number }[],
    visit: (sequence: number, index: number, quant: number, pair: Pair) => void,
  ): Counted<void> {
    const [ops, float, quants] = [this.#ops, this.#float, this.#quants];
    let done = 0;
    for (const runs of this.#plan(sequences.map(({ ids }) => ids), 0).flat()) {
      for (const model of [float, ...quants]) {
        done += this.#feed(model, runs) / (quants.length + 1);
        yield Math.floor(done);
      }
      done = Math.round(done);
      let row = 0;
      for (const { sequence, ids, position } of runs) {
        const least = Math.max(0, sequences[sequence].first - position);
        for (let from = least; from < ids.length; from += float.logitRows) {
          const count = Math.min(float.logitRows, ids.length - from);
          const p = float.predict(row + from, count);
          for (const [which, quant] of quants.entries()) {
            ops.compare(p, quant.predict(row + from, count), count);
            ops.run();
            for (let n = 0; n < count; n++) visit(sequence, position + from + n, which, ops.compared(n));
          }
          yield done;
        }
        row += ids.length;
      }
    }
  }

  #feed(model: Llama, runs: readonly Piece[]): number {
    model.pass(runs);
    this.#ops.run();
    return runs.reduce((sum, { ids }) => sum + ids.length, 0);
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
