import { assertAlmostEquals, assertEquals, assertThrows } from "@std/assert";
import { type Bounded, boundFraction, boundMean } from "../../../lib/measure/bounds.ts";
import { checkLimits, judge, type Limits, type Verdict, verdictOf } from "../../../lib/measure/gates.ts";
import { Divergence } from "../../../lib/measure/metrics.ts";
import { Random } from "../../support/random.ts";

/** A text whose figures spread. */
function measured(tokens: number): Divergence {
  const random = new Random(tokens);
  const of = <T>(value: () => T) => Array.from({ length: tokens }, value);
  const float = of(() => 2 + random.gaussian());
  const text = new Divergence();
  text.append({
    float,
    quant: float.map((loss) => loss + 0.01 + 0.1 * random.gaussian()),
    kl: of(() => 0.01 * Math.exp(random.gaussian())),
    shift: of(() => 0),
    same: of(() => random.below(20) ? 1 : 0),
  });
  return text;
}

const TEXT = measured(3000);

/** The flag of each limit, and the bounds that belong to it, on the scale of the limit. */
const LIMITS: Record<string, { of: keyof Limits; bounds: Bounded; scale(value: number): number; atLeast: boolean }> = {
  "max-kl": {
    of: "maxKl",
    bounds: boundMean(TEXT.observations.kl, 0.95)!,
    scale: (value) => value,
    atLeast: false,
  },
  "max-ratio": { of: "maxRatio", bounds: boundMean(TEXT.losses, 0.95)!, scale: Math.exp, atLeast: false },
  "min-same-top": {
    of: "minSameTop",
    bounds: boundFraction(TEXT.observations.same, 0.95)!,
    scale: (value) => value,
    atLeast: true,
  },
};

for (const [name, { of, bounds, scale, atLeast }] of Object.entries(LIMITS)) {
  Deno.test(`${name}: pass within the bound on the safe side, fail beyond the other, and otherwise undecided`, () => {
    const [value, lower, upper] = [bounds.value, bounds.lower, bounds.upper].map(scale);
    const [a, b] = atLeast ? ["pass", "fail"] : ["fail", "pass"];
    const off = 1e-9;
    for (
      const [limit, verdict] of [
        [lower - off, a],
        [lower + off, "undecided"],
        [value + off, "undecided"],
        [upper - off, "undecided"],
        [upper + off, b],
      ] as [number, Verdict][]
    ) {
      const [gate, ...more] = judge(TEXT, { [of]: limit });
      assertEquals([gate.name, gate.limit, gate.confidence, gate.verdict, more], [name, limit, 0.95, verdict, []]);
      assertEquals([gate.lower, gate.upper], [lower, upper]);
      assertAlmostEquals(gate.value, value, 1e-12);
      assertEquals(gate.tokensNeeded !== undefined, verdict === "undecided");
      if (gate.tokensNeeded !== undefined) assertEquals(gate.tokensNeeded > TEXT.scored, true);
    }
    assertEquals(judge(TEXT, { [of]: lower - off, confidence: 0.99 })[0].verdict, "undecided");
  });
}

Deno.test("judge judges each limit that is given, in order, and verdictOf all of them", () => {
  const good = { maxKl: 1, maxRatio: 2, minSameTop: 0.1 };
  assertEquals(judge(TEXT, {}), []);
  assertEquals(judge(TEXT, good).map(({ name, verdict }) => [name, verdict]), [
    ["max-kl", "pass"],
    ["max-ratio", "pass"],
    ["min-same-top", "pass"],
  ]);
  const verdict = (limits: Limits) => verdictOf(judge(TEXT, limits));
  assertEquals(verdict({}), "pass");
  assertEquals(verdict(good), "pass");
  const open = TEXT.kl.value * 1.0001;
  assertEquals(verdict({ ...good, maxKl: open }), "undecided");
  assertEquals(verdict({ ...good, maxKl: open, minSameTop: 0.99 }), "fail");
});

Deno.test("a text that is too short for bounds decides nothing", () => {
  const gates = judge(measured(199), { maxKl: 100, minSameTop: 0.0001 });
  for (const { verdict, lower, upper, detectable, tokensNeeded } of gates) {
    assertEquals([verdict, lower, upper, detectable, tokensNeeded], [
      "undecided",
      undefined,
      undefined,
      undefined,
      200,
    ]);
  }
});

Deno.test("no divergence at all is within a limit of 0, and any is not", () => {
  const same = new Divergence();
  const zeros = new Array(400).fill(0);
  const losses = measured(400).observations.float;
  same.append({ float: losses, quant: losses, kl: zeros, shift: zeros, same: new Array(400).fill(1) });
  assertEquals(judge(same, { maxKl: 0, maxRatio: 1 }).map(({ verdict }) => verdict), ["pass", "pass"]);
  assertEquals(judge(TEXT, { maxKl: 0 })[0].verdict, "fail");
});

Deno.test("checkLimits refuses what is no limit", () => {
  checkLimits({});
  checkLimits({ maxKl: 0, maxRatio: 1, minSameTop: 0.5, confidence: 0.5 });
  checkLimits({ maxKl: undefined });
  for (
    const [limits, message] of [
      [{ maxKl: -1 }, "maxKl -1: expected a number of 0 to 1000"],
      [{ maxKl: NaN }, "maxKl NaN: expected a number of 0 to 1000"],
      [{ maxKl: "1" }, "maxKl 1: expected a number of 0 to 1000"],
      [{ maxRatio: 0.98 }, "maxRatio 0.98: expected a number of 1 to 1000000"],
      [{ maxRatio: Infinity }, "maxRatio Infinity: expected a number of 1 to 1000000"],
      [{ minSameTop: 0 }, "minSameTop 0: expected a number above 0, to 0.9999"],
      [{ minSameTop: 98 }, "minSameTop 98: expected a number above 0, to 0.9999"],
      [{ confidence: 1 }, "confidence 1: expected a number of 0.5 to 0.9999"],
      [{ confidence: 0.05 }, "confidence 0.05: expected a number of 0.5 to 0.9999"],
    ] as [Limits, string][]
  ) {
    const error = assertThrows(() => checkLimits(limits), RangeError);
    assertEquals(error.message, message);
  }
  assertThrows(() => checkLimits({ maxKL: 1 } as Limits), TypeError, 'unknown option "maxKL"');
});
