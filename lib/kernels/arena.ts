/**
 * The memories of a pool: areas are taken from them, one after the other, and given back all at once.
 *
 * @module
 */

import { LimitError } from "../errors.ts";
import { adviseHugePages } from "../libc.ts";
import { FIRST_ADDRESS, instantiate, MAX_PAGES, PAGE } from "./codec_wasm.ts";
import { GROUP } from "./wasm/layout.ts";

/** Bytes of a matrix that are read and packed at once. */
export const STAGING_BYTES = 1 << 20;

/** The most that a memory keeps free of weights, for activations and scratch. */
const RESERVE_BYTES = 1 << 29;

/** A memory grows to a multiple of so many bytes, or to its limit. */
const GROWTH_BYTES = 1 << 27;

/** Areas begin at multiples of this: a cache line. */
const ALIGNMENT = 64;

/** Every byte of a guard. Four of them are a NaN, so that results show where a kernel has read one. */
const GUARD = 0xff;

/** A shared memory that areas are taken from. */
export class Arena {
  readonly memory: WebAssembly.Memory;
  readonly wasm: ReturnType<typeof instantiate>;
  readonly #limit: number;
  readonly #guardBytes: number;
  #top = 0;
  /** Bytes from here on have never been given out, so they are zero. */
  #clean = FIRST_ADDRESS;
  /** Whether the memory may grow: threads see it as it is at the first operation. */
  grows = true;
  /** First and last (exclusive) address of each guard. */
  #guards: [number, number][] = [];
  #staging?: number;

  /**
   * @param limitBytes the most bytes that the memory may have
   * @param guardBytes bytes before and after each area that {@link checkGuards} looks at
   */
  constructor(limitBytes: number, guardBytes: number) {
    this.#limit = limitBytes;
    this.#guardBytes = guardBytes;
    this.memory = new WebAssembly.Memory({ initial: 1, maximum: MAX_PAGES, shared: true });
    this.wasm = instantiate(this.memory);
    this.reset();
  }

  /** Bytes that weights may still take. */
  get free(): number {
    return this.#limit - Math.min(RESERVE_BYTES, this.#limit / 2) - this.#top - ALIGNMENT;
  }

  /** The area of {@link STAGING_BYTES} that bytes are read into before they are packed. */
  get staging(): number {
    return this.#staging ??= this.take(STAGING_BYTES);
  }

  /** Whether there is room for `bytes` bytes of weights beside the area that they are read into. */
  fits(bytes: number): boolean {
    return this.staging > 0 && this.free >= bytes;
  }

  /**
   * Takes an area.
   *
   * @param zero whether it must hold zeros; weights are written over anyway
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

  /** Makes room up to byte `end` and more: a huge page is only given where all of it is there. */
  #grow(end: number): void {
    if (!this.grows) throw late();
    const have = this.memory.buffer.byteLength;
    const wanted = Math.min(Math.ceil(end / GROWTH_BYTES) * GROWTH_BYTES, this.#limit);
    this.memory.grow(Math.ceil((wanted - have) / PAGE));
    adviseHugePages(this.memory, have);
  }

  /** Makes the bytes from `start` to `end` - 1, which are of no area, a guard. */
  #guard(start: number, end: number): void {
    if (this.#guardBytes === 0) return;
    this.bytes(start, end - start).fill(GUARD);
    this.#guards.push([start, end]);
  }

  /** Looks at the guards of memory `memory`. @returns how many bytes they are @throws {Error} one was written to */
  checkGuards(memory: number): number {
    let count = 0;
    for (const [start, end] of this.#guards) {
      const at = this.bytes(start, end - start).findIndex((byte) => byte !== GUARD);
      if (at >= 0) throw new Error(`byte ${start + at} of memory ${memory}, outside of all areas, was written to`);
      count += end - start;
    }
    return count;
  }

  /** Gives every area back. */
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

/** All memories of a pool: one, and more for weights that don't fit it. */
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

  /** The memory that has all but the weights that don't fit it. */
  get main(): Arena {
    return this.#arenas[0];
  }

  /** All memories, the main one first. */
  get all(): readonly Arena[] {
    return this.#arenas;
  }

  /** Whether the threads know the memories, so that none may grow and none may be added. */
  get frozen(): boolean {
    return this.#frozen;
  }

  /** The index of the first memory that has room for `bytes` bytes of weights, a new one if none has. @throws {LimitError} */
  roomFor(bytes: number): number {
    const index = this.#arenas.findIndex((arena) => arena.fits(bytes));
    if (index >= 0) return index;
    if (this.#frozen) throw late();
    const arena = new Arena(this.#limitBytes, this.#guardBytes);
    if (!arena.fits(bytes)) {
      throw new LimitError(
        `${GROUP} rows of a matrix take ${bytes} bytes, more than a memory of ${this.#limitBytes} bytes has room for`,
      );
    }
    return this.#arenas.push(arena) - 1;
  }

  /** Lets no memory grow any more. */
  freeze(): void {
    this.#frozen = true;
    for (const arena of this.#arenas) arena.grows = false;
  }

  /** See {@link Arena.checkGuards}. */
  checkGuards(): number {
    return this.#arenas.reduce((sum, arena, memory) => sum + arena.checkGuards(memory), 0);
  }

  /** Gives back every area, and every memory but the main one. */
  reset(): void {
    this.#arenas.length = 1;
    this.main.reset();
    this.#frozen = false;
  }
}

/** What comes after the first operation does not fit what was laid out then. */
export function late(): RangeError {
  return new RangeError("larger than what there was before the first operation");
}
