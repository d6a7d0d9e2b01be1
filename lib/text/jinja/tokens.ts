/**
 * The stream of tokens from which the parsers read.
 *
 * @module
 */

import { errorAt, type Token, tokenize } from "./lexer.ts";

/** The limit for nested tags and expressions. Python's recursion limit allows a few dozen levels. */
const MAX_DEPTH = 100;

/** The tokens of a template, and the position of the current one. */
export class Tokens {
  readonly #list: readonly Token[];
  #at = 0;
  #depth = 0;
  /** The names of the open tags. */
  readonly open: string[] = [];

  /** @throws {TemplateError} the template contains an invalid token */
  constructor(source: string) {
    this.#list = tokenize(source);
  }

  /** The token after the current one. */
  get following(): Token {
    return this.#list[Math.min(this.#at + 1, this.#list.length - 1)];
  }

  /** The current token. */
  get token(): Token {
    return this.#list[this.#at];
  }

  /** Consumes the current token, and returns it. */
  next(): Token {
    const token = this.token;
    if (this.#at < this.#list.length - 1) this.#at++;
    return token;
  }

  /** Whether the current token has this kind and value. */
  is(kind: string, value?: string): boolean {
    return this.token.kind === kind && (value === undefined || this.token.value === value);
  }

  /** Whether the current token is one of these names. */
  isName(...names: string[]): boolean {
    return this.token.kind === "name" && names.includes(this.token.value as string);
  }

  /** Consumes the current token if it is this one. @returns whether it was */
  skip(kind: string, value?: string): boolean {
    const found = this.is(kind, value);
    if (found) this.next();
    return found;
  }

  /** Consumes this token. @throws {TemplateError} the current token is another one */
  expect(kind: string, value?: string): Token {
    if (!this.is(kind, value)) this.fail(`expected ${value ?? kind}, found ${this.found()}`);
    return this.next();
  }

  /** The current token, for messages. */
  found(): string {
    const { kind, value } = this.token;
    return kind === "name" ? value as string : kind;
  }

  /** @throws {TemplateError} always */
  fail(problem: string, line = this.token.line): never {
    const open = this.open.at(-1);
    throw errorAt(
      line,
      open === undefined || !this.is("end of template") ? problem : `${problem}; ${open} is not closed`,
    );
  }

  /** Parses one level deeper. @throws {TemplateError} too deep */
  nested<T>(parse: () => T): T {
    if (++this.#depth > MAX_DEPTH) this.fail(`is nested deeper than ${MAX_DEPTH} levels`);
    const result = parse();
    this.#depth--;
    return result;
  }
}
