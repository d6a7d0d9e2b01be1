// Regular expressions of tokenizers. fixtures/tokenizers/regexes.json holds what the `tokenizers` library finds.

import { assert, assertEquals, assertThrows } from "@std/assert";
import { Steps, TooManySteps } from "../../../../lib/text/regex/machine.ts";
import { Pattern } from "../../../../lib/text/regex/pattern.ts";
import { UnsupportedPattern } from "../../../../lib/text/regex/tree.ts";
import {
  CodePoints,
  complement,
  intersection,
  normalize,
  NUMERICS,
  property,
  union,
} from "../../../../lib/text/unicode.ts";
import { sha256 } from "../../../../lib/files/write.ts";
import { json, ROOT } from "../../../support/fixtures.ts";
import { Random } from "../../../support/random.ts";

const FIXTURES = `${ROOT}fixtures/tokenizers`;
const MARK = "\ue000";

interface Case {
  pattern: string;
  known?: true;
  strings: string[];
  /** Of each string, with a mark for each match; and the lengths of what a split leaves. */
  answers: [string, number[]][] | null;
}

/** The pattern, or undefined if it is refused. */
function compiled(source: string): Pattern | undefined {
  try {
    return new Pattern(source);
  } catch (error) {
    if (error instanceof UnsupportedPattern) return undefined;
    throw error;
  }
}

function found(pattern: Pattern, text: string): [string, number[]] {
  const length = (piece: string) => Array.from(piece).length;
  let marked = "";
  let last = 0;
  const lengths: number[] = [];
  for (const [start, end] of pattern.matches(text, new Steps())) {
    marked += text.slice(last, start) + MARK;
    lengths.push(length(text.slice(last, start)), length(text.slice(start, end)));
    last = end;
  }
  return [marked + text.slice(last), [...lengths, length(text.slice(last))].filter((length) => length > 0)];
}

// RABBIT_REGEXES names a larger file.
const cases: Case[] = json(Deno.env.get("RABBIT_REGEXES") ?? `${FIXTURES}/regexes.json`);

Deno.test("every pattern that is accepted finds what the tokenizers library finds, or takes too many steps", () => {
  const tally = { equal: 0, refused: 0, stopped: 0 };
  for (const { pattern, strings, answers } of cases) {
    const ours = compiled(pattern);
    if (ours === undefined) {
      tally.refused++;
      continue;
    }
    assert(answers !== null, `the library refuses ${JSON.stringify(pattern)}`);
    try {
      assertEquals(strings.map((text) => found(ours, text)), answers, pattern);
      tally.equal++;
    } catch (error) {
      if (!(error instanceof TooManySteps)) throw error;
      tally.stopped++;
    }
  }
  console.log(`regular expressions: ${JSON.stringify(tally)}`);
  assert(tally.equal > cases.length / 2 && tally.stopped < cases.length / 1000, JSON.stringify(tally));
});

Deno.test("the patterns of known families are accepted", () => {
  const known = cases.filter(({ known }) => known);
  assertEquals(known.filter(({ pattern }) => compiled(pattern) === undefined), []);
  if (Deno.env.get("RABBIT_REGEXES") === undefined) assert(known.length >= 20);
});

Deno.test("what Oniguruma and JavaScript read differently is refused by name", () => {
  const refused: [string, string][] = [
    [String.raw`a\Rb`, '"\\\\R" at character 1 is not supported'],
    [String.raw`\X`, '"\\\\X" at character 0'],
    [String.raw`[\h]`, '"\\\\h" at character 1'],
    [String.raw`\Kb`, '"\\\\K" at character 0'],
    [String.raw`\G`, '"\\\\G" at character 0'],
    [String.raw`\101`, '"\\\\1" at character 0'],
    [String.raw`(a)\1`, '"\\\\1" at character 3'],
    [String.raw`\xff`, '"\\\\x" at character 0'],
    [String.raw`\pL`, '"\\\\p" at character 0'],
    [String.raw`\p{Punct}+`, '"\\\\p{Punct}" at character 9'],
    [String.raw`\p{Script=Han}`, '"\\\\p" at character 0'],
    ["[[:alpha:]]", '"[:alpha:]" at character 1'],
    ["(?i)hello", '"(?i)" at character 0'],
    ["(?m:.)", '"(?m:" at character 0'],
    ["(?-i:a)", '"(?-i" at character 0'],
    ["(?x: a)", '"(?x:" at character 0'],
    ["(?<name>a)", '"(?<n" at character 0'],
    ["(?#comment)", '"(?#c" at character 0'],
    ["(?~abc)", '"(?~a" at character 0'],
    ["(?(1)a|b)", '"(?(1" at character 0'],
    ["(?i:straße)", '"st" at character 6'],
    ["(?i:é)", '"é" at character 5'],
    ["(?i:ss)", '"ss" at character 6'],
    [String.raw`(?i:\p{Lu})`, '"\\\\p{Lu}" at character 10'],
    ["(?<=a+)b", '"(?<=" at character 7 is a lookbehind without a fixed length'],
    ["(a?)*", '"*" at character 5 repeats a possibly empty match'],
    ["(?=a)+", '"+" at character 6 repeats'],
    ["a{2}?", '"{2}?" at character 5 is an unsupported interval'],
    ["a{3,2}", '"{3,2}" at character 6 is an unsupported interval'],
    ["a**", '"*" at character 2 after a quantifier'],
    ["+a", '"+" at character 0 has nothing to repeat'],
    ["(a", '"(" at character 2 is not closed'],
    ["a)", '")" at character 1'],
    ["[a", '"[" at character 0 is not closed'],
    ["[]a]", '"]" at character 1'],
    ["[z-a]", '"-" at character 4 is not a valid range'],
    [String.raw`[\s-z]`, '"-" at character 3'],
    ["[a&&]", '"&&" at character 4 lacks an operand'],
    ["[^a[^b]]", '"[^" at character 5'],
    [String.raw`\ud800`, '"\\\\ud800" at character 6 is not a character'],
    ["(".repeat(200) + ")".repeat(200), '"(" at character 100 is nested in more than 100 groups'],
    ["a{100000}{100000}", '"{" at character 9'],
    ["(?:(?:ab){99}){999}", "it is too large"],
    ["[b]".repeat(201), '"[" at character 600 exceeds the limit of 200 classes'],
    ["a".repeat(30_000), "it has more than 10000 characters"],
  ];
  for (const [pattern, message] of refused) {
    assertThrows(() => new Pattern(pattern), UnsupportedPattern, message, pattern.slice(0, 40));
  }
});

