/**
 * The errors that the library throws on purpose, and how messages quote text from files. Each is a RabbitError:
 * CheckpointError, SystemError, Refusal, LimitError or NumericError; the command line adds its own (lib/cli/errors.ts).
 * JsonError, UnknownRule, BadScale and BlockRefusal have no path; a caller that knows the file converts them to a
 * CheckpointError. Any other error that reaches main.ts is a bug.
 *
 * No message names a flag: if the remedy depends on how the program was called, the error has a code, and the caller
 * adds the remedy.
 *
 * @module
 */

/** The place of an error in a checkpoint. The message names every part that is known. */
export interface Place {
  /** The file. */
  path: string;
  /** The tensor. */
  tensor?: string;
  /** The field of the header or of config.json, or `scale` for the scale of a block. */
  field?: string;
}

/**
 * Characters that control a terminal, reorder or break the text around them, or are invisible: control characters, line
 * and paragraph separators, bidirectional controls, zero width characters, lone surrogates and similar.
 */
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Default_Ignorable_Code_Point}]/gu;

/**
 * Escapes such characters as \uXXXX, one escape for each UTF-16 unit, as in JSON. In a JSON text they only occur within
 * strings, so its value does not change.
 *
 * @param keep characters that are not escaped
 */
export function visible(text: string, keep = ""): string {
  return text.replace(HIDDEN, (c) => keep.includes(c) ? c : c.replace(/[^]/g, escapeUnit));
}

function escapeUnit(unit: string): string {
  return "\\u" + unit.charCodeAt(0).toString(16).padStart(4, "0");
}

/** Longer names are truncated. */
const MAX_NAME = 200;

/** Quotes a name from a file. The result is short and has no line breaks, whatever the name contains. */
export function quote(text: string): string {
  const short = text.length > MAX_NAME ? text.slice(0, MAX_NAME).replace(/[\ud800-\udbff]$/, "") + "…" : text;
  return visible(JSON.stringify(short));
}

/** The reason of an error, for callers that can offer a remedy: an option of a function, or a flag. */
export type Code =
  /** An output file exists; `force` overwrites it. */
  | "exists"
  /** Writing the checkpoint was interrupted: write it again (`force`), or remove it. */
  | "incomplete"
  /** The output is the source, or a file of it. */
  | "source"
  /** The output directory contains a sharded checkpoint, which would be mixed with the new one. */
  | "sharded"
  /** The output directory has a file of a checkpoint that the new one lacks. */
  | "stale"
  /** The path of an output file exists and is not a file. */
  | "not-a-file"
  /** The path of an output directory exists and is not a directory. */
  | "not-a-directory"
  /** The work needs more memory than it may use: let it use more. */
  | "memory"
  /** A weight is too large for the requested dtype of an import; F32 can represent it. */
  | "overflow"
  /** rabbit does not know llama.cpp's name for the pre-tokenizer (`pre`). */
  | "unknown-split"
  /** The chat template does not terminate, or uses an unsupported feature: use its rendered text as the prompt. */
  | "chat-template";

/** An error that the library, or the command line, throws on purpose. Its message is one line. */
export class RabbitError extends Error {
  /** The name of the class. */
  override name = "RabbitError";

  /**
   * Creates an error.
   *
   * @param message one line
   * @param code the reason, if a caller may have a remedy
   */
  constructor(message: string, readonly code?: Code, options?: ErrorOptions) {
    super(message, options);
  }
}

/** A file is invalid, or is not what the command needs. Trying again does not help. */
export class CheckpointError extends RabbitError {
  /** The name of the class. */
  override name = "CheckpointError";
  /** The place of the error. */
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

/** An output cannot be written to the given path because of an existing file. */
export class Refusal extends RabbitError {
  /** The name of the class. */
  override name = "Refusal";

  /**
   * Creates an error.
   *
   * @param path the existing file or directory
   */
  constructor(override readonly code: Code, readonly path: string, problem: string) {
    super(problem, code);
  }
}

/** A request exceeds what the model or the memory allows. */
export class LimitError extends RabbitError {
  /** The name of the class. */
  override name = "LimitError";
}

/** The result of a computation is not finite. */
export class NumericError extends RabbitError {
  /** The name of the class. */
  override name = "NumericError";
}

/**
 * An operation of the system failed: no such file, disk full, permission denied. The message names it and the reason.
 */
export class SystemError extends RabbitError {
  /** The name of the class. */
  override name = "SystemError";

  /**
   * Creates an error.
   *
   * @param message the operation, and why it failed
   * @param path the file or directory, if any
   */
  constructor(message: string, readonly path?: string, options?: ErrorOptions) {
    super(message, undefined, options);
  }
}

/**
 * Converts the error of a failed operation of the system to a SystemError with a readable message.
 *
 * @param action the operation, such as `cannot open model.safetensors`
 * @param path the file or directory, if any
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
    // Without --allow-all, Deno denies access to most of /dev, /proc and /sys.
    [/^Requires \w+ access to /, "the program is not permitted to use it; standard input is /dev/fd/0"],
  ];
  const reason = known.find(([pattern]) => pattern.test(text))?.[1] ?? text.split("\n")[0];
  return new SystemError(`${action}: ${reason}`, path, { cause });
}

/** Converts an error of the system that no caller has converted; returns any other error unchanged. */
export function orSystemError(error: unknown): unknown {
  const refused = !(error instanceof RabbitError) && error instanceof Error && /\(os error \d+\)/.test(error.message);
  return refused ? systemError("the system refused", error) : error;
}
