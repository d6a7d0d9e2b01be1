/**
 * A new file written in parts, in the order of its bytes, and the digest of what is written.
 *
 * @module
 */

import { writeAt } from "./read.ts";
import type { NewFile } from "./new_files.ts";
import type { Hash } from "node:crypto";
import { pacer } from "../pace.ts";

/** A SHA-256 that is fed in parts (FIPS 180-4); the processor's instructions for it are used where it has them. */
export async function sha256(): Promise<Hash> {
  // Loaded when it is first needed: starting Node's library takes as long as reading a small model.
  const { createHash } = await import("node:crypto");
  return createHash("sha256");
}

/** Options of what writes a new file from one that is there. */
export interface WriteOptions {
  /** Replace files that are there. */
  readonly force: boolean;
  readonly signal?: AbortSignal;
  /** Called with the bytes of the new file that are written. */
  readonly progress?: (bytes: number) => void;
}

/**
 * Writes the parts one after the other, and lets signals have their turn in between.
 *
 * @returns the file's SHA-256 in hexadecimal
 * @throws {SystemError} such as a full disk
 * @throws the reason of `signal`, once that is aborted
 */
export async function writeParts(
  { file, partial }: Pick<NewFile, "file" | "partial">,
  parts: Iterable<Uint8Array>,
  { signal, progress }: Pick<WriteOptions, "signal" | "progress">,
): Promise<string> {
  const digest = await sha256();
  const pause = pacer(signal);
  let offset = 0;
  for (const bytes of parts) {
    writeAt(file, partial, offset, bytes);
    digest.update(bytes);
    offset += bytes.length;
    progress?.(offset);
    await pause();
  }
  return digest.digest("hex");
}