Deno.test("a pattern that would take exponential time stops", () => {
  for (const [pattern, text] of [["(?:a|a|aa)+$", "a".repeat(60) + "b"], ["(?:(?:a+)+)+b", "a".repeat(60)]]) {
    assertThrows(
      () => new Pattern(pattern).matches(text, new Steps()),
      TooManySteps,
      "takes too many steps on this text",
    );
  }
  // A long match of a group fills no stack.
  assertEquals(new Pattern("(?:ab|a)+").matches("ab".repeat(300_000), new Steps()), [[0, 600_000]]);
});

Deno.test("classes have the code points that the tokenizers library's have", async () => {
  const { sets, numeric }: { sets: Record<string, string>; numeric: string } = json(`${FIXTURES}/unicode.json`);
  const every = Array.from({ length: 0x110000 }, (_, code) => code).filter((code) => code < 0xd800 || code > 0xdfff);
  const text = every.map((code) => String.fromCodePoint(code)).join("");
  const digest = async (ranges: (readonly [number, number])[]) => {
    const listed = ranges.map((range) => range.map((code) => code.toString(16)).join("-")).join(" ");
    return (await sha256()).update(new TextEncoder().encode(listed)).digest("hex");
  };
  for (const [pattern, wanted] of Object.entries(sets)) {
    const steps = new Steps();
    steps.add(every.length);
    const ranges = new Pattern(`(?:${pattern})+`).matches(text, steps).map(([start, end]) => {
      const last = text.charCodeAt(end - 1);
      return [
        text.codePointAt(start)!,
        text.codePointAt(last >= 0xdc00 && last < 0xe000 ? end - 2 : end - 1)!,
      ] as const;
    });
    assertEquals(await digest(ranges), wanted, pattern);
  }
  const pairs = Array.from(
    { length: NUMERICS().length / 2 },
    (_, n) => [NUMERICS()[2 * n], NUMERICS()[2 * n + 1]] as const,
  );
  assertEquals(await digest(pairs), numeric);
});

Deno.test("sets of code points are those of a plain list", () => {
  const random = new Random(5);
  const some = () =>
    union(...Array.from({ length: 8 }, () => {
      const first = random.below(0x10ffff);
      return [first, Math.min(0x10ffff, first + random.below(40_000))];
    }));
  for (let n = 0; n < 20; n++) {
    const [a, b] = [some(), some()];
    const inside = (ranges: readonly number[], code: number) => {
      return ranges.some((_, at) => at % 2 === 0 && ranges[at] <= code && code <= ranges[at + 1]);
    };
    const sets = [union(a, b), intersection(a, b), complement(a)].map((ranges) => new CodePoints(ranges));
    for (const end of [...a, ...b, 0, 0xffff, 0x10000, 0x10ffff]) {
      for (const code of [end - 1, end, end + 1].filter((code) => code >= 0 && code <= 0x10ffff)) {
        const [inA, inB] = [inside(a, code), inside(b, code)];
        assertEquals(sets.map((set) => set.has(code)), [inA || inB, inA && inB, !inA], code.toString(16));
      }
    }
  }
  assertEquals(property("Nonsense"), undefined);
  assertEquals(property("constructor"), undefined);
});

Deno.test("texts are normalized by the Unicode of the tokenizers library", async () => {
  const { normalized }: { normalized: Record<"NFC" | "NFD" | "NFKC" | "NFKD", string> } = json(
    `${FIXTURES}/unicode.json`,
  );
  for (const form of ["NFC", "NFD", "NFKC", "NFKD"] as const) {
    const lines: string[] = [];
    for (let code = 1; code < 0x2fa20; code++) {
      if (code === 10 || (code >= 0xd800 && code < 0xe000) || (code >= 0x20000 && code < 0x2f800)) continue;
      const c = String.fromCodePoint(code);
      const contexts = [c, "a" + c, c + "\u0301", "a" + c + "\u0323\u0301"];
      lines.push(contexts.map((text) => normalize(text, form)).join("\0"));
    }
    const digest = (await sha256()).update(new TextEncoder().encode(lines.join("\n"))).digest("hex");
    assertEquals(digest, normalized[form], form);
  }
  // What newer versions of Unicode compose of two characters.
  assertEquals(normalize("\u{105d2}\u0307 e\u0301", "NFC"), "\u{105d2}\u0307 \u00e9");
});
