/**
 * Reads typed values of GGUF's metadata, and refuses values of another type.
 *
 * @module
 */

import { CheckpointError, quote } from "../errors.ts";
import { describe, type Metadata, type Scalar, type ValueType } from "./values.ts";

/** The shortest decimal that rounds to the same binary32: 1e-5 for 9.999999747378752e-6. */
export function shortest(x: number): number {
  for (let digits = 1; digits < 9; digits++) {
    const short = Number(x.toPrecision(digits));
    if (Math.fround(short) === x) return short;
  }
  return x;
}

/** Reads values of metadata whose keys begin with `prefix`. */
export class Keys {
  constructor(readonly path: string, readonly metadata: Metadata, readonly prefix: string) {}

  /** @throws {CheckpointError} */
  fail(key: string, problem: string): never {
    throw new CheckpointError({ path: this.path, field: `key ${quote(this.prefix + key)}` }, problem);
  }

  /** A scalar value. @throws {CheckpointError} it is an array */
  optional(key: string): { type: ValueType; value: Scalar } | undefined {
    const found = this.metadata.get(this.prefix + key);
    if (found === undefined || "value" in found) return found;
    return this.fail(key, `${describe(found)}; the decoder needs one value for all layers`);
  }

  /** An array of `type`. @throws {CheckpointError} it is of another type */
  list(key: string, type: ValueType): readonly Scalar[] | undefined {
    const found = this.metadata.get(this.prefix + key);
    if (found === undefined) return undefined;
    if ("values" in found && found.type === type) return Array.from(found.values);
    return this.fail(key, `expected an array of ${type}, found ${describe(found)}`);
  }

  /** @throws {CheckpointError} */
  string(key: string): string {
    const found = this.optional(key);
    if (found === undefined) this.fail(key, "is missing");
    if (typeof found.value !== "string") this.fail(key, `expected a string, found ${describe(found)}`);
    return found.value;
  }

  /** A whole number of at least 1. @throws {CheckpointError} */
  count(key: string, fallback?: number): number {
    const found = this.optional(key);
    const number = found?.value ?? fallback;
    if (number === undefined) this.fail(key, "is missing");
    if (typeof number !== "number" || !Number.isSafeInteger(number) || number < 1) {
      this.fail(key, `expected a whole number of at least 1, found ${found ? describe(found) : number}`);
    }
    return number;
  }

  /** A positive number, as the shortest decimal that rounds to the same binary32. @throws {CheckpointError} */
  float(key: string, fallback?: number): number {
    const found = this.optional(key);
    const number = found?.value ?? fallback;
    if (number === undefined) this.fail(key, "is missing");
    if (typeof number !== "number" || !(number > 0) || !Number.isFinite(number)) {
      this.fail(key, `expected a number above 0, found ${found ? describe(found) : number}`);
    }
    return shortest(number);
  }
}
