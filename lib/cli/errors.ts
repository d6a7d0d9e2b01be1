/**
 * The errors of the command line.
 *
 * @module
 */

import { type CheckpointError, RabbitError } from "../errors.ts";

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
