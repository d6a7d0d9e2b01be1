/**
 * Checkpoints on disk: one safetensors file, or shards with an index, read as one list of tensors.
 *
 * @module
 */

import { checkPath } from "../options.ts";
import { basename } from "@std/path/basename";
import { dirname } from "@std/path/dirname";
import { join } from "@std/path/join";
import { CheckpointError, type Place, quote } from "../errors.ts";
import type { BlockFormat } from "./blocks.ts";
import type { Foreign, StoredTensor } from "./foreign.ts";
import { refuseContent, refuseDirectory, refuseFile, refuseShards, refuseTensors } from "./given.ts";
import { JsonError, JsonReader } from "./json.ts";
import { INCOMPLETE_FILE } from "../files/new_files.ts";
import type { SystemFile } from "../files/system.ts";
import {
  checkUnchanged,
  exists,
  linkStat,
  openRegular,
  readAt,
  readText,
  realPath,
  reopen,
  stat,
} from "../files/read.ts";
import { headerLength, LENGTH_BYTES, parseHeader } from "./safetensors.ts";

/** The name of the weights in a checkpoint directory. */
export const MODEL_FILE = "model.safetensors";

/** The name of the index of a sharded checkpoint. */
export const INDEX_FILE = "model.safetensors.index.json";

/** The name of the file that says how the blocks were chosen: see quantization.ts. */
export const QUANTIZATION_FILE = "quantization.json";

/**
 * Files next to the weights that determine the computation or the tokenizer. Files of one model must not end up next to
 * the weights of another.
 */
export const COMPANIONS: readonly string[] = [
  "config.json",
  "generation_config.json",
  "vocab.json",
  "merges.txt",
  "tokenizer.json",
  "tokenizer_config.json",
  "tokenizer.model",
  "special_tokens_map.json",
  "added_tokens.json",
  "chat_template.jinja",
  "chat_template.json",
];

/** Ten times the largest index of a real model (100,000 tensors). */
const MAX_INDEX_BYTES = 100_000_000;

/** The limit of file systems. */
const MAX_FILE_NAME = 255;

const SHARD_NAME = "expected the name of a file in this directory";

/** A tensor of a checkpoint, and the place of its data. */
export interface Tensor {
  /** Its name. */
  readonly name: string;
  /** The name of its format. */
  readonly dtype: string;
  /** Rows and columns of a matrix, the length of a vector. */
  readonly shape: readonly number[];
  /** Its size. */
  readonly bytes: number;
  /** Index into {@link Checkpoint.files}. */
  readonly file: number;
  /** Offset in that file. */
  readonly offset: number;
  /** If it is some rows of a matrix: the number of its first row there. */
  readonly firstRow?: number;
  /** If the file has it in another form than `dtype`. */
  readonly stored?: StoredTensor;
}

/** A file of a checkpoint. */
export interface CheckpointFile {
  /** Its path. */
  readonly path: string;
  /** Its size. */
  readonly bytes: number;
  /** The offset of the data: the size of the length field and the header. */
  readonly dataStart: number;
  /** The version of the file when its header was read; see {@link reopen}. */
  readonly version: string;
}

/** An opened checkpoint. Its files are not kept open. */
export interface Checkpoint {
  /** The path that the user gave. */
  readonly path: string;
  /** The directory of the files; of a GGUF file its path, through which the texts in it are read. */
  readonly directory: string;
  /** The files of the weights, ordered by name. */
  readonly files: readonly CheckpointFile[];
  /** The tensors, in the order of the data, file by file. */
  readonly tensors: readonly Tensor[];
  /** The declared width; undefined for plain tensors. */
  readonly width?: BlockFormat;
  /** If the files are not safetensors files. */
  readonly foreign?: Foreign;
}

/**
 * Opens a safetensors file, or a directory with model.safetensors or model.safetensors.index.json. The index takes
 * precedence, since it lists the files of the checkpoint; the path of an index means its directory.
 *
 * @throws {CheckpointError} a header or the index is invalid, a write of the directory was interrupted, a file is a
 * link out of the directory, or `path` contains other weights: one shard of several, an adapter, a GGUF file…
 * @throws {SystemError} a file can't be read
 */
