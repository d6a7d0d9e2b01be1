/**
 * Gates: whether a quantized model is within limits, as far as a text can tell.
 *
 * @module
 */

import { type Bounded, boundFraction, boundMean, LEAST_TOKENS } from "./bounds.ts";
import { checkOptions } from "../options.ts";
import type { Divergence } from "./metrics.ts";

/** Limits of what quantization may cost on a text. */
export interface Limits {
  /** The most nats per token of the mean Kullback-Leibler divergence: 0 to 1000. */
  readonly maxKl?: number;
  /** The most that the perplexity may be, as a multiple of the float model's: 1 to 1,000,000. */
  readonly maxRatio?: number;
  /** The least fraction of tokens where both models have the same most probable token: above 0, at most 0.9999. */
  readonly minSameTop?: number;
  /** The confidence of each bound by itself: 0.5 to 0.9999 (default 0.95). */
  readonly confidence?: number;
}

/** The default confidence of a bound. */
export const CONFIDENCE = 0.95;

/**
 * The ranges of {@link Limits}; `above` is exclusive. Below a confidence of 1/2 a bound would be on the wrong side of the
 * value, and beyond 0.9999 it would depend on tails of distributions that no text shows. Nor can a text show that the
 * most probable token is always the same.
 */
export const RANGES = {
  maxKl: { min: 0, max: 1000 },
  maxRatio: { min: 1, max: 1e6 },
  minSameTop: { above: 0, max: 0.9999 },
  confidence: { min: 0.5, max: 0.9999 },
} as const satisfies Record<keyof Limits, { readonly min?: number; readonly above?: number; readonly max: number }>;

/**
 * What a text says of a limit: the bound on the safe side is within it, the bound on the other side is beyond it, or
 * neither.
 */
export type Verdict = "pass" | "fail" | "undecided";

/** The judgement of one limit. Bounds are one-sided. */
export interface Gate {
  /** The limit, as the flag of the program is named. */
  readonly name: "max-kl" | "max-ratio" | "min-same-top";
  /** The limit that is given. */
  readonly limit: number;
  /** The measured value: nats per token, the ratio, or the fraction. */
  readonly value: number;
  /** With the confidence, the true value is at least this; undefined if the text is too short for bounds. */
  readonly lower?: number;
  /** With the confidence, the true value is at most this. */
  readonly upper?: number;
  /** The confidence of each bound by itself. */
  readonly confidence: number;
  /**
   * The smallest loss beyond the limit that such a text finds with a probability of 80%, at the noise that was measured:
   * nats per token, a fraction of the perplexity, or a fraction of the tokens.
   */
  readonly detectable?: number;
  /** What the text says of the limit. */
  readonly verdict: Verdict;
  /**
   * If undecided: the number of scored tokens that decide with a probability of 80%, if the true value is the measured
   * one (Infinity if that is the limit); or the fewest with bounds, if there are none.
   */
  readonly tokensNeeded?: number;
}

/** What a limit is judged by. */
interface Judged {
  readonly name: Gate["name"];
  readonly limit: number;
  readonly value: number;
  readonly bounded?: Bounded;
  /** Whether larger values are the better ones. */
  readonly atLeast?: boolean;
  /** Whether the bounds are those of the logarithm. */
  readonly logarithmic?: boolean;
}

/** Checks limits. @throws {RangeError} one is out of its range @throws {TypeError} an unknown name */
export function checkLimits(limits: Limits): void {
  checkOptions("the limits", limits, { maxKl: true, maxRatio: true, minSameTop: true, confidence: true });
  for (const [name, value] of Object.entries(limits)) {
    if (value === undefined) continue;
    const { min = 0, above, max }: { min?: number; above?: number; max: number } = RANGES[name as keyof Limits];
    if (typeof value === "number" && value >= min && value !== above && value <= max) continue;
    const range = above === undefined ? `of ${min} to ${max}` : `above ${above}, to ${max}`;
    throw new RangeError(`${name} ${value}: expected a number ${range}`);
  }
}

/**
 * Judges a measurement by limits, in the order of {@link Limits}.
 *
 * @param batches the number of batches of the bounds, if it is known which tokens are independent: as many parts of equal
 * length, in order
 * @throws {RangeError} a limit is out of its range
 */
export function judge(measured: Divergence, limits: Limits, batches?: number): Gate[] {
  checkLimits(limits);
  const { maxKl, maxRatio, minSameTop, confidence = CONFIDENCE } = limits;
  const gates: Gate[] = [];
  const add = (judged: Judged) => gates.push(judgeOne(judged, confidence));
  if (maxKl !== undefined) {
    const bounded = boundMean(measured.observations.kl, confidence, batches);
    add({
      name: "max-kl",
      limit: maxKl,
      value: measured.kl.value,
      // No divergence is negative.
      bounded: bounded && { ...bounded, lower: Math.max(0, bounded.lower) },
    });
  }
  if (maxRatio !== undefined) {
    add({
      name: "max-ratio",
      limit: maxRatio,
      value: measured.ratio.value,
      bounded: boundMean(measured.losses, confidence, batches),
      logarithmic: true,
    });
  }
  if (minSameTop !== undefined) {
    add({
      name: "min-same-top",
      limit: minSameTop,
      value: measured.sameTop.value,
      bounded: boundFraction(measured.observations.same, confidence, batches),
      atLeast: true,
    });
  }
  return gates;
}

function judgeOne({ name, limit, value, bounded, atLeast, logarithmic }: Judged, confidence: number): Gate {
  const gate = { name, limit, value, confidence };
  if (bounded === undefined) return { ...gate, verdict: "undecided", tokensNeeded: LEAST_TOKENS };
  const { lower, upper, detectable, tokensFor } = bounded;
  const at = logarithmic ? Math.log(limit) : limit;
  const [within, beyond] = atLeast ? [lower >= at, upper < at] : [upper <= at, lower > at];
  const verdict = within ? "pass" : beyond ? "fail" : "undecided";
  const shown = logarithmic ? Math.exp : (value: number) => value;
  return {
    ...gate,
    lower: shown(lower),
    upper: shown(upper),
    detectable: logarithmic ? Math.expm1(detectable) : detectable,
    verdict,
    tokensNeeded: verdict === "undecided" ? tokensFor(at) : undefined,
  };
}

/** The verdict on several gates: fail if one fails, otherwise undecided if one is. */
export function verdictOf(gates: readonly Gate[]): Verdict {
  const found = (verdict: Verdict) => gates.some((gate) => gate.verdict === verdict);
  return found("fail") ? "fail" : found("undecided") ? "undecided" : "pass";
}
