// Comparisons of models that answer from a script.

import { assertEquals, assertThrows } from "@std/assert";
import { compareWith, trace } from "../../../lib/measure/compare.ts";
import { NumericError } from "../../../lib/errors.ts";
import type { Difference } from "../../../lib/measure/metrics.ts";
import { FakeModel } from "../../support/decoders.ts";
import { row } from "../../support/numbers.ts";

const VOCABULARY = 8;

/**
 * Logits that depend on all of a text, and say so: the value of `token` is 10, the others are small numbers made of the
 * text.
 */
function logitsOf(text: readonly number[], token: number, shift = 0): Float32Array {
  const sum = text.reduce((sum, id, n) => sum + id * (n + 1), 0);
  const logits = Float32Array.from({ length: VOCABULARY }, (_, n) => ((sum * 7 + n * 5) % 16) / 16 + shift);
  logits[token] = 10 + shift;
  return logits;
}

/** A model that says `next` of each text. */
function scripted(next: (text: string) => number, shift = 0): FakeModel {
  return new FakeModel((text) => logitsOf(text, next(text.join(" ")), shift));
}

/** Follows a script while the text is on it, and takes 7 otherwise. */
function follow(prompt: readonly number[], answer: readonly number[]) {
  return (text: string) => {
    for (let n = 0; n < answer.length; n++) if (text === [...prompt, ...answer.slice(0, n)].join(" ")) return answer[n];
    return 7;
  };
}

const PROMPT = [1, 2, 3];
const ANSWER = [4, 5, 6, 5];

Deno.test("trace keeps the answer and the logits after the prompt and after each token", () => {
  const model = scripted(follow(PROMPT, ANSWER));
  const traced = trace(model, PROMPT, 4);
  assertEquals(traced.prompt, PROMPT);
  assertEquals(traced.tokens, ANSWER);
  assertEquals(traced.prefill, logitsOf(PROMPT, 4));
  assertEquals(traced.logits, [
    logitsOf([1, 2, 3, 4], 5),
    logitsOf([1, 2, 3, 4, 5], 6),
    logitsOf([1, 2, 3, 4, 5, 6], 5),
    logitsOf([1, 2, 3, 4, 5, 6, 5], 7),
  ]);
  assertEquals(model.asked, ["1 2 3", "1 2 3 4", "1 2 3 4 5", "1 2 3 4 5 6", "1 2 3 4 5 6 5"]);
});

/** The largest and the mean difference of the logits of two scripts over texts, by hand. */
function differenceOf(texts: number[][], a: FakeModel, b: FakeModel) {
  const off = texts.flatMap((text) => {
    const y = Array.from(b.logitsOf(text));
    return Array.from(a.logitsOf(text), (x, n) => Math.abs(x - y[n]));
  });
  return { max: Math.max(...off), mean: off.reduce((a, b) => a + b) / off.length, values: off.length };
}

function figures({ max, mean, values }: Difference) {
  return { max, mean, values };
}

for (
  const [what, answer, wanted] of [
    ["gives the same answer", [4, 5, 6, 5], [4, 5, 6, 5]],
    ["differs at the first token", [2, 2, 1, 0], [2, 2, 1, 0]],
    ["differs in the middle", [4, 5, 1, 0], [4, 5, 1, 0]],
    ["differs at the second token and never returns", [4, 0], [4, 0, 7, 7]],
    ["differs at the last token", [4, 5, 6, 1], [4, 5, 6, 1]],
  ] as const
) {
  Deno.test(`compareWith a model that ${what}`, () => {
    const float = scripted(follow(PROMPT, ANSWER));
    const quant = scripted(follow(PROMPT, answer), 0.25);
    const compared = compareWith(quant, trace(float, PROMPT, 4));
    assertEquals(compared.tokens, [...wanted]);
    assertEquals(compared.match, String(wanted) === String(ANSWER));
    // Whatever the second model's own answer is, the logits compared are those of the float model's tokens.
    assertEquals(figures(compared.prefill), differenceOf([PROMPT], float, quant));
    const followed = ANSWER.map((_, n) => [...PROMPT, ...ANSWER.slice(0, n + 1)]);
    assertEquals(figures(compared.steps), differenceOf(followed, float, quant));
    assertEquals(compared.steps.values, 4 * VOCABULARY);
  });
}

Deno.test("compareWith shows its observer the logits of both models, and those of the model's own answer", () => {
  const float = scripted(follow(PROMPT, ANSWER));
  const quant = scripted(follow(PROMPT, [4, 1, 0, 2]), 0.25);
  const logits = (model: FakeModel, ...answer: number[]) => model.logitsOf([...PROMPT, ...answer]);
  const seen: unknown[] = [];
  compareWith(quant, trace(float, PROMPT, 4), {
    followed: (step, float, own) => seen.push([step, float.slice(), own.slice()]),
    own: (step, own) => seen.push([step, own.slice()]),
  });
  assertEquals(seen, [
    ...[[], [4], [4, 5], [4, 5, 6], [4, 5, 6, 5]].map((answer, step) => {
      return [step, logits(float, ...answer), logits(quant, ...answer)];
    }),
    [2, logits(quant, 4, 1)],
    [3, logits(quant, 4, 1, 0)],
  ]);
});

Deno.test("compareWith one step", () => {
  const traced = trace(scripted(follow(PROMPT, [4])), PROMPT, 1);
  const same = compareWith(scripted(follow(PROMPT, [4])), traced);
  assertEquals([same.match, same.tokens, same.steps.max, same.steps.values], [true, [4], 0, VOCABULARY]);
  const other = compareWith(scripted(follow(PROMPT, [5])), traced);
  assertEquals([other.match, other.tokens, other.steps.values], [false, [5], VOCABULARY]);
});

Deno.test("compareWith does not mind what the models would say after the last token", () => {
  const float = scripted(follow(PROMPT, [4, 5, 6, 5, 1]));
  const quant = scripted(follow(PROMPT, [4, 5, 6, 5, 2]));
  assertEquals(compareWith(quant, trace(float, PROMPT, 4)).match, true);
});

Deno.test("compareWith refuses a model whose logits are not finite", () => {
  const broken = new FakeModel(() => row(0, NaN, 1));
  const traced = trace(scripted(follow(PROMPT, ANSWER)), PROMPT, 4);
  assertThrows(() => compareWith(broken, traced), NumericError, "the logits are not finite");
  assertThrows(() => trace(broken, PROMPT, 4), NumericError, "the logits are not finite");
});
