/**
 * Measures the loss of each width against the float model, on the answers to prompts and the predictions of a text, and
 * decides which widths suffice. Uses tokens and logits only.
 *
 * @module
 */

import { checkFinite } from "../text/sample.ts";
import type { ModelGroup } from "./group.ts";
import { judge } from "./gates.ts";
import { Difference, Divergence, margin } from "./metrics.ts";
import { counted, type Watch } from "../pace.ts";

/** Tokens of an answer: the number that `compare` decodes by default. */
export const ANSWER_STEPS = 8;

/**
 * Two logits that are closer than this are a near tie: the probabilities of their tokens differ by a factor below 1.3.
 * A width that swaps the two best tokens there has not lost the answer.
 */
export const NEAR_TIE = 0.25;

/**
 * The limit of the perplexity ratio. It lies between the ratios that llama.cpp reports for Llama 3 8B (its
 * tools/perplexity/README.md): 1.009 for q5_K_M, and 1.028 for q4_K_M, which users choose who accept a loss.
 */
export const MAX_RATIO = 1.02;

/**
 * The limit of the mean Kullback-Leibler divergence, in nats per token. llama.cpp's table has 0.017 for q5_K_S, 0.022
 * for q5_0 and 0.031 for q4_K_M. The perplexity can stay the same although the predictions change; the divergence
 * cannot.
 */
export const MAX_KL = 0.02;

/** The effect of a width on the answers. */
export interface Answers {
  /** Number of prompts. */
  readonly prompts: number;
  /** Number of prompts whose answer is kept: the best token is the same at each step, near ties excepted. */
  kept: number;
  /** Differences of the logits after the prompts and after each token of the float model's answers. */
  readonly difference: Difference;
  /** The predictions of the float model's answers. */
  readonly divergence: Divergence;
}

/**
 * Decodes the prompts with the float model, feeds prompts and answers to all models, and compares the logits. The
 * progress counts tokens: each prompt's, plus {@link ANSWER_STEPS}.
 *
 * @returns one result for each quantized model
 * @throws {NumericError} a logit is not finite
 * @throws the reason of `signal`
 */
export async function measureAnswers(
  models: ModelGroup,
  prompts: readonly (readonly number[])[],
  { signal, progress }: Watch = {},
): Promise<Answers[]> {
  const results = Array.from({ length: models.quants }, (): Answers => {
    return { prompts: prompts.length, kept: 0, difference: new Difference(), divergence: new Divergence() };
  });
  const total = prompts.reduce((sum, { length }) => sum + length + ANSWER_STEPS, 0);
  const half = (from: number): Watch => ({ signal, progress: (done) => progress?.((from + done) >> 1, total) });
  const answers = await counted(models.answers(prompts, ANSWER_STEPS), total, half(0));
  const lost = results.map(() => new Set<number>());
  const sequences = prompts.map((prompt, n) => ({ ids: [...prompt, ...answers[n]], first: prompt.length - 1 }));
  const work = models.compare(sequences, (n, index, quant, pair) => {
    const { p, q, topP, topQ } = pair;
    const { difference, divergence } = results[quant];
    checkFinite(topP >= 0 && topQ >= 0);
    difference.add(p, q);
    const step = index + 1 - prompts[n].length;
    if (step === ANSWER_STEPS) return;
    divergence.add(pair, answers[n][step]);
    if (topQ !== topP && margin(p) >= NEAR_TIE) lost[quant].add(n);
  });
  await counted(work, total, half(total));
  for (const [quant, result] of results.entries()) result.kept = prompts.length - lost[quant].size;
  return results;
}

/** A condition that a width must meet. */
export type Rule = "answers" | "perplexity" | "kl";

/** All conditions. */
const RULES: readonly Rule[] = ["answers", "perplexity", "kl"];

/** The judgement of a width. */
export interface Judgement {
  /** The conditions that it does not meet; empty if it suffices. */
  readonly fails: readonly Rule[];
  /** Those of them that a longer text may show to be met. */
  readonly undecided: readonly Rule[];
  /** The upper bounds of the ratio and of the divergence; undefined if there are too few tokens. */
  readonly upper: { readonly perplexity?: number; readonly kl?: number };
}

/**
 * Decides whether a width suffices: all answers are kept, and the upper bounds of the perplexity ratio and of the mean
 * divergence are at most {@link MAX_RATIO} and {@link MAX_KL}, with the confidence that {@link judge} has. So the
 * uncertainty of a short text counts against the width. If the float model's perplexity overflows, the ratio must also
 * be above 1 / {@link MAX_RATIO}.
 *
 * @param text predictions of the text; without a text, those of the float model's answers
 */
export function judgeWidth(answers: Answers, text: Divergence): Judgement {
  // The answers to different prompts are independent.
  const batches = text === answers.divergence ? answers.prompts : undefined;
  const [kl, ratio] = judge(text, { maxKl: MAX_KL, maxRatio: MAX_RATIO }, batches);
  // A float model whose perplexity overflows predicts nothing, so a much lower perplexity is a change and no improvement.
  const changed = !Number.isFinite(text.float.value) && ratio.value <= 1 / MAX_RATIO;
  const verdicts = {
    answers: answers.kept === answers.prompts ? "pass" : "fail",
    perplexity: changed ? "fail" : ratio.verdict,
    kl: kl.verdict,
  };
  return {
    fails: RULES.filter((rule) => verdicts[rule] !== "pass"),
    undecided: RULES.filter((rule) => verdicts[rule] === "undecided"),
    upper: { perplexity: ratio.upper, kl: kl.upper },
  };
}
