/**
 * Samples a token from logits. Every step has a defined order in binary64, so that a seed gives the same tokens on every
 * machine.
 *
 * @module
 */

import { NumericError } from "../errors.ts";
import { argmax } from "../measure/distribution.ts";
import { SplitMix64 } from "../random.ts";

/** The token of greedy decoding: the one with the largest logit. @throws {NumericError} the logits are not finite */
export function greedy(logits: Float32Array): number {
  const token = argmax(logits);
  checkFinite(token >= 0);
  return token;
}

/** @throws {NumericError} the logits are not finite */
export function checkFinite(finite: boolean): void {
  if (!finite) {
    throw new NumericError("the logits are not finite: the weights are damaged, or too large for binary32 arithmetic");
  }
}

/** The largest temperature. Above it the distribution is practically uniform. */
export const MAX_TEMPERATURE = 100;

/** How a token is sampled. */
export interface Sampling {
  /** Above 0. Logits are divided by it. */
  readonly temperature: number;
  /** Above 0, at most 1: sample from the smallest set of tokens with this total probability (nucleus sampling). */
  readonly topP: number;
  /** 0 to 2^53 - 1: the initial state of the generator. */
  readonly seed: number;
}

/** Samples tokens, each with one number of the generator. */
export class Sampler {
  readonly #random: SplitMix64;

  constructor(readonly sampling: Sampling) {
    this.#random = new SplitMix64(sampling.seed);
  }

  /** Samples the next token. @throws {NumericError} the logits are not finite */
  sample(logits: Float32Array): number {
    const { temperature, topP } = this.sampling;
    return pick(weights(logits, temperature), topP, this.#random.unit());
  }
}

/**
 * The numerators of the softmax of logits / temperature: exp((logit - the largest logit) / temperature).
 *
 * @throws {NumericError} the logits are not finite
 */
export function weights(logits: Float32Array, temperature: number): Float64Array {
  const max = logits[greedy(logits)];
  // A loop, since Float64Array.from takes several times as long.
  const weights = new Float64Array(logits.length);
  for (let id = 0; id < logits.length; id++) weights[id] = Math.exp((logits[id] - max) / temperature);
  return weights;
}

/**
 * The token at `unit` of the distribution.
 *
 * The total is the sum of all weights in the order of the ids. With topP 1 the candidates are all tokens in that order;
 * below 1 they are the fewest tokens, by descending weight and ascending id, whose sum reaches topP * total
 * (nucleus sampling; Holtzman et al. 2020, "The curious case of neural text degeneration"). The token is the first
 * candidate at which the running sum exceeds unit * the sum of the candidates.
 *
 * @param weights not negative, not all zero
 * @param unit 0 to 1, exclusive
 */
export function pick(weights: Float64Array, topP: number, unit: number): number {
  const total = sum(weights);
  if (topP === 1) return passing(weights, unit * total);
  const ids = nucleus(weights, topP, total);
  const candidates = Float64Array.from(ids, (id) => weights[id]);
  return ids[passing(candidates, unit * sum(candidates))];
}

function sum(values: Float64Array): number {
  let sum = 0;
  for (let n = 0; n < values.length; n++) sum += values[n];
  return sum;
}

/** The first index at which the running sum exceeds `goal`, which is below the sum of all. */
function passing(values: Float64Array, goal: number): number {
  let reached = 0;
  return values.findIndex((value) => (reached += value) > goal);
}

function nucleus(weights: Float64Array, topP: number, total: number): number[] {
  // All tokens below this together weigh at most half of what may be left out, so the others contain the nucleus;
  // sorting only those makes this fast.
  const least = (1 - topP) * total / (2 * weights.length);
  const ids: number[] = [];
  for (let id = 0; id < weights.length; id++) if (weights[id] >= least && weights[id] > 0) ids.push(id);
  ids.sort((a, b) => weights[b] - weights[a] || a - b);
  let reached = 0;
  const last = ids.findIndex((id) => (reached += weights[id]) >= topP * total);
  return ids.slice(0, last < 0 ? ids.length : last + 1);
}
