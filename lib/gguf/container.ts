/**
 * The GGUF container, versions 2 and 3, little endian: magic, version, counts, metadata, tensor infos, padding, data.
 * https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 *
 * The rules are those of ggml's reader, and some that it does not check: strings are UTF-8, booleans are 0 or 1,
 * nothing follows the data. This file does not check the meaning of keys and tensors (names.ts), nor the weights.
 *
 * @module
 */

import { CheckpointError, quote } from "../errors.ts";
import { type ByteSource, Cursor } from "./cursor.ts";
import { GGML_TYPES, type GgmlType } from "./types.ts";
import {
  ARRAY_ID,
  BY_TYPE,
  describe,
  type Kind,
  KINDS,
  type Metadata,
  type Scalar,
  type Value,
  type ValueType,
} from "./values.ts";

export type { ByteSource } from "./cursor.ts";
export type { Metadata, Scalar, Value, ValueType } from "./values.ts";

/** The first four bytes. */
export const MAGIC = "GGUF";

/** The version of new files; version 2 has the same layout. */
const VERSION = 3;

/** The alignment of new files, and of files without `general.alignment`. */
const DEFAULT_ALIGNMENT = 32;

/** More than the length of any vocabulary or list of merges. */
const MAX_ARRAY = 1 << 24;

/** Limits on keys and tensors: a hundred times those of real models. */
const MAX_KEYS = 1 << 16;
const MAX_TENSORS = 1 << 16;

/** More than the page size of any system. */
const MAX_ALIGNMENT = 1 << 16;

/** The limit in the specification of the format. */
const MAX_KEY_BYTES = 65535;

/** ggml's limits for a tensor: bytes of its name, and dimensions. */
const MAX_NAME_BYTES = 64;
const MAX_DIMENSIONS = 4;

/** The minimum size of a tensor info: the name's length, the number of dimensions, the type and the offset. */
const MIN_INFO_BYTES = 8 + 4 + 4 + 8;

/** The minimum size of a key and its value: the key's length and one byte, the type and one byte. */
const MIN_PAIR_BYTES = 8 + 1 + 4 + 1;

/** One tensor of a file. */
export interface GgufTensor {
  /** Its name. */
  readonly name: string;
  /** Its format. */
  readonly type: GgmlType;
  /** Slowest dimension first, as in safetensors; GGUF stores the dimensions in reverse. */
  readonly shape: readonly number[];
  /** The offset of its data in the file. */
  readonly offset: number;
  /** Its size. */
  readonly bytes: number;
}

/** The checked header of a file: all that precedes the data. */
export interface Gguf {
  /** The version of GGUF. */
  readonly version: number;
  /** The metadata, by key. */
  readonly metadata: Metadata;
  /** The tensors, in the order of their data. */
  readonly tensors: readonly GgufTensor[];
}

/**
 * Reads and checks the header of a file.
 *
 * @throws {CheckpointError} naming the key, or the tensor and the field
 */
export function parseGguf(source: ByteSource): Gguf {
  const cursor = new Cursor(source);
  const version = readVersion(source, cursor);
  const tensorCount = cursor.u64("tensor count");
  const pairCount = cursor.u64("metadata count");
  const pairs = cursor.room("metadata count", pairCount, MIN_PAIR_BYTES, "keys", MAX_KEYS);
  const metadata = new Map<string, Value>();
  for (let n = 0; n < pairs; n++) {
    const key = cursor.string(`key ${n}`, MAX_KEY_BYTES);
    if (key === "") cursor.fail(`key ${n}`, "is empty");
    if (metadata.has(key)) cursor.fail(`key ${quote(key)}`, "duplicate key");
    metadata.set(key, readValue(cursor, `key ${quote(key)}`));
  }
  const alignment = alignmentOf(cursor, metadata.get("general.alignment"));
  const infos = readInfos(cursor, cursor.room("tensor count", tensorCount, MIN_INFO_BYTES, "tensors", MAX_TENSORS));
  return { version, metadata, tensors: layOut(source, infos, padded(cursor.at, alignment), alignment) };
}

