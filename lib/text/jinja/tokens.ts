/**
 * The tokens of a template, for its parsers.
 *
 * @module
 */

import { errorAt, type Token, tokenize } from "./lexer.ts";

/** How deep tags and expressions may be nested: Python's own recursion limit ends a few dozen levels deep. */
const MAX_DEPTH = 100;

/** Goes through the tokens of a template. */
export class Tokens {
  readonly #list: readonly Token[];
  #at = 0;
  #depth = 0;
  /** The tags that are open. */
  readonly open: string[] = [];

  /** @throws {TemplateError} it has no tokens of a template */
  constructor(source: string) {
    this.#list = tokenize(source);
  }

  /** The token behind the one at hand. */
  get following(): Token {
    return this.#list[Math.min(this.#at + 1, this.#list.length - 1)];
  }

  /** The token at hand. */
  get token(): Token {
    return this.#list[this.#at];
  }

  /** The token at hand, which is taken. */
  next(): Token {
    const token = this.token;
    if (this.#at < this.#list.length - 1) this.#at++;
    return token;
  }

  /** Whether the token at hand is of this kind, and has this value. */
  is(kind: string, value?: string): boolean {
    return this.token.kind === kind && (value === undefined || this.token.value === value);
  }

  /** Whether the token at hand is one of these names. */
  isName(...names: string[]): boolean {
    return this.token.kind === "name" && names.includes(this.token.value as string);
  }

  /** Takes the token at hand if it is this one. @returns whether it was */
  skip(kind: string, value?: string): boolean {
    const found = this.is(kind, value);
    if (found) this.next();
    return found;
  }

  /** Takes the token at hand. @throws {TemplateError} it is another one */
  expect(kind: string, value?: string): Token {
    if (!this.is(kind, value)) this.fail(`expected ${value ?? kind}, found ${this.found()}`);
    return this.next();
  }

  /** The token at hand, for messages. */
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

  /** Runs one level of recursion. */
  nested<T>(parse: () => T): T {
    if (++this.#depth > MAX_DEPTH) this.fail(`is nested deeper than ${MAX_DEPTH} levels`);
    const result = parse();
    this.#depth--;
    return result;
  }
}
