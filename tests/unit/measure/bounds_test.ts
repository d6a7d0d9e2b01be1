// Bounds against scipy's (fixtures/gates.json), and their coverage and power on simulated texts, whose true values are
// known.

import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import { batchesOf, boundFraction, boundMean, LEAST_TOKENS, POWER } from "../../../lib/measure/bounds.ts";
import { studentQuantile } from "../../../lib/measure/student.ts";
import { fixture } from "../../support/fixtures.ts";
import { congruential, Random } from "../../support/random.ts";

const { quantiles, cases } = fixture("gates.json");

Deno.test("studentQuantile is scipy's", () => {
  for (const [p, freedom, t] of quantiles) {
    assertAlmostEquals(studentQuantile(p, freedom), t, 1e-9 * Math.max(1, t));
    assertAlmostEquals(studentQuantile(1 - p, freedom), -t, 1e-9 * Math.max(1, t));
  }
});

Deno.test("batchesOf: from 4 to 12 batches of at least 100 tokens, or 4 of at least 50", () => {
  assertEquals([0, 1, 199, 200, 499, 500, 1199, 1200, 1e6].map(batchesOf), [0, 0, 0, 4, 4, 5, 11, 12, 12]);
  const short = new Array(LEAST_TOKENS - 1).fill(1);
  assertEquals([boundMean(short, 0.95), boundFraction(short, 0.95)], [undefined, undefined]);
  // Models without any difference need no batches, and one token is not enough.
  assertEquals([boundMean([0, 0], 0.95)!.upper, boundMean([0], 0.95)], [0, undefined]);
});

for (const { seed, tokens, confidence, limits, ...wanted } of cases) {
  Deno.test(`bounds of ${tokens} tokens with a confidence of ${confidence} are numpy's`, () => {
    const bytes = congruential(seed, 3 * tokens);
    const part = (n: number, of: (byte: number, token: number) => number) => {
      return Array.from(bytes.subarray(n * tokens, (n + 1) * tokens), of);
    };
    const kl = part(0, (byte, token) => (byte / 256) ** 5 * (1 + 0.5 * Math.sin(token / 150)));
    const losses = part(1, (byte) => (byte - 120) / 1000);
    const same = part(2, (byte) => byte < 250 ? 1 : 0);
    const found = {
      kl: boundMean(kl, confidence)!,
      losses: boundMean(losses, confidence)!,
      same: boundFraction(same, confidence)!,
    };
    for (const [n, name] of (["kl", "losses", "same"] as const).entries()) {
      const { tokens, ...values } = wanted[name];
      for (const key of ["value", "lower", "upper", "detectable"] as const) {
        assertAlmostEquals(found[name][key], values[key], 1e-9, `${name} ${key}`);
      }
      // The number is rounded up.
      assert(Math.abs(found[name].tokensFor(limits[n]) - tokens) <= 1 + 1e-6 * tokens, `${name} tokens`);
    }
  });
}

Deno.test("bounds of equal observations are the value, and those of a fraction are not", () => {
  const { value, lower, upper } = boundMean(new Array(500).fill(0), 0.95)!;
  assertEquals([value, lower, upper], [0, 0, 0]);
  // Wilson's bound of n successes of n is n / (n + t^2).
  const all = boundFraction(new Array(500).fill(1), 0.95)!;
  const t = studentQuantile(0.95, 4);
  assertEquals([all.value, all.upper], [1, 1]);
  assertAlmostEquals(all.lower, 500 / (500 + t * t), 1e-12);
});

// ---------------------------------------------------------------- simulation

/** Texts to simulate for each process. */
const TEXTS = 400;

/**
 * A process with values for each token: dependent normal numbers, of which some are the dependence of neighbours (an
 * autoregressive process), and some that of a page.
 */
function* normals(random: Random, near: number, page: number): Generator<number> {
  let [a, b] = [random.gaussian(), random.gaussian()];
  const [share, slow] = [0.1, 0.98];
  while (true) {
    a = near * a + Math.sqrt(1 - near * near) * random.gaussian();
    if (page === 0) yield a;
    else {
      b = slow * b + Math.sqrt(1 - slow * slow) * random.gaussian();
      yield Math.sqrt(1 - share) * a + Math.sqrt(share) * b;
    }
  }
}

/** The distribution function of the standard normal distribution at 2: P(z < 2). */
const BELOW_2 = 0.9772498680518208;

/** Processes with their true means: the spread of KL divergences is lognormal, that of losses has heavy tails. */
const PROCESSES: Record<
  string,
  { readonly near: number; readonly page: number; readonly mean: number; of(z: number, random: Random): number }
> = {
  "a long tail, independent": { near: 0, page: 0, mean: Math.exp(0.5), of: Math.exp },
  "a long tail, autocorrelation 0.5": { near: 0.5, page: 0, mean: Math.exp(0.5), of: Math.exp },
  "a long tail, with pages": { near: 0.2, page: 1, mean: Math.exp(0.5), of: Math.exp },
  // Laplace's distribution, around 0.1 and the dependent part.
  "heavy tails on both sides": {
    near: 0.5,
    page: 0,
    mean: 0.1,
    of: (z, random) => 0.1 + 0.2 * z + (random.below(2) ? 1 : -1) * Math.log(random.unit() + 2 ** -33),
  },
};

