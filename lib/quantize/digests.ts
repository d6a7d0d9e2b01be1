/**
 * The digests of files that exist.
 *
 * @module
 */

import { basename } from "@std/path/basename";
import { readAt, reopen } from "../files/read.ts";
import type { SystemFile } from "../files/system.ts";
import { sha256 } from "../files/write.ts";
import type { Checkpoint } from "../format/checkpoint.ts";
import type { FileDigest } from "../format/quantization.ts";
import { pacer, type Watch } from "../pace.ts";

/** Bytes that are read at once. */
const PIECE = 1 << 22;

/**
 * The SHA-256 of each file of a checkpoint.
 *
 * @throws {SystemError} a file can't be read, or was changed
 * @throws the reason of `signal`
 */
export async function fileDigests({ files }: Checkpoint, signal?: AbortSignal): Promise<FileDigest[]> {
  const digests: FileDigest[] = [];
  for (const { path, version, bytes } of files) {
    using file = reopen(path, version);
    digests.push({ file: basename(path), sha256: await digestOf({ file, path, bytes }, { signal }) });
  }
  return digests;
}

/**
 * The SHA-256 of an open file, in hexadecimal.
 *
 * @param opened the file, its path for messages, and how many bytes it has
 * @param watch progress counts the bytes
 * @throws {SystemError} the file can't be read
 * @throws the reason of the signal
 */
export async function digestOf(
  { file, path, bytes }: { readonly file: SystemFile; readonly path: string; readonly bytes: number },
  { signal, progress }: Watch,
): Promise<string> {
  const pause = pacer(signal);
  const hash = await sha256();
  const piece = new Uint8Array(PIECE);
  for (let at = 0; at < bytes; at += PIECE) {
    const part = piece.subarray(0, Math.min(PIECE, bytes - at));
    readAt(file, path, at, part);
    hash.update(part);
    progress?.(at + part.length, bytes);
    await pause();
  }
  return hash.digest("hex");
}
