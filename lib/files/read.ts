/**
 * Opens, reads and writes files. Errors name the file and the problem.
 *
 * @module
 */

import { CheckpointError, quote, SystemError, systemError } from "../errors.ts";
import { heldText, isHeld } from "./held.ts";
import { type FileInfo, isNotFound, system, type SystemFile } from "./system.ts";

/**
 * Opens a regular file, and returns its size and version (see {@link reopen}).
 *
 * @throws {CheckpointError} @throws {SystemError}
 */
export function openRegular(path: string): { file: SystemFile; bytes: number; version: string } {
  // Checked before opening, since opening a pipe would wait for a writer.
  if (!stat(path).isFile) throw new CheckpointError({ path }, "not a regular file");
  const file = openFile(path);
  const info = handleStat(file, path);
  return { file, bytes: info.size, version: versionOf(info) };
}

/** Identifies a file: the same for all names of one file. */
export function inodeOf({ dev, ino }: FileInfo): string {
  return `${dev}:${ino}`;
}

/** Identifies a file and its content, as far as the system reports changes. */
export function versionOf(info: FileInfo): string {
  return `${inodeOf(info)}:${info.size}:${info.mtime?.getTime()}`;
}

/**
 * Opens a file that was opened before.
 *
 * @param version its version then, from {@link openRegular}
 * @throws {SystemError} it has been replaced or modified
 */
export function reopen(path: string, version: string): SystemFile {
  checkUnchanged([{ path, version }]);
  const file = openFile(path);
  if (versionOf(handleStat(file, path)) === version) return file;
  file.close();
  throw changed(path);
}

/** Opens a new file again for writing. @throws {SystemError} another file is at its path, such as the target of a link */
export function reopenToWrite(path: string, inode: string): SystemFile {
  let file;
  try {
    file = system.open(path, "write");
  } catch (cause) {
    throw systemError(`cannot write ${path}`, cause, path);
  }
  if (inodeOf(handleStat(file, path)) === inode) return file;
  file.close();
  throw new SystemError(`cannot write ${path}: another process has put a different file there`, path);
}

/** Checks that files have not changed. @throws {SystemError} one has been replaced or modified */
export function checkUnchanged(files: Iterable<{ readonly path: string; readonly version: string }>): void {
  for (const { path, version } of files) {
    if (versionOf(stat(path)) !== version) throw changed(path);
  }
}

function changed(path: string): SystemError {
  return new SystemError(
    `cannot read ${path}: it was changed in the meantime; run the command again when nothing writes to it`,
    path,
  );
}

/** Opens a file for reading. @throws {SystemError} */
export function openFile(path: string): SystemFile {
  try {
    return system.open(path, "read");
  } catch (cause) {
    throw systemError(`cannot open ${path}`, cause, path);
  }
}

/**
 * Fills `into` with the bytes of the file at `offset`.
 *
 * @throws {CheckpointError} the file ends before `into` is full
 * @throws {SystemError} the system can't read it
 */
export function readAt(file: SystemFile, path: string, offset: number, into: Uint8Array): void {
  try {
    for (let done = 0; done < into.length;) {
      const n = file.readAt(offset + done, into.subarray(done));
      if (n === 0) {
        throw new CheckpointError(
          { path },
          `unexpected end of file at byte ${offset + done}, expected ${
            offset + into.length
          }; did it change while it was being read?`,
        );
      }
      done += n;
    }
  } catch (cause) {
    throw systemError(`cannot read ${path}`, cause, path);
  }
}

/** Writes all of `bytes` at `offset`. @throws {SystemError} such as a full disk */
export function writeAt(file: SystemFile, path: string, offset: number, bytes: Uint8Array): void {
  try {
    for (let done = 0; done < bytes.length;) done += file.writeAt(offset + done, bytes.subarray(done));
  } catch (cause) {
    throw systemError(`cannot write ${path}`, cause, path);
  }
}

/**
 * A whole text file of at most `limit` bytes, or a text in a file (held.ts).
 *
 * @throws {CheckpointError} not UTF-8 or too long
 * @throws {SystemError}
 */
