/**
 * What a thread of a pool needs to begin with, and what it sees of the pool's memories.
 *
 * @module
 */

import { instantiate } from "./codec_wasm.ts";
import { PACKINGS } from "./packings.ts";
import { ATTEND_BYTES, GROUP_RESULT, UNPACKED, UNPACKED_SUMS } from "./wasm/layout.ts";

/** Tokens that a piece of work takes at once: their results stay in a processor's cache. */
export const TOKEN_TILE = 64;

/** Groups that it takes at once, for the same reason. */
export const GROUP_TILE = 32;

/** Bytes of the results of one tile; there are two, for gate and up. */
export const TILE_BYTES = TOKEN_TILE * GROUP_TILE * GROUP_RESULT;

/** Heads that attention takes at once. */
export const MOST_HEADS = 3;

/** Values of a head there is room for, in binary32, in scratch. */
export const MOST_HEAD_DIM = 1024;

/** Bytes of {@link MOST_HEADS} heads. */
const HEAD_ROOM = MOST_HEADS * MOST_HEAD_DIM * 4;

/** Areas of that size that attention needs. */
const HEAD_ROOMS = 6;

/** Their addresses. */
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
  /** What the scores of each head are multiplied with. */
  readonly factors: number;
}

/** What every thread must know before the first program. */
export interface Layout {
  /** Memory 0 has everything but the weights that did not fit. */
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

/** What a thread is told before the first program. */
export interface Assigned {
  readonly layout: Layout;
  readonly thread: number;
}

/** The addresses of what a thread needs for itself in a memory. */
export interface Scratch {
  /** Prepared activations of a tile of tokens. */
  readonly prepared: number;
  /** A normalized row. */
  readonly normal: number;
  /** Scores of {@link MOST_HEADS} heads. */
  readonly scores: number;
  /** Two tiles of results, or what attention needs: see {@link View.rooms}. */
  readonly tiles: number;
  /** Two groups of a block as binary32, and their sums, which exact products need. */
  readonly unpacked: number;
  /** The parameters of attention. */
  readonly attend: number;
}

/**
 * Takes the areas of a thread's scratch in a memory.
 *
 * @param preparedBytes the most bytes of prepared activations of one token
 * @param scoreBytes those of {@link Layout}
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

/** What the threads know of a matrix: see {@link writeRecord}. */
export interface MatrixRecord {
  /** An index of PACKINGS. */
  readonly kind: number;
  readonly blocks: number;
  readonly segments: readonly Segment[];
}

/** Numbers of a record before its segments, and of a segment. */
const RECORD_HEAD = 3;
const SEGMENT_WORDS = 4;

/** Bytes of a record of so many segments. */
export function recordBytes(segments: number): number {
  return 8 * (RECORD_HEAD + SEGMENT_WORDS * segments);
}

/** Writes a record at an address; {@link View.record} reads it. */
export function writeRecord(buffer: ArrayBufferLike, address: number, { kind, blocks, segments }: MatrixRecord): void {
  const words = segments.flatMap(({ memory, address, first, groups }) => [memory, address, first, groups]);
  new Float64Array(buffer, address).set([kind, blocks, segments.length, ...words]);
}

/** One thread's view of the memories: its own instances of the kernels, and the same bytes. */
export class View {
  /** By memory. */
  readonly wasm: ReturnType<typeof instantiate>[];
  readonly bytes: Uint8Array[];
  /** Of memory 0. */
  readonly words: Int32Array;
  readonly floats: Float32Array;
  /** This thread's, by memory. */
  readonly scratch: readonly Scratch[];
  /** In the place of tiles, for attention. */
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

  /** The kernel of a name in a memory. @throws {RangeError} there is none */
  kernel(name: string, memory = 0): (...args: number[]) => number {
    const found = this.wasm[memory][name];
    if (found === undefined) throw new RangeError(`there is no kernel ${name}`);
    return found;
  }

  /** The record at an address, which stays the same as long as the threads live. */
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

  /** Visits the pieces of a matrix that hold its groups first to end - 1. */
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
