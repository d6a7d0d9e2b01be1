/**
 * Two models, the same tokens: whether the answer is kept, and how far the logits move. Knows tokens and logits only.
 *
 * @module
 */

import { finish, type Work } from "../pace.ts";
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
  /** The prompt. */
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
  /** The model's own answer. */
  readonly tokens: readonly number[];
  /** Whether the two greedy answers are the same. */
  readonly match: boolean;
  /** After the prompt. */
  readonly prefill: Difference;
  /** After each token of the float model's answer. */
  readonly steps: Difference;
}

/**
 * Decodes greedily and keeps all logits.
 *
 * @param fed called after the prompt and after each token
 */
export function trace(model: Decoder, prompt: readonly number[], steps: number, fed?: () => void): Trace {
  return finish(tracing(model, prompt, steps, fed));
}

/** {@link trace} as work that yields after the prompt and after each token. */
export function* tracing(
  model: Decoder,
  prompt: readonly number[],
  steps: number,
  fed?: () => void,
): Work<Trace> {
  const logits: Float32Array[] = [];
  const tokens: number[] = [];
  for (let next = prompt; logits.length <= steps; next = tokens.slice(-1)) {
    const last = model.feed(next).slice();
    logits.push(last);
    fed?.();
    yield;
    if (tokens.length < steps) tokens.push(greedy(last));
  }
  const [prefill, ...rest] = logits;
  return { prompt, tokens, prefill, logits: rest };
}

/** Sees the logits of {@link compareWith}, which are finite, and valid during a call. */
export interface Observer {
  /** After the prompt and `step` tokens of the float model's answer: the logits of both models. */
  followed(step: number, float: Float32Array, logits: Float32Array): void;
  /** After the prompt and `step` tokens of the model's own answer, once that has left the float model's. */
  own(step: number, logits: Float32Array): void;
}

/** Decodes the float model's tokens with the other model and compares the logits, then decodes its own answer. */
export function compareWith(model: Decoder, float: Trace, observer?: Observer): Comparison {
  return finish(comparing(model, float, observer));
}

/** {@link compareWith} as work that yields after the prompt and after each token. */
export function* comparing(model: Decoder, float: Trace, observer?: Observer): Work<Comparison> {
  const prefill = new Difference();
  const steps = new Difference();
  const follow = (step: number, ids: readonly number[]) => {
    const wanted = step === 0 ? float.prefill : float.logits[step - 1];
    const logits = model.feed(ids);
    const choice = greedy(logits);
    (step === 0 ? prefill : steps).add(wanted, logits);
    observer?.followed(step, wanted, logits);
    return choice;
  };
  // As long as its own answer is the float model's, the model has been fed it already.
  const choices: number[] = [];
  for (const ids of [float.prompt, ...float.tokens.map((token) => [token])]) {
    choices.push(follow(choices.length, ids));
    yield;
  }
  const same = float.tokens.findIndex((token, n) => token !== choices[n]);
  if (same < 0) return { tokens: float.tokens, match: true, prefill, steps };
  const tokens = choices.slice(0, same + 1);
  model.rewind(float.prompt.length + same);
  while (tokens.length < float.tokens.length) {
    const logits = model.feed(tokens.slice(-1));
    const choice = greedy(logits);
    observer?.own(tokens.length, logits);
    tokens.push(choice);
    yield;
  }
  return { tokens, match: false, prefill, steps };
}
