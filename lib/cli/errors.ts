/**
 * The errors of the command line.
 *
 * @module
 */

import { type CheckpointError, RabbitError } from "../errors.ts";

/** The command line, or what it asks for, is wrong. */
export class UsageError extends RabbitError {
  override name = "UsageError";
}

/** The checkpoint breaks the format, which is the answer to the question of `verify`: exit status 1. */
export class NotSound extends RabbitError {
  override name = "NotSound";

  /** @param cause says where */
  constructor(override readonly cause: CheckpointError) {
    super(cause.message, cause.code, { cause });
  }
}

/** A signal asked the program to end. */
export class Interrupted extends RabbitError {
  override name = "Interrupted";

  /** @param status the exit status that a shell gives a program that died of the signal */
  constructor(signal: string, readonly status: number) {
    super(`interrupted by ${signal}; nothing was written`);
  }
}

/** The reader of standard output has gone: nothing is left to do, and nothing is wrong. */
export class ClosedPipe extends Error {
  override name = "ClosedPipe";
}
