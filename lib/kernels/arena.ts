/**
 * The memories of a pool. Areas are allocated one after the other, and freed all at once.
 *
 * @module
 */

import { LimitError } from "../errors.ts";
import { adviseHugePages } from "../libc.ts";
import { FIRST_ADDRESS, instantiate, MAX_PAGES, PAGE } from "./codec_wasm.ts";
import { type ActivationBuffer, padded } from "./operations.ts";
import { GROUP } from "./wasm/layout.ts";

/** Bytes of a matrix that are read and packed at a time. */
export const STAGING_BYTES = 1 << 20;

/** Bytes of a memory that are reserved for activations and scratch; at most half of it. */
const RESERVE_BYTES = 1 << 29;

/** A memory grows to a multiple of this size, or to its limit. */
const GROWTH_BYTES = 1 << 27;

/** The alignment of areas: a cache line. */
const ALIGNMENT = 64;

/** The value of every byte of a guard. Four of them are a NaN, so a kernel that reads a guard gives NaN. */
const GUARD = 0xff;

/** A shared memory from which areas are allocated. */
export class Arena {
  readonly memory: WebAssembly.Memory;
  readonly wasm: ReturnType<typeof instantiate>;
  readonly #limit: number;
  readonly #guardBytes: number;
  #top = 0;
  /** Bytes from here on have never been allocated, so they are zero. */
  #clean = FIRST_ADDRESS;
  /** Whether the memory may grow. Threads see the memory as it is at the first operation. */
  grows = true;
  /** Start and end (exclusive) of each guard. */
  #guards: [number, number][] = [];
  #staging?: number;

  /**
   * @param limitBytes the maximum size of the memory
   * @param guardBytes the size of the guards before and after each area (see {@link checkGuards})
   */
  constructor(limitBytes: number, guardBytes: number) {
    this.#limit = limitBytes;
    this.#guardBytes = guardBytes;
    this.memory = new WebAssembly.Memory({ initial: 1, maximum: MAX_PAGES, shared: true });
    this.wasm = instantiate(this.memory);
    this.reset();
  }

  /** Bytes that are free for weights. */
  get free(): number {
    return this.#limit - Math.min(RESERVE_BYTES, this.#limit / 2) - this.#top - ALIGNMENT;
  }

  /** The area of {@link STAGING_BYTES} into which bytes are read before they are packed. */
  get staging(): number {
    return this.#staging ??= this.take(STAGING_BYTES);
  }

  /** Whether `bytes` bytes of weights fit, in addition to the staging area. */
  fits(bytes: number): boolean {
    return this.staging > 0 && this.free >= bytes;
  }

  /**
   * Allocates an area.
   *
   * @param zero whether it must contain zeros; weights overwrite it anyway
   * @throws {LimitError} the memory is full
   */
  take(bytes: number, zero = true): number {
    const at = Math.ceil(this.#top / ALIGNMENT) * ALIGNMENT;
    const end = at + Math.ceil(bytes);
    const top = end + this.#guardBytes;
    if (top > this.#limit) {
      throw new LimitError(
        `the activations and the cache need more than ${this.#limit} bytes; ask for a shorter context`,
      );
    }
    if (top > this.memory.buffer.byteLength) this.#grow(top);
    if (zero && at < this.#clean) this.bytes(at, Math.min(end, this.#clean) - at).fill(0);
    this.#guard(this.#top, at);
    this.#guard(end, top);
    this.#top = top;
    this.#clean = Math.max(this.#clean, top);
    return at;
  }

  /**
   * Grows the memory to at least `end` bytes. It grows in large steps, since a huge page needs memory for all of it.
   */
  #grow(end: number): void {
    if (!this.grows) throw layoutFixed();
    const have = this.memory.buffer.byteLength;
    const wanted = Math.min(Math.ceil(end / GROWTH_BYTES) * GROWTH_BYTES, this.#limit);
    this.memory.grow(Math.ceil((wanted - have) / PAGE));
    adviseHugePages(this.memory, have);
  }

  /** Makes a guard of bytes `start` to `end` - 1, which belong to no area. */
  #guard(start: number, end: number): void {
    if (this.#guardBytes === 0) return;
    this.bytes(start, end - start).fill(GUARD);
    this.#guards.push([start, end]);
  }

  /**
   * Checks the guards.
   *
   * @param memory the number of the memory, for messages
   * @returns the total size of the guards
   * @throws {Error} a guard was overwritten
   */
  checkGuards(memory: number): number {
    let count = 0;
    for (const [start, end] of this.#guards) {
      const at = this.bytes(start, end - start).findIndex((byte) => byte !== GUARD);
      if (at >= 0) throw new Error(`byte ${start + at} of memory ${memory}, outside of all areas, was written to`);
      count += end - start;
    }
    return count;
  }

  /** Frees all areas. */
  reset(): void {
    this.grows = true;
    this.#guards = [];
    this.#staging = undefined;
    this.#top = FIRST_ADDRESS + this.#guardBytes;
    this.#guard(0, this.#top);
  }

  /** A view of an area. */
  bytes(at: number, length: number): Uint8Array {
    return new Uint8Array(this.memory.buffer, at, length);
  }
}

/** The memories of a pool: the main one, and more for weights that don't fit it. */
export class Arenas {
  readonly #limitBytes: number;
  readonly #guardBytes: number;
  readonly #arenas: Arena[];
  #frozen = false;

  /** The parameters are those of {@link Arena}. */
  constructor(limitBytes: number, guardBytes: number) {
    this.#limitBytes = limitBytes;
    this.#guardBytes = guardBytes;
    this.#arenas = [new Arena(limitBytes, guardBytes)];
  }

  /** The memory of everything but the weights that don't fit it. */
  get main(): Arena {
    return this.#arenas[0];
  }

  /** All memories, the main one first. */
  get all(): readonly Arena[] {
    return this.#arenas;
  }

  /** Whether no memory may grow or be added any more, since the threads have views of them. */
  get frozen(): boolean {
    return this.#frozen;
  }

  /**
   * The index of the first memory with room for `bytes` bytes of weights; adds a memory if there is none.
   *
   * @throws {LimitError} no memory can have room for them
   */
  roomFor(bytes: number): number {
    const index = this.#arenas.findIndex((arena) => arena.fits(bytes));
    if (index >= 0) return index;
    if (this.#frozen) throw layoutFixed();
    const arena = new Arena(this.#limitBytes, this.#guardBytes);
    if (!arena.fits(bytes)) {
      throw new LimitError(
        `${GROUP} rows of a matrix take ${bytes} bytes, more than a memory of ${this.#limitBytes} bytes has room for`,
      );
    }
    return this.#arenas.push(arena) - 1;
  }

  /** Fixes the number of memories and their sizes. */
  freeze(): void {
    this.#frozen = true;
    for (const arena of this.#arenas) arena.grows = false;
  }

  /** See {@link Arena.checkGuards}. */
  checkGuards(): number {
    return this.#arenas.reduce((sum, arena, memory) => sum + arena.checkGuards(memory), 0);
  }

  /** Frees all areas, and drops all memories but the main one. */
  reset(): void {
    this.#arenas.length = 1;
    this.main.reset();
    this.#frozen = false;
  }
}

/** The error of an allocation that does not fit the memory layout, which is fixed at the first operation. */
export function layoutFixed(): RangeError {
  return new RangeError(
    "the memory layout was fixed at the first operation, and has no room for more; call reset first",
  );
}

/** Bytes from one row of a buffer to the next. */
export function stride(buffer: ActivationBuffer): number {
  return padded(buffer.width) * 4;
}
