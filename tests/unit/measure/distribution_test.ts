import { assert, assertEquals } from "@std/assert";
import { argmax, Distribution, exp } from "../../../lib/measure/distribution.ts";
import { near, row } from "../../support/numbers.ts";

Deno.test("argmax is the index of the largest, the lowest of equal ones", () => {
  assertEquals(argmax(row(3)), 0);
  assertEquals(argmax(row(1, 3, 2)), 1);
  assertEquals(argmax(row(1, 2, 3)), 2);
  assertEquals(argmax(row(5, 7, 7, 7, 1)), 1);
  assertEquals(argmax(row(2, 2)), 0);
  assertEquals(argmax(row(-3, -1, -2)), 1);
  assertEquals(argmax(row(-0, 0)), 0);
  assertEquals(argmax(row(0, -0)), 0);
});

Deno.test("argmax is -1 when a value is not finite, wherever it stands", () => {
  for (const bad of [NaN, Infinity, -Infinity]) {
    for (let at = 0; at < 3; at++) {
      const values = row(1, 2, 3);
      values[at] = bad;
      assertEquals(argmax(values), -1);
    }
  }
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
