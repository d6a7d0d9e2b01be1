/**
 * A float model and quantized ones that are fed the same tokens. Knows tokens and logits only.
 *
 * @module
 */

import { type Decoder, trace } from "./compare.ts";
import { Distribution, type Pair } from "./distribution.ts";
import type { Counted } from "../pace.ts";

/** A model that returns the logits after each token. */
export interface TextModel extends Decoder {
  /** Feeds tokens and visits the logits after each, which are valid during the call. */
  feedAll(ids: readonly number[], visit: (index: number, logits: Float32Array) => void): void;
}

/** Tokens that follow nothing. */
export interface Sequence {
  /** The tokens. */
  readonly ids: readonly number[];
  /** The index of the first token after which the logits are compared. */
  readonly first: number;
}

/** Gets the logits of the float model and of quantized model `quant` after token `index` of a sequence, during the call. */
export type Visit = (sequence: number, index: number, quant: number, pair: Pair) => void;

/** A float model and quantized ones. The work is counted in tokens. Several sequences may share a pass over the weights; the results are the same. */
export interface ModelGroup {
  /** The number of quantized models. */
  readonly quants: number;
  /** The greedy answers of the float model, of `steps` tokens each. @throws {NumericError} a logit is not finite */
  answers(prompts: readonly (readonly number[])[], steps: number): Counted<number[][]>;
  /** Feeds sequences to all models. For each quantized model, the tokens of a sequence are visited in order. */
  compare(sequences: readonly Sequence[], visit: Visit): Counted<void>;
}

/** Tokens whose logits are kept at once: more take more memory, fewer are slower. */
export const LOGIT_ROWS = 64;

/** A group of models of any kind, which are fed one sequence after the other. */
export function groupOf(float: TextModel, quants: readonly TextModel[]): ModelGroup {
  const models = [float, ...quants];
  const rows: Distribution[] = [];
  return {
    quants: quants.length,
    *answers(prompts, steps) {
      const answers: number[][] = [];
      let done = 0;
      for (const prompt of prompts) {
        float.rewind(0);
        answers.push([...trace(float, prompt, steps).tokens]);
        yield done += prompt.length + steps;
      }
      return answers;
    },
    *compare(sequences, visit) {
      let done = 0;
      for (const [sequence, { ids, first }] of sequences.entries()) {
        for (const model of models) {
          model.rewind(0);
          if (first > 0) model.feed(ids.slice(0, first));
        }
        for (let at = first; at < ids.length; at += LOGIT_ROWS) {
          const batch = ids.slice(at, at + LOGIT_ROWS);
          float.feedAll(batch, (n, logits) => {
            rows[n] ??= new Distribution(logits.length);
            rows[n].set(logits.slice());
          });
          for (const [quant, model] of quants.entries()) {
            model.feedAll(batch, (n, logits) => {
              const row = new Distribution(logits.length);
              row.set(logits);
              visit(sequence, at + n, quant, rows[n].with(row));
            });
          }
          yield done + at + batch.length;
        }
        done += ids.length;
      }
    },
  };
}
