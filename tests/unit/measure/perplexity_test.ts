// Perplexity, divergence and windows: against figures that numpy computed (fixtures/metrics.json), by hand, and with
// decoders that follow a script.

import { assert, assertEquals, assertRejects } from "@std/assert";
import { NumericError } from "../../../lib/errors.ts";
import { Distribution, exp } from "../../../lib/measure/distribution.ts";
import { groupOf, LOGIT_ROWS } from "../../../lib/measure/group.ts";
import { Divergence, exponential, margin, mean, quantile } from "../../../lib/measure/metrics.ts";
import { fedTokens, measureText, windowsOf } from "../../../lib/measure/perplexity.ts";
import { FakeModel } from "../../support/decoders.ts";
import { fixture } from "../../support/fixtures.ts";

const row = (...values: number[]) => Float32Array.from(values);

function near(actual: number, expected: number, what: string, tolerance = 1e-12): void {
  const off = Math.abs(actual - expected);
  assert(off <= tolerance * Math.max(1, Math.abs(expected)), `${what}: ${actual}, not ${expected}`);
}

// ---------------------------------------------------------------- metrics

Deno.test("margin is between the largest and the second largest value, wherever they stand", () => {
  assertEquals(margin(row(1, 5, 3)), 2);
  assertEquals(margin(row(5, 1, 3)), 2);
  assertEquals(margin(row(1, 3, 5)), 2);
  assertEquals(margin(row(-4, -2)), 2);
  assertEquals(margin(row(3, 7, 7)), 0);
});

Deno.test("mean has the standard error of independent observations", () => {
  // The variance of 1, 2, 3, 6 with n - 1 is (4 + 1 + 0 + 9) / 3.
  const { value, error } = mean([1, 2, 3, 6]);
  near(value, 3, "mean");
  near(error, Math.sqrt(14 / 3 / 4), "error");
  assertEquals([mean([7]).value, mean([7]).error], [7, NaN]);
  assertEquals(mean([2, 2, 2]).error, 0);
});

Deno.test("exponential propagates the error", () => {
  const { value, error } = exponential({ value: Math.log(20), error: 0.1 });
  near(value, 20, "value");
  near(error, 2, "error");
});

Deno.test("quantile sorts by value and is linear between ranks", () => {
  assertEquals(quantile([3, 1, 2], 0.5), 2);
  assertEquals(quantile([4, 1, 2, 3], 0.5), 2.5);
  // As words 10 comes before 9.
  assertEquals(quantile([10, 9, 1], 1), 10);
  assertEquals(quantile([10, 9, 1], 0), 1);
  near(quantile([0, 10], 0.999), 9.99, "p999");
  assertEquals(quantile([5], 0.999), 5);
  assertEquals(quantile([], 0.5), NaN);
});

Deno.test("exp is within two units in the last place of the engine's, and 0 of what is far below", () => {
  for (let n = 0; n <= 708_000; n += 7) {
    const x = -n / 1000;
    assert(Math.abs(exp(x) - Math.exp(x)) <= 2 ** -51 * Math.exp(x), `exp(${x}) = ${exp(x)}, not ${Math.exp(x)}`);
  }
  assertEquals([exp(0), exp(-0)], [1, 1]);
  assert(exp(-709) > 0 && exp(-709) < 1e-307);
  assertEquals(exp(-1e300), exp(-709));
});

Deno.test("Distribution is a softmax that nothing overflows", () => {
  const p = new Distribution(3);
  assert(p.set(row(1000, 1000, 1000 + Math.fround(Math.log(2)))));
  near(p.logProbability(0), Math.log(0.25), "p(0)", 1e-4);
  near(p.logProbability(2), Math.log(0.5), "p(2)", 1e-4);
  assertEquals(p.top, 2);
  assert(p.set(row(0, 0, 0)));
  near(p.logProbability(1), Math.log(1 / 3), "p(1)");
  assertEquals(p.top, 0);
  for (const bad of [NaN, Infinity, -Infinity]) assertEquals(p.set(row(0, bad, 0)), false);
});

