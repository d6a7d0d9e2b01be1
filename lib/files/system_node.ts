/**
 * The file system of Node 22.3 and later. Its modules are loaded at the first call, which never happens in Deno: loading
 * them there takes as long as reading a small model.
 *
 * @module
 */

import type { Stats } from "node:fs";
import type { FileInfo, System, SystemFile } from "./system.ts";

/** The modules in use. They come from getBuiltinModule, since Deno would load an import too. */
interface Builtin {
  fs: typeof import("node:fs");
  worker_threads: typeof import("node:worker_threads");
}

/** A module of Node. */
export function builtin<Name extends keyof Builtin>(name: Name): Builtin[Name] {
  const { process } = globalThis as unknown as { process: { getBuiltinModule(name: Name): Builtin[Name] } };
  return process.getBuiltinModule(name);
}

class NodeFile implements SystemFile {
  constructor(readonly descriptor: number) {}

  readAt(offset: number, into: Uint8Array): number {
    return builtin("fs").readSync(this.descriptor, into, 0, into.length, offset);
  }

  read(into: Uint8Array): number {
    return builtin("fs").readSync(this.descriptor, into);
  }

  writeAt(offset: number, bytes: Uint8Array): number {
    return builtin("fs").writeSync(this.descriptor, bytes, 0, bytes.length, offset);
  }

  stat(): FileInfo {
    return infoOf(builtin("fs").fstatSync(this.descriptor));
  }

  sync(): void {
    builtin("fs").fsyncSync(this.descriptor);
  }

  touch(time: number): void {
    builtin("fs").futimesSync(this.descriptor, time / 1000, time / 1000);
  }

  tryLock(): boolean {
    throw new Error("Node has no locks of files");
  }

  close(): void {
    builtin("fs").closeSync(this.descriptor);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

function infoOf(stats: Stats): FileInfo {
  const { size, mtime, dev, ino } = stats;
  return {
    isFile: stats.isFile(),
    isDirectory: stats.isDirectory(),
    isSymlink: stats.isSymbolicLink(),
    size,
    mtime,
    dev,
    ino,
  };
}

/** See the module. */
export const NODE_SYSTEM: System = {
  open(path, mode) {
    const { openSync, constants: { O_RDONLY, O_WRONLY, O_CREAT, O_EXCL } } = builtin("fs");
    const flags = { read: O_RDONLY, write: O_WRONLY, create: O_WRONLY | O_CREAT | O_EXCL };
    return new NodeFile(openSync(path, flags[mode]));
  },
  stat: (path) => infoOf(builtin("fs").statSync(path)),
  linkStat: (path) => infoOf(builtin("fs").lstatSync(path)),
  readLink: (path) => builtin("fs").readlinkSync(path),
  realPath: (path) => builtin("fs").realpathSync.native(path),
  list: (path) =>
    builtin("fs").readdirSync(path, { withFileTypes: true }).map((entry) => {
      return { name: entry.name, isFile: entry.isFile() };
    }),
  makeDirectory: (path) => void builtin("fs").mkdirSync(path, { recursive: true }),
  rename: (from, to) => builtin("fs").renameSync(from, to),
  remove(path) {
    const { lstatSync, rmdirSync, unlinkSync } = builtin("fs");
    if (lstatSync(path).isDirectory()) rmdirSync(path);
    else unlinkSync(path);
  },
};
