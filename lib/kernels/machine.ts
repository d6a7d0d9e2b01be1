/**
 * One thread's part in a program of operations. Every thread runs the same program over the same memory. The work of a
 * command is cut into pieces, and each thread has a range of them, which it takes in their order: so it reads a matrix as
 * one stream. One that has no more takes from the ranges of the others, and a command is over when its pieces are done: a
 * thread that is late, or that the system has put aside, holds up the others only while it has a piece. What a piece does
 * does not depend on who does it, so neither do the results.
 *
 * @module
 */

import { ATTENTION_TOP } from "./operations.ts";
import { Stalls } from "./stalls.ts";
import { instantiate } from "./codec_wasm.ts";
import {
  ATTEND_BYTES,
  ATTEND_COUNT,
  ATTEND_FACTORS,
  ATTEND_HEAD_DIM,
  ATTEND_KEY_SCALES,
  ATTEND_KEYS,
  ATTEND_LENGTH,
  ATTEND_OUT,
  ATTEND_Q,
  ATTEND_SCORE_ROW,
  ATTEND_SCORES,
  ATTEND_SUMS,
  ATTEND_VALUE_SCALES,
  ATTEND_VALUES,
  BLOCK_F32,
  BLOCK_I16,
  BLOCK_I8,
  GROUP,
  GROUP_16,
  GROUP_F32,
  GROUP_Q4,
  GROUP_Q8,
  GROUP_RESULT,
  KEY_POSITIONS,
  STREAMS,
  UNPACKED,
  UNPACKED_SUMS,
  VALUE_POSITIONS,
} from "./wasm/layout.ts";

/** Where things are in the control area: int32 words, each on a cache line of its own. */
export const CONTROL = {
  /** Counts programs; workers sleep on it. */
  epoch: 0,
  /** Not 0 when a thread has failed: the length of its message. */
  failed: 16,
  /** Here the counters begin: see {@link countersOf}. */
  counters: 32,
} as const;

/** The longest program, in commands. */
export const MAX_COMMANDS = 2048;

/** Bytes of the message of a thread that failed. */
export const MESSAGE_BYTES = 512;

/** Numbers (binary64) of one command. */
export const COMMAND_WORDS = 24;

/** What a command does, its first number; those after it are listed with each method of {@link Machine}. */
export const OP = { exit: 0, embed: 1, prepare: 2, project: 3, store: 4, attend: 5, end: 6 } as const;

/** The place of the number of tokens in every command but `exit` and `end`. */
const TOKENS = 3;

/** Matrices that one command has room for. */
export const MOST_MATRICES = 3;

/** What becomes of a product: `gate` takes two, of gate and up, `gateIt` that of gate and has that of up in its place. */
export const THEN = { write: 0, add: 1, gate: 2, gateIt: 3 } as const;

/** How activations are prepared. */
export const MODE = { f32: 0, i8: 1, i16: 2, i16paired: 3, i8paired: 4 } as const;

/** The kinds of packed matrices, as the kernels number them. */
export const KINDS = ["q4", "q8", "bf16", "f16", "f32"] as const;

/** Bytes of a group and a block of columns, scales and all, by kind. */
export const GROUP_BYTES = [GROUP_Q4, GROUP_Q8, GROUP_16, GROUP_16, GROUP_F32] as const;

/** Tokens that a piece of work takes at once: their results stay in a processor's cache. */
export const TOKEN_TILE = 64;

/** Groups that it takes at once, for the same reason. */
export const GROUP_TILE = 32;

/** Quads that a piece of work takes at most: with the groups that are left over, their results fit a tile. */
const QUAD_TILE = 256;

/**
 * Pieces of a product for each thread at most, so that one that is early finds something left to do; more only where the
 * results of so few would not fit a tile: each piece begins new streams of memory, and reads all tokens.
 */
const PIECES = 8;

/** Products that each of those pieces must have, some ten times what it costs to begin one; a thread has one at least. */
const PIECE_PRODUCTS = 400000;

/** The address that stands for the thread's own prepared activations. */
export const PRIVATE = -1;

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

/** Heads that attention takes at once. */
export const MOST_HEADS = 3;

/** Values of a head there is room for, in binary32, in scratch. */
export const MOST_HEAD_DIM = 1024;

const HEAD_ROOM = MOST_HEADS * MOST_HEAD_DIM * 4;

