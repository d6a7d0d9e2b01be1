/**
 * New files in a directory: each is whole or not there, and those of one checkpoint appear together or not at all.
 *
 * @module
 */

import { basename } from "@std/path/basename";
import { dirname } from "@std/path/dirname";
import { join } from "@std/path/join";
import { resolve } from "@std/path/resolve";
import { SystemError, systemError } from "../errors.ts";
import { exists, handleStat, inodeOf, linkStat, readRegular, versionOf, writeAt } from "./read.ts";

/** A file that is being written becomes `.NAME.UUID.partial`, one that is being replaced `.NAME.UUID.old`. */
const TEMPORARY = /^\..+\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.(?:partial|old)$/;

/** A partial file that has not been written to for this long was left by a process that was killed. */
const STALE_MS = 600_000;

/** Another process needs a directory for a few renames only. */
const LOCK_MS = 10_000;

/** Milliseconds between two looks at a lock. */
const LOCK_INTERVAL_MS = 5;

/** Stands in a directory while the files of a new checkpoint take the places of another's (see NewFiles). */
export const INCOMPLETE_FILE = ".rabbit-incomplete";

/** What INCOMPLETE_FILE says to a user who finds it. */
const INCOMPLETE_TEXT =
  "rabbit was replacing the files of this directory and was interrupted. Write the checkpoint again, or remove it.\n";

/** The file that a reader needs first: while it is away nothing else of the directory is taken for a checkpoint. */
const CONFIG_FILE = "config.json";

/** What was at each name of a directory before files were made for it: a version, or undefined where nothing was. */
export type Seen = ReadonlyMap<string, string | undefined>;

/** A file that has no name of its own yet. */
export interface NewFile {
  readonly file: Deno.FsFile;
  /** Its path until it gets its name. */
  readonly partial: string;
  /** For others who open that path: see `reopenToWrite`. */
  readonly inode: string;
}

/** One that a directory waits for. */
interface Pending extends NewFile {
  readonly name: string;
  readonly bytes: number;
}

/**
 * New files of one directory. They are written under random names in the same file system; {@link commit} makes them
 * durable and gives them their names, {@link abort} leaves nothing behind. Declared with `using`, what was not committed
 * is aborted.
 */
export class NewFiles {
  readonly #directory: string;
  readonly #seen: Seen;
  #files: Pending[] = [];
  /** The directories that were made for this, outermost first. */
  #made: string[] = [];

  /**
   * Creates `directory` and its parents where they are missing.
   *
   * @param seen what the files may replace, from {@link checkOutput} or {@link checkOutputFile}; what has come since then is
   * not replaced
   * @throws {SystemError}
   */
  constructor(directory: string, seen: Seen = new Map()) {
    this.#directory = directory;
    this.#seen = seen;
    try {
      for (let at = resolve(directory); !exists(at); at = dirname(at)) this.#made.unshift(at);
      Deno.mkdirSync(directory, { recursive: true });
    } catch (cause) {
      throw systemError(`cannot create the directory ${directory}`, cause, directory);
    }
    this.#removeStale();
  }

