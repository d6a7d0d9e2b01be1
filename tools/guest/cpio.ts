/**
 * Writes a cpio archive in the "newc" format, which the kernel unpacks as its initramfs.
 * https://docs.kernel.org/driver-api/early-userspace/buffer-format.html
 *
 * @module
 */

import { dirname } from "@std/path/dirname";

/** A file of the archive. Its parent directories are created. */
export interface Entry {
  /** The absolute path. */
  readonly path: string;
  /** A text, a file of the host, the numbers of a character device, or an empty directory. */
  readonly content:
    | { readonly text: string }
    | { readonly file: string }
    | { readonly device: [number, number] }
    | "directory";
  /** Whether everyone may execute it; everyone may read it. */
  readonly executable?: boolean;
}

const DIRECTORY = 0o040755, FILE = 0o100644, DEVICE = 0o020666, EXECUTE = 0o111;

/** The format stores sizes as eight hexadecimal digits. */
const MAX_FILE_BYTES = 2 ** 32 - 1;

const COPY_BYTES = 1 << 20;

/** Writes the entries in order to `target`. Returns the size of the archive. */
export function writeArchive(target: string, entries: readonly Entry[]): number {
  using out = Deno.openSync(target, { write: true, create: true, truncate: true });
  let written = 0, inode = 0;
  const write = (bytes: Uint8Array) => {
    for (let done = 0; done < bytes.length;) done += out.writeSync(bytes.subarray(done));
    written += bytes.length;
  };
  const pad = () => write(new Uint8Array(-written & 3));
  const header = (path: string, mode: number, size: number, [major, minor]: [number, number] = [0, 0]) => {
    const name = new TextEncoder().encode(path + "\0");
    const fields = [++inode, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name.length, 0];
    write(new TextEncoder().encode("070701" + fields.map((field) => field.toString(16).padStart(8, "0")).join("")));
    write(name);
    pad();
  };

  const made = new Set(["/"]);
  const makeDirectory = (path: string) => {
    if (made.has(path)) return;
    makeDirectory(dirname(path));
    made.add(path);
    header(path.slice(1), DIRECTORY, 0);
  };

  for (const { path, content, executable } of entries) {
    if (content === "directory") {
      makeDirectory(path);
      continue;
    }
    makeDirectory(dirname(path));
    const mode = FILE | (executable ? EXECUTE : 0);
    if ("device" in content) {
      header(path.slice(1), DEVICE, 0, content.device);
    } else if ("text" in content) {
      const bytes = new TextEncoder().encode(content.text);
      header(path.slice(1), mode, bytes.length);
      write(bytes);
    } else {
      using file = Deno.openSync(content.file);
      const { size } = file.statSync();
      if (size > MAX_FILE_BYTES) throw new Error(`${content.file} has ${size} bytes, an initramfs holds 4 GiB a file`);
      header(path.slice(1), mode, size);
      const end = written + size, buffer = new Uint8Array(COPY_BYTES);
      for (let got; (got = file.readSync(buffer)) !== null;) write(buffer.subarray(0, got));
      if (written !== end) throw new Error(`${content.file} changed while it was copied`);
    }
    pad();
  }
  header("TRAILER!!!", 0, 0);
  pad();
  return written;
}
