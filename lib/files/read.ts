/**
 * Opens, reads and writes files. Errors name the file and the problem.
 *
 * @module
 */

import { CheckpointError, quote, SystemError, systemError } from "../errors.ts";

/**
 * Opens a regular file, and returns its size and version (see {@link reopen}).
 *
 * @throws {CheckpointError} @throws {SystemError}
 */
export function openRegular(path: string): { file: Deno.FsFile; bytes: number; version: string } {
  // Checked before opening, since opening a pipe would wait for a writer.
  if (!stat(path).isFile) throw new CheckpointError({ path }, "not a regular file");
  const file = openFile(path);
  const info = handleStat(file, path);
  return { file, bytes: info.size, version: versionOf(info) };
}

/** Identifies a file: the same for all names of one file. */
export function inodeOf({ dev, ino }: Deno.FileInfo): string {
  return `${dev}:${ino}`;
}

/** Identifies a file and its content, as far as the system reports changes. */
export function versionOf(info: Deno.FileInfo): string {
  return `${inodeOf(info)}:${info.size}:${info.mtime?.getTime()}`;
}

/**
 * Opens a file that was opened before.
 *
 * @param version its version then, from {@link openRegular}
 * @throws {SystemError} it has been replaced or modified
 */
export function reopen(path: string, version: string): Deno.FsFile {
  checkUnchanged([{ path, version }]);
  const file = openFile(path);
  if (versionOf(handleStat(file, path)) === version) return file;
  file.close();
  throw changed(path);
}

/** Opens a new file again for writing. @throws {SystemError} another file is at its path, such as the target of a link */
export function reopenToWrite(path: string, inode: string): Deno.FsFile {
  let file;
  try {
    file = Deno.openSync(path, { write: true });
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
export function openFile(path: string): Deno.FsFile {
  try {
    return Deno.openSync(path);
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
export function readAt(file: Deno.FsFile, path: string, offset: number, into: Uint8Array): void {
  try {
    file.seekSync(offset, Deno.SeekMode.Start);
    for (let done = 0; done < into.length;) {
      const n = file.readSync(into.subarray(done));
      if (n === null) {
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
export function writeAt(file: Deno.FsFile, path: string, offset: number, bytes: Uint8Array): void {
  try {
    file.seekSync(offset, Deno.SeekMode.Start);
    for (let done = 0; done < bytes.length;) done += file.writeSync(bytes.subarray(done));
  } catch (cause) {
    throw systemError(`cannot write ${path}`, cause, path);
  }
}

/** A whole text file of at most `limit` bytes. @throws {CheckpointError} not UTF-8 or too long @throws {SystemError} */
export function readText(path: string, limit: number): string {
  const { size, isFile } = stat(path);
  if (size > limit) throw new CheckpointError({ path }, `${size} bytes, the limit is ${limit}`);
  let bytes: Uint8Array;
  try {
    bytes = isFile ? Deno.readFileSync(path) : readStream(path, limit);
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

/** All bytes of a pipe or a device, which does not say how many they are and may never end. */
function readStream(path: string, limit: number): Uint8Array {
  using file = openFile(path);
  return readUpTo(file, path, limit);
}

function readUpTo(file: Deno.FsFile, path: string, limit: number): Uint8Array {
  const chunk = new Uint8Array(1 << 16);
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for (let n = file.readSync(chunk); n !== null; n = file.readSync(chunk)) {
    bytes += n;
    if (bytes > limit) throw new CheckpointError({ path }, `more than ${limit} bytes, the limit`);
    chunks.push(chunk.slice(0, n));
  }
  const all = new Uint8Array(bytes);
  let at = 0;
  for (const part of chunks) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** All bytes of a regular file of at most `limit` bytes. @throws {CheckpointError} @throws {SystemError} */
export function readRegular(path: string, limit: number): Uint8Array {
  using file = openRegular(path).file;
  try {
    return readUpTo(file, path, limit);
  } catch (cause) {
    throw systemError(`cannot read ${path}`, cause, path);
  }
}

/** Whether a file or directory exists, following links. @throws {SystemError} it can't be determined */
export function exists(path: string): boolean {
  try {
    Deno.statSync(path);
    return true;
  } catch (cause) {
    if (cause instanceof Deno.errors.NotFound) return false;
    throw systemError(`cannot read ${path}`, cause, path);
  }
}

/** The status of a path, following links. @throws {SystemError} it does not exist, or can't be determined */
export function stat(path: string): Deno.FileInfo {
  try {
    return Deno.statSync(path);
  } catch (cause) {
    if (cause instanceof Deno.errors.NotFound && linkStat(path)?.isSymlink) {
      throw new SystemError(
        `cannot open ${path}: it is a link to ${quote(Deno.readLinkSync(path))}, which does not exist`,
        path,
      );
    }
    throw systemError(`cannot open ${path}`, cause, path);
  }
}

/** The status of a path, without following links; undefined if it does not exist. @throws {SystemError} it can't be determined */
export function linkStat(path: string): Deno.FileInfo | undefined {
  try {
    return Deno.lstatSync(path);
  } catch (cause) {
    if (cause instanceof Deno.errors.NotFound) return undefined;
    throw systemError(`cannot read ${path}`, cause, path);
  }
}

/** The status of an open file. @throws {SystemError} */
export function handleStat(file: Deno.FsFile, path: string): Deno.FileInfo {
  try {
    return file.statSync();
  } catch (cause) {
    throw systemError(`cannot read ${path}`, cause, path);
  }
}

/** The path with all links resolved. @throws {SystemError} */
export function realPath(path: string): string {
  try {
    return Deno.realPathSync(path);
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
