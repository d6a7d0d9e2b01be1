/**
 * Regular expressions of tokenizers, which the `tokenizers` library matches with Oniguruma. In JavaScript many of them have
 * another meaning (`\s`, `\b`, `$`, possessive quantifiers, newer Unicode), and one that takes exponential time can't be
 * stopped. This module matches the part of Oniguruma's syntax that tokenizers use, by backtracking with a limit on the
 * steps; other syntax is refused by name.
 *
 * | construct | meaning in Oniguruma |
 * | --------- | --------------------- |
 * | `\s` `\d` `\w` `\b` `\p{L}` `\p{Han}` `\p{^L}` | Unicode 16: {@link property}, SPACES, WORDS |
 * | `\w` in a class | without `²` `³` `¹` `¼` `½` `¾`, which `\w` matches elsewhere |
 * | `.` `^` `$` | all but `\n`; the beginning and the end of each line |
 * | `\A` `\z` `\Z` | the beginning; the end; the end or before a final `\n` |
 * | `a?+` `a*+` `a++` `(?>a)` | possessive, atomic |
 * | `a{2}+` `a{1,3}+` | the interval is repeated: Oniguruma has no possessive intervals |
 * | `[a-z&&[^q]]` `[[:alpha:]]` | intersections and nested classes; POSIX classes are refused |
 * | `(?i:…)` | literals and classes; ASCII letters, with U+017F for s and U+212A for k |
 * | `(?=…)` `(?!…)` `(?<=…)` `(?<!…)` | a lookbehind has a fixed length |
 *
 * fixtures/tokenizers/make_regexes.py generates patterns of this syntax and the library's matches.
 *
 * @module
 */
import { Machine, NONE, type Steps } from "./machine.ts";
import { parsePattern } from "./parser.ts";
import { compile, type Program } from "./program.ts";
import { leastLength, UnsupportedPattern } from "./tree.ts";

/** Longer than any known pattern (2,000). */
const MAX_LENGTH = 10_000;

/** A regular expression of a tokenizer. */
export class Pattern {
  readonly #program: Program;
  /** Whether a match may be empty. */
  readonly mayBeEmpty: boolean;

  /** @throws {UnsupportedPattern} it uses unsupported syntax, or exceeds a limit */
  constructor(readonly source: string) {
    if (source.length > MAX_LENGTH) throw new UnsupportedPattern(`it has more than ${MAX_LENGTH} characters`);
    const node = parsePattern(source);
    this.mayBeEmpty = leastLength(node) === 0;
    this.#program = compile(node);
  }

  /**
   * The matches in a text, from left to right: the beginning and the end of each, in UTF-16 units. An empty match directly
   * after another match does not count.
   *
   * @param steps the remaining steps, which are counted down
   * @throws {TooManySteps} there are none left
   */
  matches(text: string, steps: Steps): [number, number][] {
    const { codes, units } = decoded(text);
    const machine = new Machine(this.source, this.#program, codes, steps);
    const found: [number, number][] = [];
    let from = 0;
    let last = NONE;
    while (from <= codes.length) {
      let start = from;
      let end = NONE;
      while (start <= codes.length && (end = machine.run(0, start)) === NONE) start++;
      if (end === NONE) break;
      if (end === start && last === end) {
        from++;
        continue;
      }
      found.push([units[start], units[end]]);
      from = last = end;
    }
    return found;
  }
}

/** The code points of a text, the position of each, and the end. */
function decoded(text: string): { codes: Int32Array; units: Int32Array } {
  const codes = new Int32Array(text.length);
  const units = new Int32Array(text.length + 1);
  let count = 0;
  for (let at = 0; at < text.length; at += codes[count++] > 0xffff ? 2 : 1) {
    codes[count] = text.codePointAt(at)!;
    units[count] = at;
  }
  units[count] = text.length;
  return { codes: codes.subarray(0, count), units: units.subarray(0, count + 1) };
}
