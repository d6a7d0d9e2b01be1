/**
 * Compares the greedy answers of two models, and their logits for the same tokens. Uses tokens and logits only.
 *
 * @module
 */

import { finish, type Work } from "../pace.ts";
import { greedy } from "../text/sample.ts";
import { Difference } from "./metrics.ts";

/** A language model. */
export interface Decoder {
  /** Feeds tokens; returns the logits after the last one, valid until the next call. */
  feed(ids: readonly number[]): Float32Array;
  /** Forgets the tokens from `position` on. */
  rewind(position: number): void;
}

/** The answer of a model, with all logits: kept while the other model runs. */
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

/** The result of {@link compareWith}. */
export interface Comparison {
  /** The greedy answer of the model. */
  readonly tokens: readonly number[];
  /** Whether both models give the same greedy answer. */
  readonly match: boolean;
  /** Differences of the logits after the prompt. */
  readonly prefill: Difference;
  /** Differences of the logits after each token of the float model's answer. */
  readonly steps: Difference;
}

/**
 * Decodes `steps` tokens greedily and keeps all logits.
 *
 * @param fed called after the prompt and after each token
 */
export function trace(model: Decoder, prompt: readonly number[], steps: number, fed?: () => void): Trace {
  return finish(tracing(model, prompt, steps, fed));
}

/** {@link trace} as a generator that yields after the prompt and after each token. */
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

/** Receives the logits of {@link compareWith}. They are finite, and valid during the call. */
export interface Observer {
  /** Gets the logits of both models after the prompt and `step` tokens of the float model's answer. */
  followed(step: number, float: Float32Array, logits: Float32Array): void;
  /** Gets the logits after the prompt and `step` tokens of the model's own answer, after the first that differs. */
  own(step: number, logits: Float32Array): void;
}

/** Feeds the float model's answer to another model, compares the logits, then decodes that model's own answer. */
export function compareWith(model: Decoder, float: Trace, observer?: Observer): Comparison {
  return finish(comparing(model, float, observer));
}

/** {@link compareWith} as a generator that yields after the prompt and after each token. */
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
  // Up to the first difference the model's own answer is the float model's, so its logits serve for both.
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