export function openCheckpoint(path: string): Checkpoint {
  checkPath("the path of the checkpoint", path);
  const given = !stat(path).isDirectory && basename(path) === INDEX_FILE ? dirname(path) : path;
  const whole = stat(given).isDirectory;
  const directory = whole ? given : dirname(given);
  if (exists(join(directory, INCOMPLETE_FILE))) {
    throw new CheckpointError(
      { path: directory },
      "a write of this checkpoint was interrupted, and its files may belong to two models; " +
        "write it again or remove the directory",
    );
  }
  for (const name of COMPANIONS) memberOf(directory, name);
  if (!whole) {
    refuseFile(given, shardsOf(directory));
    return collect(given, directory, [given]);
  }
  const index = memberOf(directory, INDEX_FILE);
  if (index !== undefined) return openShards(directory, index);
  return collect(directory, directory, [memberOf(directory, MODEL_FILE) ?? refuseDirectory(directory)]);
}

/** The names of the shards in a directory's index; empty without an index. */
function shardsOf(directory: string): string[] {
  const index = memberOf(directory, INDEX_FILE);
  return index === undefined ? [] : [...new Set(readIndex(index).values())];
}

/** The paths of blobs in a Hugging Face cache; the files of its snapshots are links to them. */
const BLOB = /\/models--[^/]+\/blobs\/(?:[0-9a-f]{40}|[0-9a-f]{64})$/;

/**
 * The path of a file of a checkpoint directory. A link is followed only within the directory and to the blobs of a
 * Hugging Face cache: otherwise a downloaded checkpoint could make the program copy any file of the machine.
 *
 * @returns undefined if there is no such file
 * @throws {CheckpointError} it is not a regular file, or a link out of the directory
 * @throws {SystemError} it is a broken link
 */
export function memberOf(directory: string, name: string): string | undefined {
  const path = join(directory, name);
  const info = linkStat(path);
  if (info === undefined) return undefined;
  if (info.isSymlink) {
    stat(path);
    const [target, root] = [path, directory].map(realPath);
    if (!target.startsWith(root === "/" ? root : `${root}/`) && !BLOB.test(target)) {
      throw new CheckpointError(
        { path },
        `is a link out of the checkpoint's directory, to ${quote(target)}, and is not followed; ` +
          "put the file itself here, if it belongs to the checkpoint",
      );
    }
  }
  if (!stat(path).isFile) throw new CheckpointError({ path }, "not a regular file");
  return path;
}

/** The name of a checkpoint for users: its file, or the directory of its shards. */
export function nameOf(checkpoint: Checkpoint): string {
  return checkpoint.files.length === 1 ? checkpoint.files[0].path : checkpoint.path;
}

