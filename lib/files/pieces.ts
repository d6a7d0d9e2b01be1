/**
 * A new file written piece by piece, in the order of its bytes.
 *
 * @module
 */

import { writeAt } from "./read.ts";
import type { NewFile } from "./new_files.ts";
import { sha256 } from "./node.ts";
import { pacer } from "./pace.ts";

/** Options of what writes a new file from one that is there. */
export interface WriteOptions {
  /** Replace files that are there. */
  readonly force: boolean;
  readonly signal?: AbortSignal;
  /** Called with the bytes of the new file that are written. */
  readonly progress?: (bytes: number) => void;
}

/**
 * Writes the pieces one after the other, and lets signals have their turn in between.
 *
 * @returns the file's SHA-256 in hexadecimal
 * @throws {SystemError} such as a full disk
 * @throws the reason of `signal`, once that is aborted
 */
export async function writePieces(
  { file, partial }: Pick<NewFile, "file" | "partial">,
  pieces: Iterable<Uint8Array>,
  { signal, progress }: Pick<WriteOptions, "signal" | "progress">,
): Promise<string> {
  const digest = await sha256();
  const pause = pacer(signal);
  let offset = 0;
  for (const bytes of pieces) {
    writeAt(file, partial, offset, bytes);
    digest.update(bytes);
    offset += bytes.length;
    progress?.(offset);
    await pause();
  }
  return digest.digest("hex");
}
