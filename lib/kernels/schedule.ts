/**
 * Runs programs on one thread. All threads run the same program on the same memory. The work of a command is divided
 * into tasks, and each thread has a range of tasks, which it runs in order, so that it reads a matrix as one stream. A
 * thread that has finished its range takes tasks from the ranges of the others. A command ends when all its tasks have
 * ended: a thread that is late, or preempted, delays the others only by the task that it is running. Results are the
 * same whichever thread runs a task.
 *
 * @module
 */

import { Executor, type Work } from "./execute.ts";
import type { Arena } from "./arena.ts";
import { Commands, MAX_COMMANDS, placeOf, PRIVATE, PROGRAM_BYTES } from "./program.ts";
import { Stalls } from "./stalls.ts";
import { type Layout, takeScratch, View } from "./view.ts";

/** Offsets in the control area, in int32 words; each is on its own cache line. */
const CONTROL = {
  /** The number of the last released program; workers sleep on it. */
  epoch: 0,
  /** The length of the message of a thread that failed, otherwise 0. */
  failed: 16,
  /** The first counter: see {@link countersOf}. */
  counters: 32,
} as const;

/** Bytes of the message of a thread that failed. */
const MESSAGE_BYTES = 512;

/** Iterations of the loop that waits for a command's last tasks before the thread sleeps: about ten microseconds. */
const SPIN = 3000;

/**
 * Before that, the thread prefetches weights of the next command, eight cache lines at a time, up to this many times:
 * 128 KiB, which fit in a cache.
 */
const AHEAD = 256;

/** Milliseconds after which a sleeping thread checks whether another one has failed. */
const CHECK_MS = 200;

/** Iterations before a worker sleeps between two programs. */
const IDLE_SPIN = 20000;

/** The word with the number of the last program that a thread has finished. */
function leftOf(thread: number): number {
  return CONTROL.counters + 16 * thread;
}

/**
 * The counters of program `epoch` in the control area: for each command the number of finished tasks; then, for each
 * thread and command, the number of tasks taken from the thread's range. Consecutive programs have separate counters,
 * and separate commands, since a late worker may still read the previous ones while the next are written.
 */
function countersOf(epoch: number, threads: number): { readonly done: number; readonly taken: number } {
  const done = leftOf(threads) + (epoch & 1) * (threads + 1) * MAX_COMMANDS;
  return { done, taken: done + MAX_COMMANDS };
}

/** The size of the control area in words. */
function controlWords(threads: number): number {
  return countersOf(0, threads).done + 2 * (threads + 1) * MAX_COMMANDS;
}

/**
 * Takes the areas that `threads` threads need.
 *
 * @param arenas the memories, the main one first
 * @param preparedBytes, scoreBytes those of {@link takeScratch}
 */
export function takeLayout(
  arenas: readonly Arena[],
  threads: number,
  preparedBytes: number,
  scoreBytes: number,
): Layout {
  const [main] = arenas;
  return {
    memories: arenas.map(({ memory }) => memory),
    threads,
    control: main.take(controlWords(threads) * 4),
    commands: main.take(PROGRAM_BYTES),
    message: main.take(MESSAGE_BYTES),
    scratch: Array.from({ length: threads }, () => {
      return arenas.map((arena) => takeScratch((bytes) => arena.take(bytes), preparedBytes, scoreBytes));
    }),
    scoreBytes,
  };
}

/** One thread of a pool. */
export class Thread {
  /** The commands of the programs. */
  readonly commands: Commands;
  readonly #layout: Layout;
  readonly #thread: number;
  readonly #executor: Executor;
  readonly #bytes: Uint8Array;
  readonly #control: Int32Array;
  /** Milliseconds that the thread has slept for this program. */
  #slept = 0;
  readonly #stalls = new Stalls();
  /** By place: the work of a command, with the words of the command to see whether it is the same. */
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

