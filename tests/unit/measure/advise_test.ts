// The rule of `rabbit advise` on figures made by hand, answers by script, and checkpoints that are encoded when read.

import { assert, assertAlmostEquals, assertEquals, assertRejects } from "@std/assert";
import {
  ANSWER_STEPS,
  type Answers,
  judgeWidth,
  MAX_KL,
  MAX_RATIO,
  measureAnswers,
  NEAR_TIE,
  type Rule,
} from "../../../lib/measure/advise.ts";
import { boundMean } from "../../../lib/measure/bounds.ts";
import { NumericError } from "../../../lib/errors.ts";
import { Distribution } from "../../../lib/measure/distribution.ts";
import { groupOf } from "../../../lib/measure/group.ts";
import { Difference, Divergence } from "../../../lib/measure/metrics.ts";
import { FakeModel } from "../../support/decoders.ts";

// ---------------------------------------------------------------- the rule

/** Answers of which `kept` of 4 are kept. */
function answers(kept: number): Answers {
  return { prompts: 4, kept, difference: new Difference(), divergence: new Divergence() };
}

/**
 * A text of two tokens, the right one being 0 of two; each pair has the losses -log p(0) of the float model and of the
 * quantized one.
 */
function text(...losses: [number, number][]): Divergence {
  const measured = new Divergence();
  const of = (loss: number) => {
    const distribution = new Distribution(2);
    // p(0) = e^-loss: the logit of 0 is log(p / (1 - p)), of 1 it is 0.
    distribution.set(Float32Array.of(-loss - Math.log(1 - Math.exp(-loss)), 0));
    return distribution;
  };
  for (const [p, q] of losses) measured.add(of(p).with(of(q)), 0);
  return measured;
}

/** A text of 400 tokens with these losses in turn. */
function long(...losses: [number, number][]): Divergence {
  return text(...Array.from({ length: 400 }, (_, n) => losses[n % losses.length]));
}

/** What a width with these measurements does not meet. */
function failures(answers: Answers, text: Divergence): readonly Rule[] {
  return judgeWidth(answers, text).fails;
}

Deno.test("a width suffices when it keeps all answers, the perplexity and the distributions", () => {
  const same = long([0.7, 0.7], [0.2, 0.2]);
  assertEquals(failures(answers(4), same), []);
  assertEquals(failures(answers(3), same), ["answers"]);
  assertEquals(judgeWidth(answers(3), same).undecided, []);
});

Deno.test("the perplexity may grow to its limit, with its upper bound", () => {
  const limit = Math.log(MAX_RATIO);
  const judged = (by: number, spread = 0) => {
    // Batches whose means differ: batches of 100 tokens, four of them.
    const losses = Array.from({ length: 400 }, (_, n): [number, number] => {
      return [0.7, 0.7 + by + (Math.floor(n / 100) % 2 ? spread : -spread)];
    });
    return { ...judgeWidth(answers(4), text(...losses)), bound: boundMean(text(...losses).losses, 0.95)!.upper };
  };
  assertEquals(judged(limit * 0.99).fails, []);
  assertEquals([judged(limit * 1.01).fails, judged(limit * 1.01).undecided], [["perplexity"], []]);
  for (const spread of [0.001, 0.004, 0.006, 0.01]) {
    const { bound, fails, undecided, upper } = judged(limit / 2, spread);
    assertAlmostEquals(Math.log(upper.perplexity!), bound, 1e-12);
    assertEquals([fails, undecided], bound <= limit ? [[], []] : [["perplexity"], ["perplexity"]]);
  }
  assertEquals([judged(limit / 2, 0.001).fails, judged(limit / 2, 0.01).fails], [[], ["perplexity"]]);
  // A perplexity that falls is no failure, and too few tokens have no bound, which is no yes.
  assertEquals(judged(-0.01).fails, []);
  const short = judgeWidth(answers(4), text([0.7, 0.7]));
  assertEquals(short, { fails: ["perplexity", "kl"], undecided: ["perplexity", "kl"], upper: shortBounds });
});

const shortBounds = { perplexity: undefined, kl: undefined };

Deno.test("a perplexity that overflows may not change, in either direction", () => {
  // Losses of 1000 and 300: exp(1000) is more than binary64 holds.
  const loud = (p: number, q: number) => {
    const measured = new Divergence();
    const of = (loss: number) => {
      const distribution = new Distribution(2);
      distribution.set(Float32Array.of(-loss, 0));
      return distribution;
    };
    for (let n = 0; n < 400; n++) measured.add(of(p).with(of(q)), 0);
    return measured;
  };
  assertEquals([loud(1000, 300).float.value, loud(1000, 300).quant.value < Infinity], [Infinity, true]);
  assertEquals(failures(answers(4), loud(1000, 1000)), []);
  assertEquals(failures(answers(4), loud(1000, 300)), ["perplexity"]);
  assertEquals(judgeWidth(answers(4), loud(1000, 300)).undecided, []);
  assertEquals(failures(answers(4), loud(1000, 100)), ["perplexity"]);
  // The other token is all but certain to both: they do not diverge.
  assertEquals(failures(answers(4), loud(300, 1000)), ["perplexity"]);
});

