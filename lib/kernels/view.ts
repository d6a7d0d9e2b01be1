/**
 * The memory layout of a pool, and a thread's view of it.
 *
 * @module
 */

import { instantiate } from "./codec_wasm.ts";
import { PACKINGS } from "./packings.ts";
import { ATTEND_BYTES, GROUP_RESULT, UNPACKED, UNPACKED_SUMS } from "./wasm/layout.ts";

/** Tokens in a tile: its results stay in a processor's cache. */
export const TOKEN_TILE = 64;

/** Groups in a tile. */
export const GROUP_TILE = 32;

/** Bytes of the results of a tile. There are two tiles, for gate and up. */
export const TILE_BYTES = TOKEN_TILE * GROUP_TILE * GROUP_RESULT;

/** The maximum number of heads in one call of an attention kernel. */
export const MOST_HEADS = 3;

/** The maximum number of values in a head, by the size of the scratch. */
export const MOST_HEAD_DIM = 1024;

/** Bytes of {@link MOST_HEADS} heads in binary32. */
const HEAD_ROOM = MOST_HEADS * MOST_HEAD_DIM * 4;

/** Areas of this size that attention needs. */
const HEAD_ROOMS = 6;

/** The addresses of these areas. */
export interface HeadRooms {
  /** A normalized head. */
  readonly normal: number;
  /** A rotated key. */
  readonly key: number;
  /** Rotated queries, and the same as integers. */
  readonly queries: number;
  readonly integers: number;
  /** Sums of weighted values. */
  readonly sums: number;
  /** The factor of the scores of each head. */
  readonly factors: number;
}

/** The memory layout of a pool. */
export interface Layout {
  /** Memory 0 has everything but the weights that did not fit it. */
  readonly memories: readonly WebAssembly.Memory[];
  readonly threads: number;
  /** Addresses in memory 0. */
  readonly control: number;
  readonly commands: number;
  readonly message: number;
  /** By thread, then by memory. */
  readonly scratch: readonly (readonly Scratch[])[];
  /** Bytes of the scores of {@link MOST_HEADS} heads. */
  readonly scoreBytes: number;
}

/** The message to a worker before the first program. */
export interface Assigned {
  readonly layout: Layout;
  readonly thread: number;
}

/** The addresses of a thread's scratch areas in one memory. */
export interface Scratch {
  /** Prepared activations of a tile of tokens. */
  readonly prepared: number;
  /** A normalized row. */
  readonly normal: number;
  /** Scores of {@link MOST_HEADS} heads. */
  readonly scores: number;
  /** Two tiles of results; attention uses the same memory, see {@link View.rooms}. */
  readonly tiles: number;
  /** A block of two groups as binary32, and their sums, for exact products. */
  readonly unpacked: number;
  /** The parameter block of attention. */
  readonly attend: number;
}

/**
 * Allocates the scratch areas of a thread in a memory.
 *
 * @param preparedBytes the maximum number of bytes of one token's prepared activations
 * @param scoreBytes see {@link Layout}
 */
export function takeScratch(take: (bytes: number) => number, preparedBytes: number, scoreBytes: number): Scratch {
  return {
    prepared: take(TOKEN_TILE * preparedBytes),
    normal: take(preparedBytes),
    scores: take(scoreBytes),
    tiles: take(Math.max(2 * TILE_BYTES, HEAD_ROOMS * HEAD_ROOM)),
    unpacked: take(UNPACKED + UNPACKED_SUMS * TOKEN_TILE),
    attend: take(ATTEND_BYTES),
  };
}

/** A part of a matrix in one memory: groups `first` to `first + groups` - 1, from `address` on. */
export interface Segment {
  readonly memory: number;
  readonly address: number;
  readonly first: number;
  readonly groups: number;
}

/** The record of a matrix that the threads read. */
export interface MatrixRecord {
  /** An index of PACKINGS. */
  readonly kind: number;
  readonly blocks: number;
  readonly segments: readonly Segment[];
}