function readVersion({ path, bytes, read }: ByteSource, cursor: Cursor): number {
  const start = new Uint8Array(Math.min(bytes, 4));
  read(0, start);
  const magic = new TextDecoder("latin1").decode(start);
  if (magic !== MAGIC) throw new CheckpointError({ path }, `not a GGUF file: it begins with ${quote(magic)}`);
  cursor.u32("magic");
  const version = cursor.u32("version");
  if (version === 2 || version === VERSION) return version;
  if ((version & 0xffff) === 0) {
    cursor.fail("version", "the file is big endian; convert it with gguf's gguf_convert_endian");
  }
  return cursor.fail("version", `${version} is not supported (2 and 3 are); convert the model again with a newer tool`);
}

function readValue(cursor: Cursor, field: string): Value {
  const id = cursor.u32(field);
  if (id !== ARRAY_ID) {
    const kind = kindOf(cursor, field, id);
    return { type: kind.type, value: cursor.scalar(field, kind) };
  }
  const element = cursor.u32(field);
  if (element === ARRAY_ID) cursor.fail(field, "arrays of arrays are not supported");
  const kind = kindOf(cursor, field, element);
  const declared = cursor.u64(field);
  if (declared > MAX_ARRAY) cursor.fail(field, `an array of ${declared}; the limit is ${MAX_ARRAY}`);
  const count = cursor.room(field, declared, kind.bytes, "elements");
  const values = kind.type === "string" ? cursor.strings(field, count) : cursor.numbers(field, kind, count);
  return { type: kind.type, values };
}

function kindOf(cursor: Cursor, field: string, id: number): Kind {
  return KINDS.find((kind) => kind.id === id) ?? cursor.fail(field, `unknown value type ${id}`);
}

function alignmentOf(cursor: Cursor, value: Value | undefined): number {
  if (value === undefined) return DEFAULT_ALIGNMENT;
  const field = `key "general.alignment"`;
  if (value.type !== "u32" || !("value" in value)) {
    return cursor.fail(field, `expected a u32, found ${describe(value)}`);
  }
  const alignment = Number(value.value);
  if (alignment === 0 || 2 ** Math.floor(Math.log2(alignment)) !== alignment) {
    cursor.fail(field, `${alignment} is not a power of two`);
  }
  if (alignment > MAX_ALIGNMENT) cursor.fail(field, `${alignment}; the limit is ${MAX_ALIGNMENT}`);
  return alignment;
}

/** A tensor as its info declares it; the offset is relative to the start of the data. */
interface Info {
  readonly name: string;
  readonly type: GgmlType;
  readonly shape: readonly number[];
  readonly bytes: number;
  readonly offset: bigint;
}

function readInfos(cursor: Cursor, count: number): Info[] {
  const names = new Set<string>();
  const infos: Info[] = [];
  for (let n = 0; n < count; n++) {
    const name = cursor.string(`tensor ${n}`, MAX_NAME_BYTES);
    if (names.has(name)) cursor.fail("name", "duplicate name", name);
    names.add(name);
    infos.push(readInfo(cursor, name));
  }
  return infos;
}

function readInfo(cursor: Cursor, name: string): Info {
  const dimensions = cursor.u32("dimensions");
  if (dimensions > MAX_DIMENSIONS) cursor.fail("dimensions", `${dimensions}; the limit is ${MAX_DIMENSIONS}`, name);
  const sizes = Array.from({ length: dimensions }, () => cursor.u64("dimensions"));
  const id = cursor.u32("type");
  const type = GGML_TYPES.get(id) ?? cursor.fail("type", `unknown type ${id}`, name);
  const { blockWeights, blockBytes } = type;
  const text = `[${sizes.toReversed()}]`;
  const row = sizes[0] ?? 1n;
  if (row % BigInt(blockWeights) !== 0n) {
    cursor.fail("shape", `${text}: ${row} columns of ${type.name} are not a multiple of ${blockWeights}`, name);
  }
  const bytes = sizes.reduce((product, size) => product * size, 1n) / BigInt(blockWeights) * BigInt(blockBytes);
  const most = sizes.reduce((most, size) => size > most ? size : most, bytes);
  if (most > Number.MAX_SAFE_INTEGER) cursor.fail("shape", `${text} of ${type.name} has more than 2^53 bytes`, name);
  const offset = cursor.u64("offset");
  return { name, type, shape: sizes.map(Number).reverse(), bytes: Number(bytes), offset };
}

