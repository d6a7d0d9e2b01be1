/**
 * The errors of the command line.
 *
 * @module
 */

import { resolve } from "@std/path/resolve";
import { CheckpointError, RabbitError } from "../errors.ts";

/** The command line is invalid. */
export class UsageError extends RabbitError {
  override name = "UsageError";
}

/** The checkpoint that `verify` checks is invalid, which is a result and no failure: the exit status is 1. */
export class NotSound extends RabbitError {
  override name = "NotSound";

  /** @param cause the error with its place */
  constructor(override readonly cause: CheckpointError) {
    super(cause.message, cause.code, { cause });
  }
}

/**
 * Runs work whose answer is "no" if a file of these is invalid: a directory with its files, or a file. That a file of
 * others is invalid is an error.
 *
 * @throws {NotSound}
 */
export async function answering<T>(
  files: readonly string[],
  others: readonly string[],
  work: () => T | Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof CheckpointError)) throw error;
    const found = `${resolve(error.place.path)}/`;
    const place = (paths: readonly string[]) =>
      Math.max(
        0,
        ...paths.map((path) => `${resolve(path)}/`).filter((path) => found.startsWith(path)).map((path) => path.length),
      );
    // One may be within the other.
    throw place(files) > place(others) ? new NotSound(error) : error;
  }
}

/** A signal interrupted the program. */
export class Interrupted extends RabbitError {
  override name = "Interrupted";

  /** @param status the exit status that a shell reports for the signal */
  constructor(signal: string, readonly status: number) {
    super(`interrupted by ${signal}; nothing was written`);
  }
}

/** The reader of a text on standard output has closed the pipe. The program ends, and this is not an error. */
export class ClosedPipe extends Error {
  override name = "ClosedPipe";
}