Deno.test("the divergence may be as large as its limit, with its upper bound", () => {
  // Losses that change places leave the perplexity as it is: only the divergence tells. Many tokens make its error small.
  const swapped = (by: number) => {
    const pairs = Array.from({ length: 1000 }, (_, n): [number, number] => [0.7, n % 2 ? 0.7 + by : 0.7 - by]);
    return text(...pairs);
  };
  assert(swapped(0.1).kl.value < MAX_KL);
  assertEquals(failures(answers(4), swapped(0.1)), []);
  assert(swapped(0.25).kl.value > MAX_KL);
  assertEquals(failures(answers(0), swapped(0.25)), ["answers", "kl"]);
  // Every other batch diverges by more than the limit: on average the text does not.
  const uneven = text(...Array.from({ length: 400 }, (_, n): [number, number] => {
    const by = Math.floor(n / 100) % 2 ? 0.25 : 0;
    return [0.7, n % 2 ? 0.7 + by : 0.7 - by];
  }));

  assert(uneven.kl.value < MAX_KL);
  const { fails, undecided } = judgeWidth(answers(4), uneven);
  assertEquals([fails, undecided], [["kl"], ["kl"]]);
});

Deno.test("the answers to the prompts are the text of a model without a tokenizer: each is a batch", () => {
  const { prompts, ...rest } = answers(8);
  const few = text(...Array.from({ length: 64 }, (): [number, number] => [0.7, 0.701]));
  const given = { ...rest, prompts: 2 * prompts, divergence: few };
  assertEquals(judgeWidth(given, few).fails, []);
  assertEquals(judgeWidth({ ...given, divergence: new Divergence() }, few).fails, ["perplexity", "kl"]);
});

// ---------------------------------------------------------------- answers

const VOCABULARY = 4;

/** A model which says that `best` follows each token, by `by`, and then `second`. */
function fixed(best: (token: number) => number, by: number, second = 3): FakeModel {
  return new FakeModel((text) => {
    const logits = new Float32Array(VOCABULARY);
    logits[second] = 1;
    logits[best(text.at(-1)!)] = 1 + by;
    return logits;
  });
}

const next = (token: number) => (token + 1) % 3;

Deno.test("measureAnswers feeds the float model's answer, and counts the prompts whose tokens stay", async () => {
  const float = fixed(next, 2);
  const same = fixed(next, 1.5);
  // Goes another way after token 0 only, which every answer of eight meets.
  const other = fixed((token) => token === 0 ? 3 : next(token), 2);
  const progress: number[] = [];
  const [kept, lost] = await measureAnswers(groupOf(float, [same, other]), [[1, 2], [0]], {
    progress: (done) => progress.push(done),
  });
  assertEquals(same.calls, ["rewind 0", "feed 1", "all 2 0 1 2 0 1 2 0 1", "rewind 0", "all 0 1 2 0 1 2 0 1 2"]);
  assertEquals([kept.kept, kept.prompts, lost.kept, lost.prompts], [2, 2, 0, 2]);
  // The first half is decoding.
  assertEquals(progress, [10, 19, 10 + 19, 19 + 19].map((tokens) => Math.floor(tokens / 2)));
  // After the prompt and after each of the eight tokens; one logit of four differs, by 0.5.
  assertEquals(kept.difference.values, 2 * (ANSWER_STEPS + 1) * VOCABULARY);
  assertEquals([kept.difference.max, kept.difference.mean], [0.5, 0.125]);
  assertEquals([kept.divergence.scored, kept.divergence.sameTop.value], [2 * ANSWER_STEPS, 1]);
});

Deno.test("measureAnswers: two tokens near a tie may change places", async () => {
  const of = async (by: number) => {
    const [result] = await measureAnswers(groupOf(fixed(next, by), [fixed(() => 3, 1)]), [[0]]);
    return result.kept;
  };
  assertEquals(await of(NEAR_TIE * 0.99), 1);
  assertEquals(await of(NEAR_TIE * 1.01), 0);
});

Deno.test("measureAnswers refuses logits that are not finite, and stops when it is told to", async () => {
  const good = fixed(next, 1);
  const of = (float: FakeModel, quant: FakeModel, signal?: AbortSignal) => () =>
    measureAnswers(groupOf(float, [quant]), [[0], [1]], { signal });
  await assertRejects(of(fixed(next, NaN), good), NumericError, "the logits are not finite");
  await assertRejects(of(good, fixed(next, NaN)), NumericError, "the logits are not finite");
  await assertRejects(of(good, good, AbortSignal.abort(new Error("enough"))), Error, "enough");
});
