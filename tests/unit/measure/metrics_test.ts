// Metrics by hand, and against figures that numpy computed (fixtures/metrics.json).

import { assert, assertEquals } from "@std/assert";
import {
  Difference,
  Divergence,
  exponential,
  Histogram,
  margin,
  mean,
  quantile,
} from "../../../lib/measure/metrics.ts";
import { Distribution } from "../../../lib/measure/distribution.ts";
import { fixture } from "../../support/fixtures.ts";
import { near, row } from "../../support/numbers.ts";
import { Random } from "../../support/random.ts";

/** The counts of values in bins of `width`, from the definition. */
function counted(values: readonly number[], width: number) {
  const bins = values.map((value) => Math.floor(value / width));
  const [first, last] = [Math.min(...bins), Math.max(...bins)];
  const counts = Array.from({ length: last - first + 1 }, (_, n) => bins.filter((bin) => bin === first + n).length);
  return { width, first, counts };
}

Deno.test("Histogram has the counts of bins that are as narrow as 128 on each side allow, or as wide as is asked", () => {
  const random = new Random(1);
  for (const deviation of [1e-5, 0.01, 1, 300]) {
    for (const count of [1, 7, 2000]) {
      const values = Array.from({ length: count }, () => deviation * random.gaussian());
      const histogram = new Histogram();
      for (const value of values) histogram.add(value);
      const found = histogram.bins();
      assertEquals(found, counted(values, found.width));
      assertEquals(Math.log2(found.width) % 1, 0);
      const most = Math.max(...values.map((value) => value < 0 ? -value : value));
      assert(most <= 128 * found.width && (most >= 63 * found.width || found.width === 2 ** -24), `${most}`);
      assertEquals(histogram.bins(found.width * 8), counted(values, found.width * 8));
    }
  }
});

Deno.test("Histogram takes zeros, the largest numbers, and nothing", () => {
  assertEquals(new Histogram().bins().counts, []);
  const zeros = new Histogram();
  for (let n = 0; n < 5; n++) zeros.add(n % 2 ? 0 : -0);
  assertEquals(zeros.bins(), { width: 2 ** -24, first: 0, counts: [5] });
  zeros.add(-6.8e38);
  const { first, counts, width } = zeros.bins();
  assertEquals([first * width <= -6.8e38, counts[0], counts.at(-1), counts.reduce((a, b) => a + b)], [true, 1, 5, 6]);
});

Deno.test("Difference is nothing before the first value", () => {
  const d = new Difference();
  assertEquals([d.max, d.mean, d.values], [0, 0, 0]);
});

Deno.test("Difference has the largest and the mean magnitude over all rows", () => {
  const d = new Difference();
  d.add(row(1, 2, 3), row(1, 4, 2.5));
  assertEquals([d.max, d.mean, d.values], [2, 2.5 / 3, 3]);
  d.add(row(-5, 0), row(-1.5, 0));
  assertEquals([d.max, d.mean, d.values], [3.5, 6 / 5, 5]);
  d.add(row(), row());
  assertEquals(d.values, 5);
});

Deno.test("Difference subtracts and sums in binary64", () => {
  // In binary32 2^24 + 1 is 2^24, and 1 - 2^-30 is 1.
  const d = new Difference();
  d.add(row(2 ** 24), row(0));
  d.add(row(1), row(0));
  assertEquals(d.mean, (2 ** 24 + 1) / 2);
  const e = new Difference();
  e.add(row(1), row(2 ** -30));
  assertEquals(e.max, 1 - 2 ** -30);
});

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

const { rows } = fixture("metrics.json");

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
