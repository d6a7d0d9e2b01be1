/**
 * Python's str operations on JavaScript strings: positions and lengths are in code points, and character classes are
 * Python's. Strings contain no lone surrogates.
 *
 * @module
 */

import { Unsupported } from "./limits.ts";

/** The characters of `str.isspace`, `strip()` and `\s`, for a character class. */
export const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";

const SURROGATE = /[\ud800-\udfff]/;
const LEADING = new RegExp(`^[${SPACE}]+`);
const ALL_SPACE = new RegExp(`^[${SPACE}]+$`);
const IS_SPACE = new RegExp(`[${SPACE}]`);

/** The line boundaries of `str.splitlines`. */
// deno-lint-ignore no-control-regex
const LINE = /\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]/g;

/** Whether each UTF-16 unit of a string is a code point. */
function isPlain(text: string): boolean {
  return !SURROGATE.test(text);
}

/** Whether a string contains a lone surrogate. */
export function isBroken(text: string): boolean {
  return !text.isWellFormed();
}

/** `len(text)`. */
export function lengthOf(text: string): number {
  if (isPlain(text)) return text.length;
  let count = 0;
  for (const _ of text) count++;
  return count;
}

/** The code points of a string, indexed as in Python. */
export function pointsOf(text: string): string | string[] {
  return isPlain(text) ? text : [...text];
}

/** The characters from `start` up to `stop`. */
export function cut(text: string, start: number, stop: number): string {
  return isPlain(text) ? text.slice(start, stop) : [...text].slice(start, stop).join("");
}

/** Converts an index in UTF-16 units to code points. */
export function pointIndex(text: string, unit: number): number {
  return lengthOf(text.slice(0, unit));
}

/** Compares by code points: -1, 0 or 1. */
export function compareText(a: string, b: string): number {
  if (a === b) return 0;
  if (isPlain(a) && isPlain(b)) return a < b ? -1 : 1;
  const [x, y] = [[...a], [...b]];
  const length = Math.min(x.length, y.length);
  for (let n = 0; n < length; n++) {
    if (x[n] !== y[n]) return x[n].codePointAt(0)! < y[n].codePointAt(0)! ? -1 : 1;
  }
  return x.length < y.length ? -1 : 1;
}

/**
 * `text.strip(characters)` on one or both sides.
 *
 * @param characters undefined for white space
 */
export function strip(text: string, characters: string | undefined, left: boolean, right: boolean): string {
  if (characters === undefined) {
    const begun = left ? text.replace(LEADING, "") : text;
    let end = begun.length;
    while (right && end > 0 && IS_SPACE.test(begun[end - 1])) end--;
    return begun.slice(0, end);
  }
  const set = new Set(characters);
  const points = [...text];
  let [start, end] = [0, points.length];
  while (left && start < end && set.has(points[start])) start++;
  while (right && end > start && set.has(points[end - 1])) end--;
  return points.slice(start, end).join("");
}

/** `text.split()` and `text.rsplit()`, at runs of white space; a negative limit is none. */
export function splitSpace(text: string, limit: number, right: boolean): string[] {
  const words: string[] = [];
  let rest = strip(text, undefined, !right, right);
  while (rest !== "") {
    const at = words.length === limit ? -1 : right ? lastSpace(rest) : rest.search(IS_SPACE);
    words.push(at < 0 ? rest : right ? rest.slice(at + 1) : rest.slice(0, at));
    if (at < 0) break;
    rest = strip(right ? rest.slice(0, at) : rest.slice(at), undefined, !right, right);
  }
  return right ? words.reverse() : words;
}

function lastSpace(text: string): number {
  let at = text.length - 1;
  while (at >= 0 && !IS_SPACE.test(text[at])) at--;
  return at;
}

/** `text.split(separator)` and `text.rsplit(separator)`; a negative limit is none. */
export function splitAt(text: string, separator: string, limit: number, right: boolean): string[] {
  const parts = text.split(separator);
  if (limit < 0 || parts.length <= limit + 1) return parts;
  const [head, tail] = right
    ? [parts.slice(0, parts.length - limit), parts.slice(parts.length - limit)]
    : [parts.slice(limit), parts.slice(0, limit)];
  return right ? [head.join(separator), ...tail] : [...tail, head.join(separator)];
}