  /** Waits for programs and runs them, until one is `exit`. For workers. */
  serve(): void {
    const control = this.#control;
    for (let epoch = 0;;) {
      for (let n = 0; n < IDLE_SPIN && Atomics.load(control, CONTROL.epoch) === epoch; n++);
      while (Atomics.load(control, CONTROL.epoch) === epoch) Atomics.wait(control, CONTROL.epoch, epoch);
      epoch++;
      const more = this.#reporting(() => this.#run(epoch));
      Atomics.store(control, leftOf(this.#thread), epoch);
      Atomics.notify(control, leftOf(this.#thread));
      if (!more) return;
    }
  }

  /**
   * Runs program `epoch` as the first thread.
   *
   * @param alone whether the workers don't see it
   * @throws {Error} this thread fails, or another has failed
   */
  lead(epoch: number, alone: boolean): void {
    // Another thread may have held up the program before it began.
    const start = performance.now() - this.#slept;
    if (!alone) this.release(epoch);
    this.#reporting(() => alone ? this.#runAlone(placeOf(epoch, 0)) : this.#run(epoch));
    this.#stalls.add(this.commands.tokens(placeOf(epoch, 0)), performance.now() - start, this.#slept);
    this.#slept = 0;
  }

  /** Runs a part of a program; the other threads are told if it fails. */
  #reporting<T>(part: () => T): T {
    try {
      return part();
    } catch (error) {
      this.#fail(String(error));
      throw error;
    }
  }

  /** Runs the program at a place without the workers. */
  #runAlone(place: number): void {
    let own: Work | undefined;
    for (let index = 0; this.commands.op(place + index) !== "end"; index++) {
      const work = this.#workAt(place + index);
      if (work.tasks === PRIVATE) {
        own = work;
        continue;
      }
      own?.task(0);
      own = undefined;
      const { tasks, task } = work.alone ?? work;
      for (let n = 0; n < tasks; n++) task(n);
    }
  }

  /**
   * Runs program `epoch` with the other threads; the first is 1.
   *
   * @returns false if it was `exit`
   */
  #run(epoch: number): boolean {
    const { threads } = this.#layout;
    const control = this.#control;
    const { done, taken } = countersOf(epoch, threads);
    let own: Work | undefined;
    const place = placeOf(epoch, 0);
    for (let index = 0;; index++) {
      if (this.commands.op(place + index) === "exit") return false;
      const work = this.#workAt(place + index);
      if (work.tasks === PRIVATE) {
        own = work;
        continue;
      }
      const { tasks, task } = work;
      let mine = 0;
      for (let k = 0; k < threads; k++) {
        const owner = (this.#thread + k) % threads;
        const first = Math.floor(owner * tasks / threads);
        const count = Math.floor((owner + 1) * tasks / threads) - first;
        const counter = taken + owner * MAX_COMMANDS + index;
        while (Atomics.load(control, counter) < count) {
          const n = Atomics.add(control, counter, 1);
          if (n >= count) break;
          // Prepare the thread's own activations with its first task: until that task ends, nobody overwrites their
          // input.
          if (own !== undefined) own.task(0);
          own = undefined;
          task(first + n);
          mine++;
        }
      }
      if (mine > 0 && Atomics.add(control, done + index, mine) === tasks - mine) Atomics.notify(control, done + index);
      own = undefined;
      const last = this.commands.op(place + index + 1) === "end";
      if (last && this.#thread > 0) return true;
      this.#wait(done + index, tasks, last ? undefined : this.#nextOf(place + index + 1));
      if (last) return true;
    }
  }

  /** The work of the command at a place, or of the next command if every thread runs that one for itself. */
  #nextOf(place: number): Work {
    const work = this.#workAt(place);
    return work.tasks === PRIVATE ? this.#workAt(place + 1) : work;
  }

  /** The work of the command at a place. It is cached, since most commands repeat with each token. */
  #workAt(place: number): Work {
    const known = this.#works[place];
    if (known !== undefined && this.commands.same(place, known.numbers)) return known.work;
    const work = this.#executor.workOf(place);
    this.#works[place] = { numbers: this.commands.copy(place), work };
    return work;
  }

  /**
   * Waits until a counter of the control area is at least `least`.
   *
   * @param next the work of the next command
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
   * Waits until all workers have finished program `epoch` - 2, whose area program `epoch` overwrites.
   *
   * @throws {Error} a thread has failed, and others may still run a task of that program
   */
  makeRoom(epoch: number): void {
    this.#throwIfFailed();
    for (let thread = 1; thread < this.#layout.threads; thread++) this.#wait(leftOf(thread), epoch - 2);
  }

  /** Resets the counters of program `epoch`, which has `count` commands. */
  clear(epoch: number, count: number): void {
    const { threads } = this.#layout;
    const { done } = countersOf(epoch, threads);
    for (let n = 0, at = done; n <= threads; n++, at += MAX_COMMANDS) this.#control.fill(0, at, at + count);
  }

  /** Releases program `epoch` to the workers. */
  release(epoch: number): void {
    Atomics.store(this.#control, CONTROL.epoch, epoch);
    Atomics.notify(this.#control, CONTROL.epoch);
  }

  /** Whether the first thread should run the next program alone. */
  get alone(): boolean {
    return this.#layout.threads === 1 || this.#stalls.alone;
  }

  #throwIfFailed(): void {
    const length = Atomics.load(this.#control, CONTROL.failed);
    if (length === 0) return;
    const message = this.#bytes.slice(this.#layout.message, this.#layout.message + length);
    throw new Error(`a thread failed: ${new TextDecoder().decode(message)}`);
  }

  /** Records the message of the first thread that fails; the others then fail because of it. */
  #fail(text: string): void {
    if (Atomics.load(this.#control, CONTROL.failed) > 0) return;
    const message = new TextEncoder().encode(text).subarray(0, MESSAGE_BYTES);
    this.#bytes.set(message, this.#layout.message);
    Atomics.compareExchange(this.#control, CONTROL.failed, 0, message.length);
  }
}
