/**
 * Creates files in a directory atomically: each file appears complete or not at all, and so do those of one checkpoint together.
 *
 * @module
 */

import { basename } from "@std/path/basename";
import { dirname } from "@std/path/dirname";
import { join } from "@std/path/join";
import { resolve } from "@std/path/resolve";
import { SystemError, systemError } from "../errors.ts";
import { type FileInfo, system, type SystemFile } from "./system.ts";
import { exists, handleStat, inodeOf, linkStat, readRegular, versionOf, writeAt } from "./read.ts";

/** Temporary names: `.NAME.UUID.partial` for a file that is being written, `.NAME.UUID.old` for one that is being replaced. */
const TEMPORARY = /^\..+\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.(?:partial|old)$/;

/** A partial file that has not been modified for this long was left by a killed process. */
const STALE_MS = 600_000;

/** How often a process says that its partial files are not stale: it may compute for long before it writes again. */
const TOUCH_MS = 60_000;

/** The limit for waiting for a lock: another process holds it for a few renames only. */
const LOCK_MS = 10_000;

/** Milliseconds between two attempts to lock. */
const LOCK_INTERVAL_MS = 5;

/** The file that exists in a directory while the files of a checkpoint replace those of another (see NewFiles). */
export const INCOMPLETE_FILE = ".rabbit-incomplete";

/** The content of INCOMPLETE_FILE, for a user who finds it. */
const INCOMPLETE_TEXT =
  "rabbit was interrupted while it replaced the files of this directory. Write the checkpoint again, or remove it.\n";

/** The file that readers open first: without it, the directory is not a checkpoint. */
const CONFIG_FILE = "config.json";

/** The version of each file of a directory before new files were created; undefined if there was none. */
export type Seen = ReadonlyMap<string, string | undefined>;

/** A new file that still has a temporary name. */
export interface NewFile {
  readonly file: SystemFile;
  /** The temporary path. */
  readonly partial: string;
  /** The inode, for threads that open the temporary path: see `reopenToWrite`. */
  readonly inode: string;
}

/** A new file with the name and size that it will have. */
interface Pending extends NewFile {
  readonly name: string;
  readonly bytes: number;
}

/**
 * New files of one directory. They are written under temporary names in the same file system; {@link commit} syncs and
 * renames them, {@link abort} removes them. If declared with `using`, files that were not committed are removed. Until then
 * a timer keeps them young, so that no other process takes them for stale.
 */
export class NewFiles {
  readonly #directory: string;
  readonly #seen: Seen;
  #files: Pending[] = [];
  /** The directories that were created, outermost first. */
  #made: string[] = [];
  #timer?: ReturnType<typeof setInterval>;

  /**
   * Creates `directory` and its parents if they are missing.
   *
   * @param seen the files that may be overwritten, from {@link checkOutput} or {@link checkOutputFile}; files that appear later
   * are not overwritten
   * @throws {SystemError}
   */
  constructor(directory: string, seen: Seen = new Map()) {
    this.#directory = directory;
    this.#seen = seen;
    try {
      for (let at = resolve(directory); !exists(at); at = dirname(at)) this.#made.unshift(at);
      system.makeDirectory(directory);
    } catch (cause) {
      throw systemError(`cannot create the directory ${directory}`, cause, directory);
    }
    this.#removeStale();
  }

