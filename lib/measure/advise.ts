/**
 * Which width a checkpoint needs: answers of a few prompts and the predictions of a text, at each width beside the float
 * model, and the rule that decides. Knows tokens and logits only.
 *
 * @module
 */

import { trace } from "./compare.ts";
import { checkFinite, greedy } from "../text/sample.ts";
import { Difference, Distribution, Divergence, margin } from "./metrics.ts";
import { pacer, type Watch } from "../pace.ts";
import type { TextModel } from "./perplexity.ts";

/** Tokens of an answer: as many as `compare` decodes. */
export const ANSWER_STEPS = 8;

/**
 * Where the float model's two best logits are closer than this, either token is as good an answer: the better one is less
 * than 1.3 times as probable. A width that swaps them has not lost the answer.
 */
export const NEAR_TIE = 0.25;

/**
 * The most by which a width that suffices may multiply the perplexity. Between what llama.cpp measured for Llama 3 8B at
 * five bits (q5_K_M 1.009) and with its best-known four-bit mixture (q4_K_M 1.028), which is chosen by those who accept a
 * loss (tools/perplexity/README.md).
 */
export const MAX_RATIO = 1.02;

/**
 * The ratio's standard errors that are added before it is held against {@link MAX_RATIO}: what a short text can't tell
 * counts against the width. Two leave one chance in forty that a width at the limit passes.
 */
export const RATIO_ERRORS = 2;

/**
 * The largest mean Kullback-Leibler divergence of a width that suffices, in nats a token. In the same table q5_K_S has
 * 0.017, q5_0 0.022, q4_K_M 0.031. The perplexity can stay as it is while answers change; this can't.
 */
export const MAX_KL = 0.02;

/** What a width did to the answers. */
export interface Answers {
  /** Prompts that were answered. */
  readonly prompts: number;
  /** Prompts whose answer is kept: at each step where the float model is not near a tie, the best token is the same. */
  kept: number;
  /** Of the logits after the prompts and after each token of the float model's answers. */
  readonly difference: Difference;
  /** The float model's answers as a text. */
  readonly divergence: Divergence;
}

/** Options of {@link measureAnswers}; the progress is in tokens, those of each prompt and {@link ANSWER_STEPS}. */
export interface AnswerOptions extends Watch {
  /** Logits of a row. */
  readonly vocabulary: number;
}

/**
 * Decodes each prompt with the float model, feeds prompt and answer to the quantized ones, and compares.
 *
 * @returns what each quantized model gave
 * @throws {NumericError} logits are not finite
 * @throws the reason of `signal`
 */
export async function measureAnswers(
  float: TextModel,
  quants: readonly TextModel[],
  prompts: readonly (readonly number[])[],
  { vocabulary, signal, progress }: AnswerOptions,
): Promise<Answers[]> {
  const results = quants.map((): Answers => {
    return { prompts: prompts.length, kept: 0, difference: new Difference(), divergence: new Divergence() };
  });
  const [p, q] = [new Distribution(vocabulary), new Distribution(vocabulary)];
  const pause = pacer(signal);
  const total = prompts.reduce((sum, { length }) => sum + length + ANSWER_STEPS, 0);
  let done = 0;
  for (const prompt of prompts) {
    float.rewind(0);
    const { tokens, prefill, logits } = trace(float, prompt, ANSWER_STEPS);
    const wanted = [prefill, ...logits];
    for (const [which, quant] of quants.entries()) {
      const result = results[which];
      let kept = true;
      quant.rewind(0);
      quant.feedAll([...prompt, ...tokens], (index, found) => {
        const step = index + 1 - prompt.length;
        if (step < 0) return;
        result.difference.add(wanted[step], found);
        checkFinite(p.set(wanted[step]) && q.set(found));
        if (step === tokens.length) return;
        result.divergence.add(p, q, tokens[step]);
        if (greedy(found) !== tokens[step] && margin(wanted[step]) >= NEAR_TIE) kept = false;
      });
      if (kept) result.kept++;
    }
    progress?.(done += prompt.length + ANSWER_STEPS, total);
    await pause();
  }
  return results;
}

/** What is asked of a width. */
export type Rule = "answers" | "perplexity" | "kl";

/** What the rule asks of a width. */
const RULES: readonly Rule[] = ["answers", "perplexity", "kl"];

/**
 * The rule: a width suffices when all answers are kept, the perplexity of the text grows to less than {@link MAX_RATIO}
 * times the float model's, {@link RATIO_ERRORS} standard errors included (or stays within that factor, where the float
 * model's overflows), and the mean divergence is at most {@link MAX_KL}.
 *
 * @param text what the width makes of the text; without one, the float model's own answers are the text
 * @returns what the width fails; nothing when it suffices
 */
export function failures(answers: Answers, text: Divergence): Rule[] {
  const { float, ratio, kl } = text;
  const kept = {
    answers: answers.kept === answers.prompts,
    // A text of one token has no error: NaN is no yes. Nor is a large fall from a perplexity that overflows, which is none.
    perplexity: ratio.value + RATIO_ERRORS * ratio.error < MAX_RATIO &&
      (Number.isFinite(float.value) || ratio.value > 1 / MAX_RATIO),
    kl: kl.value <= MAX_KL,
  };
  return RULES.filter((rule) => !kept[rule]);
}
