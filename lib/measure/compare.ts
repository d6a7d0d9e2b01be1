/**
 * Two models, the same tokens: whether the answer is kept, and how far the logits move. Knows tokens and logits only.
 *
 * @module
 */

import { greedy } from "../text/sample.ts";
import { Difference } from "./metrics.ts";

/** A model that decodes. */
export interface Decoder {
  /** Feeds tokens; the logits after the last one, valid until the next call. */
  feed(ids: readonly number[]): Float32Array;
  /** Forgets the tokens from `position` on. */
  rewind(position: number): void;
}

/** What the float model did: kept while the other model runs. */
export interface Trace {
  readonly prompt: readonly number[];
  /** The greedy answer. */
  readonly tokens: readonly number[];
  /** The logits after the prompt. */
  readonly prefill: Float32Array;
  /** The logits after each token of the answer. */
  readonly logits: readonly Float32Array[];
}

/** What {@link compareWith} measured. */
export interface Comparison {
  readonly tokens: readonly number[];
  /** Whether the two greedy answers are the same. */
  readonly match: boolean;
  /** After the prompt. */
  readonly prefill: Difference;
  /** After each token of the float model's answer. */
  readonly steps: Difference;
}

/** Decodes greedily and keeps all logits. */
export function trace(model: Decoder, prompt: readonly number[], steps: number): Trace {
  const prefill = model.feed(prompt).slice();
  const logits: Float32Array[] = [];
  const tokens: number[] = [];
  for (let last: Float32Array = prefill; tokens.length < steps; last = logits.at(-1)!) {
    tokens.push(greedy(last));
    logits.push(model.feed(tokens.slice(-1)).slice());
  }
  return { prompt, tokens, prefill, logits };
}

/** Decodes the float model's tokens with the other model and compares the logits, then decodes its own answer. */
export function compareWith(model: Decoder, float: Trace): Comparison {
  const prefill = new Difference();
  const first = model.feed(float.prompt).slice();
  prefill.add(float.prefill, first);
  const steps = new Difference();
  const followed = float.tokens.map((token, n) => {
    const logits = model.feed([token]);
    steps.add(float.logits[n], logits);
    return greedy(logits);
  });
  // As long as its own answer is the float model's, the model has been fed it already.
  const own = [greedy(first), ...followed];
  const same = float.tokens.findIndex((token, n) => token !== own[n]);
  if (same < 0) return { tokens: float.tokens, match: true, prefill, steps };
  const tokens = own.slice(0, same + 1);
  model.rewind(float.prompt.length + same);
  while (tokens.length < float.tokens.length) tokens.push(greedy(model.feed(tokens.slice(-1))));
  return { tokens, match: false, prefill, steps };
}
