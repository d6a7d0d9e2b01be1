/**
 * One-sided confidence bounds of the mean of what was observed at the tokens of a text.
 *
 * Tokens of a text are not independent: after a difficult passage more tokens are difficult, and the topic lasts for
 * pages. Therefore the observations are divided in order into a few long batches, whose means are nearly independent and
 * nearly normal, and Student's t distribution applies to them: the method of batch means (Schmeiser 1982, "Batch size
 * effects in the analysis of simulation output", which advises 10 to 30 batches). The batches of a longer text are
 * longer, so that they cover longer dependencies.
 *
 * @module
 */

import { studentQuantile } from "./student.ts";

/** The most batches. Fewer and longer ones cover longer dependencies; t is then 9% above that of infinitely many. */
const MOST_BATCHES = 12;

/** The fewest batches: the skewness of fewer cannot be estimated. */
const LEAST_BATCHES = 4;

/** Tokens of a batch, if there are more than the fewest batches. */
const BATCH_TOKENS = 100;

/** The fewest tokens with bounds: of half-length batches. */
export const LEAST_TOKENS = LEAST_BATCHES * BATCH_TOKENS / 2;

/** The probability with which {@link Bounded.detectable} is found, and `tokensFor` tokens decide. */
export const POWER = 0.8;

/** The number of batches of a text; 0 if it is too short. */
export function batchesOf(tokens: number): number {
  if (tokens < LEAST_TOKENS) return 0;
  return Math.max(LEAST_BATCHES, Math.min(MOST_BATCHES, Math.floor(tokens / BATCH_TOKENS)));
}

/** A mean and its bounds. */
export interface Bounded {
  /** The mean. */
  readonly value: number;
  /** The true mean is at least this, with the confidence. */
  readonly lower: number;
  /** The true mean is at most this, with the confidence. */
  readonly upper: number;
  /** The smallest distance from a limit that is found with the probability {@link POWER}. */
  readonly detectable: number;
  /**
   * The number of tokens that decide with the probability {@link POWER} on which side of a limit the true mean is, if it
   * is the measured one; Infinity if that is the limit.
   */
  tokensFor(limit: number): number;
}

/** The bounds of the difference of models that do not differ. */
const SAME: Bounded = { value: 0, lower: 0, upper: 0, detectable: 0, tokensFor: () => Infinity };

/** The error of a mean, from batches. */
interface Spread {
  readonly value: number;
  /** The standard error of the mean. */
  readonly error: number;
  /** The skewness of the batches. */
  readonly skewness: number;
}

/** Divides observations in order into batches whose sizes differ by at most one. */
function spreadOf(values: readonly number[], batches: number): Spread {
  const n = values.length;
  const value = values.reduce((sum, x) => sum + x, 0) / n;
  const deviations = Array.from({ length: batches }, (_, batch) => {
    const [from, to] = [Math.floor(batch * n / batches), Math.floor((batch + 1) * n / batches)];
    let sum = 0;
    for (let at = from; at < to; at++) sum += values[at] - value;
    return sum * batches / n;
  });
  const deviation = Math.sqrt(deviations.reduce((sum, d) => sum + d ** 2, 0) / (batches - 1));
  const cubes = deviation > 0 ? deviations.reduce((sum, d) => sum + (d / deviation) ** 3, 0) : 0;
  return {
    value,
    error: deviation / Math.sqrt(batches),
    skewness: cubes * batches / ((batches - 1) * (batches - 2)),
  };
}

/** The number of tokens for which `half`, the distance to decide over that many batches, is at most `gap`. */
function tokensOf(tokens: number, batches: number, gap: number, half: (freedom: number) => number): number {
  let needed = Infinity;
  for (let count = batches; count <= Math.max(batches, MOST_BATCHES); count++) {
    // An error falls with the root of the number of tokens.
    const enough = tokens * (half(count - 1) / gap) ** 2;
    needed = Math.min(needed, Math.max(Math.ceil(enough), count > batches ? count * BATCH_TOKENS : tokens + 1));
  }
  return needed;
}

/**
 * Bounds the mean of observations. The distribution of KL divergences has a long tail, so large ones are rarer in a
 * sample than it needs, and t alone would be too low above: the bound on the side of the tail is moved away by
 * skewness / (6 sqrt(batches)) * (2 t^2 + 1) standard errors (Johnson 1978, "Modified t tests and confidence intervals
 * for asymmetrical populations"). The other bound is not moved: the skewness of a dozen batches is uncertain.
 *
 * @param values one for each token, in the order of the text
 * @param confidence of each bound by itself: 0.5 up to 1, exclusive
 * @param batches their number, if it is known which observations are independent
 * @returns undefined if there are too few tokens for bounds
 */
export function boundMean(
  values: readonly number[],
  confidence: number,
  batches = batchesOf(values.length),
): Bounded | undefined {
  // Models that differ at no token, in no probability, are the same: that takes no long text.
  if (values.length > 1 && values.every((value) => value === 0)) return SAME;
  if (batches < LEAST_BATCHES || values.length < batches) return undefined;
  const { value, error, skewness } = spreadOf(values, batches);
  const t = studentQuantile(confidence, batches - 1);
  const moved = skewness / (6 * Math.sqrt(batches)) * (2 * t * t + 1) * error;
  const powerful = (freedom: number) =>
    (studentQuantile(confidence, freedom) + studentQuantile(POWER, freedom)) * error;
  return {
    value,
    lower: value - t * error + Math.min(moved, 0),
    upper: value + t * error + Math.max(moved, 0),
    detectable: powerful(batches - 1),
    tokensFor(limit) {
      const toward = limit > value ? Math.max(moved, 0) : Math.max(-moved, 0);
      return tokensOf(values.length, batches, Math.abs(limit - value), (freedom) => powerful(freedom) + toward);
    },
  };
}

/**
 * Bounds a fraction, for observations of 0 and 1. These are Wilson's bounds (1927), which hold near 1 too, where most
 * texts have no other observation: for a number of tokens that is divided by the ratio of the variance of the batches to
 * that of independent tokens, if it is above 1, and with Student's t.
 *
 * @returns undefined if there are too few tokens for bounds
 */
export function boundFraction(
  values: readonly number[],
  confidence: number,
  batches = batchesOf(values.length),
): Bounded | undefined {
  if (batches < LEAST_BATCHES || values.length < batches) return undefined;
  const { value, error } = spreadOf(values, batches);
  const independent = value * (1 - value) / values.length;
  const effect = independent > 0 ? Math.max(1, error ** 2 / independent) : 1;
  const t = studentQuantile(confidence, batches - 1);
  const a = t * t * effect / values.length;
  const middle = (value + a / 2) / (1 + a);
  const half = Math.sqrt(a * value * (1 - value) + a * a / 4) / (1 + a);
  const powerful = (freedom: number, fraction: number) =>
    (studentQuantile(confidence, freedom) + studentQuantile(POWER, freedom)) *
    Math.sqrt(fraction * (1 - fraction) * effect / values.length);
  return {
    value,
    // The value is within them, rounded or not.
    lower: Math.max(0, Math.min(value, middle - half)),
    upper: Math.min(1, Math.max(value, middle + half)),
    // The error at the middle of the bounds, since that at 1 is 0.
    detectable: powerful(batches - 1, middle),
    tokensFor(limit) {
      return tokensOf(values.length, batches, Math.abs(limit - value), (freedom) => powerful(freedom, limit));
    },
  };
}
