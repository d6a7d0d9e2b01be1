/**
 * Fields of an untrusted JSON file: each is read as a type, and an error names the field.
 *
 * @module
 */

import { CheckpointError, quote } from "../errors.ts";
import { readJsonObject } from "../format/json.ts";

/** A field is missing, has the wrong type, or is not supported: the file, the field (`model.merges[3]`) and the problem. */
export class FieldError extends Error {
  override name = "FieldError";

  constructor(readonly path: string, readonly field: string, readonly problem: string) {
    super(`${path}: ${field}: ${problem}`);
  }

  /** The error to show to a user. @param remedy what to do about it */
  named(remedy?: string): CheckpointError {
    const problem = remedy === undefined ? this.problem : `${this.problem}; ${remedy}`;
    return new CheckpointError({ path: this.path, field: this.field || undefined }, problem);
  }
}

/** A value and where it is. */
export class Field {
  constructor(readonly path: string, readonly name: string, readonly value: unknown) {}

  /** @throws {CheckpointError} the file is not a JSON object @throws {SystemError} */
  static ofFile(path: string, limit: number): Field {
    return new Field(path, "", readJsonObject(path, limit));
  }

  /** @throws {FieldError} always */
  refuse(problem: string): never {
    throw new FieldError(this.path, this.name, problem);
  }

  /** Whether it is missing or null; most fields of a tokenizer treat both alike. */
  get absent(): boolean {
    return this.value === undefined || this.value === null;
  }

  /** A field of this object, which may be missing. @throws {FieldError} this is not an object */
  get(key: string): Field {
    const object = this.object();
    // A key may be any string.
    const plain = /^\w{1,60}$/.test(key);
    const name = !plain ? `${this.name}[${quote(key)}]` : this.name === "" ? key : `${this.name}.${key}`;
    return new Field(this.path, name, Object.hasOwn(object, key) ? object[key] : undefined);
  }

  /** @throws {FieldError} it is not an object */
  object(): Readonly<Record<string, unknown>> {
    const { value } = this;
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
    return this.#mismatch("an object");
  }

  /** The fields of an object, by key. @throws {FieldError} it is not an object */
  entries(): [string, Field][] {
    return Object.keys(this.object()).map((key) => [key, this.get(key)]);
  }

  /** @throws {FieldError} it is not a list */
  list(): Field[] {
    return this.rawList().map((value, n) => new Field(this.path, `${this.name}[${n}]`, value));
  }

  /** The same as plain values, for a long list. @throws {FieldError} it is not a list */
  rawList(): readonly unknown[] {
    return Array.isArray(this.value) ? this.value : this.#mismatch("a list");
  }

  /** @throws {FieldError} it is not a string, or contains a lone surrogate */
  text(): string {
    if (typeof this.value !== "string") return this.#mismatch("a string");
    if (!this.value.isWellFormed()) this.refuse("contains a lone surrogate");
    return this.value;
  }

  /** A string of one character. @throws {FieldError} */
  character(): string {
    const text = this.text();
    return Array.from(text).length === 1 ? text : this.refuse(`expected one character, found ${this}`);
  }

  /** @param otherwise the value of a missing field; without it the field is required @throws {FieldError} it is not a boolean */
  flag(otherwise?: boolean): boolean {
    if (this.absent && otherwise !== undefined) return otherwise;
    return typeof this.value === "boolean" ? this.value : this.#mismatch("true or false");
  }

  /** A whole number of at least 0. @throws {FieldError} */
  count(): number {
    const { value } = this;
    return Number.isSafeInteger(value) && (value as number) >= 0
      ? value as number
      : this.#mismatch("a whole number of at least 0");
  }

  /** The value as messages show it. */
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
 * Runs an action, and turns a {@link FieldError} into the error to show to a user.
 *
 * @param remedy what to do about it
 * @throws {CheckpointError} the action threw a FieldError
 */
export function naming<T>(action: () => T, remedy?: string): T {
  try {
    return action();
  } catch (error) {
    throw error instanceof FieldError ? error.named(remedy) : error;
  }
}