Deno.test("the divergence of two coins is what its definition says, and has a direction", () => {
  const [p, q] = [new Distribution(2), new Distribution(2)];
  p.set(row(0, Math.log(3))); // 1/4, 3/4
  q.set(row(0, 0));
  near(p.divergence(q), 0.25 * Math.log(0.5) + 0.75 * Math.log(1.5), "p from q", 1e-7);
  near(q.divergence(p), 0.5 * Math.log(2) + 0.5 * Math.log(2 / 3), "q from p", 1e-7);
  assertEquals(p.divergence(p), 0);
  // A shift of all logits changes no probability; rounding must not make the divergence negative.
  const shifted = new Distribution(2);
  shifted.set(row(5, 5));
  near(q.divergence(shifted), 0, "shifted");
  assert(q.divergence(shifted) >= 0);
});

const { rows, text } = fixture("metrics.json");

Deno.test("Divergence gives the figures that numpy gives", () => {
  const measured = new Divergence();
  const vocabulary = rows.float[0].length;
  const [p, q] = [new Distribution(vocabulary), new Distribution(vocabulary)];
  for (const [n, token] of rows.tokens.entries()) {
    assert(p.set(row(...rows.float[n])) && q.set(row(...rows.quant[n])));
    measured.add(p.with(q), token);
  }
  const wanted = rows.figures;
  assertEquals(measured.scored, wanted.scored);
  for (
    const [key, value] of Object.entries({
      float: measured.float.value,
      float_error: measured.float.error,
      quant: measured.quant.value,
      quant_error: measured.quant.error,
      ratio: measured.ratio.value,
      ratio_error: measured.ratio.error,
      kl: measured.kl.value,
      kl_error: measured.kl.error,
      kl_median: measured.klQuantile(0.5),
      kl_p999: measured.klQuantile(0.999),
      kl_max: measured.klQuantile(1),
      same_top: measured.sameTop.value,
      same_top_error: measured.sameTop.error,
      rms: measured.rmsShift,
      mean: measured.meanShift,
    })
  ) near(value, wanted[key], key, 1e-9);
});

// ---------------------------------------------------------------- windows

const windows = (tokens: number, window: number, stride: number) =>
  windowsOf(tokens, window, stride).map(({ start, scored, end }) => [start, scored, end]);

Deno.test("windowsOf without overlap scores all but the first token of each window", () => {
  assertEquals(windows(10, 4, 4), [[0, 1, 4], [4, 5, 8], [8, 9, 10]]);
  assertEquals(windows(8, 4, 4), [[0, 1, 4], [4, 5, 8]]);
  // A last window of one token has nothing to score.
  assertEquals(windows(9, 4, 4), [[0, 1, 4], [4, 5, 8]]);
  assertEquals(windows(3, 4, 4), [[0, 1, 3]]);
  assertEquals(windows(2, 2, 2), [[0, 1, 2]]);
  assertEquals(windows(4, 2, 2), [[0, 1, 2], [2, 3, 4]]);
});

Deno.test("windowsOf with overlap scores each token but the first of the text once", () => {
  assertEquals(windows(10, 4, 2), [[0, 1, 4], [2, 4, 6], [4, 6, 8], [6, 8, 10]]);
  assertEquals(windows(9, 4, 2), [[0, 1, 4], [2, 4, 6], [4, 6, 8], [6, 8, 9]]);
  assertEquals(windows(6, 4, 1), [[0, 1, 4], [1, 4, 5], [2, 5, 6]]);
  assertEquals(windows(5, 4, 3), [[0, 1, 4], [3, 4, 5]]);
  assertEquals(windows(4, 4, 1), [[0, 1, 4]]);
});

Deno.test("windowsOf has nothing to score in less than two tokens", () => {
  assertEquals(windows(0, 4, 4), []);
  assertEquals(windows(1, 4, 4), []);
  assertEquals(windows(1, 4, 1), []);
});

