/**
 * The files of a checkpoint's directory, and the digests of files and tensors.
 *
 * @module
 */

import { basename } from "@std/path/basename";
import { dirname } from "@std/path/dirname";
import { join } from "@std/path/join";
import type { Hash } from "node:crypto";
import { CheckpointError, systemError } from "../errors.ts";
import { exists, linkStat, openRegular, readAt, realPath, reopen, stat } from "../files/read.ts";
import { system } from "../files/system.ts";
import { sha256 } from "../files/write.ts";
import type { Checkpoint } from "../format/checkpoint.ts";
import { pacer, type Watch } from "../pace.ts";
import { byParts, type NamedDigest } from "./statement.ts";

/** Bytes that are read at once. */
const PIECE = 1 << 22;

/**
 * The paths of all files of a directory, relative to it.
 *
 * @param ignored files and directories that are left out
 * @param links whether links to files are read as files
 * @throws {CheckpointError} a file is not a regular one
 * @throws {SystemError}
 */
export function filesIn(directory: string, ignored: readonly string[], links = false): string[] {
  const list = (folder: string): string[] =>
    namesIn(join(directory, folder)).flatMap((name) => {
      const relative = folder === "" ? name : `${folder}/${name}`;
      if (ignored.includes(relative)) return [];
      const path = join(directory, relative);
      let info = linkStat(path)!;
      if (info.isSymlink) {
        if (links) info = stat(path);
        if (!links || info.isDirectory) {
          throw new CheckpointError({ path }, "is a link, which statements do not cover; put the file itself there");
        }
      }
      if (info.isDirectory) return list(relative);
      if (!info.isFile) throw new CheckpointError({ path }, "not a regular file");
      return [relative];
    });
  return list("").sort(byParts);
}

function namesIn(path: string): string[] {
  try {
    return system.list(path).map(({ name }) => name);
  } catch (cause) {
    throw systemError(`cannot read ${path}`, cause, path);
  }
}

/** The path of a file relative to a directory that it is in, or undefined. The file need not exist. */
export function pathWithin(directory: string, path: string): string | undefined {
  const folder = dirname(path);
  if (!exists(folder)) return undefined;
  const [root, parent] = [directory, folder].map(realPath);
  const start = root === "/" ? root : `${root}/`;
  const full = join(parent, basename(path));
  return full.startsWith(start) ? full.slice(start.length) : undefined;
}

/** The digests of a directory. */
export interface Digests {
  /** Of every file, by its relative path. */
  readonly files: NamedDigest[];
  /** Of every tensor of the checkpoint, by its name. */
  readonly tensors: ReadonlyMap<string, string>;
}

/**
 * Computes the SHA-256 of files, and of the tensors of the weights among them.
 *
 * @param names the files, relative to the directory
 * @throws {SystemError} a file cannot be read, or was changed
 * @throws the reason of the signal
 */
export async function digestsOf(
  { directory, files: weights, tensors }: Checkpoint,
  names: readonly string[],
  { signal, progress }: Watch,
): Promise<Digests> {
  const pause = pacer(signal);
  const total = sizeOf(directory, names);
  let done = 0;
  const files: NamedDigest[] = [];
  const found = new Map<string, string>();
  for (const name of names) {
    const path = join(directory, name);
    const number = weights.findIndex((file) => basename(file.path) === name);
    const { file: opened, bytes } = number < 0 ? openRegular(path) : {
      file: reopen(weights[number].path, weights[number].version),
      bytes: weights[number].bytes,
    };
    using file = opened;
    const own = tensors.filter((tensor) => tensor.file === number).sort((a, b) => a.offset - b.offset);
    let next = 0;
    let hash: Hash | undefined;
    const whole = await sha256();
    for (let at = 0; at < bytes; at += PIECE) {
      const part = new Uint8Array(Math.min(PIECE, bytes - at));
      readAt(file, path, at, part);
      whole.update(part);
      const end = at + part.length;
      for (; next < own.length && own[next].offset <= end; next++) {
        const last = own[next].offset + own[next].bytes;
        hash ??= await sha256();
        hash.update(part.subarray(Math.max(0, own[next].offset - at), last - at));
        if (last > end) break;
        found.set(own[next].name, hash.digest("hex"));
        hash = undefined;
      }
      progress?.(done += part.length, total);
      await pause();
    }
    files.push({ name, sha256: whole.digest("hex") });
  }
  return { files, tensors: found };
}

/** The size of all files. */
export function sizeOf(directory: string, names: readonly string[]): number {
  return names.reduce((sum, name) => sum + stat(join(directory, name)).size, 0);
}
