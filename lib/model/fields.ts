/**
 * Reads the fields of config.json. Errors name the field.
 *
 * @module
 */

import { CheckpointError, quote } from "../errors.ts";

/** Formats a value for a message. */
export function show(value: unknown): string {
  if (typeof value === "string") return quote(value);
  // JSON.stringify writes null for an infinity, which JSON.parse returns for numbers such as 1e999.
  if (typeof value === "number") return String(value);
  const json = String(JSON.stringify(value));
  return json.length <= 80 ? json : `${json.slice(0, 80)}…`;
}

/** The ids of an `eos_token_id`, which is an id, a list of ids, or absent; undefined if it is invalid. */
export function idsOf(value: unknown): number[] | undefined {
  const ids = [value ?? []].flat();
  return ids.every((id) => Number.isSafeInteger(id)) ? ids as number[] : undefined;
}

/**
 * Reads fields of a JSON object. Null is a value and not an absent field: some classes refuse it, others give it a
 * meaning of its own.
 */
export class Fields {
  constructor(readonly path: string, readonly json: Record<string, unknown>, readonly prefix = "") {}

  get(field: string): unknown {
    return Object.hasOwn(this.json, field) ? this.json[field] : undefined;
  }

  fail(field: string, problem: string): never {
    const name = /^\w{1,80}$/.test(field) ? field : quote(field);
    throw new CheckpointError({ path: this.path, field: this.prefix + name }, problem);
  }

  #number(field: string, fallback: number | undefined, wanted: string, ok: (n: number) => boolean): number {
    const found = this.get(field);
    const value = found === undefined ? fallback : found;
    if (value === undefined) this.fail(field, "is missing");
    if (typeof value !== "number" || (value !== fallback && !ok(value))) {
      this.fail(field, `expected ${wanted}, found ${show(value)}`);
    }
    return value;
  }

  /** A whole number from 1 to `most` (default: 2^31 - 1). */
  count(field: string, fallback?: number, most?: number): number {
    const wanted = most === undefined ? "a whole number of at least 1" : `a whole number of 1 to ${most}`;
    return this.#number(
      field,
      fallback,
      wanted,
      (n) => Number.isSafeInteger(n) && n >= 1 && n <= (most ?? 2 ** 31 - 1),
    );
  }

  /** A whole number of at least 0. */
  whole(field: string, fallback: number): number {
    return this.#number(field, fallback, "a whole number of at least 0", (n) => Number.isSafeInteger(n) && n >= 0);
  }

  /** A number above 0, also after rounding to binary32, in which transformers computes. */
  positive(field: string, fallback?: number): number {
    return this.#number(field, fallback, "a number above 0", (n) => Math.fround(n) > 0 && Math.fround(n) < Infinity);
  }

  /** A number of at least 1 that is finite in binary32. */
  atLeastOne(field: string, fallback?: number): number {
    return this.#number(field, fallback, "a number of at least 1", (n) => n >= 1 && Math.fround(n) < Infinity);
  }

  /** A boolean; undefined if absent. */
  flag(field: string): boolean | undefined {
    const value = this.get(field);
    if (value === undefined) return undefined;
    if (typeof value !== "boolean") this.fail(field, `expected true or false, found ${show(value)}`);
    return value;
  }

  /** An object; undefined if absent or null. */
  object(field: string): Fields | undefined {
    const value = this.get(field);
    if (value === undefined || value === null) return undefined;
    if (typeof value !== "object" || Array.isArray(value)) this.fail(field, `expected an object, found ${show(value)}`);
    return new Fields(this.path, value as Record<string, unknown>, `${this.prefix}${field} `);
  }
}
