/**
 * Reads the numbers and strings of a GGUF file sequentially.
 *
 * @module
 */

import { CheckpointError } from "../errors.ts";
import type { Kind, Scalar } from "./values.ts";

/**
 * The limit on the header, which is held in memory: more than that of any model (a vocabulary of 260,000 tokens with
 * its merges takes 15 MB).
 */
const MAX_HEADER_BYTES = 256 * 1024 * 1024;

/**
 * The limit on the strings in all arrays, since each takes memory of its own: five times the strings of the largest
 * vocabulary with its merges.
 */
const MAX_STRINGS = 1 << 22;

/** Bytes of the file that are read at a time. */
const STEP = 1 << 20;

/** A file to read from. */
export interface ByteSource {
  /** The path, for messages. */
  readonly path: string;
  /** The size of the file. */
  readonly bytes: number;
  /** Fills `into` with the bytes from `offset` on, all of which exist. */
  read(offset: number, into: Uint8Array): void;
}

/**
 * Reads numbers and strings sequentially. Every read is checked against the end of the file and the limit on the
 * header.
 */
export class Cursor {
  at = 0;
  readonly #source: ByteSource;
  #window = new Uint8Array(0);
  #view = new DataView(new ArrayBuffer(0));
  #start = 0;
  #strings = 0;

  constructor(source: ByteSource) {
    this.#source = source;
  }

  /** Bytes left in the file, up to the limit. */
  get left(): number {
    return Math.min(this.#source.bytes, MAX_HEADER_BYTES) - this.at;
  }

  fail(field: string, problem: string, tensor?: string): never {
    throw new CheckpointError({ path: this.#source.path, tensor, field }, problem);
  }

  /** Checks that `count` items of at least `least` bytes each can follow, and that they are at most `limit`. */
  room(field: string, count: bigint | number, least: number, what: string, limit = Infinity): number {
    if (BigInt(count) * BigInt(least) > BigInt(this.left)) {
      const limit = this.#source.bytes > MAX_HEADER_BYTES
        ? `the metadata and the tensor infos may have at most ${MAX_HEADER_BYTES} bytes`
        : "the file is truncated";
      this.fail(field, `${count} ${what} do not fit into the ${this.left} bytes that follow; ${limit}`);
    }
    if (count > limit) this.fail(field, `${count} ${what}; the limit is ${limit}`);
    return Number(count);
  }

  /** Reads the next `bytes` bytes. @returns their offset in the window */
  #take(field: string, bytes: number): number {
    this.room(field, bytes, 1, "bytes");
    const end = this.#start + this.#window.length;
    if (this.at + bytes > end) {
      this.#window = new Uint8Array(Math.max(bytes, Math.min(STEP, this.left)));
      this.#view = new DataView(this.#window.buffer);
      this.#start = this.at;
      this.#source.read(this.at, this.#window);
    }
    const place = this.at - this.#start;
    this.at += bytes;
    return place;
  }

  // #take may replace the window and the view, so the view is used after it.
  u32(field: string): number {
    const place = this.#take(field, 4);
    return this.#view.getUint32(place, true);
  }

  u64(field: string): bigint {
    const place = this.#take(field, 8);
    return this.#view.getBigUint64(place, true);
  }

  string(field: string, limit = Infinity): string {
    const length = this.u64(field);
    if (length > limit) this.fail(field, `a string of ${length} bytes; the limit is ${limit}`);
    const bytes = this.room(field, length, 1, "bytes of a string");
    const place = this.#take(field, bytes);
    try {
      return UTF8.decode(this.#window.subarray(place, place + bytes));
    } catch {
      this.fail(field, "a string that is not valid UTF-8");
    }
  }

  scalar(field: string, { type, bytes, get }: Kind): Scalar {
    if (type === "string") return this.string(field);
    const place = this.#take(field, bytes);
    if (type === "bool") this.#checkBoolean(field, this.#window[place]);
    return get(this.#view, place);
  }

  strings(field: string, count: number): string[] {
    this.#strings += count;
    if (this.#strings > MAX_STRINGS) {
      this.fail(field, `the arrays up to here have ${this.#strings} strings; the limit is ${MAX_STRINGS}`);
    }
    return Array.from({ length: count }, () => this.string(field));
  }

  numbers(field: string, { type, bytes, array }: Kind, count: number): ArrayLike<Scalar> {
    const values = new Uint8Array(this.room(field, count * bytes, 1, "bytes"));
    this.#source.read(this.at, values);
    this.at += values.length;
    if (type === "bool") values.forEach((byte) => this.#checkBoolean(field, byte));
    return array(values.buffer);
  }

  #checkBoolean(field: string, value: number): void {
    if (value > 1) this.fail(field, `invalid boolean: ${value}`);
  }
}

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