/** Checks that each tensor begins at the aligned end of the previous one, and that the tensors fill the file. */
function layOut({ path, bytes: fileBytes }: ByteSource, infos: Info[], start: number, alignment: number): GgufTensor[] {
  let end = start;
  const tensors = infos.map(({ offset, ...info }): GgufTensor => {
    const place = { path, tensor: info.name, field: "offset" };
    const at = padded(end, alignment);
    if (offset !== BigInt(at - start)) {
      throw new CheckpointError(place, `expected ${at - start}, the next aligned offset, found ${offset}`);
    }
    end = at + info.bytes;
    if (end > fileBytes) {
      throw new CheckpointError(
        place,
        `the data ends at byte ${end}, but the file has ${fileBytes} bytes; the file is truncated`,
      );
    }
    return { ...info, offset: at };
  });
  if (fileBytes > padded(end, alignment)) {
    throw new CheckpointError({ path }, `${fileBytes - end} bytes follow the last tensor, which ends at ${end}`);
  }
  return tensors;
}

/** Rounds up to a multiple of the alignment. */
function padded(offset: number, alignment: number): number {
  return Math.ceil(offset / alignment) * alignment;
}

/** A tensor to be written. */
export interface NewTensor {
  /** Its name. */
  readonly name: string;
  /** Its format. */
  readonly type: GgmlType;
  /** Rows and columns of a matrix, the length of a vector; GGUF stores them in reverse. */
  readonly shape: readonly number[];
  /** Its size. */
  readonly bytes: number;
}

/** The offsets of consecutive tensors from `start` on, each at a multiple of 32, and the end of the file. */
export function offsetsOf(start: number, tensors: readonly { readonly bytes: number }[]): number[] {
  const offsets = [start];
  for (const { bytes } of tensors) offsets.push(padded(offsets.at(-1)! + bytes, DEFAULT_ALIGNMENT));
  return offsets;
}

/**
 * Serializes the header of a file, padded; the tensors follow at {@link offsetsOf} its length.
 *
 * @param metadata without `general.alignment`
 */
export function serializeGguf(metadata: Metadata, tensors: readonly NewTensor[]): Uint8Array<ArrayBuffer> {
  const out = new Writer();
  out.bytes(new TextEncoder().encode(MAGIC));
  out.number("u32", VERSION);
  out.number("u64", tensors.length);
  out.number("u64", metadata.size);
  for (const [key, value] of metadata) {
    out.string(key);
    if ("values" in value) {
      out.number("u32", ARRAY_ID);
      out.number("u32", BY_TYPE.get(value.type)!.id);
      out.number("u64", value.values.length);
      for (let n = 0; n < value.values.length; n++) out.scalar(value.type, value.values[n]);
    } else {
      out.number("u32", BY_TYPE.get(value.type)!.id);
      out.scalar(value.type, value.value);
    }
  }
  const offsets = offsetsOf(0, tensors);
  for (const [n, { name, type, shape }] of tensors.entries()) {
    out.string(name);
    out.number("u32", shape.length);
    for (const size of shape.toReversed()) out.number("u64", size);
    out.number("u32", type.id);
    out.number("u64", offsets[n]);
  }
  return out.finish(DEFAULT_ALIGNMENT);
}

/** Writes values to a growing buffer. */
class Writer {
  #buffer = new Uint8Array(1 << 16);
  #view = new DataView(this.#buffer.buffer);
  #length = 0;

  bytes(bytes: Uint8Array): void {
    // This call may replace the buffer.
    const at = this.#room(bytes.length);
    this.#buffer.set(bytes, at);
  }

  number(type: ValueType, value: Scalar): void {
    const { bytes, set } = BY_TYPE.get(type)!;
    const at = this.#room(bytes);
    set(this.#view, at, value);
  }

  string(text: string): void {
    const bytes = new TextEncoder().encode(text);
    this.number("string", bytes.length);
    this.bytes(bytes);
  }

  scalar(type: ValueType, value: Scalar): void {
    if (type === "string") this.string(String(value));
    else this.number(type, value);
  }

  finish(alignment: number): Uint8Array<ArrayBuffer> {
    this.#room(padded(this.#length, alignment) - this.#length);
    return this.#buffer.slice(0, this.#length);
  }

  /** Makes room for `bytes` more bytes. @returns their offset */
  #room(bytes: number): number {
    const at = this.#length;
    this.#length += bytes;
    if (this.#length > this.#buffer.length) {
      const grown = new Uint8Array(2 ** Math.ceil(Math.log2(this.#length)));
      grown.set(this.#buffer);
      this.#buffer = grown;
      this.#view = new DataView(grown.buffer);
    }
    return at;
  }
}
