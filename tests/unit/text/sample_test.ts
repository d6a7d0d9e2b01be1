// Drawing tokens: the tokens that a program in Python drew from the same description (fixtures/make_sampling.py).

import { assertAlmostEquals, assertEquals, assertThrows } from "@std/assert";
import { NumericError } from "../../../lib/errors.ts";
import { greedy, pick, Sampler, weights } from "../../../lib/text/sample.ts";
import { fixture } from "../../support/fixtures.ts";
import { row } from "../../support/numbers.ts";

interface Case {
  row: number;
  temperature: number;
  top_p: number;
  seed: number;
  tokens: number[];
  candidates: number;
}

const { rows, cases } = fixture<{ rows: number[][]; cases: Case[] }>("sampling.json");

for (const { row, temperature, top_p, seed, tokens, candidates } of cases) {
  Deno.test(`Sampler draws what Python drew: row ${row}, temperature ${temperature}, top-p ${top_p}`, () => {
    const logits = Float32Array.from(rows[row]);
    const sampler = new Sampler({ temperature, topP: top_p, seed });
    assertEquals(tokens.map(() => sampler.sample(logits)), tokens);
    // As many tokens can be drawn as are candidates: those with a weight that a number can fall on.
    const found = weights(logits, temperature);
    const drawn = new Set(Array.from({ length: 4000 }, (_, n) => pick(found, top_p, n / 4000)));
    if (top_p < 1 && row !== 1) assertEquals(drawn.size, candidates);
  });
}

Deno.test("pick takes the token at the number, by hand", () => {
  const found = Float64Array.of(1, 4, 0, 3);
  const at = (topP: number, ...units: number[]) => units.map((unit) => pick(found, topP, unit));
  // In the order of the ids the sums are 1, 5, 5, 8.
  assertEquals(at(1, 0, 0.124, 0.125, 0.624, 0.625, 0.999), [0, 0, 1, 1, 3, 3]);
  // In the order of the weights they are 4, 7, 8: half of 8 needs the first alone, 7/8 the first two.
  assertEquals(at(0.5, 0, 0.999), [1, 1]);
  assertEquals(at(0.51, 0, 0.57, 0.572, 0.999), [1, 1, 3, 3]);
  assertEquals(at(0.875, 0.999), [3]);
  assertEquals(at(0.876, 0.49, 0.5, 0.874, 0.876), [1, 3, 3, 0]);
  // A token without a weight is never drawn; of equal ones the lower id comes first.
  assertEquals(pick(Float64Array.of(0, 1), 1, 0), 1);
  assertEquals(pick(Float64Array.of(2, 2, 2), 0.3, 0.999), 0);
});

Deno.test("weights are the numerators of a softmax", () => {
  const found = weights(Float32Array.of(1, 3, 2), 2);
  assertEquals(found[1], 1);
  assertAlmostEquals(found[0], Math.E ** -1, 1e-15);
  assertAlmostEquals(found[2], Math.E ** -0.5, 1e-15);
  // Nothing overflows, however small the temperature.
  assertEquals([...weights(Float32Array.of(-3e38, 3e38), 5e-324)], [0, 1]);
});

Deno.test("Sampler refuses logits that are not finite", () => {
  for (const bad of [NaN, Infinity, -Infinity]) {
    const sampler = new Sampler({ temperature: 1, topP: 1, seed: 0 });
    assertThrows(() => sampler.sample(Float32Array.of(0, bad)), NumericError, "not finite");
  }
});

Deno.test("greedy refuses logits that are not finite", () => {
  assertEquals(greedy(row(0, 4, 4)), 1);
  assertThrows(
    () => greedy(row(0, NaN)),
    NumericError,
    "the logits are not finite: the weights are damaged, or too large for binary32 arithmetic",
  );
});