  /**
   * Opens a new file.
   *
   * @param name its final name
   * @param bytes its final size
   * @throws {SystemError}
   */
  create(name: string, bytes: number): NewFile {
    const partial = join(this.#directory, temporary(name, "partial"));
    try {
      const file = system.open(partial, "create");
      const created = { file, partial, inode: inodeOf(file.stat()) };
      this.#files.push({ ...created, name, bytes });
      this.#timer ??= setInterval(() => this.#touch(), TOUCH_MS);
      return created;
    } catch (cause) {
      throw systemError(`cannot create ${partial}`, cause, partial);
    }
  }

  /** Writes a small file; an existing file with the same bytes is kept. @throws {SystemError} */
  write(name: string, bytes: Uint8Array): void {
    if (holds(join(this.#directory, name), bytes)) return;
    const { file, partial } = this.create(name, bytes.length);
    writeAt(file, partial, 0, bytes);
  }

  /**
   * Syncs the files and renames them to their final names.
   *
   * A single file replaces another by one rename. For several files, {@link INCOMPLETE_FILE} exists from before the first
   * rename until after the last; config.json is removed first and added last. At no time can a directory with files of two
   * checkpoints be loaded.
   *
   * @throws {SystemError} the old files have been restored, or the message says that this failed too
   */
  commit(): void {
    for (const { file, partial } of this.#files) {
      try {
        file.sync();
      } catch (cause) {
        throw systemError(`cannot write ${partial}`, cause, partial);
      }
    }
    using _lock = lock(this.#directory);
    for (const [name, version] of this.#seen) this.#checkSeen(name, version);
    for (const file of this.#files) this.#checkPartial(file);
    const marker = join(this.#directory, INCOMPLETE_FILE);
    if (this.#files.length > 1 || exists(marker)) this.#replace(marker);
    else for (const { name, partial } of this.#files) rename(partial, join(this.#directory, name));
    syncDirectory(this.#directory);
    for (const { name, partial, inode } of this.#files) {
      const info = linkStat(join(this.#directory, name));
      if (info === undefined || inodeOf(info) !== inode) {
        throw new SystemError(
          `cannot rename ${partial} to ${name}: another process has put a different file there`,
          partial,
        );
      }
    }
    this.#made = [];
    this.#close();
    this.#removeStale();
  }

  /** Removes the files, and the directories that were created for them. */
  abort(): void {
    for (const { partial } of this.#files) quietly(() => system.remove(partial));
    for (const made of this.#made.reverse()) quietly(() => system.remove(made));
    this.#made = [];
    this.#close();
  }

  /** Removes files that were not committed. */
  [Symbol.dispose](): void {
    this.abort();
  }

  #touch(): void {
    for (const { file } of this.#files) quietly(() => file.touch(Date.now()));
  }

  #close(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    for (const { file } of this.#files) quietly(() => file.close());
    this.#files = [];
  }

  #checkSeen(name: string, version: string | undefined): void {
    const path = join(this.#directory, name);
    if (versionAt(path) === version) return;
    throw new SystemError(
      `cannot write ${path}: another process has written it in the meantime; nothing was replaced, run the command again`,
      path,
    );
  }

  #checkPartial({ name, partial, file, inode, bytes }: Pending): void {
    const path = join(this.#directory, name);
    const target = linkStat(path);
    if (target !== undefined && !replaceable(target)) {
      throw new SystemError(`cannot rename ${partial} to ${name}: ${path} is not a regular file`, path);
    }
    const there = linkStat(partial);
    const { size } = handleStat(file, partial);
    if (there === undefined || inodeOf(there) !== inode || size !== bytes) {
      throw new SystemError(
        `cannot write ${partial}: another process has removed or changed it; nothing was replaced, run the command again`,
        partial,
      );
    }
  }

  /** Renames all files, while the marker exists. */
  #replace(marker: string): void {
    const undo: (() => void)[] = [];
    const move = (from: string, to: string) => {
      rename(from, to);
      undo.push(() => rename(to, from));
    };
    const order = [...this.#files].sort((a, b) => Number(a.name === CONFIG_FILE) - Number(b.name === CONFIG_FILE));
    const old: string[] = [];
    try {
      if (!exists(marker)) {
        mark(marker);
        undo.push(() => system.remove(marker));
      }
      syncDirectory(this.#directory);
      for (const { name } of order.toReversed()) {
        const path = join(this.#directory, name);
        if (linkStat(path) === undefined) continue;
        const aside = join(this.#directory, temporary(name, "old"));
        move(path, aside);
        old.push(aside);
      }
      for (const { name, partial } of order) move(partial, join(this.#directory, name));
      syncDirectory(this.#directory);
      system.remove(marker);
    } catch (cause) {
      const error = systemError(`cannot remove ${marker}`, cause, marker);
      try {
        for (const step of undo.reverse()) step();
      } catch {
        throw new SystemError(
          `${error.message}; the old files could not be restored; they are in ${this.#directory} as .NAME.*.old`,
          this.#directory,
          { cause },
        );
      }
      throw error;
    }
    for (const path of old) quietly(() => system.remove(path));
  }

  /** Removes the temporary files of killed processes. */
  #removeStale(): void {
    quietly(() => {
      const names = system.list(this.#directory).filter(({ name, isFile }) => isFile && TEMPORARY.test(name));
      // Checked after the names are read: if the marker is gone, the process that moved those old files has finished.
      const replacing = exists(join(this.#directory, INCOMPLETE_FILE));
      for (const { name } of names) {
        const path = join(this.#directory, name);
        quietly(() => {
          const age = Date.now() - (linkStat(path)?.mtime?.getTime() ?? Date.now());
          if (name.endsWith(".old") ? !replacing : age > STALE_MS) system.remove(path);
        });
      }
    });
  }
}

function temporary(name: string, end: "partial" | "old"): string {
  return `.${name}.${crypto.randomUUID()}.${end}`;
}

function rename(from: string, to: string): void {
  try {
    system.rename(from, to);
  } catch (cause) {
    throw systemError(`cannot rename ${from} to ${basename(to)}`, cause, from);
  }
}

function mark(marker: string): void {
  let made = false;
  try {
    using file = system.open(marker, "create");
    made = true;
    writeAt(file, marker, 0, new TextEncoder().encode(INCOMPLETE_TEXT));
    file.sync();
  } catch (cause) {
    if (made) quietly(() => system.remove(marker));
    throw systemError(`cannot write ${marker}`, cause, marker);
  }
}

/**
 * Locks a directory against other processes that rename files in it. The lock is released when it is disposed of, or when
 * the process ends.
 *
 * @returns null if the file system, or Node, does not support locks
 * @throws {SystemError} another process holds the lock for too long
 */
function lock(path: string): Disposable | null {
  let directory: SystemFile;
  try {
    directory = system.open(path, "read");
  } catch {
    return null;
  }
  const start = performance.now();
  try {
    while (!directory.tryLock()) {
      if (performance.now() - start > LOCK_MS) {
        throw new SystemError(`cannot write ${path}: another process has locked the directory`, path);
      }
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LOCK_INTERVAL_MS);
    }
    return directory;
  } catch (error) {
    directory.close();
    if (error instanceof SystemError) throw error;
    return null;
  }
}

/** Whether there is a regular file with exactly these bytes. @throws {SystemError} */
export function holds(path: string, bytes: Uint8Array): boolean {
  const info = linkStat(path);
  if (info?.isFile !== true || info.size !== bytes.length) return false;
  const there = readRegular(path, bytes.length);
  return there.length === bytes.length && there.every((byte, n) => byte === bytes[n]);
}

/** Whether a new file may replace it. A link is replaced, never written through. */
export function replaceable({ isFile, isSymlink }: FileInfo): boolean {
  return isFile || isSymlink;
}

/** The version of the file at a path, without following a link; undefined if there is none. @throws {SystemError} */
export function versionAt(path: string): string | undefined {
  const info = linkStat(path);
  return info && versionOf(info);
}

/** Makes renames durable, if the system can sync a directory. */
function syncDirectory(path: string): void {
  quietly(() => {
    using directory = system.open(path, "read");
    directory.sync();
  });
}

/** Ignores an error while cleaning up, which must not hide the original error. */
function quietly(action: () => void): void {
  try {
    action();
  } catch (error) {
    if (!(error instanceof Error)) throw error;
  }
}
