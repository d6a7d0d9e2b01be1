/**
 * Sets of code points, and the Unicode data of the `tokenizers` library, independent of the JavaScript engine's version.
 *
 * @module
 */

import { CATEGORIES, CATEGORY_RUNS, NEWER, NUMERIC, SCRIPTS, SPACE, WORD } from "./unicode_tables.ts";

/** The last code point. */
const LAST = 0x10ffff;

/** Sorted ranges that neither overlap nor touch: the first and last code point of each, one after the other. */
export type Ranges = readonly number[];

/** A set of code points. */
export class CodePoints {
  readonly #low = new Uint32Array(0x10000 / 32);
  readonly #high: Ranges;

  constructor(ranges: Ranges) {
    const high: number[] = [];
    for (let at = 0; at < ranges.length; at += 2) {
      const last = Math.min(ranges[at + 1], 0xffff);
      for (let code = ranges[at]; code <= last;) {
        // Whole words, since ranges may be long.
        if (code % 32 === 0 && code + 31 <= last) {
          this.#low[code >> 5] = -1;
          code += 32;
        } else {
          this.#low[code >> 5] |= 1 << (code & 31);
          code++;
        }
      }
      if (ranges[at + 1] > 0xffff) high.push(Math.max(ranges[at], 0x10000), ranges[at + 1]);
    }
    this.#high = high;
  }

  has(code: number): boolean {
    if (code < 0x10000) return (this.#low[code >> 5] >>> (code & 31) & 1) === 1;
    // Inside a range, the number of ends below the code point is odd.
    let from = 0;
    let to = this.#high.length;
    while (from < to) {
      const middle = (from + to) >> 1;
      if (this.#high[middle] < code || (this.#high[middle] === code && middle % 2 === 0)) from = middle + 1;
      else to = middle;
    }
    return from % 2 === 1;
  }
}

/** The union of ranges, which may be in any order and overlap. */
export function union(...all: readonly Ranges[]): Ranges {
  const found: number[] = [];
  for (const [first, last] of all.flatMap(pairs).sort(([a], [b]) => a - b)) {
    if (found.length > 0 && first <= found.at(-1)! + 1) found[found.length - 1] = Math.max(found.at(-1)!, last);
    else found.push(first, last);
  }
  return found;
}

/** All other code points. */
export function complement(ranges: Ranges): Ranges {
  const found: number[] = [];
  let next = 0;
  for (let at = 0; at < ranges.length; at += 2) {
    if (ranges[at] > next) found.push(next, ranges[at] - 1);
    next = ranges[at + 1] + 1;
  }
  if (next <= LAST) found.push(next, LAST);
  return found;
}

/** The code points in both. */
export function intersection(a: Ranges, b: Ranges): Ranges {
  return complement(union(complement(a), complement(b)));
}

/** Computes a value on first use: few tokenizers need all tables. */
export function lazy<T>(make: () => T): () => T {
  let made: { value: T } | undefined;
  return () => (made ??= { value: make() }).value;
}

/** The code points of `\s`: White_Space. */
export const SPACES: () => Ranges = lazy(() => listed(SPACE));

/** The code points of `\w`. */
export const WORDS: () => Ranges = lazy(() => listed(WORD));

/** The code points that the pre-tokenizer Digits splits at: the categories Nd, Nl and No. */
export const NUMERICS: () => Ranges = lazy(() => listed(NUMERIC));

/** The code points of `\p{name}`: a general category, a group of them by its letter, or a script. @returns undefined if unknown */
export function property(name: string): Ranges | undefined {
  let found = properties.get(name);
  if (found === undefined) {
    if (Object.hasOwn(SCRIPTS, name)) found = listed(SCRIPTS[name]);
    else {
      const wanted = CATEGORIES.split(" ").map((category) => category === name || category[0] === name);
      if (!wanted.includes(true)) return undefined;
      found = categoryRanges(wanted);
    }
    properties.set(name, found);
  }
  return found;
}

const properties = new Map<string, Ranges>();

/** The code points of the categories whose number is in `wanted`. */
function categoryRanges(wanted: readonly boolean[]): Ranges {
  const found: number[] = [];
  let first = 0;
  let inside = false;
  for (const { category, start } of categoryRuns()) {
    if (wanted[category] === inside) continue;
    if (inside) found.push(first, start - 1);
    inside = !inside;
    first = start;
  }
  if (inside) found.push(first, LAST);
  return found;
}

/** Runs of code points of one category, in order: the number of the category, and the first code point. */
const categoryRuns = lazy(() => {
  const runs: { category: number; start: number }[] = [];
  let start = 0;
  for (let at = 0; at < CATEGORY_RUNS.length;) {
    const category = CATEGORY_RUNS.charCodeAt(at++) - 65;
    let length = 0;
    // A digit of base 36. Letters of categories are capital, and end before "_".
    for (let unit = CATEGORY_RUNS.charCodeAt(at); unit < 58 || unit > 95; unit = CATEGORY_RUNS.charCodeAt(++at)) {
      length = 36 * length + (unit < 58 ? unit - 48 : unit - 87);
    }
    runs.push({ category, start });
    start += length || 1;
  }
  return runs;
});

function listed(text: string): Ranges {
  const found: number[] = [];
  let at = 0;
  for (const word of text.split(" ")) {
    const [distance, length = "1"] = word.split(".");
    const first = at + parseInt(distance, 36);
    at = first + parseInt(length, 36);
    found.push(first, at - 1);
  }
  return found;
}

/** Normalization forms. */
export const FORMS = ["NFC", "NFD", "NFKC", "NFKD"] as const;

const newer = lazy(() => {
  const escape = (code: number) => `\\u{${code.toString(16)}}`;
  return new RegExp(`([${pairs(listed(NEWER)).map((pair) => pair.map(escape).join("-")).join("")}]+)`, "u");
});

/**
 * Normalizes a text with the Unicode version of the `tokenizers` library, which is old: combining marks that it does not
 * know keep their place and combine with nothing.
 */
export function normalize(text: string, form: typeof FORMS[number]): string {
  if (!newer().test(text)) return text.normalize(form);
  // The parts between newer characters are normalized separately; every second part consists of newer ones.
  return text.split(newer()).map((part, n) => n % 2 === 1 ? part : part.normalize(form)).join("");
}

function pairs(ranges: Ranges): [number, number][] {
  return Array.from({ length: ranges.length / 2 }, (_, n) => [ranges[2 * n], ranges[2 * n + 1]]);
}