/** `text.splitlines(keep)`. */
export function splitLines(text: string, keep: boolean): string[] {
  const lines: string[] = [];
  let start = 0;
  for (const { index, 0: end } of text.matchAll(LINE)) {
    lines.push(text.slice(start, keep ? index + end.length : index));
    start = index + end.length;
  }
  if (start < text.length) lines.push(text.slice(start));
  return lines;
}

/** The number of non-overlapping occurrences of `part`. */
export function count(text: string, part: string): number {
  return part === "" ? lengthOf(text) + 1 : text.split(part).length - 1;
}

/** `text.replace(old, replacement, limit)`; a negative limit is none. */
export function replace(text: string, old: string, replacement: string, limit: number): string {
  if (limit === 0) return text;
  if (old !== "") {
    return limit < 0 ? text.replaceAll(old, () => replacement) : splitAt(text, old, limit, false).join(replacement);
  }
  const points = [...text];
  const times = limit < 0 ? points.length + 1 : Math.min(limit, points.length + 1);
  return points.map((point, n) => n < times ? replacement + point : point).join("") +
    (times > points.length ? replacement : "");
}

/**
 * Characters that differ between the Unicode 14 of Python 3.11, which is the reference here, and newer versions: in case
 * (the first set), and in class or representation (the second).
 */
const NEWER_CASE = /[\u019b\u0264\u1c89\u1c8a\ua7cb-\ua7cd\ua7da-\ua7dc\u{10d50}-\u{10d65}\u{10d70}-\u{10d85}]/u;
const NEWER =
  /[\u0897\u0cf3\u0ece\u10fc\u1b4e\u1b4f\u1b7f\u1c89\u1c8a\u2427-\u2429\u2ffc-\u2fff\u31e4\u31e5\u31ef\ua7cb-\ua7cd\ua7da-\ua7dc\ua7f2-\ua7f4\uab69\u{105c0}-\u{105f3}\u{10d40}-\u{10d65}\u{10d69}-\u{10d85}\u{10d8e}\u{10d8f}\u{10ec2}-\u{10ec4}\u{10efc}-\u{10eff}\u{1123f}-\u{11241}\u{11380}-\u{11389}\u{1138b}\u{1138e}\u{11390}-\u{113b5}\u{113b7}-\u{113c0}\u{113c2}\u{113c5}\u{113c7}-\u{113ca}\u{113cc}-\u{113d5}\u{113d7}\u{113d8}\u{113e1}\u{113e2}\u{116d0}-\u{116e3}\u{11b00}-\u{11b09}\u{11bc0}-\u{11be1}\u{11bf0}-\u{11bf9}\u{11f00}-\u{11f10}\u{11f12}-\u{11f3a}\u{11f3e}-\u{11f5a}\u{1342f}\u{13440}-\u{13455}\u{13460}-\u{143fa}\u{16100}-\u{16139}\u{16d40}-\u{16d79}\u{18cff}\u{1b132}\u{1b155}\u{1cc00}-\u{1ccf9}\u{1cd00}-\u{1ceb3}\u{1d2c0}-\u{1d2d3}\u{1df25}-\u{1df2a}\u{1e030}-\u{1e06d}\u{1e08f}\u{1e4d0}-\u{1e4f9}\u{1e5d0}-\u{1e5fa}\u{1e5ff}\u{1f6dc}\u{1f774}-\u{1f776}\u{1f77b}-\u{1f77f}\u{1f7d9}\u{1f8b2}-\u{1f8bb}\u{1f8c0}\u{1f8c1}\u{1fa75}-\u{1fa77}\u{1fa87}-\u{1fa89}\u{1fa8f}\u{1faad}-\u{1faaf}\u{1fabb}-\u{1fabf}\u{1fac6}\u{1face}\u{1facf}\u{1fada}-\u{1fadc}\u{1fadf}\u{1fae8}\u{1fae9}\u{1faf7}\u{1faf8}\u{1fbcb}-\u{1fbef}\u{2b739}\u{2ebf0}-\u{2ee5d}\u{31350}-\u{323af}]/u;

function without(newer: RegExp, text: string): string {
  if (newer.test(text)) throw new Unsupported("the case or class of a character newer than Unicode 14");
  return text;
}

/** `text.upper()`. */
export function upper(text: string): string {
  return without(NEWER_CASE, text).toUpperCase();
}

/** `text.lower()`. */
export function lower(text: string): string {
  return without(NEWER_CASE, text).toLowerCase();
}

