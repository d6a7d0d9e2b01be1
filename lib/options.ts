/**
 * Checks arguments of the library, which code without types can get wrong.
 *
 * @module
 */

import { quote } from "./errors.ts";

/** All names of the options of a function. */
export type Names<Options> = Readonly<Record<keyof Options, true>>;

/** The names of the options of {@link Watch}. */
export const WATCH = { signal: true, progress: true } as const;

/**
 * Checks the options of a function.
 *
 * @param name the function
 * @throws {TypeError} they are no object, or have an unknown name
 */
export function checkOptions<Options>(name: string, options: Options, known: Names<Options>): void {
  if (typeof options !== "object" || options === null) {
    throw new TypeError(`${name}: the options are ${kindOf(options)}, expected an object`);
  }
  const stray = Object.keys(options).find((key) => !Object.hasOwn(known, key));
  if (stray === undefined) return;
  throw new TypeError(`${name}: unknown option ${quote(stray)}; the options are ${Object.keys(known).join(", ")}`);
}

/** @throws {TypeError} an argument is no string */
export function checkString(name: string, value: unknown): void {
  if (typeof value !== "string") throw new TypeError(`${name} is ${kindOf(value)}, expected a string`);
}

/** @throws {TypeError} a path is no string or empty */
export function checkPath(name: string, path: unknown): void {
  checkString(name, path);
  if (path === "") throw new TypeError(`${name} is empty`);
}

/** @throws {RangeError} a number is not whole, or not from `least` to `most` */
export function checkWhole(name: string, value: number, least: number, most = Infinity): void {
  if (Number.isSafeInteger(value) && value >= least && value <= most) return;
  const range = most === Infinity ? `of at least ${least}` : `from ${least} to ${most}`;
  throw new RangeError(`${name} ${shown(value)}: expected a whole number ${range}`);
}

/** A wrong value for messages. */
function shown(value: unknown): string {
  return typeof value === "number" ? String(value) : kindOf(value);
}

function kindOf(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (typeof value === "string") return quote(value);
  return Array.isArray(value) ? "an array" : typeof value === "object" ? "an object" : `a ${typeof value}`;
}

/** Whether an argument is a plan or a checkpoint, and not a path. */
export function isOpen<T extends object>(from: T | string): from is T {
  return typeof from === "object" && from !== null;
}