/** Areas of that size that attention needs. */
const HEAD_ROOMS = 6;

/** Bytes of results of one tile; there are two, for gate and up. */
const TILE_BYTES = TOKEN_TILE * GROUP_TILE * GROUP * 4;

/** Bytes of two groups of a block as binary32, and of their sums, which exact products need. */
const UNPACKED_BYTES = UNPACKED + UNPACKED_SUMS * TOKEN_TILE;

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

/** The addresses of what a thread needs for itself in a memory. */
export interface Scratch {
  /** Prepared activations of a tile of tokens. */
  readonly prepared: number;
  /** A normalized row. */
  readonly normal: number;
  /** Scores of {@link MOST_HEADS} heads. */
  readonly scores: number;
  /** Two tiles of results, or {@link HEAD_ROOMS} areas for attention. */
  readonly tiles: number;
  /** Two groups of a block as binary32, and their sums. */
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
    unpacked: take(UNPACKED_BYTES),
    attend: take(ATTEND_BYTES),
  };
}

/** Bytes of one token's prepared activations, by mode: binary32, or integers with scales and sums. */
export function preparedBytes(mode: number, blocks: number): number {
  return blocks * (mode === MODE.f32 ? BLOCK_F32 : mode === MODE.i8 ? BLOCK_I8 : BLOCK_I16);
}

/** Where a thread counts the programs that it has left. */
function leftOf(thread: number): number {
  return CONTROL.counters + 16 * thread;
}

/**
 * The counters of program `epoch` in the control area: of each command the pieces done, then, for each thread, of each
 * command the pieces of its range that are taken. Two programs have their own, and their own commands, since a late
 * worker may still read the last one while the next is written.
 */
export function countersOf(epoch: number, threads: number): { readonly done: number; readonly taken: number } {
  const done = leftOf(threads) + (epoch & 1) * (threads + 1) * MAX_COMMANDS;
  return { done, taken: done + MAX_COMMANDS };
}

/** Words of the control area of so many threads. */
export function controlWords(threads: number): number {
  return countersOf(0, threads).done + 2 * (threads + 1) * MAX_COMMANDS;
}

/**
 * The work of a command, whose words are kept: how many pieces, and what a piece is; PRIVATE of them: each thread has one
 * of its own.
 */
interface Work {
  readonly words: Float64Array;
  readonly pieces: number;
  readonly piece: (n: number) => void;
  /** Reads the n-th lines of what this thread will need first. */
  readonly ahead?: (n: number) => void;
}

/** A matrix's part of a product: `run` does units from `from` to `to` - 1. */
interface Part {
  readonly units: number;
  readonly run: (from: number, to: number) => void;
  /** Reads the n-th lines of what `run` reads from unit `from` on. */
  readonly ahead?: (from: number, n: number) => void;
}

/** One thread. */
export class Machine {
  readonly #layout: Layout;
  readonly #thread: number;
  readonly #wasm: ReturnType<typeof instantiate>[];
  readonly #bytes: Uint8Array[];
  readonly #control: Int32Array;
  readonly #commands: Float64Array;
  readonly #doubles: Float64Array;
  readonly #words: Int32Array;
  readonly #floats: Float32Array;
  /** This thread's, by memory. */
  readonly #scratch: readonly Scratch[];
  /** In the place of tiles, for attention: areas of {@link MOST_HEADS} heads each. */
  readonly #rooms: number[];
  /** Milliseconds of this program that the thread has slept. */
  #slept = 0;
  readonly #stalls = new Stalls();
  /** By the place of a command: its work, as long as the command stays what it was. */
  readonly #works: Work[] = [];

