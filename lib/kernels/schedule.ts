/**
 * One thread's part in a program. Every thread runs the same program over the same memory. The work of a command is cut
 * into pieces, and each thread has a range of them, which it takes in their order: so it reads a matrix as one stream. One
 * that has no more takes from the ranges of the others, and a command is over when its pieces are done: a thread that is
 * late, or that the system has put aside, holds up the others only while it has a piece. What a piece does does not depend
 * on who does it, so neither do the results.
 *
 * @module
 */

import { Executor, type Work } from "./execute.ts";
import { Commands, MAX_COMMANDS, placeOf, PRIVATE } from "./program.ts";
import { Stalls } from "./stalls.ts";
import { type Layout, View } from "./view.ts";

/** Where things are in the control area: int32 words, each on a cache line of its own. */
const CONTROL = {
  /** Counts programs; workers sleep on it. */
  epoch: 0,
  /** Not 0 when a thread has failed: the length of its message. */
  failed: 16,
  /** Here the counters begin: see {@link countersOf}. */
  counters: 32,
} as const;

/** Bytes of the message of a thread that failed. */
export const MESSAGE_BYTES = 512;

/** Turns of the loop that waits for a command's last pieces before a thread sleeps: some ten microseconds. */
const SPIN = 3000;

/**
 * Before that, it reads lines of the weights of the next command, so many times eight: 128 KiB, which caches have room
 * for.
 */
const AHEAD = 256;

/** Milliseconds after which a thread that sleeps looks whether another has failed. */
const CHECK_MS = 200;

/** Turns before a worker sleeps between two programs. */
const IDLE_SPIN = 20000;

/** Where a thread counts the programs that it has left. */
function leftOf(thread: number): number {
  return CONTROL.counters + 16 * thread;
}

/**
 * The counters of program `epoch` in the control area: of each command the pieces done, then, for each thread, of each
 * command the pieces of its range that are taken. Two programs have their own, and their own commands, since a late
 * worker may still read the last one while the next is written.
 */
function countersOf(epoch: number, threads: number): { readonly done: number; readonly taken: number } {
  const done = leftOf(threads) + (epoch & 1) * (threads + 1) * MAX_COMMANDS;
  return { done, taken: done + MAX_COMMANDS };
}

/** Words of the control area. */
function controlWords(threads: number): number {
  return countersOf(0, threads).done + 2 * (threads + 1) * MAX_COMMANDS;
}

/** Bytes of the control area of so many threads. */
export function controlBytes(threads: number): number {
  return controlWords(threads) * 4;
}

/** One thread. */
export class Thread {
  /** The programs that threads run. */
  readonly commands: Commands;
  readonly #layout: Layout;
  readonly #thread: number;
  readonly #executor: Executor;
  readonly #bytes: Uint8Array;
  readonly #control: Int32Array;
  /** Milliseconds of this program that the thread has slept. */
  #slept = 0;
  readonly #stalls = new Stalls();
  /** By the place of a command: its numbers, and its work as long as they stay what they were. */
  readonly #works: { readonly numbers: Float64Array; readonly work: Work }[] = [];

  constructor(layout: Layout, thread: number) {
    this.#layout = layout;
    this.#thread = thread;
    const { buffer } = layout.memories[0];
    this.commands = new Commands(buffer, layout.commands);
    this.#executor = new Executor(new View(layout, thread), this.commands);
    this.#bytes = new Uint8Array(buffer);
    this.#control = new Int32Array(buffer, layout.control, controlWords(layout.threads));
  }

