/**
 * Words errors for the command line: one line, or with `--json` one JSON object.
 *
 * @module
 */

import {
  CheckpointError,
  type Code,
  LimitError,
  NumericError,
  orSystemError,
  RabbitError,
  Refusal,
  SystemError,
} from "../errors.ts";
import { ClosedPipe, Interrupted, NotSound } from "./errors.ts";

/** The remedies that are flags, by the code of an error. */
const ADVICE: Readonly<Partial<Record<Code, string>>> = {
  exists: "--force replaces it",
  memory: "give a larger --memory if there is more",
  overflow: "use --dtype f32",
  "unknown-split": "if it has one, give it with --pre",
  "chat-template": "give --prompt the whole text of the conversation, without --chat",
};

/** The kinds of errors under their names in `--json`. Any other error is a bug, "internal". */
const KINDS = [
  [NotSound, "checkpoint"],
  [CheckpointError, "checkpoint"],
  [SystemError, "system"],
  [Refusal, "output"],
  [LimitError, "limit"],
  [NumericError, "numeric"],
  [Interrupted, "interrupted"],
  // The command line's own, and what the library refuses of what it is given.
  [RabbitError, "usage"],
] as const;

/** An error as the command line reports it. */
export interface Complaint {
  readonly kind: typeof KINDS[number][1] | "internal";
  readonly file?: string;
  readonly tensor?: string;
  readonly field?: string;
  /** The whole message, on one line. */
  readonly message: string;
  /** What to do, or what is required: the part of the message after its last semicolon. */
  readonly advice?: string;
}

/** Words an error. */
export function complaintOf(thrown: unknown): Complaint {
  const error = orSystemError(thrown);
  const kind = KINDS.find(([kind]) => error instanceof kind)?.[1] ?? "internal";
  const text = error instanceof Error ? error.message : String(error);
  if (!(error instanceof RabbitError)) {
    return { kind, message: `internal error, please report it: ${text}`, advice: "please report it" };
  }
  const advice = adviceOf(error);
  const place = placeOf(error);
  return advice === undefined
    ? { kind, ...place, message: text, advice: lastPart(text, place.file) }
    : { kind, ...place, message: `${text}; ${advice}`, advice };
}

/** The part after the last semicolon that is not in a path or a quoted name. */
function lastPart(text: string, path: string | undefined): string | undefined {
  const begin = path === undefined ? 0 : text.lastIndexOf(path) + path.length;
  const words = text.slice(begin).replace(/"(?:[^"\\]|\\.)*"/g, (name) => "_".repeat(name.length));
  const at = words.lastIndexOf("; ");
  return at < 0 ? undefined : text.slice(begin + at + 2);
}

function adviceOf(error: RabbitError): string | undefined {
  // A command that only reads an incomplete checkpoint throws another error, and has no --force.
  if (error instanceof Refusal && error.code === "incomplete") return "--force writes it again";
  return error.code && ADVICE[error.code];
}

function placeOf(error: RabbitError): { file?: string; tensor?: string; field?: string } {
  const cause = error instanceof NotSound ? error.cause : error;
  if (cause instanceof CheckpointError) {
    const { path, tensor, field } = cause.place;
    return { file: path, tensor, field };
  }
  return cause instanceof SystemError || cause instanceof Refusal ? { file: cause.path } : {};
}

/** The exit status of an error. */
export function statusOf(thrown: unknown): number {
  if (thrown instanceof ClosedPipe) return 0;
  if (thrown instanceof Interrupted) return thrown.status;
  return thrown instanceof NotSound ? 1 : 2;
}