  constructor(layout: Layout, thread: number) {
    this.#layout = layout;
    this.#thread = thread;
    const { memories } = layout;
    this.#wasm = memories.map(instantiate);
    this.#bytes = memories.map(({ buffer }) => new Uint8Array(buffer));
    const { buffer } = memories[0];
    this.#control = new Int32Array(buffer, layout.control, controlWords(layout.threads));
    this.#commands = new Float64Array(buffer, layout.commands, 2 * MAX_COMMANDS * COMMAND_WORDS);
    this.#doubles = new Float64Array(buffer, 0, buffer.byteLength >>> 3);
    this.#words = new Int32Array(buffer, 0, buffer.byteLength >>> 2);
    this.#floats = new Float32Array(buffer, 0, buffer.byteLength >>> 2);
    this.#scratch = layout.scratch[thread];
    this.#rooms = Array.from({ length: HEAD_ROOMS }, (_, n) => this.#scratch[0].tiles + n * HEAD_ROOM);
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
        const tokens = this.#commands[(epoch & 1) * MAX_COMMANDS * COMMAND_WORDS + TOKENS];
        this.#stalls.add(tokens, performance.now() - start, this.#slept);
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
    const place = (epoch & 1) * MAX_COMMANDS;
    for (let index = 0;; index++) {
      const op = this.#commands[(place + index) * COMMAND_WORDS];
      if (op === OP.exit) return false;
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
      const last = this.#commands[(place + index + 1) * COMMAND_WORDS] === OP.end;
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

  /** The work of the command at a place: most of them come again with each token, and are made out once. */
  #workAt(place: number): Work {
    const known = this.#works[place];
    const at = place * COMMAND_WORDS;
    if (known !== undefined) {
      let n = 0;
      while (n < COMMAND_WORDS && this.#commands[at + n] === known.words[n]) n++;
      if (n === COMMAND_WORDS) return known;
    }
    const words = this.#commands.slice(at, at + COMMAND_WORDS);
    return this.#works[place] = { words, ...this.#workOf(words) };
  }

  /** The work of a command. What all pieces need is made out here, once. */
  #workOf(c: Float64Array): Omit<Work, "words"> {
    switch (c[0]) {
      case OP.embed:
        return { pieces: c[3], piece: (t) => this.#embed(c, t) };
      case OP.prepare:
        return { pieces: c[9] === PRIVATE ? PRIVATE : c[3], piece: (t) => this.#prepare(c, t) };
      case OP.project:
        return this.#projectWork(c);
      case OP.store: {
        const a = attentionOf(c);
        return { pieces: a.tokens, piece: (t) => this.#store(a, t) };
      }
      case OP.attend: {
        const a = attentionOf(c);
        return { pieces: a.tokens * a.groups, piece: (n) => this.#attend(a, n) };
      }
      default:
        throw new RangeError(`command ${c[0]}`);
    }
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

  /** Whether the next program is best run by the first thread alone, so that the workers need not see it. */
  get alone(): boolean {
    return this.#stalls.alone;
  }

  #throwIfFailed(): void {
    const length = Atomics.load(this.#control, CONTROL.failed);
    if (length === 0) return;
    const message = this.#bytes[0].slice(this.#layout.message, this.#layout.message + length);
    throw new Error(`a thread failed: ${new TextDecoder().decode(message)}`);
  }

  /** The first thread that fails says why; the others fail since it has. */
  #fail(text: string): void {
    if (Atomics.load(this.#control, CONTROL.failed) > 0) return;
    const message = new TextEncoder().encode(text).subarray(0, MESSAGE_BYTES);
    this.#bytes[0].set(message, this.#layout.message);
    Atomics.compareExchange(this.#control, CONTROL.failed, 0, message.length);
  }

  /** Token t of: matrix record, address of ids (int32), tokens, out, out stride */
  #embed(c: Float64Array, t: number): void {
    const [, record, ids, , out, stride] = c;
    const kind = this.#doubles[record >>> 3];
    const blocks = this.#doubles[(record >>> 3) + 1];
    const id = this.#words[(ids >>> 2) + t];
    this.#segments(record, Math.floor(id / GROUP), Math.floor(id / GROUP) + 1, (memory, w) => {
      const to = out + t * stride;
      // In every memory there is room for a row of prepared activations.
      const at = memory === 0 ? to : this.#scratch[memory].prepared;
      this.#wasm[memory].unpack_row(kind, w, id % GROUP, blocks, at);
      if (memory !== 0) this.#move(memory, at, 0, to, blocks * 32 * 4);
    });
  }

  #move(from: number, source: number, to: number, target: number, bytes: number): void {
    this.#bytes[to].set(this.#bytes[from].subarray(source, source + bytes), target);
  }

  /**
   * The pieces of a matrix that hold its groups first to end - 1.
   *
   * A record: kind, blocks, number of segments, then for each memory, address, first group, groups.
   */
  #segments(
    record: number,
    first: number,
    end: number,
    visit: (memory: number, w: number, first: number, groups: number) => void,
  ): void {
    const d = this.#doubles;
    const at = record >>> 3;
    const [kind, blocks, count] = [d[at], d[at + 1], d[at + 2]];
    for (let s = 0, p = at + 3; s < count; s++, p += 4) {
      const from = Math.max(first, d[p + 2]);
      const to = Math.min(end, d[p + 2] + d[p + 3]);
      if (from < to) visit(d[p], d[p + 1] + (from - d[p + 2]) * blocks * GROUP_BYTES[kind], from, to - from);
    }
  }

  /**
   * Token t of: x, x stride, tokens, length (whole blocks), width, norm weight or 0, eps, mode, out or PRIVATE, its bytes
   * for each token.
   */
  #prepare(c: Float64Array, t: number): void {
    const [, x, stride, tokens, length, width, norm, eps, mode, out, outStride] = c;
    const wasm = this.#wasm[0];
    const alone = out === PRIVATE;
    const to = alone ? this.#scratch[0].prepared : out + t * outStride;
    let from = x + t * stride;
    if (norm !== 0) {
      const at = alone && mode === MODE.f32 ? to : this.#scratch[0].normal;
      wasm.rms_norm(from, norm, at, length, width, eps);
      from = at;
    }
    const blocks = length / 32;
    if (mode === MODE.f32) {
      if (alone) return;
      // Products read a block of all tokens of a tile, then the next block.
      const first = t - t % TOKEN_TILE;
      const step = Math.min(TOKEN_TILE, tokens - first) * 128;
      wasm.arrange(from, blocks, out + first * outStride + (t - first) * 128, step);
    } else if (mode === MODE.i8) wasm.quantize_i8(from, blocks, to);
    else {
      wasm.quantize_i16(from, blocks, to, mode === MODE.i8paired ? 127 : 32767, mode === MODE.i16 ? 0 : 1);
    }
  }

  /**
   * Pieces of: x or PRIVATE, its bytes for each token, tokens, blocks, kernel mode, then, number of matrices, then for
   * each matrix record, rows padded to groups, y, y stride, bias or 0.
   *
   * The work is shared out in units: quads for one token where matrices allow it, else pairs of groups; gate and up count
   * once.
   */
  #projectWork(c: Float64Array): Omit<Work, "words"> {
    const { threads } = this.#layout;
    const [tokens, blocks, then, matrices] = [c[3], c[4], c[6], c[7]];
    const each = then === THEN.gate ? 2 : 1;
    const records = Array.from({ length: matrices }, (_, m) => 8 + 5 * m);
    // Whole, in memory 0.
    const quads = tokens === 1 && records.every((at) => {
      const record = c[at] >>> 3;
      return this.#doubles[record + 2] === 1 && this.#doubles[record + 3] === 0;
    });
    const parts = records.filter((_, m) => m % each === 0).map((at) =>
      quads ? this.#quads(c, at) : this.#groups(c, at)
    );
    const total = parts.reduce((sum, { units }) => sum + units, 0);
    const most = quads ? QUAD_TILE : GROUP_TILE / 2;
    const least = Math.ceil(PIECE_PRODUCTS / ((quads ? STREAMS : 2) * GROUP * 32 * blocks * tokens * each));
    const perThread = threads === 1 ? 1 : Math.min(PIECES, Math.floor(total / (threads * least)));
    const count = Math.max(Math.ceil(total / most), Math.min(total, Math.max(1, perThread) * threads));
    const piece = (n: number) => {
      const start = Math.floor(n * total / count);
      const end = Math.floor((n + 1) * total / count);
      let before = 0;
      for (const { units, run } of parts) {
        const from = Math.max(start - before, 0);
        const to = Math.min(end - before, units);
        before += units;
        if (from < to) run(from, to);
      }
    };
    let from = Math.floor(Math.floor(this.#thread * count / threads) * total / count);
    let part = 0;
    while (from >= parts[part].units) from -= parts[part++].units;
    const { ahead } = parts[part];
    return { pieces: count, piece, ahead: ahead && ((n) => ahead(from, n)) };
  }

  /** The matrix at word `at` of a command (gate and up: both) times one token, in quads. */
  #quads(c: Float64Array, at: number): Part {
    const then = c[6];
    const [rows, y, bias] = [c[at + 1], c[at + 2], c[at + 4]];
    const x = this.#source(c);
    const groups = rows / GROUP;
    const perStream = Math.floor(groups / STREAMS);
    const units = Math.max(1, perStream);
    const first = this.#far(c, c[at], x, perStream);
    const second = then === THEN.gate ? this.#far(c, c[at + 5], x, perStream) : undefined;
    const rest = y + STREAMS * perStream * GROUP_RESULT;
    const tile = this.#scratch[0].tiles;
    const direct = then === THEN.write;
    const run = (from: number, to: number) => {
      const quads = Math.min(to, perStream) - from;
      // What does not fill the streams goes with the last piece.
      const left = to === units ? groups - STREAMS * perStream : 0;
      const out = y + from * GROUP_RESULT;
      const step = quads * GROUP_RESULT;
      if (direct) first.multiply(from, quads, left, out, perStream * GROUP_RESULT, rest);
      else first.multiply(from, quads, left, tile, step, tile + STREAMS * step);
      if (direct && bias === 0) return;
      if (second !== undefined) {
        const beside = tile + TILE_BYTES;
        second.multiply(from, quads, left, beside, step, beside + STREAMS * step);
      }
      for (let s = 0; s <= STREAMS; s++) {
        const length = (s < STREAMS ? quads : left) * GROUP;
        if (length <= 0) continue;
        const place = s < STREAMS ? out + s * perStream * GROUP_RESULT : rest;
        this.#then(then, direct ? place : tile + s * step, bias === 0 ? 0 : bias + (place - y), place, length);
      }
    };
    return { units, run, ahead: first.ahead };
  }

  /**
   * One token's products with a matrix: `multiply` makes those of `quads` quads from quad `from` on, and of the `left`
   * groups that follow the streams; `ahead` reads the n-th lines from there on.
   */
  #far(c: Float64Array, record: number, x: number, perStream: number) {
    const [blocks, mode] = [c[4], c[5]];
    const kind = this.#doubles[record >>> 3];
    const w = this.#doubles[(record >>> 3) + 4];
    const bytes = blocks * GROUP_BYTES[kind];
    const [far, near] = [FAR_KERNELS, KERNELS].map((names) => this.#wasm[0][names[mode][kind]]);
    const rest = w + STREAMS * perStream * bytes;
    const room = this.#scratch[0].unpacked;
    const multiply = (from: number, quads: number, left: number, out: number, step: number, outLeft: number) => {
      if (quads > 0) far(w + from * bytes, perStream * bytes, x, blocks, out, step, quads);
      if (left > 0) near(rest, x, blocks, outLeft, 0, left, 1, room);
    };
    const { touch } = this.#wasm[0];
    const ahead = (from: number, n: number) => {
      if ((n + 1) * 128 <= (perStream - from) * bytes) touch(w + from * bytes + n * 128, perStream * bytes);
    };
    return { multiply, ahead };
  }

  /** Where a product finds its activations. */
  #source(c: Float64Array): number {
    return c[1] === PRIVATE ? this.#scratch[0].prepared : c[1];
  }

  /** What becomes of a row of `length` results: in their place, or of a tile (with those of up in the other tile). */
  #then(then: number, result: number, bias: number, to: number, length: number): void {
    const wasm = this.#wasm[0];
    if (bias !== 0) wasm.add(result, bias, length);
    if (then === THEN.add) wasm.add(to, result, length);
    if (then === THEN.gate) wasm.gated(result, result + TILE_BYTES, to, length);
    if (then === THEN.gateIt) wasm.gated(result, to, to, length);
  }