  /**
   * Opens a new file.
   *
   * @param name what it will be called
   * @param bytes the size that it will have
   * @throws {SystemError}
   */
  create(name: string, bytes: number): NewFile {
    const partial = join(this.#directory, temporary(name, "partial"));
    try {
      const file = Deno.openSync(partial, { write: true, createNew: true });
      const created = { file, partial, inode: inodeOf(file.statSync()) };
      this.#files.push({ ...created, name, bytes });
      return created;
    } catch (cause) {
      throw systemError(`cannot create ${partial}`, cause, partial);
    }
  }

  /** Writes a small file; one that is there with the same bytes stays. @throws {SystemError} */
  write(name: string, bytes: Uint8Array): void {
    if (holds(join(this.#directory, name), bytes)) return;
    const { file, partial } = this.create(name, bytes.length);
    writeAt(file, partial, 0, bytes);
  }

  /**
   * Syncs the files and gives them their names.
   *
   * One file replaces another by a single rename. For several, {@link INCOMPLETE_FILE} is there from before the first
   * rename until after the last, and config.json is the first to go and the last to come, so that no moment has a
   * directory that can be loaded and has files of two checkpoints.
   *
   * @throws {SystemError} all files that were there are there again; or, where that failed too, it says so
   */
  commit(): void {
    for (const { file, partial } of this.#files) {
      try {
        file.syncSync();
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
          `cannot rename ${partial} to ${name}: another process has put another file there`,
          partial,
        );
      }
    }
    this.#made = [];
    this.#close();
    this.#removeStale();
  }

  /** Removes what was written, and the directories that were made for it. */
  abort(): void {
    for (const { partial } of this.#files) quietly(() => Deno.removeSync(partial));
    for (const made of this.#made.reverse()) quietly(() => Deno.removeSync(made));
    this.#made = [];
    this.#close();
  }

  /** Aborts what was not committed. */
  [Symbol.dispose](): void {
    this.abort();
  }

  #close(): void {
    for (const { file } of this.#files) quietly(() => file.close());
    this.#files = [];
  }

  #checkSeen(name: string, version: string | undefined): void {
    const path = join(this.#directory, name);
    if (versionAt(path) === version) return;
    throw new SystemError(
      `cannot write ${path}: another process has written it meanwhile; nothing was replaced, run the command again`,
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

  /** All files get their names, under the marker. */
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
        undo.push(() => Deno.removeSync(marker));
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
      Deno.removeSync(marker);
    } catch (cause) {
      const error = systemError(`cannot remove ${marker}`, cause, marker);
      try {
        for (const step of undo.reverse()) step();
      } catch {
        throw new SystemError(
          `${error.message}; the old files could not be put back, they are in ${this.#directory} as .NAME.*.old`,
          this.#directory,
          { cause },
        );
      }
      throw error;
    }
    for (const path of old) quietly(() => Deno.removeSync(path));
  }

  /** A process that was killed could not tidy up. */
  #removeStale(): void {
    quietly(() => {
      const names = [...Deno.readDirSync(this.#directory)].filter(({ name, isFile }) => isFile && TEMPORARY.test(name));
      // Looked for after the names are known: without it, what moved those old files aside has come to its end.
      const replacing = exists(join(this.#directory, INCOMPLETE_FILE));
      for (const { name } of names) {
        const path = join(this.#directory, name);
        quietly(() => {
          const age = Date.now() - (linkStat(path)?.mtime?.getTime() ?? Date.now());
          if (name.endsWith(".old") ? !replacing : age > STALE_MS) Deno.removeSync(path);
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
    Deno.renameSync(from, to);
  } catch (cause) {
    throw systemError(`cannot rename ${from} to ${basename(to)}`, cause, from);
  }
}

function mark(marker: string): void {
  let made = false;
  try {
    using file = Deno.openSync(marker, { write: true, createNew: true });
    made = true;
    writeAt(file, marker, 0, new TextEncoder().encode(INCOMPLETE_TEXT));
    file.syncSync();
  } catch (cause) {
    if (made) quietly(() => Deno.removeSync(marker));
    throw systemError(`cannot write ${marker}`, cause, marker);
  }
}

/**
 * Keeps other processes from giving names to files of the directory until it is disposed of, which is also when the
 * process ends.
 *
 * @returns null where the file system has no such lock
 * @throws {SystemError} another process has it, and does not come to an end
 */
function lock(path: string): Disposable | null {
  let directory: Deno.FsFile & { tryLockSync?(exclusive: boolean): boolean };
  try {
    directory = Deno.openSync(path);
  } catch {
    return null;
  }
  const start = performance.now();
  try {
    // Deno 2.6 has lockSync alone, which waits for as long as it takes.
    if (directory.tryLockSync === undefined) (directory as Deno.FsFile).lockSync(true);
    else {
      while (!directory.tryLockSync(true)) {
        if (performance.now() - start > LOCK_MS) {
          throw new SystemError(`cannot write ${path}: another process has locked the directory`, path);
        }
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LOCK_INTERVAL_MS);
      }
    }
    return directory;
  } catch (error) {
    directory.close();
    if (error instanceof SystemError) throw error;
    return null;
  }
}

/** Whether a file has these bytes. */
function holds(path: string, bytes: Uint8Array): boolean {
  const info = linkStat(path);
  if (info?.isFile !== true || info.size !== bytes.length) return false;
  const there = readRegular(path, bytes.length);
  return there.length === bytes.length && there.every((byte, n) => byte === bytes[n]);
}

/** Whether a new file may take its place: a link is replaced and never written through. */
export function replaceable({ isFile, isSymlink }: Deno.FileInfo): boolean {
  return isFile || isSymlink;
}

/** The version of what is at a path, a link being one; undefined if nothing is. @throws {SystemError} */
export function versionAt(path: string): string | undefined {
  const info = linkStat(path);
  return info && versionOf(info);
}

/** Makes renames durable, where the system lets a directory be synced. */
function syncDirectory(path: string): void {
  quietly(() => {
    using directory = Deno.openSync(path);
    directory.syncSync();
  });
}

/** Tidying up must not hide the error that made it necessary. */
function quietly(action: () => void): void {
  try {
    action();
  } catch (error) {
    if (!(error instanceof Error)) throw error;
  }
}
