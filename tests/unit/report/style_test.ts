import { assert, assertEquals } from "@std/assert";
import { DARK, LIGHT, type Scheme, STEPS } from "../../../lib/report/style.ts";

/** The contrast of two colours, as WCAG 2 defines it. */
function contrast(a: string, b: string): number {
  const luminance = (colour: string) => {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255)
      .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [low, high] = [luminance(a), luminance(b)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

for (const [name, scheme] of Object.entries({ LIGHT, DARK } satisfies Record<string, Scheme>)) {
  Deno.test(`style: all text of ${name} has a contrast of 4.5 or more, bars one of 3`, () => {
    assertEquals(contrast("#000000", "#ffffff"), 21);
    const { page, card, text, muted, good, bad, changed, bar, ramp } = scheme;
    const pairs = [
      ...[page, card].flatMap((under) => [[text, under], [muted, under], [bad, under]]),
      [good, card],
      [text, changed],
      [bad, changed],
      ...ramp,
    ];
    assertEquals(pairs.filter(([a, b]) => contrast(a, b) < 4.5), []);
    assert(contrast(bar, card) >= 3);
    assertEquals(ramp.length, STEPS);
    // A step further is a step farther from the page.
    const steps = ramp.map(([fill]) => contrast(fill, card));
    assert(steps.every((step, n) => n === 0 || step > steps[n - 1]), `${steps}`);
  });
}
