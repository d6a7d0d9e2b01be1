/**
 * Values of a JSON file that a stranger wrote: each is asked for by its type, and an error names it.
 *
 * @module
 */

import { CheckpointError, quote } from "../errors.ts";
import { readJsonObject } from "../format/json.ts";

/** A value that is missing, of another type, or not supported: the file, where in it (`model.merges[3]`), and the problem. */
export class FieldError extends Error {
  override name = "FieldError";

  constructor(readonly path: string, readonly field: string, readonly problem: string) {
    super(`${path}: ${field}: ${problem}`);
  }

  /** The error that a user sees. @param remedy what to do about it */
  named(remedy?: string): CheckpointError {
    const problem = remedy === undefined ? this.problem : `${this.problem}; ${remedy}`;
    return new CheckpointError({ path: this.path, field: this.field || undefined }, problem);
  }
}

/** A value and its place. */
export class Field {
  constructor(readonly path: string, readonly name: string, readonly value: unknown) {}

  /** @throws {CheckpointError} the file is no JSON object @throws {SystemError} */
  static ofFile(path: string, limit: number): Field {
    return new Field(path, "", readJsonObject(path, limit));
  }

  /** @throws {FieldError} always */
  refuse(problem: string): never {
    throw new FieldError(this.path, this.name, problem);
  }

  /** Whether it is missing, or null, which most fields of a tokenizer mean by it. */
  get absent(): boolean {
    return this.value === undefined || this.value === null;
  }

  /** A field of an object; it may be missing. @throws {FieldError} this is no object */
  get(key: string): Field {
    const object = this.object();
    // A key may be any text.
    const plain = /^\w{1,60}$/.test(key);
    const name = !plain ? `${this.name}[${quote(key)}]` : this.name === "" ? key : `${this.name}.${key}`;
    return new Field(this.path, name, Object.hasOwn(object, key) ? object[key] : undefined);
  }

  /** @throws {FieldError} it is no object */
  object(): Readonly<Record<string, unknown>> {
    const { value } = this;
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
    return this.#mismatch("an object");
  }

  /** The values of an object, by their keys. @throws {FieldError} it is no object */
  entries(): [string, Field][] {
    return Object.keys(this.object()).map((key) => [key, this.get(key)]);
  }

  /** @throws {FieldError} it is no list */
  list(): Field[] {
    return this.rawList().map((value, n) => new Field(this.path, `${this.name}[${n}]`, value));
  }

  /** The values of a long list. @throws {FieldError} it is no list */
  rawList(): readonly unknown[] {
    return Array.isArray(this.value) ? this.value : this.#mismatch("a list");
  }

  /** @throws {FieldError} it is no text, or has half a character: a surrogate without its other one */
  text(): string {
    if (typeof this.value !== "string") return this.#mismatch("a text");
    if (!this.value.isWellFormed()) this.refuse("has a lone surrogate, which is no character");
    return this.value;
  }

  /** A text of one character. @throws {FieldError} */
  character(): string {
    const text = this.text();
    return Array.from(text).length === 1 ? text : this.refuse(`expected one character, found ${this}`);
  }

  /** @param otherwise what a missing one means; without it, it must be there @throws {FieldError} it is no boolean */
  flag(otherwise?: boolean): boolean {
    if (this.absent && otherwise !== undefined) return otherwise;
    return typeof this.value === "boolean" ? this.value : this.#mismatch("true or false");
  }

  /** A whole number of 0 and more. @throws {FieldError} */
  count(): number {
    const { value } = this;
    return Number.isSafeInteger(value) && (value as number) >= 0 ? value as number : this.#mismatch("a whole number");
  }

  /** How messages show it. */
  toString(): string {
    const { value } = this;
    if (typeof value === "object" && value !== null) return Array.isArray(value) ? "a list" : "an object";
    return typeof value === "string" ? quote(value) : String(value);
  }

  #mismatch(wanted: string): never {
    return this.refuse(this.value === undefined ? "is missing" : `expected ${wanted}, found ${this}`);
  }
}

/**
 * Runs an action; a field that it refuses becomes the error that a user sees.
 *
 * @param remedy what to do about it
 * @throws {CheckpointError} a field was refused
 */
export function naming<T>(action: () => T, remedy?: string): T {
  try {
    return action();
  } catch (error) {
    throw error instanceof FieldError ? error.named(remedy) : error;
  }
}
