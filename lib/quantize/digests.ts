/**
 * The digests of files that exist.
 *
 * @module
 */

import type { Hash } from "node:crypto";
import { basename } from "@std/path/basename";
import { join } from "@std/path/join";
import { CheckpointError } from "../errors.ts";
import { readAt, reopen } from "../files/read.ts";
import type { SystemFile } from "../files/system.ts";
import { sha256 } from "../files/write.ts";
import { type Checkpoint, QUANTIZATION_FILE } from "../format/checkpoint.ts";
import type { FileDigest } from "../format/quantization.ts";
import { wholeHeader } from "../format/shards.ts";
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
 * Compares the source that quantization.json names with another one.
 *
 * @param said the files that it names
 * @param found the digests of the files of `source`, in their order
 * @throws {CheckpointError} the checkpoint was made from other files
 */
export function checkSourceFiles(
  { directory }: Checkpoint,
  said: readonly FileDigest[],
  source: Checkpoint,
  found: readonly FileDigest[],
): void {
  const place = { path: join(directory, QUANTIZATION_FILE), field: "source" };
  if (said.length !== found.length) {
    throw new CheckpointError(
      place,
      `the checkpoint was made from ${said.length} files, and ${source.directory} has ${found.length}; give its source`,
    );
  }
  const at = found.findIndex(({ sha256 }, n) => sha256 !== said[n].sha256);
  if (at < 0) return;
  throw new CheckpointError(
    place,
    `the checkpoint was made from a file with the SHA-256 ${said[at].sha256}, and ${source.files[at].path} has ` +
      `${found[at].sha256}; give its source`,
  );
}

/**
 * The SHA-256 of a quantized checkpoint as one file, in hexadecimal: of shards, the file that it is without them.
 *
 * @throws {CheckpointError} the shards declare no width
 * @throws {SystemError} a file can't be read, or was changed
 */
export async function checkpointDigest(checkpoint: Checkpoint): Promise<string> {
  const { files } = checkpoint;
  const hash = await sha256();
  if (files.length > 1) hash.update(wholeHeader(checkpoint));
  for (const { path, version, bytes, dataStart } of files) {
    using file = reopen(path, version);
    await hashBytes(hash, { file, path, begin: files.length > 1 ? dataStart : 0, bytes }, {});
  }
  return hash.digest("hex");
}

/**
 * The SHA-256 of an open file, in hexadecimal.
 *
 * @param opened the file, its path for messages, and how many bytes it has
 * @param watch progress counts the bytes
 * @throws {SystemError} the file can't be read
 * @throws the reason of the signal
 */
export async function digestOf(opened: Opened, watch: Watch): Promise<string> {
  const hash = await sha256();
  await hashBytes(hash, { ...opened, begin: 0 }, watch);
  return hash.digest("hex");
}

/** An open file. */
interface Opened {
  readonly file: SystemFile;
  readonly path: string;
  readonly bytes: number;
}

/** Adds the bytes of a file from `begin` on. */
async function hashBytes(
  hash: Hash,
  { file, path, begin, bytes }: Opened & { readonly begin: number },
  { signal, progress }: Watch,
): Promise<void> {
  const pause = pacer(signal);
  const piece = new Uint8Array(PIECE);
  for (let at = begin; at < bytes; at += PIECE) {
    const part = piece.subarray(0, Math.min(PIECE, bytes - at));
    readAt(file, path, at, part);
    hash.update(part);
    progress?.(at + part.length, bytes);
    await pause();
  }
}
