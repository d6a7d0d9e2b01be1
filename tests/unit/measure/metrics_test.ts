import { assert, assertEquals } from "@std/assert";
import { Histogram } from "../../../lib/measure/metrics.ts";
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
