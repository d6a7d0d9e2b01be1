/**
 * The digests of files that exist.
 *
 * @module
 */

import { basename } from "@std/path/basename";
import { readAt, reopen } from "../files/read.ts";
import { sha256 } from "../files/write.ts";
import type { Checkpoint } from "../format/checkpoint.ts";
import type { FileDigest } from "../format/quantization.ts";
import { pacer } from "../pace.ts";

/** Bytes that are read at once. */
const PIECE = 1 << 22;

/**
 * The SHA-256 of each file of a checkpoint.
 *
 * @throws {SystemError} a file can't be read, or was changed
 * @throws the reason of `signal`
 */
export async function fileDigests({ files }: Checkpoint, signal?: AbortSignal): Promise<FileDigest[]> {
  const pause = pacer(signal);
  const piece = new Uint8Array(PIECE);
  const digests: FileDigest[] = [];
  for (const { path, version, bytes } of files) {
    using file = reopen(path, version);
    const hash = await sha256();
    for (let at = 0; at < bytes; at += PIECE) {
      const part = piece.subarray(0, Math.min(PIECE, bytes - at));
      readAt(file, path, at, part);
      hash.update(part);
      await pause();
    }
    digests.push({ file: basename(path), sha256: hash.digest("hex") });
  }
  return digests;
}
