/**
 * The file system: one interface, with an implementation for Deno and one for Node (system_node.ts). All functions throw the
 * error of the system, which has a `code` such as ENOENT; read.ts turns it into a message.
 *
 * @module
 */

import { NODE_SYSTEM } from "./system_node.ts";

/** The status of a path. */
export interface FileInfo {
  /** Whether it is a regular file. */
  readonly isFile: boolean;
  /** Whether it is a directory. */
  readonly isDirectory: boolean;
  /** Whether it is a symbolic link. */
  readonly isSymlink: boolean;
  /** Its size in bytes. */
  readonly size: number;
  /** When it was last modified. */
  readonly mtime: Date | null;
  /** The device. */
  readonly dev: number;
  /** The inode; null if the system has none. */
  readonly ino: number | null;
}

/** An open file, closed at the end of the block that declares it with `using`. */
export interface SystemFile extends Disposable {
  /**
   * Reads bytes from `offset` on.
   *
   * @returns the number of bytes read, which may be fewer than `into` can hold; 0 at the end of the file
   */
  readAt(offset: number, into: Uint8Array): number;
  /** Reads the next bytes, from the beginning on; for pipes and devices too. */
  read(into: Uint8Array): number;
  /** Writes bytes at `offset`. @returns the number of bytes written, which may be fewer */
  writeAt(offset: number, bytes: Uint8Array): number;
  /** Its status. */
  stat(): FileInfo;
  /** Makes what was written durable. */
  sync(): void;
  /** Sets when it was last modified, in milliseconds since 1970. */
  touch(time: number): void;
  /**
   * Locks the file until it is closed.
   *
   * @returns false if another process holds the lock
   * @throws the system has no locks
   */
  tryLock(): boolean;
  /** Closes it. */
  close(): void;
}

/** How a file is opened: for reading, for writing, or as a new file for writing. */
export type OpenMode = "read" | "write" | "create";

/** A file system. */
export interface System {
  /** Opens a file, or a directory (to sync or lock it). */
  open(path: string, mode: OpenMode): SystemFile;
  /** The status of a path, following links. */
  stat(path: string): FileInfo;
  /** The status of a path, without following links. */
  linkStat(path: string): FileInfo;
  /** The target of a link. */
  readLink(path: string): string;
  /** The path with all links resolved. */
  realPath(path: string): string;
  /** The entries of a directory, in any order. */
  list(path: string): { readonly name: string; readonly isFile: boolean }[];
  /** Creates a directory and its missing parents. */
  makeDirectory(path: string): void;
  /** Renames a file, replacing any file with the new name. */
  rename(from: string, to: string): void;
  /** Removes a file or an empty directory. */
  remove(path: string): void;
}

/** The file system of Deno. */
export const DENO_SYSTEM: System = {
  open(path, mode) {
    const options = mode === "read" ? { read: true } : { write: true, createNew: mode === "create" };
    return new DenoFile(Deno.openSync(path, options));
  },
  stat: (path) => Deno.statSync(path),
  linkStat: (path) => Deno.lstatSync(path),
  readLink: (path) => Deno.readLinkSync(path),
  realPath: (path) => Deno.realPathSync(path),
  list: (path) => [...Deno.readDirSync(path)],
  makeDirectory: (path) => Deno.mkdirSync(path, { recursive: true }),
  rename: (from, to) => Deno.renameSync(from, to),
  remove: (path) => Deno.removeSync(path),
};

class DenoFile implements SystemFile {
  readonly #file: Deno.FsFile & { tryLockSync?(exclusive: boolean): boolean };

  constructor(file: Deno.FsFile) {
    this.#file = file;
  }

  readAt(offset: number, into: Uint8Array): number {
    this.#file.seekSync(offset, Deno.SeekMode.Start);
    return this.read(into);
  }

  read(into: Uint8Array): number {
    return this.#file.readSync(into) ?? 0;
  }

  writeAt(offset: number, bytes: Uint8Array): number {
    this.#file.seekSync(offset, Deno.SeekMode.Start);
    return this.#file.writeSync(bytes);
  }

  stat(): FileInfo {
    return this.#file.statSync();
  }

  sync(): void {
    this.#file.syncSync();
  }

  touch(time: number): void {
    this.#file.utimeSync(time / 1000, time / 1000);
  }

  tryLock(): boolean {
    if (this.#file.tryLockSync !== undefined) return this.#file.tryLockSync(true);
    // Deno 2.6 only has lockSync, which waits without a limit.
    this.#file.lockSync(true);
    return true;
  }

  close(): void {
    this.#file.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** Whether the program runs in Deno. */
export const IN_DENO: boolean = "Deno" in globalThis;

/** The file system in use. */
export const system: System = IN_DENO ? DENO_SYSTEM : NODE_SYSTEM;

/** Whether an error says that a path does not exist. */
export function isNotFound(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ENOENT";
}