/** Characters whose title case differs from their upper case: digraphs, ligatures, Greek with iota, Georgian. */
const TITLED =
  /[\u00df\u01c4-\u01cc\u01f1-\u01f3\u0587\u10d0-\u10fa\u10fd-\u10ff\u1f80-\u1faf\u1fb2-\u1fb4\u1fb7\u1fbc\u1fc2-\u1fc4\u1fc7\u1fcc\u1ff2-\u1ff4\u1ff7\u1ffc\ufb00-\ufb06\ufb13-\ufb17]/;

/** The title case of one character. */
function title(character: string): string {
  if (TITLED.test(character)) throw new Unsupported(`the title case of "${character}"`);
  return upper(character);
}

/** Refuses sigma, whose lower case depends on the characters around it in the whole string. */
function withoutSigma(text: string): string {
  if (text.includes("Σ")) throw new Unsupported("the lower case of a part of a string with a sigma");
  return text;
}

/** `text.capitalize()`. */
export function capitalize(text: string): string {
  const [first = ""] = text;
  return title(first) + lower(withoutSigma(text.slice(first.length)));
}

/** `text.title()`. */
export function titleCase(text: string): string {
  let inside = false;
  let result = "";
  for (const character of withoutSigma(text)) {
    result += inside ? lower(character) : isCased(character) ? title(character) : character;
    inside = isCased(character);
  }
  return result;
}

/** `text.swapcase()`. */
export function swapCase(text: string): string {
  let result = "";
  for (const character of withoutSigma(text)) {
    result += /\p{Uppercase}/u.test(character)
      ? lower(character)
      : /\p{Lowercase}/u.test(character)
      ? upper(character)
      : character;
  }
  return result;
}

function isCased(character: string): boolean {
  without(NEWER, character);
  return /[\p{Lowercase}\p{Uppercase}\p{Lt}]/u.test(character);
}

/** The methods `str.is…()`; some are limited to ASCII, since JavaScript lacks the tables. */
const TESTS: Readonly<Record<string, (text: string) => boolean>> = {
  isalpha: (text) => /^\p{L}+$/u.test(text),
  isdecimal: (text) => /^\p{Nd}+$/u.test(text),
  isalnum: (text) => /^[\p{L}\p{N}]+$/u.test(text),
  isascii: (text) => /^\p{ASCII}*$/u.test(text),
  isspace: (text) => ALL_SPACE.test(text),
  isdigit: (text) => /^[0-9]+$/.test(plainNumbers(text)),
  isnumeric: (text) => /^[0-9]+$/.test(plainNumbers(text)),
  islower: (text) => /\p{Lowercase}/u.test(text) && !/[\p{Uppercase}\p{Lt}]/u.test(text),
  isupper: (text) => /\p{Uppercase}/u.test(text) && !/[\p{Lowercase}\p{Lt}]/u.test(text),
  isidentifier: (text) => /^[A-Za-z_][A-Za-z_0-9]*$/.test(plainNumbers(text)),
  isprintable: (text) => !UNPRINTABLE.test(text),
  istitle(text) {
    let [inside, some] = [false, false];
    for (const character of text) {
      const upper = /[\p{Uppercase}\p{Lt}]/u.test(character);
      const lower = /\p{Lowercase}/u.test(character);
      if ((upper && inside) || (lower && !inside)) return false;
      inside = upper || lower;
      some ||= inside;
    }
    return some;
  },
};

/** The same for strings without newer characters. */
export const CLASSES: Readonly<Record<string, (text: string) => boolean>> = Object.fromEntries(
  Object.entries(TESTS).map(([name, test]) => [name, (text) => test(without(NEWER, text))]),
);

/** Refuses non-ASCII characters: JavaScript has no tables of Python's digits, numbers and identifiers. */
function plainNumbers(text: string): string {
  if (/[^\p{ASCII}]/u.test(text)) throw new Unsupported("a test for non-ASCII digits or identifiers");
  return text;
}

/** The characters for which `str.isprintable` is false. */
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u;

/** The characters that `repr` escapes, except the quote. */
const ESCAPED = new RegExp(`\\\\|${UNPRINTABLE.source}`, "gu");

const ESCAPES: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\" };

/** `repr(text)`. */
export function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escaped = without(NEWER, text).replace(
    ESCAPED,
    (character) => ESCAPES[character] ?? hexEscape(character.codePointAt(0)!),
  );
  return quote + escaped.replaceAll(quote, `\\${quote}`) + quote;
}

/** Python's escape of a code point. */
export function hexEscape(code: number): string {
  const [letter, width] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${letter}${code.toString(16).padStart(width, "0")}`;
}