/** Words of a record before its segments, and words of a segment. */
const RECORD_HEAD = 3;
const SEGMENT_WORDS = 4;

/** The size in bytes of a record with `segments` segments. */
export function recordBytes(segments: number): number {
  return 8 * (RECORD_HEAD + SEGMENT_WORDS * segments);
}

/** Writes a record at an address; {@link View.record} reads it. */
export function writeRecord(buffer: ArrayBufferLike, address: number, { kind, blocks, segments }: MatrixRecord): void {
  const words = segments.flatMap(({ memory, address, first, groups }) => [memory, address, first, groups]);
  new Float64Array(buffer, address).set([kind, blocks, segments.length, ...words]);
}

/** A thread's view of the memories: its own instances of the kernels, on the same bytes. */
export class View {
  /** The kernels and the bytes, by memory. */
  readonly wasm: ReturnType<typeof instantiate>[];
  readonly bytes: Uint8Array[];
  /** Views of memory 0. */
  readonly words: Int32Array;
  readonly floats: Float32Array;
  /** This thread's scratch, by memory. */
  readonly scratch: readonly Scratch[];
  /** The areas of attention, in the memory of the tiles. */
  readonly rooms: HeadRooms;

  readonly #records = new Map<number, MatrixRecord>();
  readonly #doubles: Float64Array;

  constructor(readonly layout: Layout, readonly thread: number) {
    const { memories, scratch } = layout;
    this.wasm = memories.map(instantiate);
    this.bytes = memories.map(({ buffer }) => new Uint8Array(buffer));
    const { buffer } = memories[0];
    this.#doubles = new Float64Array(buffer, 0, buffer.byteLength >>> 3);
    this.words = new Int32Array(buffer, 0, buffer.byteLength >>> 2);
    this.floats = new Float32Array(buffer, 0, buffer.byteLength >>> 2);
    this.scratch = scratch[thread];
    const { tiles } = this.scratch[0];
    const [normal, key, queries, integers, sums, factors] = Array.from({ length: HEAD_ROOMS }, (_, n) => {
      return tiles + n * HEAD_ROOM;
    });
    this.rooms = { normal, key, queries, integers, sums, factors };
  }

  /** The kernel of this name in a memory. @throws {RangeError} there is none */
  kernel(name: string, memory = 0): (...args: number[]) => number {
    const found = this.wasm[memory][name];
    if (found === undefined) throw new RangeError(`there is no kernel ${name}`);
    return found;
  }

  /** The record at an address. It is cached, since records don't change while the threads live. */
  record(address: number): MatrixRecord {
    let record = this.#records.get(address);
    if (record === undefined) this.#records.set(address, record = this.#read(address >>> 3));
    return record;
  }

  #read(at: number): MatrixRecord {
    const words = this.#doubles;
    const segments = Array.from({ length: words[at + 2] }, (_, s): Segment => {
      const from = at + RECORD_HEAD + s * SEGMENT_WORDS;
      return { memory: words[from], address: words[from + 1], first: words[from + 2], groups: words[from + 3] };
    });
    return { kind: words[at], blocks: words[at + 1], segments };
  }

  /** Visits the parts of a matrix with its groups `first` to `end` - 1. */
  segments(
    { kind, blocks, segments }: MatrixRecord,
    first: number,
    end: number,
    visit: (memory: number, w: number, first: number, groups: number) => void,
  ): void {
    const bytes = blocks * PACKINGS[kind].groupBytes;
    for (const segment of segments) {
      const from = Math.max(first, segment.first);
      const to = Math.min(end, segment.first + segment.groups);
      if (from < to) visit(segment.memory, segment.address + (from - segment.first) * bytes, from, to - from);
    }
  }

  /** Copies bytes from one memory to another. */
  move(from: number, source: number, to: number, target: number, bytes: number): void {
    this.bytes[to].set(this.bytes[from].subarray(source, source + bytes), target);
  }
}
