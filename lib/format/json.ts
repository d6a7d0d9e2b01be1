/**
 * Reads untrusted JSON. {@link JsonReader} is a strict reader for headers and indexes: it builds only the values that
 * its caller asks for; it refuses duplicate keys, of which `JSON.parse` keeps the last; and it keeps large integers,
 * such as 9007199254740993, which `JSON.parse` rounds. {@link parseJson} is `JSON.parse` with limits, for files that a
 * library interprets.
 *
 * @module
 */

import { readText } from "../files/read.ts";
import { CheckpointError, quote } from "../errors.ts";

/** A number other than an integer of 0 to 2^53-1 in plain digits: its text, for messages. */
export class OddNumber {
  constructor(readonly text: string) {}
}

/** An error in a text; `at` is its offset in UTF-16 units. */
export class JsonError extends Error {
  override name = "JsonError";

  constructor(readonly problem: string, readonly at: number) {
    super(`${problem} at character ${at}`);
  }
}

/** The type of a value; `literal` is true, false or null. */
export type JsonKind = "object" | "array" | "string" | "number" | "literal";

/** The limit on nesting, which bounds the recursion: deeper than any file of a checkpoint. */
const MAX_DEPTH = 32;

/** The limit on the length of a number: no shape or offset needs more than 16 digits. */
const MAX_NUMBER = 400;

/** The limit on keys of one object, which are held in memory to find duplicates: more than a checkpoint has tensors. */
const MAX_KEYS = 1_000_000;

/**
 * The limit on values in a text for {@link parseJson}: five times those of the largest known tokenizer (Gemma's, 2
 * million).
 */
const MAX_VALUES = 10_000_000;

/** A character above U+FFFF as two escapes. */
const PAIR = /\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}/y;

const LITERALS: readonly (readonly [string, null | boolean])[] = [["true", true], ["false", false], ["null", null]];

function isDigit(unit: number): boolean {
  return unit >= 48 && unit <= 57;
}

/** Reads one JSON value sequentially; the caller asks for the type that it expects. */
export class JsonReader {
  readonly #text: string;
  #at = 0;
  #depth = 0;

  constructor(text: string) {
    this.#text = text;
    this.#space();
  }

  /** The type of the next value. If there is no valid value, the method that reads it throws. */
  peek(): JsonKind {
    const unit = this.#unit();
    if (unit === 123) return "object";
    if (unit === 91) return "array";
    if (unit === 34) return "string";
    return isDigit(unit) || unit === 45 ? "number" : "literal";
  }

  /** Describes the next value, for messages; arrays and objects are not read. */
  describe(): string {
    switch (this.peek()) {
      case "object":
        return "an object";
      case "array":
        return "an array";
      case "string":
        return quote(this.string());
      case "number": {
        const number = this.number();
        return number instanceof OddNumber ? number.text.slice(0, 40) : String(number);
      }
      case "literal":
        return String(this.literal());
    }
  }