/** Simulates texts. */
function* texts(name: string, tokens: number, seed: number): Generator<number[]> {
  const { near, page, of } = PROCESSES[name];
  const random = new Random(seed);
  for (let text = 0; text < TEXTS; text++) {
    const process = normals(random, near, page);
    yield Array.from({ length: tokens }, () => of(process.next().value!, random));
  }
}

/**
 * How often a bound must hold: as often as its confidence says, less four standard errors of the simulation and what the
 * approximation is allowed to miss.
 */
function least(confidence: number, allowed: number): number {
  return confidence - 4 * Math.sqrt(confidence * (1 - confidence) / TEXTS) - allowed;
}

for (const [seed, name] of Object.keys(PROCESSES).entries()) {
  Deno.test(`bounds of a mean hold as often as their confidence says: ${name}`, () => {
    const { mean } = PROCESSES[name];
    for (const [tokens, allowed] of [[492, 0.02], [3000, 0.01]]) {
      const held = { lower: 0, upper: 0, strict: 0 };
      for (const text of texts(name, tokens, seed + 1)) {
        const { lower, upper } = boundMean(text, 0.95)!;
        if (lower <= mean) held.lower++;
        if (upper >= mean) held.upper++;
        if (boundMean(text, 0.99)!.upper >= mean) held.strict++;
      }
      const shown = `${tokens} tokens: ${JSON.stringify(held)} of ${TEXTS}`;
      assert(held.lower / TEXTS >= least(0.95, allowed), shown);
      assert(held.upper / TEXTS >= least(0.95, allowed), shown);
      assert(held.strict / TEXTS >= least(0.99, allowed), shown);
      // Nor are they useless: a bound that always holds is too far away.
      assert(held.lower + held.upper < 2 * TEXTS, shown);
    }
  });
}

Deno.test("errors that assume independent tokens do not hold on such texts", () => {
  const name = "a long tail, with pages";
  let held = 0;
  for (const text of texts(name, 3000, 3)) {
    const { value, error } = meanOf(text);
    if (value + studentQuantile(0.95, text.length - 1) * error >= PROCESSES[name].mean) held++;
  }
  assert(held / TEXTS < least(0.95, 0.01), `${held} of ${TEXTS}`);
});

for (const page of [0, 1]) {
  Deno.test(`bounds of a fraction hold as often as their confidence says, ${page ? "with" : "without"} pages`, () => {
    const random = new Random(7);
    for (const tokens of [492, 3000]) {
      const held = { lower: 0, upper: 0 };
      for (let text = 0; text < TEXTS; text++) {
        const process = normals(random, 0.3, page);
        const same = Array.from({ length: tokens }, () => process.next().value! < 2 ? 1 : 0);
        const { lower, upper } = boundFraction(same, 0.95)!;
        if (lower <= BELOW_2) held.lower++;
        if (upper >= BELOW_2) held.upper++;
      }
      const shown = `${tokens} tokens: ${JSON.stringify(held)} of ${TEXTS}`;
      assert(Math.min(held.lower, held.upper) / TEXTS >= least(0.95, 0.01), shown);
    }
  });
}

Deno.test("the detectable loss is found, and the number of tokens decides, about as often as said", () => {
  const name = "a long tail, autocorrelation 0.5";
  const { mean } = PROCESSES[name];
  const [short, tokens] = [1500, 3000];
  const all = [...texts(name, tokens, 11)];
  const average = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const detectable = average(all.map((text) => boundMean(text, 0.95)!.detectable));
  const found = all.filter((text) => boundMean(text, 0.95)!.lower > mean - detectable).length / TEXTS;
  // The standard errors differ from text to text.
  assert(Math.abs(found - POWER) < 0.07, `found ${found}`);
  // A limit above the mean for which short texts say on average that twice as many tokens decide.
  const bounds = all.map((text) => boundMean(text.slice(0, short), 0.95)!);
  let [low, high] = [mean, 2 * mean];
  for (let step = 0; step < 10; step++) {
    const middle = (low + high) / 2;
    const needed = average(bounds.map(({ value, tokensFor }) => Math.min(1e6, tokensFor(middle + value - mean))));
    if (needed > tokens) low = middle;
    else high = middle;
  }
  const limit = high;
  const decided = all.filter((text) => boundMean(text, 0.95)!.upper <= limit).length / TEXTS;
  assert(Math.abs(decided - POWER) < 0.1, `decided ${decided}`);
});

/** The mean and the standard error of independent observations. */
function meanOf(values: readonly number[]): { value: number; error: number } {
  const value = values.reduce((sum, x) => sum + x, 0) / values.length;
  const squares = values.reduce((sum, x) => sum + (x - value) ** 2, 0);
  return { value, error: Math.sqrt(squares / (values.length - 1) / values.length) };
}