/** The total size of a checkpoint's files, including headers. */
export function bytesOf({ files }: Checkpoint): number {
  return files.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** Reads tensors of a checkpoint by name. Close it after the last read. */
export class TensorReader {
  readonly #checkpoint: Checkpoint;
  readonly #tensors: ReadonlyMap<string, Tensor>;
  readonly #files: SystemFile[];

  /** Opens the checkpoint's files. @throws {SystemError} for example, a file has changed since its header was read */
  constructor(checkpoint: Checkpoint) {
    this.#checkpoint = checkpoint;
    this.#tensors = new Map(checkpoint.tensors.map((tensor) => [tensor.name, tensor]));
    this.#files = checkpoint.files.map(({ path, version }) => reopen(path, version));
  }

  /** The name of the checkpoint, for messages. */
  get path(): string {
    return nameOf(this.#checkpoint);
  }

  /** The names of all tensors. */
  get names(): Iterable<string> {
    return this.#tensors.keys();
  }

  /** A tensor's dtype, shape and file; undefined if there is no such tensor. */
  find(name: string): { dtype: string; shape: readonly number[]; path: string } | undefined {
    const tensor = this.#tensors.get(name);
    return tensor && { dtype: tensor.dtype, shape: tensor.shape, path: this.#checkpoint.files[tensor.file].path };
  }

  /** Fills `into` with bytes of a tensor from `offset` on. @throws {CheckpointError} @throws {SystemError} */
  read(name: string, offset: number, into: Uint8Array): void {
    const { file, offset: start, stored } = this.#tensors.get(name)!;
    const raw = (offset: number, into: Uint8Array) => {
      readAt(this.#files[file], this.#checkpoint.files[file].path, start + offset, into);
    };
    if (stored === undefined) raw(offset, into);
    else stored.read(raw, offset, into);
  }

  /** Where the bytes of a tensor are; undefined if the file stores others, from which they are computed. */
  place(name: string): { path: string; version: string; offset: number } | undefined {
    const { file, offset, stored } = this.#tensors.get(name)!;
    if (stored !== undefined) return undefined;
    const { path, version } = this.#checkpoint.files[file];
    return { path, version, offset };
  }

  /** Checks that the files have not changed; call it after the last read. @throws {SystemError} */
  checkUnchanged(): void {
    checkUnchanged(this.#checkpoint.files);
  }

  /** Closes the files. */
  close(): void {
    for (const file of this.#files) file.close();
  }

  /** Closes the files, if the reader was declared with `using`. */
  [Symbol.dispose](): void {
    this.close();
  }
}

/**
 * Reads the headers of several files, as one list of tensors.
 *
 * @param path the path of the checkpoint, for messages
 * @throws {CheckpointError} a header is invalid, or the files declare different widths
 * @throws {SystemError}
 */
export function collect(path: string, directory: string, paths: string[]): Checkpoint {
  const files: Checkpoint["files"][number][] = [];
  const tensors: Tensor[] = [];
  let width: BlockFormat | undefined;
  for (const [file, path] of paths.entries()) {
    const { header, bytes, version } = readHeader(path);
    refuseTensors(path, header.tensors);
    files.push({ path, bytes, dataStart: header.dataStart, version });
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
  const names = [...new Set(map.values())].sort(byCodePoints);
  const paths = names.map((name) => {
    const shard = memberOf(path, name);
    if (shard !== undefined) return shard;
    throw new CheckpointError(
      { path: index, field: "weight_map" },
      `the shard ${quote(name)} is not in the directory; fetch it again`,
    );
  });
  const checkpoint = collect(path, path, paths);
  if (checkpoint.width !== undefined) refuseShards(index, names);
  const place = new Map<string, number>();
  for (const { name, file } of checkpoint.tensors) {
    const before = place.get(name);
    if (before !== undefined) {
      throw new CheckpointError(
        { path: paths[file], tensor: name },
        `duplicate tensor, also in ${quote(names[before])}`,
      );
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

/** Compares by code points, which is the order of UTF-8 bytes; JavaScript compares UTF-16 units. */
export function byCodePoints(a: string, b: string): number {
  for (let n = 0; n < a.length && n < b.length; n++) {
    if (a[n] !== b[n]) return rank(a.charCodeAt(n)) - rank(b.charCodeAt(n));
  }
  return a.length - b.length;

  // Surrogates encode code points above all other units.
  function rank(unit: number): number {
    return unit >= 0xd800 && unit < 0xe000 ? unit + 0x2800 : unit;
  }
}

/** The shard of each tensor. */
function readIndex(path: string): Map<string, string> {
  const place = { path, field: "weight_map" };
  const json = new JsonReader(readText(path, MAX_INDEX_BYTES));
  const fail = (found: string) => {
    throw new CheckpointError(place, `expected an object of tensor names and shard names, found ${found}`);
  };
  let map: Map<string, string> | undefined;
  try {
    if (json.peek() !== "object") fail(json.describe());
    json.object((key) => {
      if (key !== place.field) return json.skip();
      if (json.peek() !== "object") fail(json.describe());
      const shards = new Map<string, string>();
      json.object((tensor) => shards.set(tensor, shardName({ ...place, tensor }, json)));
      map = shards;
    });
    json.end();
  } catch (error) {
    if (error instanceof JsonError) throw new CheckpointError({ path }, error.message);
    throw error;
  }
  if (map === undefined) return fail("nothing");
  if (map.size === 0) throw new CheckpointError(place, "lists no tensors");
  return map;
}

function shardName(place: Place, json: JsonReader): string {
  if (json.peek() !== "string") throw new CheckpointError(place, `${SHARD_NAME}, found ${json.describe()}`);
  const shard = json.string();
  const outside = shard === "" || shard === "." || shard === ".." || /[/\\\0]/.test(shard);
  if (outside || shard.length > MAX_FILE_NAME) throw new CheckpointError(place, `${SHARD_NAME}, found ${quote(shard)}`);
  return shard;
}

function readHeader(path: string) {
  const { file, bytes, version } = openRegular(path);
  try {
    const start = new Uint8Array(LENGTH_BYTES);
    readAt(file, path, 0, start.subarray(0, Math.min(bytes, LENGTH_BYTES)));
    refuseContent(path, start);
    const header = new Uint8Array(headerLength(path, start, bytes));
    readAt(file, path, LENGTH_BYTES, header);
    return { header: parseHeader(path, header, bytes), bytes, version };
  } finally {
    file.close();
  }
}
