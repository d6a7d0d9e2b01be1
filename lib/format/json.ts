/**
 * A strict JSON reader for headers from strangers. `JSON.parse` keeps the last of two equal keys and rounds
 * 9007199254740993; a file format can afford neither.
 *
 * @module
 */

import { quote } from "../errors.ts";

/** A number that is not an integer of 0 to 2^53-1 written in plain digits: kept as its text, for the message. */
export class OddNumber {
  constructor(readonly text: string) {}
}

/** What {@link parseJson} returns. Objects are Maps: their order is the text's, and any key is a plain key. */
export type Json = null | boolean | number | string | OddNumber | Json[] | Map<string, Json>;

/** Why a text was refused; `at` is the offset in UTF-16 units. */
export class JsonError extends Error {
  override name = "JsonError";

  constructor(problem: string, readonly at: number) {
    super(`${problem} at character ${at}`);
  }
}

/** Deeper than any header of the format needs; bounds the recursion. */
const MAX_DEPTH = 32;

/** Longer numbers are refused unread: no shape or offset needs more than 16 digits. */
const MAX_NUMBER = 400;

const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/;
const INTEGER = /^(?:0|[1-9]\d*)$/;

/**
 * Reads one JSON value, all of `text` but white space.
 *
 * @throws {JsonError} RFC 8259 is broken, a key stands twice in an object, a string is not well-formed Unicode,
 * or the nesting is deeper than 32
 */
export function parseJson(text: string): Json {
  let at = 0;

  // Plain loops, not regular expressions: a header may be 100 MB of spaces or one string.
  function space(): void {
    for (let c = text.charCodeAt(at); c === 32 || c === 10 || c === 13 || c === 9;) c = text.charCodeAt(++at);
  }

  function fail(wanted: string): never {
    const found = at < text.length ? quote(text.slice(at, at + 12)) : "the end";
    throw new JsonError(`expected ${wanted}, found ${found}`, at);
  }

  function string(what: string): string {
    if (text[at] !== '"') fail(what);
    const start = at++;
    let escaped = false;
    for (let c = text.charCodeAt(at); c !== 34; c = text.charCodeAt(at)) {
      if (at >= text.length) throw new JsonError("unterminated string", start);
      if (c < 32) throw new JsonError("control character in a string", at);
      escaped ||= c === 92;
      at += c === 92 ? 2 : 1;
    }
    const token = text.slice(start, ++at);
    const value = escaped ? unescape(token, start) : token.slice(1, -1);
    if (!value.isWellFormed()) throw new JsonError("lone surrogate in a string", start);
    return value;
  }

  function unescape(token: string, start: number): string {
    try {
      return JSON.parse(token);
    } catch {
      throw new JsonError("bad escape in a string", start);
    }
  }

  function number(): number | OddNumber {
    const token = NUMBER.exec(text.slice(at, at + MAX_NUMBER))?.[0] ?? fail("a value");
    if (token.length === MAX_NUMBER) throw new JsonError("number of too many digits", at);
    at += token.length;
    const value = Number(token);
    return INTEGER.test(token) && Number.isSafeInteger(value) ? value : new OddNumber(token);
  }

  /** What stands between the brackets: `item` for each element, separated by commas. */
  function list(close: string, depth: number, item: () => void): void {
    if (depth >= MAX_DEPTH) throw new JsonError(`nested deeper than ${MAX_DEPTH}`, at);
    at++;
    space();
    if (text[at] === close) return void at++;
    while (true) {
      space();
      item();
      space();
      if (text[at] === close) return void at++;
      if (text[at] !== ",") fail(`"," or "${close}"`);
      at++;
    }
  }

  function value(depth: number): Json {
    switch (text[at]) {
      case "{": {
        const object = new Map<string, Json>();
        list("}", depth, () => {
          const start = at;
          const key = string("a key");
          if (object.has(key)) throw new JsonError(`duplicate key ${quote(key)}`, start);
          space();
          if (text[at] !== ":") fail('":"');
          at++;
          space();
          object.set(key, value(depth + 1));
        });
        return object;
      }
      case "[": {
        const array: Json[] = [];
        list("]", depth, () => array.push(value(depth + 1)));
        return array;
      }
      case '"':
        return string("a string");
      default:
        for (const [word, meaning] of [["true", true], ["false", false], ["null", null]] as const) {
          if (text.startsWith(word, at)) {
            at += word.length;
            return meaning;
          }
        }
        return number();
    }
  }

  space();
  const result = value(0);
  space();
  if (at < text.length) fail("the end");
  return result;
}