  /** Waits for programs and runs them until one is `exit`. For workers. */
  serve(): void {
    const control = this.#control;
    for (let epoch = 0;;) {
      for (let n = 0; n < IDLE_SPIN && Atomics.load(control, CONTROL.epoch) === epoch; n++);
      while (Atomics.load(control, CONTROL.epoch) === epoch) Atomics.wait(control, CONTROL.epoch, epoch);
      epoch++;
      const more = this.run(epoch);
      Atomics.store(control, leftOf(this.#thread), epoch);
      Atomics.notify(control, leftOf(this.#thread));
      if (!more) return;
    }
  }

  /**
   * Runs program `epoch`, the first being 1.
   *
   * @returns false if it was `exit`
   * @throws {Error} this thread fails, or another has failed
   */
  run(epoch: number): boolean {
    try {
      const start = performance.now();
      this.#slept = 0;
      const more = this.#run(epoch);
      if (this.#thread === 0) {
        this.#stalls.add(this.commands.tokens(placeOf(epoch, 0)), performance.now() - start, this.#slept);
      }
      return more;
    } catch (error) {
      this.#fail(String(error));
      throw error;
    }
  }

  #run(epoch: number): boolean {
    const { threads } = this.#layout;
    const control = this.#control;
    const { done, taken } = countersOf(epoch, threads);
    let own: Work | undefined;
    const place = placeOf(epoch, 0);
    for (let index = 0;; index++) {
      if (this.commands.op(place + index) === "exit") return false;
      const work = this.#workAt(place + index);
      if (work.pieces === PRIVATE) {
        own = work;
        continue;
      }
      const { pieces, piece } = work;
      let mine = 0;
      for (let k = 0; k < threads; k++) {
        const owner = (this.#thread + k) % threads;
        const first = Math.floor(owner * pieces / threads);
        const count = Math.floor((owner + 1) * pieces / threads) - first;
        const counter = taken + owner * MAX_COMMANDS + index;
        while (Atomics.load(control, counter) < count) {
          const n = Atomics.add(control, counter, 1);
          if (n >= count) break;
          // A thread's own activations: prepared with its first piece, since until that is done nobody writes over what
          // they are made of.
          if (own !== undefined) own.piece(0);
          own = undefined;
          piece(first + n);
          mine++;
        }
      }
      if (mine > 0 && Atomics.add(control, done + index, mine) === pieces - mine) Atomics.notify(control, done + index);
      own = undefined;
      const last = this.commands.op(place + index + 1) === "end";
      if (last && this.#thread > 0) return true;
      this.#wait(done + index, pieces, last ? undefined : this.#nextOf(place + index + 1));
      if (last) return true;
    }
  }

  /** The work of the command at a place, or of the next one if each thread has that for itself. */
  #nextOf(place: number): Work {
    const work = this.#workAt(place);
    return work.pieces === PRIVATE ? this.#workAt(place + 1) : work;
  }

  /** The work of the command at a place. Most commands come again with each token, so their work is kept. */
  #workAt(place: number): Work {
    const known = this.#works[place];
    if (known !== undefined && this.commands.same(place, known.numbers)) return known.work;
    const work = this.#executor.workOf(place);
    this.#works[place] = { numbers: this.commands.copy(place), work };
    return work;
  }

  /**
   * Waits until a counter of the control area is `least` or more.
   *
   * @param next the work that comes then
   * @throws {Error} a thread has failed
   */
  #wait(counter: number, least: number, next?: Work): void {
    const control = this.#control;
    const ahead = next?.ahead;
    for (let n = 0; n < AHEAD && ahead !== undefined; n++) {
      if (Atomics.load(control, counter) >= least) return;
      ahead(n);
    }
    for (let n = 0; n < SPIN; n++) if (Atomics.load(control, counter) >= least) return;
    const start = performance.now();
    for (let value = Atomics.load(control, counter); value < least; value = Atomics.load(control, counter)) {
      this.#throwIfFailed();
      Atomics.wait(control, counter, value, CHECK_MS);
    }
    this.#slept += performance.now() - start;
  }

  /**
   * Before program `epoch` is written: waits until that of `epoch` - 2, which has the same place, is left.
   *
   * @throws {Error} a thread has failed: one that is late may still write what it has in hand of that program
   */
  makeRoom(epoch: number): void {
    this.#throwIfFailed();
    for (let thread = 1; thread < this.#layout.threads; thread++) this.#wait(leftOf(thread), epoch - 2);
  }

  /** Nothing of program `epoch`, of `count` commands, is done yet. */
  clear(epoch: number, count: number): void {
    const { threads } = this.#layout;
    const { done } = countersOf(epoch, threads);
    for (let n = 0, at = done; n <= threads; n++, at += MAX_COMMANDS) this.#control.fill(0, at, at + count);
  }

  /** Lets the workers see program `epoch`. */
  release(epoch: number): void {
    Atomics.store(this.#control, CONTROL.epoch, epoch);
    Atomics.notify(this.#control, CONTROL.epoch);
  }

  /** Whether the next program is best run by the first thread alone, so that the workers need not see it. */
  get alone(): boolean {
    return this.#stalls.alone;
  }

  #throwIfFailed(): void {
    const length = Atomics.load(this.#control, CONTROL.failed);
    if (length === 0) return;
    const message = this.#bytes.slice(this.#layout.message, this.#layout.message + length);
    throw new Error(`a thread failed: ${new TextDecoder().decode(message)}`);
  }

  /** The first thread that fails says why; the others fail since it has. */
  #fail(text: string): void {
    if (Atomics.load(this.#control, CONTROL.failed) > 0) return;
    const message = new TextEncoder().encode(text).subarray(0, MESSAGE_BYTES);
    this.#bytes.set(message, this.#layout.message);
    Atomics.compareExchange(this.#control, CONTROL.failed, 0, message.length);
  }
}
