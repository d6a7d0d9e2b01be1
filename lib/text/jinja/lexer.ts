/**
 * Splits a template into tokens, as Jinja2 3.1 does with trim_blocks and lstrip_blocks.
 *
 * @module
 */

import { MAX_TEMPLATE, TemplateError, Unsupported } from "./limits.ts";
import { parseFloating, parseInteger } from "./numbers.ts";
import { hexEscape, isBroken, SPACE, strip } from "./text.ts";

/** A token. The kind of an operator, a bracket or the end of a tag is its text. */
export interface Token {
  readonly kind: string;
  /** The text of data, a name, or the value of a literal. */
  readonly value: string | bigint | number;
  readonly line: number;
}

/** A {@link TemplateError} with a line of the template. */
export function errorAt(line: number, problem: string): TemplateError {
  return new TemplateError(`line ${line}: ${problem}`);
}

/** Longest first. */
const OPERATORS = /\/\/|\*\*|==|!=|>=|<=|[-+/*%~[\](){}><=.:|,;]/y;
const WHITESPACE = new RegExp(`[${SPACE}]+`, "y");
const FLOAT = /(?<!\.)(?:[0-9]+_)*[0-9]+(?:(?:\.(?:[0-9]+_)*[0-9]+)?e[+-]?(?:[0-9]+_)*[0-9]+|\.(?:[0-9]+_)*[0-9]+)/iy;
const INTEGER = /0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[0-9a-f])+|[1-9](?:_?[0-9])*|0(?:_?0)*/iy;
const NAME = /[A-Za-z0-9_]+/y;
const RAW = new RegExp(`\\{%([-+]?)[${SPACE}]*raw[${SPACE}]*(?:-%\\}[${SPACE}]*|%\\})`, "y");
const END_RAW = new RegExp(`\\{%([-+]?)[${SPACE}]*endraw[${SPACE}]*(?:\\+%\\}|-%\\}[${SPACE}]*|%\\}\\n?)`, "y");
const END_BLOCK = new RegExp(`\\+%\\}|-%\\}[${SPACE}]*|%\\}\\n?`, "y");
const END_VARIABLE = new RegExp(`-\\}\\}[${SPACE}]*|\\}\\}`, "y");
const END_COMMENT = new RegExp(`\\+#\\}|-#\\}[${SPACE}]*|#\\}\\n?`, "y");

const CLOSING: Readonly<Record<string, string>> = { "(": ")", "[": "]", "{": "}" };

/** Tokenizes one template. */
class Lexer {
  readonly #source: string;
  readonly #tokens: Token[] = [];
  #at = 0;
  #line = 1;
  /** Whether the text before the current position ends with a newline. */
  #lineStarts = true;

  constructor(source: string) {
    // Newlines are normalized, and the last one is removed.
    this.#source = source.replace(/\r\n?/g, "\n").replace(/\n$/, "");
  }

  read(): Token[] {
    while (this.#at < this.#source.length) this.#readData();
    this.#push("end of template", "");
    return this.#tokens;
  }

  #push(kind: string, value: Token["value"]): void {
    this.#tokens.push({ kind, value, line: this.#line });
  }

  /** Moves to `end`. */
  #advance(end: number): void {
    for (let n = this.#at; n < end; n++) if (this.#source[n] === "\n") this.#line++;
    if (end > this.#at) this.#lineStarts = this.#source[end - 1] === "\n";
    this.#at = end;
  }

  #match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    return pattern.exec(this.#source);
  }

  /** Reads the text up to the next tag, and the tag. */
  #readData(): void {
    const start = this.#at;
    let open = start;
    while ((open = this.#source.indexOf("{", open)) >= 0 && !"{%#".includes(this.#source[open + 1] || " ")) open++;
    if (open < 0) {
      this.#push("data", this.#source.slice(start));
      this.#advance(this.#source.length);
      return;
    }
    const text = this.#source.slice(start, open);
    const lineStarts = this.#lineStarts;
    RAW.lastIndex = open;
    const raw = RAW.exec(this.#source);
    const kind = this.#source[open + 1];
    const sign = raw?.[1] ?? (/[-+]/.test(this.#source[open + 2] ?? "") ? this.#source[open + 2] : "");
    this.#pushData(text, sign, kind === "{" && raw === null, lineStarts);
    this.#advance(raw === null ? open + 2 + sign.length : open + raw[0].length);
    if (raw !== null) this.#readRaw();
    else if (kind === "#") this.#readComment();
    else this.#readTag(kind === "{" ? "{{" : "{%", kind === "{" ? "}}" : "%}", kind === "{" ? END_VARIABLE : END_BLOCK);
  }

  /** Adds the text before a tag: a minus strips white space; without a sign, the indentation of a block is removed. */
  #pushData(text: string, sign: string, variable: boolean, lineStarts: boolean): void {
    let kept = text;
    if (sign === "-") kept = strip(text, undefined, false, true);
    else if (sign === "" && !variable) {
      const line = text.lastIndexOf("\n") + 1;
      if ((line > 0 || lineStarts) && strip(text.slice(line), undefined, true, false) === "") {
        kept = text.slice(0, line);
      }
    }
    if (kept !== "") this.#push("data", kept);
  }

  #readRaw(): void {
    const start = this.#at;
    for (let open = start; (open = this.#source.indexOf("{%", open)) >= 0; open++) {
      END_RAW.lastIndex = open;
      const end = END_RAW.exec(this.#source);
      if (end === null) continue;
      this.#pushData(this.#source.slice(start, open), end[1], false, this.#lineStarts);
      this.#advance(open + end[0].length);
      return;
    }
    throw errorAt(this.#line, "missing end of raw directive");
  }

  #readComment(): void {
    const close = this.#source.indexOf("#}", this.#at);
    if (close < 0) throw errorAt(this.#line, "missing end of comment tag");
    END_COMMENT.lastIndex = close > this.#at && /[-+]/.test(this.#source[close - 1]) ? close - 1 : close;
    this.#advance(END_COMMENT.lastIndex + END_COMMENT.exec(this.#source)![0].length);
  }

  #readTag(open: string, close: string, end: RegExp): void {
    this.#push(open, "");
    const brackets: string[] = [];
    while (this.#at < this.#source.length) {
      const ended = brackets.length === 0 ? this.#match(end) : null;
      if (ended !== null) {
        this.#push(close, "");
        this.#advance(this.#at + ended[0].length);
        return;
      }
      this.#readToken(brackets);
    }
  }

  #readToken(brackets: string[]): void {
    const [white] = this.#match(WHITESPACE) ?? [];
    if (white !== undefined) return this.#advance(this.#at + white.length);
    for (const [kind, pattern] of [["float", FLOAT], ["integer", INTEGER], ["name", NAME]] as const) {
      const found = this.#match(pattern)?.[0];
      if (found === undefined) continue;
      this.#push(kind, this.#literal(kind, found));
      return this.#advance(this.#at + found.length);
    }
    const character = String.fromCodePoint(this.#source.codePointAt(this.#at)!);
    if (character === "'" || character === '"') return this.#readString(character);
    const operator = this.#match(OPERATORS)?.[0];
    if (operator === undefined) {
      if (/\P{ASCII}/u.test(character) && /[\p{L}\p{N}\p{M}]/u.test(character)) {
        throw new Unsupported(`line ${this.#line}: a non-ASCII name`);
      }
      throw errorAt(this.#line, `unexpected character ${JSON.stringify(character)}`);
    }
    if (operator in CLOSING) brackets.push(CLOSING[operator]);
    else if (")]}".includes(operator)) {
      const expected = brackets.pop();
      if (expected !== operator) {
        throw errorAt(
          this.#line,
          `unexpected '${operator}'${expected === undefined ? "" : `, expected '${expected}'`}`,
        );
      }
    }
    this.#push(operator, "");
    this.#advance(this.#at + operator.length);
  }

  #literal(kind: string, text: string): Token["value"] {
    if (kind === "name") {
      if (/^[0-9]/.test(text)) throw errorAt(this.#line, "invalid character in identifier");
      return text;
    }
    const value = kind === "integer" ? parseInteger(text, 0) : parseFloating(text);
    if (value === undefined) throw errorAt(this.#line, "invalid number");
    if (value === Infinity) throw new Unsupported(`line ${this.#line}: a number that is too large for a float`);
    return value;
  }

  #readString(quote: string): void {
    let end = this.#at + 1;
    while (end < this.#source.length && this.#source[end] !== quote) end += this.#source[end] === "\\" ? 2 : 1;
    if (end >= this.#source.length) throw errorAt(this.#line, `unexpected character ${JSON.stringify(quote)}`);
    this.#push("string", this.#unescape(this.#source.slice(this.#at + 1, end)));
    this.#advance(end + 1);
  }

  #unescape(text: string): string {
    return text.replace(ESCAPE, (escape, octal, hex2, hex4, hex8, other: string | undefined) => {
      const code = octal !== undefined ? parseInt(octal, 8) : parseInt(hex2 ?? hex4 ?? hex8, 16);
      if (other === undefined) {
        if (code > 0x10ffff) throw errorAt(this.#line, "illegal Unicode character");
        if (code >= 0xd800 && code < 0xe000) throw new Unsupported(`line ${this.#line}: the surrogate ${escape}`);
        return String.fromCodePoint(code);
      }
      if (Object.hasOwn(SIMPLE, other)) return SIMPLE[other];
      if ("xuU".includes(other)) throw errorAt(this.#line, `truncated \\${other} escape`);
      if (other === "N") throw new Unsupported(`line ${this.#line}: the escape \\N`);
      // Jinja2 escapes non-ASCII characters before it reads the escapes, so that this backslash escapes another one.
      return other > "\x7f" ? hexEscape(other.codePointAt(0)!) : escape;
    });
  }
}

const ESCAPE = /\\(?:([0-7]{1,3})|x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|(.))/gsu;

const SIMPLE: Readonly<Record<string, string>> = {
  "\n": "",
  "\\": "\\",
  "'": "'",
  '"': '"',
  a: "\x07",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
};

/** The tokens of a template. @throws {TemplateError} it is too long, or contains an invalid token */
export function tokenize(source: string): Token[] {
  if (source.length > MAX_TEMPLATE) throw new TemplateError(`has more than ${MAX_TEMPLATE} characters`);
  if (isBroken(source)) throw new TemplateError("contains a lone surrogate");
  return new Lexer(source).read();
}
