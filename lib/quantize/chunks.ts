/**
 * Reads, encodes, compares and writes the bytes of checkpoints in chunks, on several threads, and passes the chunks to
 * a consumer in order. Memory use depends only on the number of threads.
 *
 * @module
 */

import { CheckpointError, SystemError } from "../errors.ts";
import { firstNotFinite, floatNamed, type ScaleRule, widthNamed } from "../format/blocks.ts";
import type { SystemFile } from "../files/system.ts";
import { checkUnchanged, readAt, reopen, reopenToWrite, writeAt } from "../files/read.ts";
import type { BlockKernels, SquaredError } from "../kernels/codec.ts";
import { MAX_THREADS, startWorker } from "../kernels/workers.ts";
import { allocate, FIRST_ADDRESS, MARGIN_BYTES, MAX_PAGES, PAGE, wasmKernels } from "../kernels/codec_wasm.ts";
import { nextTurn } from "../pace.ts";

/** The largest source or result of a chunk, in bytes: it fits into a cache, and makes the cost of messages small. */
export const CHUNK_BYTES = 1 << 21;

/** A range of bytes in a file; `file` is an index into the files of {@link runChunks}. */
export interface Span {
  readonly file: number;
  readonly offset: number;
  readonly bytes: number;
}

/** A part of a tensor that one thread processes. Its spans determine the work; see {@link ChunkProcessor.process}. */
export interface Chunk {
  /** Bytes of the float checkpoint. */
  readonly source?: Span;
  /** Bytes of an existing quantized checkpoint. */
  readonly stored?: Span;
  /** Where to write the result. */
  readonly target?: Span;
  /**
   * The formats, and the rule of the scales, if `target` is quantized. Without `source`, only the scales are checked.
   */
  readonly blocks?: {
    readonly count: number;
    readonly source?: string;
    readonly target: string;
    readonly rule?: ScaleRule;
  };
  /** The float format of bytes that are copied or stored as they are, which must be finite; see {@link floatsOf}. */
  readonly floats?: string;
}

/** The result of a chunk. Indexes are relative to the chunk; -1 means none. */
export interface ChunkResult extends SquaredError {
  /** The first block of the source that cannot be encoded. */
  unencodable: number;
  /** The first stored block whose scale is not finite. */
  badScale: number;
  /** The first weight that is not finite, in the stored floats or else in the source's. */
  notFinite: number;
  /** The first stored byte that differs from the one derived from the source. */
  difference: number;
}

/** A file of chunks: with its version if read, with its inode if written (see `reopen`, `reopenToWrite`). */
export type ChunkFile = { readonly path: string } & ({ readonly version: string } | { readonly inode: string });

// The layout of a slot in shared memory: the source, the result or stored bytes, the bytes derived for comparison.
const RESULT = CHUNK_BYTES;
const DERIVED = 2 * CHUNK_BYTES;
const SLOT_BYTES = 3 * CHUNK_BYTES;

/** Scratch memory for the kernels of one thread, in bytes, after the slots. */
const SCRATCH_BYTES = 64;

/** The address of a slot. */
function slotAddress(slot: number): number {
  return FIRST_ADDRESS + slot * SLOT_BYTES;
}

/** The address and size of a processed chunk: the stored bytes if there are any, else the bytes to write. */
function output(chunk: Chunk, slot: number): { address: number; bytes: number } {
  const { source, stored, target, blocks } = chunk;
  const bytes = (stored ?? target ?? source)!.bytes;
  return { address: slotAddress(slot) + (stored || blocks?.source ? RESULT : 0), bytes };
}

/** Processes chunks on one thread, with its own file handles, and kernels on the shared memory. */
export class ChunkProcessor {
  readonly #memory: Uint8Array;
  readonly #kernels: BlockKernels;
  readonly #files: { path: string; file: SystemFile }[] = [];

  /**
   * @param scratch address of the thread's scratch in `memory`
   * @throws {SystemError} a file cannot be opened, or has been replaced
   */
  constructor(memory: WebAssembly.Memory, files: readonly ChunkFile[], scratch: number) {
    this.#memory = new Uint8Array(memory.buffer);
    this.#kernels = wasmKernels(memory, scratch);
    for (const file of files) {
      const { path } = file;
      const opened = "inode" in file ? reopenToWrite(path, file.inode) : reopen(path, file.version);
      this.#files.push({ path, file: opened });
    }
  }

