/**
 * Checkpoints on disk: one safetensors file, or shards with an index, read as one list of tensors; and a directory
 * of new files that appear together or not at all. The only disk access of this layer.
 *
 * @module
 */

import { dirname } from "@std/path/dirname";
import { join } from "@std/path/join";
import { resolve } from "@std/path/resolve";
import { CheckpointError, quote, systemError, UsageError } from "../errors.ts";
import type { BlockFormat } from "./blocks.ts";
import { JsonError, parseJson } from "./json.ts";
import { headerLength, LENGTH_BYTES, parseHeader } from "./safetensors.ts";

/** The name of the weights in a checkpoint directory. */
export const MODEL_FILE = "model.safetensors";

/** The name of the index of a sharded checkpoint. */
export const INDEX_FILE = "model.safetensors.index.json";

/** Larger than any index of a real model (a thousand bytes a tensor, a million tensors). */
const MAX_INDEX_BYTES = 1_000_000_000;

/** One tensor of a checkpoint, and where its bytes are. */
export interface Tensor {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly bytes: number;
  /** Index into {@link Checkpoint.files}. */
  readonly file: number;
  /** Offset in that file. */
  readonly offset: number;
}

/** An opened checkpoint. Its files are not kept open. */
export interface Checkpoint {
  /** The path that the user gave. */
  readonly path: string;
  /** The directory of the files. */
  readonly directory: string;
  /** The safetensors files in the order of their names, and their sizes in bytes. */
  readonly files: readonly { readonly path: string; readonly bytes: number; readonly dataStart: number }[];
  /** In the order of the data, file by file. */
  readonly tensors: readonly Tensor[];
  /** The width that the files declare, or undefined for plain tensors. */
  readonly width?: BlockFormat;
}

/**
 * Opens a safetensors file, or a directory with model.safetensors or model.safetensors.index.json (the index wins
 * where there are both: it says which files belong to the checkpoint).
 *
 * @throws {CheckpointError} a header or the index is bad
 * @throws {SystemError} a file can't be read
 */
export function openCheckpoint(path: string): Checkpoint {
  if (!stat(path).isDirectory) return collect(path, dirname(path), [path]);
  const index = join(path, INDEX_FILE);
  if (exists(index)) return openShards(path, index);
  const model = join(path, MODEL_FILE);
  if (!exists(model)) {
    throw new CheckpointError({ path }, `no ${MODEL_FILE} and no ${INDEX_FILE} in this directory; is it a checkpoint?`);
  }
  return collect(path, path, [model]);
}

/** The checkpoint's files as a user would name them: the file, or for shards the directory. */
export function nameOf(checkpoint: Checkpoint): string {
  return checkpoint.files.length === 1 ? checkpoint.files[0].path : checkpoint.path;
}

