/**
 * What is refused, and how: an error of one line.
 *
 * @module
 */

import { assertEquals, assertThrows } from "@std/assert";
import { CheckpointError } from "../../lib/errors.ts";

/** A class of errors. */
// deno-lint-ignore no-explicit-any
type ErrorClass = abstract new (...args: any[]) => Error;

/** `action` must be refused with exactly this message. @returns the error */
export function assertRefused<E extends ErrorClass = typeof CheckpointError>(
  action: () => unknown,
  message: string,
  type: E = CheckpointError as unknown as E,
  what?: string,
): InstanceType<E> {
  const error = assertThrows(action, type, undefined, what) as InstanceType<E>;
  assertEquals(error.message, message, what);
  return error;
}

/** What `action` gives, or undefined where it is refused in one line. @throws {Error} all other errors */
export function attempt<T>(action: () => T, ...types: ErrorClass[]): T | undefined {
  try {
    return action();
  } catch (error) {
    checkRefusal(error, ...types);
    return undefined;
  }
}

/** @throws {Error} if an error is not of these classes (CheckpointError), or not one line of a sane length */
export function checkRefusal(error: unknown, ...types: ErrorClass[]): void {
  const classes = types.length > 0 ? types : [CheckpointError];
  const right = classes.some((type) => error instanceof type);
  if (!right || /\p{Cc}/u.test((error as Error).message) || (error as Error).message.length > 2000) throw error;
}