  /** The matrix at word `at` of a command (gate and up: both) times its tokens, in pairs of groups. */
  #groups(c: Float64Array, at: number): Part {
    const [, , xStride, tokens, , , then] = c;
    const [record, rows, y, yStride, bias, other] = c.subarray(at);
    const x = this.#source(c);
    const tile = this.#scratch[0].tiles;
    const direct = then === THEN.write;
    const run = (from: number, to: number) => {
      const [start, end] = [2 * from, Math.min(2 * to, rows / GROUP)];
      const length = (end - start) * GROUP;
      for (let t = 0; t < tokens; t += TOKEN_TILE) {
        const n = Math.min(TOKEN_TILE, tokens - t);
        const out = y + t * yStride + start * GROUP_RESULT;
        const result = direct ? out : tile;
        const stride = direct ? yStride : length * 4;
        this.#product(record, c, x + t * xStride, xStride, n, start, end, result, stride);
        if (then === THEN.gate) {
          this.#product(other, c, x + t * xStride, xStride, n, start, end, tile + TILE_BYTES, stride);
        }
        for (let k = 0; k < n; k++) {
          this.#then(
            then,
            result + k * stride,
            bias === 0 ? 0 : bias + start * GROUP_RESULT,
            out + k * yStride,
            length,
          );
        }
      }
    };
    return { units: Math.ceil(rows / (2 * GROUP)), run };
  }

  /** Groups first to end - 1 of a matrix times `tokens` prepared tokens at x, to y. */
  #product(
    record: number,
    c: Float64Array,
    x: number,
    xStride: number,
    tokens: number,
    first: number,
    end: number,
    y: number,
    yStride: number,
  ): void {
    const blocks = c[4];
    const kernel = KERNELS[c[5]][this.#doubles[record >>> 3]];
    this.#segments(record, first, end, (memory, w, from, groups) => {
      const to = y + (from - first) * GROUP * 4;
      if (memory === 0) {
        this.#wasm[0][kernel](w, x, blocks, to, yStride, groups, tokens, this.#scratch[0].unpacked);
        return;
      }
      // The kernels see one memory: the activations go there, the results come back.
      const own = this.#scratch[memory].prepared;
      const rowBytes = groups * GROUP * 4;
      this.#move(0, x, memory, own, tokens * xStride);
      const room = this.#scratch[memory].unpacked;
      this.#wasm[memory][kernel](w, own, blocks, this.#scratch[memory].tiles, rowBytes, groups, tokens, room);
      for (let k = 0; k < tokens; k++) {
        this.#move(memory, this.#scratch[memory].tiles + k * rowBytes, 0, to + k * yStride, rowBytes);
      }
    });
  }

  /** Token t of {@link attentionOf}, where there are several: rotates all heads and fills the cache. */
  #store(a: AttentionCommand, t: number): void {
    for (let h = 0; h < a.heads; h++) {
      const q = a.q + t * a.qStride + h * a.headDim * 4;
      this.#turn(a, q, a.qNorm, a.qEps, t, q);
    }
    for (let g = 0; g < a.groups; g++) this.#append(a, t, g);
  }

  /** Normalizes and rotates a head of token t, in place or to `to`. */
  #turn(a: AttentionCommand, x: number, norm: number, eps: number, t: number, to: number): void {
    const { rms_norm, rope } = this.#wasm[0];
    // Other threads may read what is written to the cache, so only final values may go there.
    const [normal] = this.#rooms;
    if (norm !== 0) rms_norm(x, norm, normal, a.headDim, a.headDim, eps);
    rope(norm !== 0 ? normal : x, to, a.headDim / 2, a.table + (a.position + t) * a.headDim * 4);
  }

  /** Puts the key and the value of token t, group g into the cache. */
  #append(a: AttentionCommand, t: number, g: number): void {
    const { copy, quantize_key, quantize_value } = this.#wasm[0];
    const { headDim, size, rowBytes } = a;
    const row = g * a.capacity + a.position + t;
    const [key, value] = [a.k, a.v].map((x) => x + t * a.kvStride + g * headDim * 4);
    if (size === 4) {
      this.#turn(a, key, a.kNorm, a.kEps, t, a.keys + row * rowBytes);
      copy(a.values + row * rowBytes, value, headDim * 4);
      return;
    }
    const [, turned] = this.#rooms;
    this.#turn(a, key, a.kNorm, a.kEps, t, turned);
    const scales = this.#floats;
    // In blocks of 8 positions, pair by pair; values of two positions stand side by side.
    const keyAt = a.keys + (row - row % KEY_POSITIONS) * rowBytes + (row % KEY_POSITIONS) * 2 * size;
    const valueAt = a.values + (row - row % VALUE_POSITIONS) * rowBytes + (row % VALUE_POSITIONS) * size;
    scales[(a.keyScales >>> 2) + row] = quantize_key(size, turned, headDim, a.top, keyAt);
    scales[(a.valueScales >>> 2) + row] = quantize_value(size, value, headDim, a.top, valueAt);
  }

  /** Piece n: the heads of a token that share keys and values. For a single token it stores these, too. */
  #attend(a: AttentionCommand, n: number): void {
    const { headDim, size, rowBytes } = a;
    const wasm = this.#wasm[0];
    const scale = Math.fround(1 / Math.sqrt(headDim));
    const [, , turned, integers, sums, factors] = this.#rooms;
    const each = a.heads / a.groups;
    const length = rowBytes / size;
    const t = Math.floor(n / a.groups);
    const g = n % a.groups;
    if (a.tokens === 1) this.#append(a, 0, g);
    const row = g * a.capacity;
    for (let h = g * each, end = h + each; h < end;) {
      // Not three and one of four.
      const heads = end - h === 4 ? 2 : Math.min(MOST_HEADS, end - h);
      const offset = t * a.qStride + h * headDim * 4;
      let q = a.q + offset;
      if (a.tokens === 1) {
        for (let j = 0; j < heads; j++) {
          this.#turn(a, q + j * headDim * 4, a.qNorm, a.qEps, 0, turned + j * headDim * 4);
        }
        q = turned;
      }
      for (let j = 0; j < heads; j++) {
        this.#floats[(factors >>> 2) + j] = size === 4 ? scale : scale *
          wasm.quantize_head(q + j * headDim * 4, headDim, ATTENTION_TOP.query, integers + j * length * 2);
      }
      const params = this.#scratch[0].attend;
      const set = (place: number, value: number) => this.#words[(params + place) >>> 2] = value;
      set(ATTEND_Q, size === 4 ? q : integers);
      set(ATTEND_FACTORS, factors);
      set(ATTEND_KEYS, a.keys + row * rowBytes);
      set(ATTEND_KEY_SCALES, a.keyScales + row * 4);
      set(ATTEND_VALUES, a.values + row * rowBytes);
      set(ATTEND_VALUE_SCALES, a.valueScales + row * 4);
      set(ATTEND_COUNT, a.position + t + 1);
      set(ATTEND_LENGTH, length);
      set(ATTEND_SCORES, this.#scratch[0].scores);
      set(ATTEND_SCORE_ROW, this.#layout.scoreBytes / MOST_HEADS);
      set(ATTEND_SUMS, sums);
      set(ATTEND_HEAD_DIM, headDim);
      set(ATTEND_OUT, a.out + offset);
      wasm[ATTENTION_KERNELS[size][heads - 1]](params);
      h += heads;
    }
  }
}