Deno.test("windowsOf: the text of 6,489 tokens has 13 windows of 512 and 6,476 scored tokens", () => {
  const found = windowsOf(6489, 512, 512);
  assertEquals(found.length, 13);
  assertEquals(found.reduce((sum, { scored, end }) => sum + end - scored, 0), 6476);
  assertEquals(fedTokens(found), 6476);
});

// ---------------------------------------------------------------- measureText

const VOCABULARY = 5;

/** A model which says that the successor of the last token follows, by `sureness`. */
function successor(sureness: number): FakeModel {
  return new FakeModel((text) => {
    const logits = new Float32Array(VOCABULARY);
    logits[(text.at(-1)! + 1) % VOCABULARY] = sureness;
    return logits;
  });
}

Deno.test("measureText feeds each window anew, and scores what follows each token", async () => {
  const ids = [0, 1, 2, 0, 1, 2];
  const [float, quant] = [successor(2), successor(1)];
  const done: number[] = [];
  const [measured] = await measureText(groupOf(float, [quant]), ids, windowsOf(6, 4, 2), {
    progress: (n) => done.push(n),
  });
  const calls = ["rewind 0", "all 0 1 2", "rewind 0", "feed 2", "all 0 1"];
  assertEquals([float.calls, quant.calls], [calls, calls]);
  assertEquals(done, [3, 6]);
  assertEquals(fedTokens(windowsOf(6, 4, 2)), 6);
  // Right: 0 -> 1, 1 -> 2, 0 -> 1, 1 -> 2; wrong: 2 -> 0.
  assertEquals(measured.scored, 5);
  const perplexity = (sure: number) => Math.exp(Math.log(Math.exp(sure) + 4) - 4 * sure / 5);
  near(measured.float.value, perplexity(2), "float");
  near(measured.quant.value, perplexity(1), "quant");
  near(measured.ratio.value, perplexity(1) / perplexity(2), "ratio");
  assertEquals(measured.sameTop.value, 1);
});

Deno.test("measureText measures several models in one pass, and long windows in pieces", async () => {
  const ids = Array.from({ length: 2 * LOGIT_ROWS + 10 }, (_, n) => n % VOCABULARY);
  const float = successor(3);
  const models = groupOf(float, [successor(3), successor(-1)]);
  const both = await measureText(models, ids, windowsOf(ids.length, ids.length, ids.length));
  assertEquals(float.calls.map((call) => call.split(" ").length - 1), [1, LOGIT_ROWS, LOGIT_ROWS, 9]);
  assertEquals(both.map(({ scored }) => scored), [ids.length - 1, ids.length - 1]);
  assertEquals([both[0].kl.value, both[0].ratio.value, both[0].sameTop.value], [0, 1, 1]);
  assertEquals(both[1].sameTop.value, 0);
  assert(both[1].kl.value > 1);
});

Deno.test("measureText refuses logits that are not finite, of either model", async () => {
  for (const [a, b] of [[NaN, 1], [1, NaN], [Infinity, 1], [1, Infinity]]) {
    await assertRejects(
      () => measureText(groupOf(successor(a), [successor(b)]), [0, 1, 2], windowsOf(3, 3, 3)),
      NumericError,
      "the logits are not finite",
    );
  }
});

Deno.test("measureText stops when it is told to", async () => {
  const controller = new AbortController();
  const quant = successor(1);
  const options = {
    signal: controller.signal,
    progress: () => controller.abort(new Error("enough")),
  };
  await assertRejects(
    () => measureText(groupOf(successor(1), [quant]), [0, 1, 2, 3], windowsOf(4, 2, 2), options),
    Error,
    "enough",
  );
  assertEquals(quant.calls, ["rewind 0", "all 0"]);
});

Deno.test("the text of fixtures/metrics.json has as many windows as its script counts", () => {
  for (const { window, stride, windows, q8 } of text.cases) {
    const found = windowsOf(text.tokens, window, stride);
    assertEquals(found.length, windows);
    assertEquals(found.reduce((sum, { scored, end }) => sum + end - scored, 0), q8.scored);
  }
});
