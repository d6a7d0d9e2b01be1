/**
 * What messages and results show of names and texts that come from files.
 */

import { assertEquals } from "@std/assert";
import { quote, systemError, visible } from "../../lib/errors.ts";
import { Random } from "../support/random.ts";

/**
 * Code points of the categories Cc, Cf, Cs, Zl and Zp or with Default_Ignorable_Code_Point, first and last of each
 * range, as Perl 5.36 has them (Unicode 14):
 * perl -e 'for (0..0x10ffff) { print if chr =~ /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/ }'
 */
// deno-fmt-ignore
const HIDDEN = [
  [0, 0x1f], [0x7f, 0x9f], [0xad, 0xad], [0x34f, 0x34f], [0x600, 0x605], [0x61c, 0x61c], [0x6dd, 0x6dd], [0x70f, 0x70f],
  [0x890, 0x891], [0x8e2, 0x8e2], [0x115f, 0x1160], [0x17b4, 0x17b5], [0x180b, 0x180f], [0x200b, 0x200f],
  [0x2028, 0x202e], [0x2060, 0x206f], [0x3164, 0x3164], [0xd800, 0xdfff], [0xfe00, 0xfe0f], [0xfeff, 0xfeff],
  [0xffa0, 0xffa0], [0xfff0, 0xfffb], [0x110bd, 0x110bd], [0x110cd, 0x110cd], [0x13430, 0x13438], [0x1bca0, 0x1bca3], [0x1d173, 0x1d17a],
  [0xe0000, 0xe0fff],
];

/** Controls of Egyptian hieroglyphs that are newer. */
const NEWER = [[0x13439, 0x1343f]];

function within(ranges: number[][], code: number): boolean {
  return ranges.some(([first, last]) => first <= code && code <= last);
}

/** A code point's UTF-16 units as JSON escapes them. */
function escaped(code: number): string {
  const units = code < 0x10000 ? [code] : [0xd800 + (code - 0x10000 >> 10), 0xdc00 + (code & 0x3ff)];
  return units.map((unit) => `\\u${unit.toString(16).padStart(4, "0")}`).join("");
}

Deno.test("visible escapes every character that is not seen or that a terminal acts on, and no other", () => {
  for (let code = 0; code < 0x110000; code++) {
    if (within(NEWER, code)) continue;
    const found = visible(`a${String.fromCodePoint(code)}b`);
    const wanted = within(HIDDEN, code) ? escaped(code) : String.fromCodePoint(code);
    if (found !== `a${wanted}b`) assertEquals(found, `a${wanted}b`, code.toString(16));
  }
  assertEquals(visible("a\u001b[2J\tb\nc", "\n\t"), "a\\u001b[2J\tb\nc");
  assertEquals(visible(visible("\u202e")), "\\u202e");
});

Deno.test("visible leaves the value of a JSON text as it is", () => {
  const random = new Random(1);
  for (let n = 0; n < 2000; n++) {
    const unit = () =>
      random.below(3) ? [0x1b, 0x9b, 0x202e, 0x22, 0x5c, 0xd83d, 0xde00, 0x41][random.below(8)] : random.below(0x10000);
    const text = String.fromCharCode(...Array.from({ length: random.below(20) }, unit));
    assertEquals(JSON.parse(visible(JSON.stringify({ [text]: [text] }))), { [text]: [text] });
  }
});

Deno.test("quote keeps a name short, on one line, and whole characters", () => {
  assertEquals(quote('a "b"\n\u009b\u200b\ud800'), '"a \\"b\\"\\n\\u009b\\u200b\\ud800"');
  assertEquals(quote("x".repeat(200)), `"${"x".repeat(200)}"`);
  assertEquals(quote("x".repeat(201)), `"${"x".repeat(200)}…"`);
  assertEquals(quote("x".repeat(199) + "😀y"), `"${"x".repeat(199)}…"`);
  assertEquals(quote("x".repeat(198) + "😀yz"), `"${"x".repeat(198)}😀…"`);
});

Deno.test("systemError says in words what Deno may not do", () => {
  const cause = new Deno.errors.NotCapable('Requires all access to "/dev/stdin", run again with the --allow-all flag');
  assertEquals(
    systemError("cannot read /dev/stdin", cause).message,
    "cannot read /dev/stdin: the program is not permitted to use it; standard input is /dev/fd/0",
  );
});