  /**
   * Reads the spans of a chunk, encodes the source's blocks, compares the result with the stored bytes, and writes it
   * to the target. A chunk without blocks is compared or copied byte for byte; its floats are checked.
   */
  process(chunk: Chunk, slot: number): ChunkResult {
    const { source, stored, target, blocks, floats } = chunk;
    const kernels = this.#kernels;
    const at = slotAddress(slot);
    const result = { unencodable: -1, badScale: -1, notFinite: -1, difference: -1, errors: 0, squares: 0 };
    if (source) this.#read(source, at);
    if (stored) this.#read(stored, at + RESULT);
    if (blocks) {
      const format = widthNamed(blocks.target);
      if (stored) result.badScale = kernels.checkScales(format, at + RESULT, blocks.count);
      if (blocks.source) {
        const from = floatNamed(blocks.source);
        const to = at + (stored ? DERIVED : RESULT);
        result.unencodable = kernels.encode(from, format, at, to, blocks.count, blocks.rule);
        if (stored) Object.assign(result, kernels.error(from, format, at, at + RESULT, blocks.count));
      }
    }
    if (floats) {
      const { address, bytes } = output(chunk, slot);
      result.notFinite = firstNotFinite(floatNamed(floats), this.#memory.subarray(address, address + bytes));
    }
    if (stored && source) {
      result.difference = kernels.firstDifference(at + RESULT, at + (blocks ? DERIVED : 0), stored.bytes);
    }
    if (target && result.unencodable < 0) {
      const { address, bytes } = output(chunk, slot);
      const { file, path } = this.#files[target.file];
      writeAt(file, path, target.offset, this.#memory.subarray(address, address + bytes));
    }
    return result;
  }

  #read({ file, offset, bytes }: Span, address: number): void {
    const { file: handle, path } = this.#files[file];
    readAt(handle, path, offset, this.#memory.subarray(address, address + bytes));
  }

  /** Closes the files. */
  close(): void {
    for (const { file } of this.#files) file.close();
  }
}

/** A message to a worker. */
export type ToWorker =
  | { start: { memory: WebAssembly.Memory; files: readonly ChunkFile[]; scratch: number } }
  | { chunk: Chunk; slot: number; index: number };

/** A message from a worker. */
export type FromWorker = { index: number; slot: number } & ({ result: ChunkResult } | { error: WireError });

/** An error in a message, where it loses its class. */
export interface WireError {
  name: string;
  message: string;
  stack?: string;
}

function revive({ name, message, stack }: WireError): Error {
  const classes: Record<string, { prototype: Error }> = { CheckpointError, SystemError };
  const error: Error = Object.create((classes[name] ?? Error).prototype);
  return Object.assign(error, { name, message, stack });
}

/** The queue of a worker, in chunks: enough work for the time in which the main thread hashes and encodes one. */
const WORKER_QUEUE = 4;

/** The slots of the calling thread. */
const OWN_SLOTS = 2;

/** The slots for which a shared memory has room, and for the scratch of all threads. */
const MOST_SLOTS = Math.floor(
  (MAX_PAGES * PAGE - MARGIN_BYTES - FIRST_ADDRESS - MAX_THREADS * SCRATCH_BYTES) / SLOT_BYTES,
);

/** The queue of a worker, in chunks: shorter for so many threads that their slots would not fit into the memory. */
function queueFor(threads: number): number {
  if (threads === 1) return 0;
  return Math.min(WORKER_QUEUE, Math.floor((MOST_SLOTS - OWN_SLOTS) / (threads - 1)));
}

/** The slots of {@link runChunks}. */
function slotsFor(threads: number): number {
  return (threads - 1) * queueFor(threads) + OWN_SLOTS;
}

/** The memory that {@link runChunks} shares between threads, in bytes. */
export function chunkMemory(threads: number): number {
  return slotAddress(slotsFor(threads)) + threads * SCRATCH_BYTES;
}

/** A chunk with a value of the caller, which stays on the caller's thread. */
export interface Tagged<T> {
  readonly chunk: Chunk;
  readonly tag: T;
}

/**
 * Processes chunks, and calls `consume` for each in order. The calling thread processes chunks too.
 *
 * @param files the files of the spans; those to be written must exist
 * @param threads number of threads, including the caller's
 * @param consume gets the tag, the chunk, its result, and its bytes: those stored if there are any, else those written
 * @throws {SystemError} a file changed while it was being read
 * @throws the error of a thread or of `consume`, or the reason of `signal`; all threads have been stopped by then
 */
export async function runChunks<T>(
  files: readonly ChunkFile[],
  chunks: Iterable<Tagged<T>>,
  threads: number,
  consume: (tag: T, chunk: Chunk, result: ChunkResult, bytes: Uint8Array) => void,
  signal?: AbortSignal,
): Promise<void> {
  const slots = slotsFor(threads);
  const queue = queueFor(threads);
  const scratch = (thread: number) => slotAddress(slots) + thread * SCRATCH_BYTES;
  const memory = allocate(chunkMemory(threads));
  const bytes = new Uint8Array(memory.buffer);
  const free = Array.from({ length: slots }, (_, slot) => slot);
  const ready = new Map<number, Tagged<T> & { slot: number; result: ChunkResult }>();
  const pending = new Map<number, Tagged<T>>();
  let failure: Error | undefined;
  let wake = () => {};

  const local = new ChunkProcessor(memory, files, scratch(0));
  const workers = Array.from({ length: threads - 1 }, (_, n) => {
    const worker = startWorker<ToWorker, FromWorker>(new URL("./chunk_worker.ts", import.meta.url));
    const state = { worker, load: 0 };
    worker.onMessage = (data) => {
      state.load--;
      if ("error" in data) failure ??= revive(data.error);
      else {
        ready.set(data.index, { ...pending.get(data.index)!, slot: data.slot, result: data.result });
        pending.delete(data.index);
      }
      wake();
    };
    worker.onError = (error) => {
      failure ??= new Error(`a thread failed: ${error}`);
      wake();
    };
    worker.post({ start: { memory, files, scratch: scratch(n + 1) } });
    return state;
  });

  // Removed at the end, since AbortSignal.timeout keeps the program running while it has a listener.
  const aborted = () => wake();
  signal?.addEventListener("abort", aborted);
  try {
    const source = chunks[Symbol.iterator]();
    let upcoming = source.next();
    let started = 0;
    let consumed = 0;
    while (!upcoming.done || consumed < started) {
      // Messages and signals arrive only between turns of the event loop.
      await nextTurn();
      signal?.throwIfAborted();
      while (!upcoming.done && free.length > 0) {
        const idle = workers.find(({ load }) => load < queue);
        if (idle === undefined) break;
        const slot = free.pop()!;
        pending.set(started, upcoming.value);
        idle.worker.post({ chunk: upcoming.value.chunk, slot, index: started });
        idle.load++;
        started++;
        upcoming = source.next();
      }
      if (failure) throw failure;
      const next = ready.get(consumed);
      if (next !== undefined) {
        const { address, bytes: length } = output(next.chunk, next.slot);
        consume(next.tag, next.chunk, next.result, bytes.subarray(address, address + length));
        ready.delete(consumed++);
        free.push(next.slot);
      } else if (!upcoming.done && free.length > 0) {
        const tagged = upcoming.value;
        const slot = free.pop()!;
        const index = started++;
        upcoming = source.next();
        ready.set(index, { ...tagged, slot, result: local.process(tagged.chunk, slot) });
      } else {
        await new Promise<void>((resolve) => {
          wake = resolve;
          // A message that arrived since the last turn has called the previous `wake`.
          if (failure || ready.has(consumed) || signal?.aborted) resolve();
        });
      }
    }
    checkUnchanged(files.filter((file) => "version" in file));
  } finally {
    signal?.removeEventListener("abort", aborted);
    local.close();
    for (const { worker } of workers) worker.end();
  }
}