  /**
   * Reads an object.
   *
   * @param member called with each key, to read the value
   * @throws {JsonError} it is not an object, or it has a duplicate key or more than a million keys
   */
  object(member: (key: string) => void): void {
    const keys = new Set<string>();
    this.#list("{", "}", () => {
      const start = this.#at;
      const key = this.string("a key");
      if (keys.has(key)) throw invalid(`duplicate key ${quote(key)}`, start);
      if (keys.size === MAX_KEYS) throw new JsonError(`an object with more than ${MAX_KEYS} keys`, start);
      keys.add(key);
      this.#space();
      if (this.#unit() !== 58) this.#fail('":"');
      this.#at++;
      this.#space();
      member(key);
    });
  }

  /** Reads an array. @param item called for each element, to read it @throws {JsonError} */
  array(item: () => void): void {
    this.#list("[", "]", item);
  }

  /** Reads a string. @throws {JsonError} it is not a string, or not well-formed Unicode */
  string(what = "a string"): string {
    const text = this.#text;
    if (this.#unit() !== 34) this.#fail(what);
    const start = this.#at;
    let at = start + 1;
    let escaped = false;
    for (let unit = text.charCodeAt(at); unit !== 34; unit = text.charCodeAt(at)) {
      if (at >= text.length) throw invalid("unterminated string", start);
      if (unit < 32) throw invalid("control character in a string", at);
      escaped ||= unit === 92;
      at += unit === 92 ? 2 : 1;
    }
    this.#at = at + 1;
    const value = escaped ? unescape(text.slice(start, at + 1), start) : text.slice(start + 1, at);
    if (!value.isWellFormed()) throw invalid("lone surrogate in a string", start);
    return value;
  }

  /** Reads a number. @throws {JsonError} it is not a number, or has 400 characters or more */
  number(): number | OddNumber {
    const text = this.#text;
    const start = this.#at;
    const digits = (at: number) => {
      while (isDigit(text.charCodeAt(at))) at++;
      return at;
    };
    const first = text.charCodeAt(start) === 45 ? start + 1 : start;
    const whole = text.charCodeAt(first) === 48 ? first + 1 : digits(first);
    if (whole === first) this.#fail("a value");
    let end = whole;
    if (text.charCodeAt(end) === 46 && isDigit(text.charCodeAt(end + 1))) end = digits(end + 1);
    if ((text.charCodeAt(end) | 32) === 101) {
      const sign = text.charCodeAt(end + 1) === 43 || text.charCodeAt(end + 1) === 45 ? 1 : 0;
      if (isDigit(text.charCodeAt(end + 1 + sign))) end = digits(end + 1 + sign);
    }
    if (end - start >= MAX_NUMBER) throw new JsonError("number with too many digits", start);
    this.#at = end;
    const token = text.slice(start, end);
    const value = Number(token);
    return first === start && end === whole && Number.isSafeInteger(value) ? value : new OddNumber(token);
  }

  /** Reads true, false or null. @throws {JsonError} it is none of these */
  literal(): null | boolean {
    const found = LITERALS.find(([word]) => this.#text.startsWith(word, this.#at));
    if (found === undefined) this.#fail("a value");
    this.#at += found[0].length;
    return found[1];
  }

  /** Skips a value of any type. @throws {JsonError} */
  skip(): void {
    const skip = () => this.skip();
    switch (this.peek()) {
      case "object":
        return this.object(skip);
      case "array":
        return this.array(skip);
      case "string":
        return void this.string();
      case "number":
        return void this.number();
      case "literal":
        return void this.literal();
    }
  }

  /** Checks that only white space follows. @throws {JsonError} */
  end(): void {
    this.#space();
    if (this.#at < this.#text.length) this.#fail("the end");
  }

  /** Reads a list in brackets: `item` for each element, separated by commas. */
  #list(open: string, close: string, item: () => void): void {
    const text = this.#text;
    if (text[this.#at] !== open) this.#fail(open === "{" ? "an object" : "an array");
    if (this.#depth === MAX_DEPTH) throw new JsonError(`nested deeper than ${MAX_DEPTH}`, this.#at);
    this.#depth++;
    this.#at++;
    this.#space();
    if (text[this.#at] !== close) {
      while (true) {
        item();
        this.#space();
        if (text[this.#at] === close) break;
        if (this.#unit() !== 44) this.#fail(`"," or "${close}"`);
        this.#at++;
        this.#space();
      }
    }
    this.#at++;
    this.#depth--;
  }

  #unit(): number {
    return this.#text.charCodeAt(this.#at);
  }

  // A plain loop instead of a regular expression, since a header may be 100 MB of spaces.
  #space(): void {
    let unit = this.#unit();
    while (unit === 32 || unit === 10 || unit === 13 || unit === 9) {
      this.#at++;
      unit = this.#unit();
    }
  }

  #fail(wanted: string): never {
    const at = this.#at;
    const found = at < this.#text.length ? quote(this.#text.slice(at, at + 12)) : "the end";
    throw invalid(`expected ${wanted}, found ${found}`, at);
  }
}

function invalid(problem: string, at: number): JsonError {
  return new JsonError(`not valid JSON: ${problem}`, at);
}

/** Decodes a string token with escapes. */
function unescape(token: string, start: number): string {
  try {
    return JSON.parse(token);
  } catch {
    throw invalid("invalid escape in a string", start);
  }
}

/**
 * Parses a file with `JSON.parse`, after counting values and nesting: the result takes at most a few times the memory
 * of the text, and a recursive function can traverse it. Strings are well-formed Unicode.
 *
 * @param text decoded from UTF-8
 * @param path for messages, which include line and column
 * @throws {CheckpointError} it is not JSON, has a lone surrogate, is nested deeper than 32, or has more than ten
 * million values
 */
export function parseJson(path: string, text: string): unknown {
  try {
    scan(text);
    return JSON.parse(text);
  } catch (error) {
    const { problem, at } = error instanceof JsonError ? error : problemOf(text);
    throw new CheckpointError({ path }, `${problem} ${lineOf(text, at)}`);
  }
}

/**
 * Finds the error in a text that is not JSON. The engine's own message quotes the text and may not have the position.
 */
function problemOf(text: string): JsonError {
  try {
    const reader = new JsonReader(text);
    reader.skip();
    reader.end();
  } catch (error) {
    if (error instanceof JsonError) return error;
    throw error;
  }
  throw new Error("JSON.parse refuses a text that JsonReader accepts");
}

/**
 * Checks the limits of a text, without parsing it.
 *
 * @throws {JsonError} it has too many values, too deep a nesting, or an escaped lone surrogate
 */
function scan(text: string): void {
  let depth = 0;
  let values = 1;
  let quoted = false;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    if (unit === 34) quoted = !quoted;
    else if (quoted) {
      if (unit === 92) at += escapeLength(text, at) - 1;
    } else if (unit === 44 || unit === 91 || unit === 123) {
      if (unit !== 44 && ++depth > MAX_DEPTH) throw new JsonError(`nested deeper than ${MAX_DEPTH}`, at);
      if (++values > MAX_VALUES) throw new JsonError(`more than ${MAX_VALUES} values`, at);
    } else if (unit === 93 || unit === 125) depth--;
  }
}

/** The length of an escape, as far as it is skipped: two characters, or both halves of a surrogate pair. */
function escapeLength(text: string, at: number): number {
  const surrogate = text.charCodeAt(at + 1) === 117 && (text.charCodeAt(at + 2) | 32) === 100 &&
    text.charCodeAt(at + 3) >= 56;
  if (!surrogate) return 2;
  PAIR.lastIndex = at;
  if (!PAIR.test(text)) throw invalid("lone surrogate in a string", at);
  return 12;
}

/** The line and column of a character, as in editors; a column is a code point. */
function lineOf(text: string, at: number): string {
  let line = 1;
  let column = 1;
  for (let n = 0; n < at; n++) {
    const unit = text.charCodeAt(n);
    if (unit === 10) {
      line++;
      column = 1;
    } else if (unit < 0xdc00 || unit > 0xdfff) column++;
  }
  return `in line ${line}, column ${column}`;
}

/**
 * Reads a JSON file of at most `limit` bytes that contains an object.
 *
 * @throws {CheckpointError} it is not a JSON object, not UTF-8, too long, or exceeds the limits of {@link parseJson}
 * @throws {SystemError}
 */
export function readJsonObject(path: string, limit: number): Record<string, unknown> {
  const json = parseJson(path, readText(path, limit));
  if (typeof json === "object" && json !== null && !Array.isArray(json)) return json as Record<string, unknown>;
  throw new CheckpointError({ path }, "expected a JSON object");
}
