/**
 * Writes a new file part by part, in the order of its bytes, and computes its digest.
 *
 * @module
 */

import { writeAt } from "./read.ts";
import type { NewFile } from "./new_files.ts";
import type { Hash } from "node:crypto";
import { pacer, type Watch } from "../pace.ts";

/** An incremental SHA-256 (FIPS 180-4), which uses the processor's instructions for it if there are any. */
export async function sha256(): Promise<Hash> {
  // Loaded on first use: loading Node's library takes as long as reading a small model.
  const { createHash } = await import("node:crypto");
  return createHash("sha256");
}

/** Options for writing a new file from an existing one; the progress is in bytes of the new file. */
export interface WriteOptions extends Watch {
  /** Overwrite existing files. */
  readonly force?: boolean;
}

/**
 * Writes the parts one after the other, and lets signals be handled in between.
 *
 * @param total bytes of all parts
 * @returns the file's SHA-256 in hexadecimal
 * @throws {SystemError} such as a full disk
 * @throws the reason of `signal`, once that is aborted
 */
export async function writeParts(
  { file, partial }: Pick<NewFile, "file" | "partial">,
  parts: Iterable<Uint8Array>,
  total: number,
  { signal, progress }: Watch,
): Promise<string> {
  const digest = await sha256();
  const pause = pacer(signal);
  let offset = 0;
  for (const bytes of parts) {
    writeAt(file, partial, offset, bytes);
    digest.update(bytes);
    offset += bytes.length;
    progress?.(offset, total);
    await pause();
  }
  return digest.digest("hex");
}
