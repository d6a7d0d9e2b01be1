import { assert, assertEquals, assertThrows } from "@std/assert";
import { bytesOfIds, overlap, windowsOfTexts } from "../../../lib/calibrate/tokens.ts";
import { LimitError, RabbitError } from "../../../lib/errors.ts";

/** A text of so many ids, from `first` on. */
function textOf(name: string, first: number, length: number) {
  return { name, ids: Array.from({ length }, (_, n) => first + n) };
}

Deno.test("windowsOfTexts takes windows from all places of all texts in turn, in an order that the seed gives", () => {
  const texts = [textOf("a", 0, 1050), textOf("b", 10_000, 250), textOf("c", 20_000, 100)];
  const windows = windowsOfTexts(texts, 1000, 100, 1);
  assertEquals(windows.length, 10);
  for (const window of windows) {
    assertEquals(window, Array.from({ length: 100 }, (_, n) => window[0] + n));
    assertEquals(window[0] % 100, 0);
  }
  const from = windows.map(([first]) => "abc"[Math.floor(first / 10_000)]);
  assertEquals(from.join(""), "abcabaaaaa");
  assertEquals(new Set(windows.map(([first]) => first)).size, 10);
  assertEquals(windowsOfTexts(texts, 1099, 100, 1), windows);
  assert(windowsOfTexts(texts, 1000, 100, 2).some(([first], n) => first !== windows[n][0]));
  // All there is: ten windows of a, two of b, one of c.
  assertEquals(windowsOfTexts(texts, 1e6, 100, 1).length, 13);
  assertEquals(windowsOfTexts([textOf("a", 0, 100)], 100, 100, 1), [textOf("a", 0, 100).ids]);
});

Deno.test("windowsOfTexts refuses more texts than windows, of which some would not be used", () => {
  const texts = ["a", "b", "c"].map((name) => textOf(name, 0, 300));
  assertEquals(windowsOfTexts(texts, 300, 100, 1).length, 3);
  const few =
    "299 tokens are 2 windows of 100, fewer than the 3 texts; use more tokens, a smaller window, or fewer texts";
  assertThrows(() => windowsOfTexts(texts, 299, 100, 1), LimitError, few);
  assertThrows(() => windowsOfTexts(texts, 100, 100, 1), LimitError, "100 tokens are 1 window of 100, fewer than");
});

Deno.test("windowsOfTexts refuses a text that is shorter than a window, by its name", () => {
  const texts = [textOf("long", 0, 100), textOf("short", 0, 99)];
  assertThrows(() => windowsOfTexts(texts, 100, 100, 1), RabbitError, "short has 99 tokens, a window has 100");
});

Deno.test("overlap finds every stretch of 63 tokens, and no shorter one than 32", () => {
  const a = textOf("a", 0, 500).ids;
  for (let start = 0; start < 437; start += 7) {
    const own = Array.from({ length: 100 }, (_, n) => -1 - n);
    for (const [length, wanted] of [[63, true], [31, false]] as const) {
      const b = [...own, ...a.slice(start, start + length), ...own];
      assertEquals([overlap(a, b), overlap(b, a)], [wanted, wanted], `${length} tokens from ${start} on`);
    }
  }
  assertEquals(overlap([], a), false);
});

Deno.test("bytesOfIds writes little-endian 32-bit numbers", () => {
  assertEquals(bytesOfIds([[1, 2], [0x12345, 4]]).toHex(), "01000000020000004523010004000000");
});
