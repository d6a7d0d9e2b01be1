/**
 * Loads matrices ahead: the workers of a pool read and pack them while the first thread does something else, such as
 * loading a tokenizer. The matrices are cut into pieces, and each thread claims one piece after the other: the first thread
 * too, when it needs a matrix. What a worker can't load, the first thread loads again, so that errors are the same.
 *
 * @module
 */

import { readAt, reopen } from "../files/read.ts";
import type { SystemFile } from "../files/system.ts";
import { FORMATS } from "../format/blocks.ts";
import { type Arenas, STAGING_BYTES } from "./arena.ts";
import { instantiate } from "./codec_wasm.ts";
import { groupBytesOf, isLong, pack, placeMatrix, recordMatrix } from "./load.ts";
import type { Matrix, Place, ReadBytes } from "./operations.ts";
import type { Segment } from "./view.ts";
import type { SystemWorker } from "./workers.ts";

/** The states of a piece. */
const STATE = { free: 0, claimed: 1, loaded: 2, failed: 3 } as const;

/** The most bytes of a piece in a pool, unless a single group has more. */
const PIECE_BYTES = 1 << 22;

/** A matrix, and where it is. */
export interface PlacedMatrix extends Matrix {
  /** The place of its first byte. */
  readonly place: Place;
}

/** Groups of a matrix, as a message to workers: the format by its name. */
interface Piece extends Segment {
  readonly format: string;
  readonly rows: number;
  readonly columns: number;
  readonly place: Place;
}

/** The message to a worker. */
export interface LoadAhead {
  readonly memories: readonly WebAssembly.Memory[];
  readonly pieces: readonly Piece[];
  /**
   * The states of the pieces. In a buffer of their own, since a worker may get the message late, when the memories are
   * used for something else; all pieces are claimed then.
   */
  readonly states: Int32Array;
  /** The addresses of the worker's staging areas, by memory. */
  readonly staging: readonly number[];
}

/** A matrix that is loaded ahead. */
interface Entry {
  readonly matrix: PlacedMatrix;
  readonly segments: readonly Segment[];
  /** Its pieces: the first, and the one after the last. */
  readonly first: number;
  readonly end: number;
}

/** The matrices that the workers of a pool load ahead. */
export class AheadMatrices {
  readonly #arenas: Arenas;
  /** By {@link keyOf}. */
  #entries = new Map<string, Entry>();
  #pieces: Piece[] = [];
  #states: Int32Array = new Int32Array();

  constructor(arenas: Arenas) {
    this.#arenas = arenas;
  }

  /** Starts loading matrices, in the order in which they will be taken. @throws {LimitError} there is no room for them */
  start(matrices: Iterable<PlacedMatrix>, workers: readonly Pick<SystemWorker<LoadAhead, never>, "post">[]): void {
    const { all } = this.#arenas;
    const entries = new Map<string, Entry>();
    const pieces: Piece[] = [];
    for (const matrix of matrices) {
      if (isLong(matrix)) continue;
      const { format: { name: format }, rows, columns, place } = matrix;
      const segments = [...placeMatrix(this.#arenas, matrix)];
      const groupBytes = groupBytesOf(matrix);
      const most = Math.max(1, Math.floor(PIECE_BYTES / groupBytes));
      const first = pieces.length;
      for (const { memory, address, first, groups } of segments) {
        for (let done = 0; done < groups; done += most) {
          const part = {
            first: first + done,
            groups: Math.min(most, groups - done),
            address: address + done * groupBytes,
          };
          pieces.push({ format, rows, columns, place, memory, ...part });
        }
      }
      entries.set(keyOf(place), { matrix, segments, first, end: pieces.length });
    }
    const states = new Int32Array(new SharedArrayBuffer(pieces.length * Int32Array.BYTES_PER_ELEMENT));
    const staging = workers.map(() => all.map((arena) => arena.take(STAGING_BYTES)));
    const memories = all.map(({ memory }) => memory);
    this.#states = states;
    this.#entries = entries;
    this.#pieces = pieces;
    for (const [n, worker] of workers.entries()) worker.post({ memories, pieces, states, staging: staging[n] });
  }

  /**
   * The record of a matrix that is loaded ahead, once all of it is loaded.
   *
   * @param read loads the pieces that no worker has loaded
   * @returns its address in the main memory; undefined if the matrix was not asked for
   * @throws {BadScale}
   */
  take({ format, rows, columns }: Matrix, place: Place, read: ReadBytes): number | undefined {
    const entry = this.#entries.get(keyOf(place));
    const { matrix } = entry ?? {};
    if (entry === undefined || matrix?.format !== format || matrix.rows !== rows || matrix.columns !== columns) {
      return undefined;
    }
    for (let n = entry.first; n < entry.end; n++) {
      if (!claim(this.#states, n) && this.#settled(n) === STATE.loaded) continue;
      const arena = this.#arenas.all[this.#pieces[n].memory];
      // So that nobody waits for it, should packing throw.
      Atomics.store(this.#states, n, STATE.failed);
      pack(arena, entry.matrix, read, this.#pieces[n], arena.staging);
      Atomics.store(this.#states, n, STATE.loaded);
    }
    return recordMatrix(this.#arenas, entry.matrix, entry.segments);
  }

  /** Forgets the matrices that were not taken, when no worker is loading any more. */
  stop(): void {
    for (let n = 0; n < this.#pieces.length; n++) {
      if (Atomics.compareExchange(this.#states, n, STATE.free, STATE.failed) === STATE.claimed) this.#settled(n);
    }
    this.#entries.clear();
    this.#pieces = [];
  }

  /** The state of a piece when the thread that has claimed it is done with it. */
  #settled(piece: number): number {
    while (Atomics.load(this.#states, piece) === STATE.claimed) Atomics.wait(this.#states, piece, STATE.claimed);
    return Atomics.load(this.#states, piece);
  }
}

function keyOf({ path, version, offset }: Place): string {
  return JSON.stringify([path, version, offset]);
}

/** Claims a piece, unless another thread has claimed it. */
function claim(states: Int32Array, piece: number): boolean {
  return Atomics.compareExchange(states, piece, STATE.free, STATE.claimed) === STATE.free;
}

/** Loads pieces as a worker, until all are claimed. */
export function loadAhead({ memories, pieces, states, staging }: LoadAhead): void {
  const targets = memories.map((memory) => {
    return {
      wasm: instantiate(memory),
      bytes: (at: number, length: number) => new Uint8Array(memory.buffer, at, length),
    };
  });
  const files = new Map<string, SystemFile>();
  for (const [n, piece] of pieces.entries()) {
    if (!claim(states, n)) continue;
    const { rows, columns, memory, place: { path, version, offset } } = piece;
    let state: number = STATE.failed;
    try {
      const file = files.get(path) ?? reopen(path, version);
      files.set(path, file);
      const read: ReadBytes = (at, into) => readAt(file, path, offset + at, into);
      pack(targets[memory], { format: FORMATS.get(piece.format)!, rows, columns }, read, piece, staging[memory]);
      state = STATE.loaded;
    } catch {
      // The first thread loads the piece again, and reports the error.
    }
    Atomics.store(states, n, state);
    Atomics.notify(states, n);
  }
  for (const file of files.values()) file.close();
}
