/**
 * Opens a GGUF file, or all parts of a split one (NAME-00001-of-00003.gguf), as one list of tensors.
 *
 * The first part has the metadata of the model. Each part numbers itself from 0 in `split.no`, and has the number of
 * parts in `split.count`; `split.tensors.count` is the number of tensors in all.
 *
 * @module
 */

import { basename } from "@std/path/basename";
import { dirname } from "@std/path/dirname";
import { CheckpointError, quote } from "../errors.ts";
import { openFile, openRegular, readAt, reopen, stat } from "../files/read.ts";
import type { SystemFile } from "../files/system.ts";
import { memberOf } from "../format/checkpoint.ts";
import { type Gguf, type GgufTensor, MAGIC, type Metadata, parseGguf } from "./container.ts";
import { Keys } from "./keys.ts";
import { describe } from "./values.ts";

/** A file of a model. */
export interface Part {
  /** Its path. */
  readonly path: string;
  /** Its size. */
  readonly bytes: number;
  /** The version of the file when its header was read; see `reopen`. */
  readonly version: string;
}

/** A tensor of a model. */
export interface PartTensor extends GgufTensor {
  /** The file with its data. */
  readonly part: Part;
}

/** The checked headers of all files of a model. */
export interface Parts {
  /** The files: one, unless the model is split. */
  readonly parts: readonly Part[];
  /** The metadata of the first. */
  readonly metadata: Metadata;
  /** The tensors of all. */
  readonly tensors: readonly PartTensor[];
}

/** The end of the names of parts. */
const NAME = /-(\d{5})-of-(\d{5})\.gguf$/;

/**
 * Opens a model.
 *
 * @param path the file, or the first part
 * @throws {CheckpointError} a header is invalid, a part is missing or belongs to another model, `path` is another part
 * @throws {SystemError} a file can't be read
 */
export function openParts(path: string): Parts {
  if (stat(path).isDirectory) throw new CheckpointError({ path }, "a directory; give the GGUF file");
  const first = open(path);
  const parts = [first, ...others(path, first)];
  const places = new Map<string, string>();
  const tensors = parts.flatMap(({ path, bytes, version, tensors }) => {
    const part = { path, bytes, version };
    return tensors.map((tensor): PartTensor => {
      const before = places.get(tensor.name);
      if (before !== undefined) {
        throw new CheckpointError({ path, tensor: tensor.name }, `duplicate tensor, also in ${quote(before)}`);
      }
      places.set(tensor.name, basename(path));
      return { ...tensor, part };
    });
  });
  const declared = parts.length > 1 && first.metadata.has("split.tensors.count")
    ? new Keys(path, first.metadata, "split.").count("tensors.count")
    : tensors.length;
  if (declared !== tensors.length) {
    throw new CheckpointError(
      { path, field: 'key "split.tensors.count"' },
      `${declared}, but the ${parts.length} parts have ${tensors.length} tensors; download them again`,
    );
  }
  return {
    parts: parts.map(({ path, bytes, version }) => ({ path, bytes, version })),
    metadata: first.metadata,
    tensors,
  };
}

/** A file with its checked header. */
type Opened = Part & Omit<Gguf, "version">;

function open(path: string): Opened {
  const { file, bytes, version } = openRegular(path);
  using source = file;
  const read = (offset: number, into: Uint8Array) => readAt(source, path, offset, into);
  const { metadata, tensors } = parseGguf({ path, bytes, read });
  return { path, bytes, version, metadata, tensors };
}

/** The parts that follow the first, opened. */
function* others(path: string, first: Opened): Generator<Opened> {
  const keys = new Keys(path, first.metadata, "split.");
  const named = NAME.exec(path)?.slice(1).map(Number);
  if (!first.metadata.has("split.count")) {
    if ((named?.[1] ?? 1) === 1) return;
    throw new CheckpointError(
      { path },
      `named as part ${named![0]} of ${named![1]} of a split GGUF file, but it has no key "split.count"; ` +
        "rename it if it is a whole file",
    );
  }
  const count = keys.count("count");
  if (count === 1) return;
  const number = numberOf(first);
  if (number !== 1) {
    throw new CheckpointError({ path }, `part ${number} of ${count} of a split GGUF file; give the first part`);
  }
  if (named?.[0] !== 1 || named[1] !== count) {
    throw new CheckpointError(
      { path },
      `the first of ${count} parts, whose name must end with ${ending(1, count)}, and those of the others likewise`,
    );
  }
  const directory = dirname(path);
  for (let n = 2; n <= count; n++) {
    const name = basename(path).replace(NAME, () => ending(n, count));
    const found = memberOf(directory, name);
    if (found === undefined) {
      throw new CheckpointError(
        { path },
        `the first of ${count} parts, but ${quote(name)} is not in the directory; download it again`,
      );
    }
    const part = open(found);
    const { metadata } = part;
    const [no, of] = [numberOf(part), new Keys(found, metadata, "split.").count("count")];
    if (no !== n || of !== count) {
      throw new CheckpointError(
        { path: found },
        `the file is part ${no} of ${of} by its metadata, but part ${n} of ${count} by its name; download it again`,
      );
    }
    yield part;
  }
}

/** The number of a part, from 1 on. */
function numberOf({ path, metadata }: Opened): number {
  const keys = new Keys(path, metadata, "split.");
  const found = keys.optional("no") ?? keys.fail("no", "is missing");
  const { value } = found;
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= 0) return value + 1;
  return keys.fail("no", `expected a whole number, found ${describe(found)}`);
}

/** The end of the name of part `n`. */
function ending(n: number, count: number): string {
  const [number, of] = [n, count].map((value) => String(value).padStart(5, "0"));
  return `-${number}-of-${of}.gguf`;
}

/** Whether a path is that of a file that begins as a GGUF file does. @throws {SystemError} */
export function isGguf(path: string): boolean {
  if (!stat(path).isFile) return false;
  using file = openFile(path);
  const start = new Uint8Array(4);
  return file.readAt(0, start) === 4 && new TextDecoder("latin1").decode(start) === MAGIC;
}

/** Reads tensors. Close it after the last read. */
export class PartsReader {
  readonly #files: ReadonlyMap<string, SystemFile>;

  /** Opens the files. @throws {SystemError} for example, a file has changed since its header was read */
  constructor(parts: readonly Part[]) {
    const files = new Map<string, SystemFile>();
    this.#files = files;
    try {
      for (const { path, version } of parts) files.set(path, reopen(path, version));
    } catch (error) {
      this.close();
      throw error;
    }
  }

  /** Fills `into` with bytes of a tensor from `offset` on. @throws {CheckpointError} @throws {SystemError} */
  read({ part, offset: start }: PartTensor, offset: number, into: Uint8Array): void {
    this.readAt(part, start + offset, into);
  }

  /** Fills `into` with bytes of a file from `offset` on. @throws {CheckpointError} @throws {SystemError} */
  readAt({ path }: Part, offset: number, into: Uint8Array): void {
    readAt(this.#files.get(path)!, path, offset, into);
  }

  /** Closes the files. */
  close(): void {
    for (const file of this.#files.values()) file.close();
  }

  /** Closes the files, if the reader was declared with `using`. */
  [Symbol.dispose](): void {
    this.close();
  }
}