/** The kernels by mode and kind. */
const KERNELS: readonly (readonly string[])[] = [
  KINDS.map((kind) => `f32_${kind}`),
  ["i8_q4"],
  ["i16_q4"],
  ["", "i16_q8"],
  ["", "i16_q8"],
];

/** The same for one token and several streams. */
const FAR_KERNELS = KERNELS.map((kernels) => kernels.map((name) => `${name}_far`));

/** The kernels of attention by the bytes of a value in the cache, and by the number of heads from 1 on. */
const ATTENTION_KERNELS: Readonly<Record<number, readonly string[]>> = {
  1: ["attend_i8_1", "attend_i8_2", "attend_i8_3"],
  2: ["attend_i16_1", "attend_i16_2", "attend_i16_3"],
  4: ["attend_f32_1", "attend_f32_2", "attend_f32_3"],
};

type AttentionCommand = ReturnType<typeof attentionOf>;

/**
 * q, q stride, tokens, k, v, k and v stride, out, keys, values, their scales, bytes of a value in the cache and of a row of
 * it, capacity (positions), table, heads, groups, head dimension, position, q norm or 0, its eps, k norm or 0, its eps
 */
function attentionOf(c: Float64Array) {
  const [, q, qStride, tokens, k, v, kvStride, out, keys, values, keyScales, valueScales, size] = c;
  const [rowBytes, capacity, table, heads, groups, headDim, position, qNorm, qEps, kNorm, kEps] = c.subarray(13);
  return {
    q,
    qStride,
    k,
    v,
    kvStride,
    out,
    keys,
    values,
    keyScales,
    valueScales,
    size,
    rowBytes,
    top: size === 1 ? ATTENTION_TOP.i8 : ATTENTION_TOP.i16,
    capacity,
    table,
    heads,
    groups,
    headDim,
    position,
    tokens,
    qNorm,
    qEps,
    kNorm,
    kEps,
  };
}
