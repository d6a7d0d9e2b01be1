/**
 * Limits of what quantization may cost on a text, as the commands have them: flags, lines and the exit status.
 *
 * @module
 */

import { CONFIDENCE, type Gate, judge, type Limits, RANGES, type Verdict, verdictOf } from "../measure/gates.ts";
import type { Divergence } from "../measure/metrics.ts";
import type { Arguments, Detail, Flags, Values } from "./arguments.ts";
import { UsageError } from "./errors.ts";
import { type Fields, Fixed } from "./output.ts";

/** The flags of limits. */
export const LIMIT_FLAGS = {
  "max-kl": {
    type: { kind: "number", ...RANGES.maxKl },
    value: "NATS",
    unset: "no limit",
    help: "the most mean KL divergence in nats per token, for --text",
  },
  "max-ratio": {
    type: { kind: "number", ...RANGES.maxRatio },
    unset: "no limit",
    help: "the most perplexity, as a multiple of the float model's, for --text",
  },
  "min-same-top": {
    type: { kind: "number", noun: "a fraction", ...RANGES.minSameTop },
    unset: "no limit",
    help: "the least fraction of tokens with the same most probable token, such as 0.98, for --text",
  },
  confidence: {
    type: { kind: "number", noun: "a fraction", ...RANGES.confidence },
    default: CONFIDENCE,
    help: "confidence of each bound that is compared with a limit",
  },
} as const satisfies Flags;

/** An explanation of the results, for the help. */
export const LIMIT_DETAILS: readonly Detail[] = [
  "With --max-kl, --max-ratio or --min-same-top each limit has a line `gate`, and the last line is the verdict on all of " +
  "them. The bounds are one-sided, and take into account that the tokens of a text depend on each other.",
  [
    [
      "pass",
      "the true value is within the limit, with the confidence (the upper bound is; for --min-same-top the lower one)",
    ],
    ["fail", "the true value is beyond the limit, with the confidence (the other bound is)"],
    [
      "undecided",
      "neither: tokens_needed is the number of scored tokens that decide with a probability of 80%, if the true value is " +
      "the measured one. A text with too few tokens has no bounds, and tokens_needed is the fewest that have",
    ],
    [
      "detectable",
      "the smallest loss beyond the limit that such a text finds with a probability of 80%: nats per token, or a fraction " +
      "of the perplexity or of the tokens",
    ],
  ],
];

type LimitArguments = Arguments<Values<typeof LIMIT_FLAGS>>;

/** The limits that are given, if any. @throws {UsageError} a confidence without a limit */
export function limitsOf({ values, given }: LimitArguments): Limits | undefined {
  const { "max-kl": maxKl, "max-ratio": maxRatio, "min-same-top": minSameTop, confidence } = values;
  const limits = { maxKl, maxRatio, minSameTop, confidence };
  if (maxKl !== undefined || maxRatio !== undefined || minSameTop !== undefined) return limits;
  if (!given.has("confidence")) return undefined;
  throw new UsageError("--confidence is for --max-kl, --max-ratio or --min-same-top; none is given");
}

/** The first flag of a limit that is given. */
export function limitFlag({ given }: LimitArguments): string | undefined {
  return Object.keys(LIMIT_FLAGS).find((name) => given.has(name));
}

/** The lines of a measurement, one for each limit, and the verdict on all. */
export function judged(
  measured: Divergence,
  limits: Limits,
): { readonly lines: readonly Fields[]; readonly verdict: Verdict } {
  const gates = judge(measured, limits);
  return { lines: gates.map(gateFields), verdict: verdictOf(gates) };
}

function gateFields({ name, limit, confidence, verdict, tokensNeeded, ...values }: Gate): Fields {
  const shown = (value: number | undefined) => value === undefined ? undefined : new Fixed(value, 6);
  return {
    gate: name,
    limit,
    value: shown(values.value),
    lower: shown(values.lower),
    upper: shown(values.upper),
    confidence,
    detectable: shown(values.detectable),
    verdict,
    tokens_needed: tokensNeeded === Infinity ? "unbounded" : tokensNeeded,
  };
}
