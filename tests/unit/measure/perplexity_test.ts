// Windows, and the perplexity of models that follow a script, by hand.

import { assert, assertEquals, assertRejects } from "@std/assert";
import { NumericError } from "../../../lib/errors.ts";
import { groupOf, LOGIT_ROWS } from "../../../lib/measure/group.ts";
import { fedTokens, measureText, windowsOf } from "../../../lib/measure/perplexity.ts";
import { FakeModel } from "../../support/decoders.ts";
import { fixture } from "../../support/fixtures.ts";
import { near } from "../../support/numbers.ts";

const { text } = fixture("metrics.json");

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