export function readText(path: string, limit: number): string {
  const held = heldText(path);
  if (held !== undefined) return held;
  const { size } = stat(path);
  if (size > limit) throw new CheckpointError({ path }, `${size} bytes, the limit is ${limit}`);
  let bytes: Uint8Array;
  try {
    bytes = readWhole(path, size, limit);
  } catch (cause) {
    throw systemError(`cannot read ${path}`, cause, path);
  }
  try {
    // A byte order mark is kept as a character, as in Python.
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new CheckpointError({ path }, "not valid UTF-8");
  }
}

function readWhole(path: string, expected: number, limit: number): Uint8Array {
  using file = openFile(path);
  return readUpTo(file, path, expected, limit);
}

/** All bytes of a file; a pipe or a device does not say how many they are, and may never end. */
function readUpTo(file: SystemFile, path: string, expected: number, limit: number): Uint8Array {
  let bytes = new Uint8Array(Math.max(1 << 16, expected + 1));
  for (let done = 0;;) {
    const n = file.read(bytes.subarray(done));
    if (n === 0) return bytes.subarray(0, done);
    done += n;
    if (done > limit) throw new CheckpointError({ path }, `more than ${limit} bytes, the limit`);
    if (done < bytes.length) continue;
    const more = new Uint8Array(2 * done);
    more.set(bytes);
    bytes = more;
  }
}

/** All bytes of a regular file of at most `limit` bytes. @throws {CheckpointError} @throws {SystemError} */
export function readRegular(path: string, limit: number): Uint8Array {
  const { file: opened, bytes } = openRegular(path);
  using file = opened;
  try {
    return readUpTo(file, path, Math.min(bytes, limit), limit);
  } catch (cause) {
    throw systemError(`cannot read ${path}`, cause, path);
  }
}

/** Whether a regular file begins with these bytes. @throws {CheckpointError} not a regular file @throws {SystemError} */
export function beginsWith(path: string, bytes: Uint8Array): boolean {
  const opened = openRegular(path);
  using file = opened.file;
  if (opened.bytes < bytes.length) return false;
  const start = new Uint8Array(bytes.length);
  readAt(file, path, 0, start);
  return start.every((byte, n) => byte === bytes[n]);
}

/** Whether a file or directory, or a text in a file, exists, following links. @throws {SystemError} it can't be determined */
export function exists(path: string): boolean {
  try {
    const held = isHeld(path);
    if (held === undefined) system.stat(path);
    return held ?? true;
  } catch (cause) {
    if (isNotFound(cause)) return false;
    throw systemError(`cannot read ${path}`, cause, path);
  }
}

/** The status of a path, following links. @throws {SystemError} it does not exist, or can't be determined */
export function stat(path: string): FileInfo {
  try {
    return system.stat(path);
  } catch (cause) {
    if (isNotFound(cause) && linkStat(path)?.isSymlink) {
      throw new SystemError(
        `cannot open ${path}: it is a link to ${quote(system.readLink(path))}, which does not exist`,
        path,
      );
    }
    throw systemError(`cannot open ${path}`, cause, path);
  }
}

/** The status of a path, without following links; undefined if it does not exist. @throws {SystemError} it can't be determined */
export function linkStat(path: string): FileInfo | undefined {
  try {
    return system.linkStat(path);
  } catch (cause) {
    if (isNotFound(cause)) return undefined;
    throw systemError(`cannot read ${path}`, cause, path);
  }
}

/** The status of an open file. @throws {SystemError} */
export function handleStat(file: SystemFile, path: string): FileInfo {
  try {
    return file.stat();
  } catch (cause) {
    throw systemError(`cannot read ${path}`, cause, path);
  }
}

/** The path with all links resolved. @throws {SystemError} */
export function realPath(path: string): string {
  try {
    return system.realPath(path);
  } catch (cause) {
    throw systemError(`cannot read ${path}`, cause, path);
  }
}

/** Whether two paths name the same file or directory, following links; false if one does not exist. */
export function sameFile(a: string, b: string): boolean {
  if (!exists(a) || !exists(b)) return false;
  const [x, y] = [stat(a), stat(b)];
  return x.ino !== null && x.ino === y.ino && x.dev === y.dev || realPath(a) === realPath(b);
}
