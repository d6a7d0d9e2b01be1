/**
 * Reads the fields of JSON files that rabbit writes itself.
 *
 * @module
 */

import { CheckpointError, quote } from "../errors.ts";

/** Reads the fields of an object, and refuses values of another type by the field's name. */
export class JsonFields {
  /**
   * @param path the file, for messages
   * @param prefix the fields that lead to the object, for messages
   */
  constructor(readonly path: string, readonly json: Readonly<Record<string, unknown>>, readonly prefix: string = "") {}

  /** The error for a field. */
  fail(field: string, problem: string): CheckpointError {
    return new CheckpointError({ path: this.path, field: this.prefix + field }, problem);
  }

  #take<T>(field: string, wanted: string, good: (value: unknown) => value is T): T {
    const value = Object.hasOwn(this.json, field) ? this.json[field] : undefined;
    if (good(value)) return value;
    throw this.fail(field, `expected ${wanted}`);
  }

  /** Refuses other fields than these. */
  only(fields: readonly string[]): this {
    const stray = Object.keys(this.json).find((key) => !fields.includes(key));
    if (stray === undefined) return this;
    throw this.fail(quote(stray), "unknown field");
  }

  /** Whether there is such a field. */
  has(field: string): boolean {
    return Object.hasOwn(this.json, field);
  }

  /** A text. */
  text(field: string): string {
    return this.#take(field, "a text", (value) => typeof value === "string");
  }

  /** One of several texts. */
  word<T extends string>(field: string, words: readonly T[]): T {
    return this.#take(
      field,
      words.map((word) => word || '""').join(" or "),
      (value): value is T => words.includes(value as T),
    );
  }

  /** true or false. */
  flag(field: string): boolean {
    return this.#take(field, "true or false", (value) => typeof value === "boolean");
  }

  /** A SHA-256 in hexadecimal. */
  digest(field: string): string {
    const pattern = /^[0-9a-f]{64}$/;
    return this.#take(field, "64 hexadecimal digits", (value): value is string => {
      return typeof value === "string" && pattern.test(value);
    });
  }

  /** A whole number. */
  whole(field: string, least = 0, most?: number): number {
    return this.#take(
      field,
      most === undefined ? `a whole number of at least ${least}` : `a whole number from ${least} to ${most}`,
      (value): value is number => {
        return Number.isSafeInteger(value) && value as number >= least && value as number <= (most ?? Infinity);
      },
    );
  }

  /** A number. With a limit, 0 is not a value either. */
  number(field: string, most?: number): number {
    return this.#take(
      field,
      most === undefined ? "a number of at least 0" : `a number above 0, to ${most}`,
      (value): value is number => {
        return typeof value === "number" &&
          (most === undefined ? value >= 0 && value < Infinity : value > 0 && value <= most);
      },
    );
  }

  /** An object. */
  object(field: string): JsonFields {
    return new JsonFields(this.path, this.#take(field, "an object", isObject), `${this.prefix}${field} `);
  }

  /** An array of objects. */
  list(field: string): JsonFields[] {
    const list = this.#take(
      field,
      "an array of objects",
      (value): value is Record<string, unknown>[] => Array.isArray(value) && value.every(isObject),
    );
    return list.map((json, n) => new JsonFields(this.path, json, `${this.prefix}${field} ${n} `));
  }

  /** An array of texts. */
  texts(field: string): string[] {
    return this.#take(
      field,
      "an array of texts",
      (value): value is string[] => Array.isArray(value) && value.every((text) => typeof text === "string"),
    );
  }

  /** An array of whole numbers of at least 0. */
  wholes(field: string): number[] {
    return this.#take(
      field,
      "an array of whole numbers",
      (value): value is number[] => Array.isArray(value) && value.every((n) => Number.isSafeInteger(n) && n >= 0),
    );
  }
}

/** Whether a value of JSON is an object. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
