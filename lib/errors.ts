/**
 * The errors that the library raises on purpose, and how messages show text from files. Each is a RabbitError:
 * CheckpointError, SystemError, Refusal, LimitError or NumericError; the command line adds its own (lib/cli/errors.ts).
 * JsonError, UnknownRule, BadScale and BlockRefusal know no file: the module that does makes a CheckpointError of them. Any
 * other error that reaches main.ts is a defect.
 *
 * No message names a flag: where what to do depends on how the program was called, the error has a code, and the caller
 * says it.
 *
 * @module
 */

/** Where in a checkpoint a fault lies; every part that is known is named in the message. */
export interface Place {
  /** The file. */
  path: string;
  /** The tensor. */
  tensor?: string;
  /** The header field, config field, or `scale` for a block's scale. */
  field?: string;
}

/**
 * Characters that a terminal acts on, that reorder or break the text around them, or that are invisible: control
 * characters, line and paragraph separators, bidirectional controls, zero width characters and the like, lone surrogates.
 */
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Default_Ignorable_Code_Point}]/gu;

/**
 * The text with such characters written as \uXXXX, one escape for each UTF-16 unit, as in JSON. In a JSON text they can
 * only occur within strings, whose values stay the same.
 *
 * @param keep characters that stay as they are
 */
export function visible(text: string, keep = ""): string {
  return text.replace(HIDDEN, (c) => keep.includes(c) ? c : c.replace(/[^]/g, escapeUnit));
}

function escapeUnit(unit: string): string {
  return "\\u" + unit.charCodeAt(0).toString(16).padStart(4, "0");
}

/** More of a name is not shown. */
const MAX_NAME = 200;

/** A name from a file, quoted so that a message stays short and on one line whatever the name holds. */
export function quote(text: string): string {
  const short = text.length > MAX_NAME ? text.slice(0, MAX_NAME).replace(/[\ud800-\udbff]$/, "") + "…" : text;
  return visible(JSON.stringify(short));
}

/** What stands in the way, for a caller that has a remedy: an option of a function, or a flag. */
export type Code =
  /** A file with the name of a new one exists: replacing it has to be asked for (`force`). */
  | "exists"
  /** A write of the checkpoint was interrupted: it can be written again (`force`), or removed. */
  | "incomplete"
  /** The output is the source, or a file of it. */
  | "source"
  /** The output directory holds a sharded checkpoint, which the new one would be mixed with. */
  | "sharded"
  /** The output directory has a file of a checkpoint that the new one lacks. */
  | "stale"
  /** Something else than a file has the name of a new one. */
  | "not-a-file"
  /** A weight is too large for the dtype that an import was asked for; F32 holds it. */
  | "overflow"
  /** rabbit does not know llama.cpp's name for how the tokenizer splits a text (`pre`). */
  | "unknown-split"
  /** The chat template does not end, or uses what is not supported: the prompt can be given as the template's text. */
  | "chat-template";

/** An error that the library, or the command line, raises on purpose: one line that says what is wrong. */
export class RabbitError extends Error {
  /** The name of the class. */
  override name = "RabbitError";

  /**
   * One line.
   *
   * @param code what a caller may have a remedy for
   */
  constructor(message: string, readonly code?: Code, options?: ErrorOptions) {
    super(message, options);
  }
}

/** The file is bad (or not what the command needs): trying again will not help. */
export class CheckpointError extends RabbitError {
  /** The name of the class. */
  override name = "CheckpointError";
  /** Where the fault is. */
  readonly place: Place;

  /** The message reads `path: tensor "name": field: problem`. */
  constructor(place: Place, problem: string, code?: Code) {
    const parts = [place.path];
    if (place.tensor !== undefined) parts.push(`tensor ${quote(place.tensor)}`);
    if (place.field !== undefined) parts.push(place.field);
    super([...parts, problem].join(": "), code);
    this.place = place;
  }
}

/** A new file or checkpoint can't be written where it was asked for, because of what is there. */
export class Refusal extends RabbitError {
  /** The name of the class. */
  override name = "Refusal";

  /**
   * Why an output is refused.
   *
   * @param path what is there
   */
  constructor(override readonly code: Code, readonly path: string, problem: string) {
    super(problem, code);
  }
}

/** More is asked for than the model or the memory has room for. */
export class LimitError extends RabbitError {
  /** The name of the class. */
  override name = "LimitError";
}

/** A computation gave a value that is not finite, from which nothing follows. */
export class NumericError extends RabbitError {
  /** The name of the class. */
  override name = "NumericError";
}

/** The system refused (no such file, disk full, no permission): what was tried, on what, and why it failed. */
export class SystemError extends RabbitError {
  /** The name of the class. */
  override name = "SystemError";

  /**
   * What was tried, and why it failed.
   *
   * @param path the file or directory, where it is one
   */
  constructor(message: string, readonly path?: string, options?: ErrorOptions) {
    super(message, undefined, options);
  }
}

/**
 * Turns what the system throws for a failed file operation into a SystemError that says what was tried.
 *
 * @param action such as `cannot open model.safetensors`
 * @param path the file or directory that it names
 */
export function systemError(action: string, cause: unknown, path?: string): Error {
  if (cause instanceof SystemError || cause instanceof CheckpointError) return cause;
  const text = cause instanceof Error ? cause.message : String(cause);
  const known: [RegExp, string][] = [
    [/os error 28\b|ENOSPC|storage full/i, "no space left on the device; free some space or write elsewhere"],
    [/os error 2\b|ENOENT/, "no such file or directory"],
    [/os error 20\b|ENOTDIR/, "a part of the path is not a directory"],
    [/os error 21\b|EISDIR/, "it is a directory"],
    [/os error 13\b|os error 1\b|EACCES|EPERM/, "permission denied"],
    [/os error 30\b|EROFS/, "the file system is read-only"],
    [/os error 122\b|EDQUOT/, "the disk quota is used up"],
    [
      /os error 27\b|EFBIG/,
      "the file would be larger than the file system or the limit of the process (ulimit -f) allows",
    ],
    [/os error 23\b|os error 24\b|ENFILE|EMFILE/, "too many open files; raise the limit (ulimit -n)"],
    [/os error 40\b|ELOOP/, "too many levels of symbolic links"],
    [/os error 36\b|ENAMETOOLONG/, "the name is too long"],
    [/os error 17\b|EEXIST/, "it exists already"],
    // Of /dev, /proc and /sys Deno lets a program use little that may not do everything.
    [/^Requires \w+ access to /, "the program is not permitted to use it; standard input is /dev/fd/0"],
  ];
  const reason = known.find(([pattern]) => pattern.test(text))?.[1] ?? text.split("\n")[0];
  return new SystemError(`${action}: ${reason}`, path, { cause });
}

/** What the system refused where nobody said what was tried; any other error as it is. */
export function orSystemError(error: unknown): unknown {
  const refused = !(error instanceof RabbitError) && error instanceof Error && /\(os error \d+\)/.test(error.message);
  return refused ? systemError("the system refused", error) : error;
}