/** Bytes of a checkpoint's files, headers and all. */
export function bytesOf({ files }: Checkpoint): number {
  return files.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** Reads tensors of a checkpoint by name. Close it when the last is read. */
export class TensorReader {
  readonly #checkpoint: Checkpoint;
  readonly #tensors: ReadonlyMap<string, Tensor>;
  readonly #files: Deno.FsFile[];

  /** Opens the checkpoint's files. @throws {SystemError} */
  constructor(checkpoint: Checkpoint) {
    this.#checkpoint = checkpoint;
    this.#tensors = new Map(checkpoint.tensors.map((tensor) => [tensor.name, tensor]));
    this.#files = checkpoint.files.map(({ path }) => openFile(path));
  }

  /** The files as a user would name them, for messages. */
  get path(): string {
    return nameOf(this.#checkpoint);
  }

  /** A tensor's dtype, shape and file; undefined if there is none of that name. */
  find(name: string): { dtype: string; shape: readonly number[]; path: string } | undefined {
    const tensor = this.#tensors.get(name);
    return tensor && { dtype: tensor.dtype, shape: tensor.shape, path: this.#checkpoint.files[tensor.file].path };
  }

  /** Fills `into` from byte `offset` of a tensor on. @throws {CheckpointError} @throws {SystemError} */
  read(name: string, offset: number, into: Uint8Array): void {
    const tensor = this.#tensors.get(name)!;
    readAt(this.#files[tensor.file], this.#checkpoint.files[tensor.file].path, tensor.offset + offset, into);
  }

  /** Closes the files. */
  close(): void {
    for (const file of this.#files) file.close();
  }

  /** Closes the files at the end of the block that declares the reader with `using`. */
  [Symbol.dispose](): void {
    this.close();
  }
}

function collect(path: string, directory: string, paths: string[]): Checkpoint {
  const files: Checkpoint["files"][number][] = [];
  const tensors: Tensor[] = [];
  let width: BlockFormat | undefined;
  for (const [file, path] of paths.entries()) {
    const { header, bytes } = readHeader(path);
    files.push({ path, bytes, dataStart: header.dataStart });
    if (file > 0 && header.width !== width) {
      throw new CheckpointError(
        { path, field: `__metadata__ "format"` },
        `declares ${header.width?.name ?? "no width"}, but ${paths[0]} declares ${width?.name ?? "none"}`,
      );
    }
    width = header.width;
    for (const { name, dtype, shape, begin, end } of header.tensors) {
      tensors.push({ name, dtype, shape, bytes: end - begin, file, offset: header.dataStart + begin });
    }
  }
  return { path, directory, files, tensors, width };
}

function openShards(path: string, index: string): Checkpoint {
  const map = readIndex(index);
  const names = [...new Set(map.values())].sort();
  const paths = names.map((name) => join(path, name));
  for (const [n, shard] of paths.entries()) {
    if (!exists(shard)) {
      throw new CheckpointError(
        { path: index, field: "weight_map" },
        `the shard ${quote(names[n])} is not in the directory; fetch it again`,
      );
    }
  }
  const checkpoint = collect(path, path, paths);
  const place = new Map<string, number>();
  for (const { name, file } of checkpoint.tensors) {
    const before = place.get(name);
    if (before !== undefined) {
      throw new CheckpointError({ path: paths[file], tensor: name }, `stands in ${quote(names[before])} as well`);
    }
    place.set(name, file);
    const wanted = map.get(name);
    if (wanted !== names[file]) {
      const where = wanted === undefined
        ? `${INDEX_FILE} does not list it`
        : `${INDEX_FILE} places it in ${quote(wanted)}`;
      throw new CheckpointError({ path: paths[file], tensor: name }, where);
    }
  }
  for (const [tensor, shard] of map) {
    if (!place.has(tensor)) {
      throw new CheckpointError({ path: join(path, shard), tensor }, `missing, although ${INDEX_FILE} places it here`);
    }
  }
  return checkpoint;
}

function readIndex(path: string): Map<string, string> {
  const place = { path, field: "weight_map" };
  let root;
  try {
    root = parseJson(readText(path, MAX_INDEX_BYTES));
  } catch (error) {
    if (error instanceof JsonError) throw new CheckpointError({ path }, `not valid JSON: ${error.message}`);
    throw error;
  }
  const map = root instanceof Map ? root.get("weight_map") : undefined;
  if (!(map instanceof Map)) throw new CheckpointError(place, "expected an object of tensor names and shard names");
  for (const [tensor, shard] of map) {
    if (typeof shard !== "string" || shard === "" || shard === "." || shard === ".." || /[/\\\0]/.test(shard)) {
      const found = typeof shard === "string" ? quote(shard) : "something else";
      throw new CheckpointError(
        { path, tensor, field: "weight_map" },
        `expected the name of a file in this directory, found ${found}`,
      );
    }
  }
  if (map.size === 0) throw new CheckpointError(place, "names no tensor");
  return map as Map<string, string>;
}

function readHeader(path: string) {
  const { file, bytes } = openRegular(path);
  try {
    const start = new Uint8Array(LENGTH_BYTES);
    readAt(file, path, 0, start.subarray(0, Math.min(bytes, LENGTH_BYTES)));
    const header = new Uint8Array(headerLength(path, start, bytes));
    readAt(file, path, LENGTH_BYTES, header);
    return { header: parseHeader(path, header, bytes), bytes };
  } finally {
    file.close();
  }
}

/** Opens a file that must be a regular one, and says its size. @throws {CheckpointError} @throws {SystemError} */
export function openRegular(path: string): { file: Deno.FsFile; bytes: number } {
  // Before it is opened: opening a pipe would wait for its writer.
  const { size, isFile } = stat(path);
  if (!isFile) throw new CheckpointError({ path }, "not a regular file");
  return { file: openFile(path), bytes: size };
}

/** Opens a file for reading. @throws {SystemError} */
export function openFile(path: string): Deno.FsFile {
  try {
    return Deno.openSync(path);
  } catch (cause) {
    throw systemError(`cannot open ${path}`, cause);
  }
}

/**
 * Fills `into` with the bytes of the file from `offset` on.
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
          `ends at byte ${offset + done}, before byte ${offset + into.length}; was it changed meanwhile?`,
        );
      }
      done += n;
    }
  } catch (cause) {
    throw systemError(`cannot read ${path}`, cause);
  }
}

/** Writes all of `bytes` at `offset`. @throws {SystemError} such as a full disk */
export function writeAt(file: Deno.FsFile, path: string, offset: number, bytes: Uint8Array): void {
  try {
    file.seekSync(offset, Deno.SeekMode.Start);
    for (let done = 0; done < bytes.length;) done += file.writeSync(bytes.subarray(done));
  } catch (cause) {
    throw systemError(`cannot write ${path}`, cause);
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
    throw systemError(`cannot read ${path}`, cause);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new CheckpointError({ path }, "not valid UTF-8");
  }
}

/**
 * The value of a JSON file of at most `limit` bytes. Headers and the index, where a key that stands twice matters, have a
 * parser of their own (json.ts).
 *
 * @throws {CheckpointError} not JSON, not UTF-8 or too long
 * @throws {SystemError}
 */
export function readJson(path: string, limit: number): unknown {
  const text = readText(path, limit);
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new CheckpointError({ path }, `not valid JSON: ${(error as SyntaxError).message}`);
  }
}

/** The same for a file that must hold an object. @throws {CheckpointError} @throws {SystemError} */
export function readJsonObject(path: string, limit: number): Record<string, unknown> {
  const json = readJson(path, limit);
  if (typeof json === "object" && json !== null && !Array.isArray(json)) return json as Record<string, unknown>;
  throw new CheckpointError({ path }, "expected a JSON object");
}

/** All bytes of a pipe or a device, which does not say how many they are and may never end. */
function readStream(path: string, limit: number): Uint8Array {
  using file = Deno.openSync(path);
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

/** Whether a file or directory is there, following links. @throws {SystemError} if that can't be known */
export function exists(path: string): boolean {
  try {
    Deno.statSync(path);
    return true;
  } catch (cause) {
    if (cause instanceof Deno.errors.NotFound) return false;
    throw systemError(`cannot read ${path}`, cause);
  }
}

function stat(path: string): Deno.FileInfo {
  try {
    return Deno.statSync(path);
  } catch (cause) {
    throw systemError(`cannot open ${path}`, cause);
  }
}

/** Whether two paths name one file or directory, links followed; false when one is not there. */
export function sameFile(a: string, b: string): boolean {
  if (!exists(a) || !exists(b)) return false;
  const [x, y] = [Deno.statSync(a), Deno.statSync(b)];
  return x.ino !== null && x.ino === y.ino && x.dev === y.dev || Deno.realPathSync(a) === Deno.realPathSync(b);
}

/** The end of the temporary names: `.NAME.PID.partial`. */
const PARTIAL = /^\..+\.(\d+)\.partial$/;

/** A temporary file this old whose process is gone was left by a process that was killed. */
const STALE_MS = 60_000;

/**
 * New files of one directory. They are written under temporary names in the same file system; {@link commit} makes
 * them durable and gives them their names, {@link abort} leaves nothing behind. Declared with `using`, what was not
 * committed is aborted.
 */
export class NewFiles {
  readonly #directory: string;
  readonly #files: { name: string; partial: string; file: Deno.FsFile }[] = [];
  /** The directories that were made for this, outermost first. */
  readonly #made: string[] = [];

  /** Creates `directory` and its parents where they are missing. @throws {SystemError} */
  constructor(directory: string) {
    this.#directory = directory;
    try {
      for (let at = resolve(directory); !exists(at); at = dirname(at)) this.#made.unshift(at);
      Deno.mkdirSync(directory, { recursive: true });
    } catch (cause) {
      throw systemError(`cannot create the directory ${directory}`, cause);
    }
    this.#removeStale();
  }

  /** Opens a new file that will be called `name`, and says what it is called until then. @throws {SystemError} */
  create(name: string): { file: Deno.FsFile; partial: string } {
    const partial = join(this.#directory, `.${name}.${Deno.pid}.partial`);
    try {
      const file = Deno.openSync(partial, { write: true, create: true, truncate: true });
      this.#files.push({ name, partial, file });
      return { file, partial };
    } catch (cause) {
      throw systemError(`cannot create ${partial}`, cause);
    }
  }

  /** Writes a small file. @throws {SystemError} */
  write(name: string, bytes: Uint8Array): void {
    const { file, partial } = this.create(name);
    writeAt(file, partial, 0, bytes);
  }

  /** Syncs every file and renames it, in the order of creation. @throws {SystemError} */
  commit(): void {
    for (const { file, partial } of this.#files) {
      try {
        file.syncSync();
      } catch (cause) {
        throw systemError(`cannot write ${partial}`, cause);
      }
      file.close();
    }
    while (this.#files.length > 0) {
      const { name, partial } = this.#files[0];
      try {
        Deno.renameSync(partial, join(this.#directory, name));
      } catch (cause) {
        throw systemError(`cannot rename ${partial} to ${name}`, cause);
      }
      this.#files.shift();
    }
    this.#made.length = 0;
    syncDirectory(this.#directory);
  }

  /** Removes what was written, and the directories that were made for it. */
  abort(): void {
    for (const { file, partial } of this.#files) {
      quietly(() => file.close());
      quietly(() => Deno.removeSync(partial));
    }
    this.#files.length = 0;
    for (const made of this.#made.reverse()) quietly(() => Deno.removeSync(made));
    this.#made.length = 0;
  }

  /** Aborts what was not committed. */
  [Symbol.dispose](): void {
    this.abort();
  }

  /** A process that was killed could not tidy up; where /proc tells that it is gone, this does. */
  #removeStale(): void {
    if (!running("self")) return;
    for (const { name } of Deno.readDirSync(this.#directory)) {
      const pid = PARTIAL.exec(name)?.[1];
      if (pid === undefined || running(pid)) continue;
      const path = join(this.#directory, name);
      quietly(() => {
        const written = Deno.statSync(path).mtime?.getTime() ?? Date.now();
        if (Date.now() - written > STALE_MS) Deno.removeSync(path);
      });
    }
  }
}

/** Whether /proc shows a process; also true where Deno's permissions forbid a look, as in the executable. */
function running(pid: string): boolean {
  try {
    Deno.statSync(`/proc/${pid}`);
    return true;
  } catch (error) {
    return !(error instanceof Deno.errors.NotFound);
  }
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

/**
 * Refuses an output directory that holds the source, whatever links lead there, or a checkpoint that nobody asked to
 * replace.
 *
 * @throws {UsageError}
 */
export function checkOutput(directory: string, source: Checkpoint | undefined, force: boolean): void {
  if (source !== undefined && sameFile(directory, source.directory)) {
    throw new UsageError(
      `--out ${directory} is the directory of the source, which it would destroy; choose another directory`,
    );
  }
  const target = join(directory, MODEL_FILE);
  for (const { path } of source?.files ?? []) {
    if (sameFile(target, path)) {
      throw new UsageError(
        `${target} is the source itself (${path}), which --out would destroy; choose another directory`,
      );
    }
  }
  if (exists(join(directory, INDEX_FILE))) {
    throw new UsageError(
      `${directory} holds a sharded checkpoint (${INDEX_FILE}); choose another --out or remove it first`,
    );
  }
  if (!force && exists(target)) throw new UsageError(`${target} exists already; --force replaces it`);
}

/** How the files of a checkpoint end: weights, config, tokenizer and chat template. */
const CHECKPOINT_FILE = /\.(safetensors|json|txt|model|jinja)$/;

/**
 * Refuses a new file that would replace a file of a source or beside its weights, something that is no file, or a file
 * that nobody asked to replace.
 *
 * @param flag the flag that names it, for the messages
 * @throws {UsageError}
 */
export function checkOutputFile(flag: string, path: string, sources: readonly Checkpoint[], force: boolean): void {
  for (const source of sources.flatMap(({ files }) => files)) {
    if (!sameFile(path, source.path)) continue;
    throw new UsageError(
      `--${flag} ${path} is a file of the checkpoint (${source.path}), which it would destroy; choose another name`,
    );
  }
  if (!exists(path)) return;
  if (!Deno.statSync(path).isFile) {
    throw new UsageError(`--${flag} ${path} is not a regular file; choose another name`);
  }
  if (CHECKPOINT_FILE.test(path) && sources.some(({ directory }) => sameFile(dirname(path), directory))) {
    throw new UsageError(`--${flag} ${path} is a file of the checkpoint, which it would destroy; choose another name`);
  }
  if (!force) throw new UsageError(`${path} exists already; --force replaces it`);
}
