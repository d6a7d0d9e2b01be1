/**
 * Threads that share a memory and run one kernel after another: its work is cut into pieces, and each thread takes the next
 * one until there are no more. What a piece writes does not depend on who does it.
 *
 * @module
 */

import { allocate, FIRST_ADDRESS, instantiate, PAGE } from "../../kernels/codec_wasm.ts";
import { startWorker, type SystemWorker } from "../../kernels/workers.ts";
import { pacer } from "../../pace.ts";

/** A kernel and its arguments, which come after the piece and the address of the thread's scratch. */
export interface Job {
  readonly kernel: string;
  readonly pieces: number;
  readonly arguments: readonly number[];
  /** Addresses: of each thread's scratch. */
  readonly scratch: readonly number[];
}

/** What a thread is sent. */
export type ToThread = { memory: WebAssembly.Memory; thread: number } | Job;

/** What it answers: the largest result of its pieces, or why it failed. */
export type FromThread = { result: number } | { error: string };

/** Where the pieces that are taken are counted. */
const COUNTER = FIRST_ADDRESS;

/** The first address that jobs may use. */
export const FIRST_AREA: number = FIRST_ADDRESS + 64;

/** One thread's part. */
export class Thread {
  readonly #wasm: ReturnType<typeof instantiate>;
  readonly #counter: Int32Array;
  readonly #thread: number;

  constructor(memory: WebAssembly.Memory, thread: number) {
    this.#wasm = instantiate(memory);
    this.#counter = new Int32Array(memory.buffer, COUNTER, 1);
    this.#thread = thread;
  }

  /** See {@link Threads.scratchBytes}. */
  scratchBytes(columns: number): number {
    return this.#wasm.scratch_bytes(columns);
  }

  /** Lets all threads begin anew. */
  reset(): void {
    Atomics.store(this.#counter, 0, 0);
  }

  /** Does pieces of a job, one at each step. @returns the largest result, 0 if there was no piece */
  *pieces({ kernel, pieces, arguments: given, scratch }: Job): Generator<void, number> {
    const run = this.#wasm[kernel];
    let largest = 0;
    for (;; yield) {
      const piece = Atomics.add(this.#counter, 0, 1);
      if (piece >= pieces) return largest;
      largest = Math.max(largest, run(piece, scratch[this.#thread], ...given));
    }
  }
}

/** See the module. */
export class Threads {
  readonly count: number;
  readonly memory: WebAssembly.Memory;
  readonly #own: Thread;
  readonly #pause: () => Promise<void>;
  readonly #workers: SystemWorker<ToThread, FromThread>[];

  /** @param signal aborts a job with its reason; the threads can only be closed then */
  constructor(count: number, signal?: AbortSignal) {
    this.count = count;
    this.memory = allocate(FIRST_AREA);
    this.#own = new Thread(this.memory, 0);
    this.#pause = pacer(signal);
    this.#workers = Array.from({ length: count - 1 }, (_, n) => {
      const worker = startWorker<ToThread, FromThread>(new URL("./worker.ts", import.meta.url));
      worker.post({ memory: this.memory, thread: n + 1 });
      return worker;
    });
  }

  /** Bytes of a thread's scratch for matrices of so many columns. */
  scratchBytes(columns: number): number {
    return this.#own.scratchBytes(columns);
  }

  /** Makes the memory at least so many bytes. */
  grow(bytes: number): void {
    const missing = Math.ceil((bytes - this.memory.buffer.byteLength) / PAGE);
    if (missing > 0) this.memory.grow(missing);
  }

  /**
   * Runs a job on all threads.
   *
   * @returns the largest result of its pieces
   * @throws {Error} a thread failed
   * @throws the reason of the signal
   */
  async run(job: Job): Promise<number> {
    this.#own.reset();
    const others = job.pieces > 1 ? this.#workers : [];
    const answers = Promise.all(others.map((worker) => answer(worker, job)));
    // Handled below: an error of this thread may come first.
    answers.catch(() => {});
    let step = 0;
    const work = this.#own.pieces(job);
    for (;;) {
      const { done, value } = work.next();
      if (done) return Math.max(value, ...await answers);
      if (step++ % 16 === 0) await this.#pause();
    }
  }

  /** Ends the threads. */
  close(): void {
    for (const worker of this.#workers) worker.end();
  }
}

function answer(worker: SystemWorker<ToThread, FromThread>, job: Job): Promise<number> {
  return new Promise((resolve, reject) => {
    worker.onError = (error) => reject(new Error(`a thread failed: ${error}`));
    worker.onMessage = (message) => {
      if ("error" in message) reject(new Error(`a thread failed: ${message.error}`));
      else resolve(message.result);
    };
    worker.post(job);
  });
}
