/**
 * One thread's part in a program of operations. Every thread runs the same program over the same memory; work is shared
 * out by counters, so that a thread that is early takes work from one that is late, and a barrier follows each
 * operation. What a thread does does not depend on the others, so neither do the results.
 *
 * @module
 */

import { ATTENTION_TOP } from "./operations.ts";
import { instantiate } from "./wasm.ts";

/** Where things are in the control area: int32 words, each on a cache line of its own. */
export const CONTROL = {
  /** Counts programs; workers sleep on it. */
  epoch: 0,
  /** Threads that have come to the barrier. */
  arrived: 16,
  /** Counts barriers; threads sleep on it. */
  barrier: 32,
  /** Threads that sleep on the barrier. */
  sleepers: 48,
  /** Words of the control area; a work counter for each command follows. */
  words: 64,
} as const;

/** The longest program, in commands. */
export const MAX_COMMANDS = 8192;

/** Numbers (binary64) of one command. */
export const COMMAND_WORDS = 24;

/** What a command does; the numbers after it are listed with each method of {@link Machine}. */
export const OP = { exit: 0, embed: 1, prepare: 2, project: 3, store: 4, attend: 5, end: 6 } as const;

/** What becomes of a product. */
export const THEN = { write: 0, add: 1, gate: 2 } as const;

/** How activations are prepared. */
export const MODE = { f32: 0, i8: 1, i16: 2, i16paired: 3, i8paired: 4 } as const;

/** The kinds of packed matrices, as the kernels number them. */
export const KINDS = ["q4", "q8", "bf16", "f16", "f32"] as const;

/** Bytes of a group (8 rows) and a block of columns, scales and all, by kind. */
export const GROUP_BYTES = [144, 272, 512, 512, 1024] as const;

/** Rows of a group. */
export const GROUP = 8;

/** Tokens that a piece of work takes at once: their results stay in a processor's cache. */
export const TOKEN_TILE = 32;

/** Groups that it takes at once, for the same reason. */
export const GROUP_TILE = 64;

/** Streams of a matrix that the kernels for one token read at once, a group of each in turn: a quad of groups. */
const STREAMS = 4;

/** Quads that a piece of work takes at most: with the groups that are left over, their results fit a tile. */
const QUAD_TILE = 256;

/** Pieces of work for each thread, so that those that are early find something left to do. */
const PIECES = 6;

/** The address that stands for the thread's own prepared activations. */
export const PRIVATE = -1;

/** Turns of the loop at a barrier before a thread sleeps: some ten microseconds. */
const SPIN = 3000;

/** Turns before a worker sleeps between two programs. */
const IDLE_SPIN = 20000;

/** Heads that attention takes at once. */
export const MOST_HEADS = 3;

/** Values of a head there is room for, in binary32, in scratch. */
export const MOST_HEAD_DIM = 1024;

const HEAD_ROOM = MOST_HEADS * MOST_HEAD_DIM * 4;

/** Bytes of results of one tile; there are two, for gate and up. */
const TILE_BYTES = TOKEN_TILE * GROUP_TILE * GROUP * 4;

/** What every thread must know before the first program. */
export interface Layout {
  /** Memory 0 has everything but the weights that did not fit. */
  readonly memories: readonly WebAssembly.Memory[];
  readonly threads: number;
  /** Addresses in memory 0. */
  readonly control: number;
  readonly commands: number;
  /** Scratch of thread 0, by memory; the next thread's follows {@link scratchBytes} later. */
  readonly scratch: readonly number[];
  /** Bytes of prepared activations of one token, and of the scores of {@link MOST_HEADS} heads. */
  readonly preparedBytes: number;
  readonly scoreBytes: number;
}

/** Bytes of scratch that a thread needs in a memory: see {@link Machine}. */
export function scratchBytes(preparedBytes: number, scoreBytes: number): number {
  return (TOKEN_TILE + 1) * preparedBytes + scoreBytes + 2 * TILE_BYTES + 4096;
}

/** Bytes of one token's prepared activations: binary32, or integers with scales and sums. */
export function preparedBytes(blocks: number): number {
  return blocks * (32 * 4 + 8);
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
  /** Own prepared activations (a tile of them), a normalized row, scores, two tiles of results, by memory. */
  readonly #prepared: number[];
  readonly #normal: number;
  readonly #scores: number;
  readonly #tiles: number[];
  /** In the place of tiles, for attention: six areas, of {@link MOST_HEADS} heads each. */
  readonly #rooms: number[];

  constructor(layout: Layout, thread: number) {
    this.#layout = layout;
    this.#thread = thread;
    const { memories, scratch, preparedBytes, scoreBytes } = layout;
    this.#wasm = memories.map(instantiate);
    this.#bytes = memories.map(({ buffer }) => new Uint8Array(buffer));
    const { buffer } = memories[0];
    this.#control = new Int32Array(buffer, layout.control, CONTROL.words + MAX_COMMANDS);
    this.#commands = new Float64Array(buffer, layout.commands, MAX_COMMANDS * COMMAND_WORDS);
    this.#doubles = new Float64Array(buffer, 0, buffer.byteLength >>> 3);
    this.#words = new Int32Array(buffer, 0, buffer.byteLength >>> 2);
    this.#floats = new Float32Array(buffer, 0, buffer.byteLength >>> 2);
    const size = scratchBytes(preparedBytes, scoreBytes);
    const start = scratch.map((base) => base + thread * size);
    this.#prepared = start;
    this.#normal = start[0] + TOKEN_TILE * preparedBytes;
    this.#scores = this.#normal + preparedBytes + 2048;
    this.#tiles = start.map((at) => at + (TOKEN_TILE + 1) * preparedBytes + scoreBytes + 2048);
    this.#rooms = Array.from({ length: 6 }, (_, n) => this.#tiles[0] + n * HEAD_ROOM);
  }

  /** Waits for programs and runs them until one ends with `exit`. For workers. */
  serve(epoch: number): void {
    while (true) {
      const control = this.#control;
      for (let n = 0; n < IDLE_SPIN && Atomics.load(control, CONTROL.epoch) === epoch; n++);
      while (Atomics.load(control, CONTROL.epoch) === epoch) Atomics.wait(control, CONTROL.epoch, epoch);
      epoch++;
      if (!this.run()) return;
    }
  }

  /** Runs the program in memory, which has a command with a barrier at least. @returns false if it was `exit` */
  run(): boolean {
    for (let index = 0;; index++) {
      const at = index * COMMAND_WORDS;
      const c = this.#commands.subarray(at, at + COMMAND_WORDS);
      // Read before the barrier: when the last thread has come to it, the next program may be written over this one.
      const last = this.#commands[at + COMMAND_WORDS] === OP.end;
      switch (c[0]) {
        case OP.exit:
          return false;
        case OP.embed:
          this.#embed(c, index);
          break;
        case OP.prepare:
          // A thread's own activations are no business of the others: no barrier.
          if (this.#prepare(c, index)) continue;
          break;
        case OP.project:
          this.#project(c, index);
          break;
        case OP.store:
          this.#store(c, index);
          break;
        case OP.attend:
          this.#attend(c, index);
          break;
      }
      this.#barrier();
      if (last) return true;
    }
  }

  /** The next piece of work of a command that nobody has taken. */
  #next(index: number): number {
    return Atomics.add(this.#control, CONTROL.words + index, 1);
  }

  #barrier(): void {
    const { threads } = this.#layout;
    if (threads === 1) return;
    const control = this.#control;
    const turn = Atomics.load(control, CONTROL.barrier);
    if (Atomics.add(control, CONTROL.arrived, 1) === threads - 1) {
      Atomics.store(control, CONTROL.arrived, 0);
      Atomics.add(control, CONTROL.barrier, 1);
      if (Atomics.load(control, CONTROL.sleepers) > 0) Atomics.notify(control, CONTROL.barrier);
      return;
    }
    for (let n = 0; n < SPIN; n++) if (Atomics.load(control, CONTROL.barrier) !== turn) return;
    Atomics.add(control, CONTROL.sleepers, 1);
    while (Atomics.load(control, CONTROL.barrier) === turn) Atomics.wait(control, CONTROL.barrier, turn);
    Atomics.sub(control, CONTROL.sleepers, 1);
  }

  /** matrix record, address of ids (int32), tokens, out, out stride */
  #embed(c: Float64Array, index: number): void {
    const [, record, ids, tokens, out, stride] = c;
    const kind = this.#doubles[record >>> 3];
    const blocks = this.#doubles[(record >>> 3) + 1];
    for (let t = this.#next(index); t < tokens; t = this.#next(index)) {
      const id = this.#words[(ids >>> 2) + t];
      this.#segments(record, Math.floor(id / GROUP), Math.floor(id / GROUP) + 1, (memory, w) => {
        const to = out + t * stride;
        // In every memory there is room for a row of prepared activations.
        const at = memory === 0 ? to : this.#prepared[memory];
        this.#wasm[memory].unpack_row(kind, w, id % GROUP, blocks, at);
        if (memory !== 0) this.#move(memory, at, 0, to, blocks * 32 * 4);
      });
    }
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
   * x, x stride, tokens, length (whole blocks), width, norm weight or 0, eps, mode, out or PRIVATE, out stride.
   *
   * @returns whether the result is the thread's own
   */
  #prepare(c: Float64Array, index: number): boolean {
    const [, x, stride, tokens, length, width, norm, eps, mode, out, outStride] = c;
    const wasm = this.#wasm[0];
    const one = (from: number, to: number) => {
      if (norm !== 0) {
        const at = mode === MODE.f32 ? to : this.#normal;
        wasm.rms_norm(from, norm, at, length, width, eps);
        from = at;
      }
      const blocks = length / 32;
      if (mode === MODE.i8) wasm.quantize_i8(from, blocks, to);
      else if (mode !== MODE.f32) {
        wasm.quantize_i16(from, blocks, to, mode === MODE.i8paired ? 127 : 32767, mode === MODE.i16 ? 0 : 1);
      }
    };
    if (out === PRIVATE) {
      one(x, this.#prepared[0]);
      return true;
    }
    for (let t = this.#next(index); t < tokens; t = this.#next(index)) one(x + t * stride, out + t * outStride);
    return false;
  }

  /**
   * x or PRIVATE, x stride, tokens, blocks, kernel mode, then, number of matrices, then for each matrix record, rows
   * padded to groups, y, y stride, bias or 0.
   */
  #project(c: Float64Array, index: number): void {
    const [, source, xStride, tokens, , , then, count] = c;
    const x = source === PRIVATE ? this.#prepared[0] : source;
    if (tokens === 1 && this.#inOnePiece(c, count)) return this.#projectOne(c, index, x);
    if (then === THEN.gate) return this.#projectGated(c, index, x);
    let total = 0;
    for (let m = 0; m < count; m++) total += c[8 + 5 * m + 1] / GROUP;
    const piece = this.#pieceOf(total, GROUP_TILE);
    for (let first = this.#next(index) * piece; first < total; first = this.#next(index) * piece) {
      const end = Math.min(first + piece, total);
      for (let m = 0, before = 0; m < count; m++) {
        const at = 8 + 5 * m;
        const groups = c[at + 1] / GROUP;
        const from = Math.max(first - before, 0);
        const to = Math.min(end - before, groups);
        before += groups;
        if (from >= to) continue;
        const [y, yStride, bias] = [c[at + 2], c[at + 3], c[at + 4]];
        const wasm = this.#wasm[0];
        for (let t = 0; t < tokens; t += TOKEN_TILE) {
          const n = Math.min(TOKEN_TILE, tokens - t);
          const rows = (to - from) * GROUP;
          const out = y + t * yStride + from * GROUP * 4;
          const direct = then === THEN.write;
          const tile = this.#tiles[0];
          const result = direct ? out : tile;
          const stride = direct ? yStride : rows * 4;
          this.#product(c[at], c, x + t * xStride, xStride, n, from, to, result, stride);
          for (let k = 0; k < n; k++) {
            if (bias !== 0) wasm.add(result + k * stride, bias + from * GROUP * 4, rows);
            if (!direct) wasm.add(out + k * yStride, tile + k * stride, rows);
          }
        }
      }
    }
  }

  /** How much of `total` a thread takes at a time. */
  #pieceOf(total: number, most: number): number {
    const { threads } = this.#layout;
    return Math.min(most, Math.ceil(total / (threads === 1 ? 1 : PIECES * threads)));
  }

  /** Whether all matrices of a command are whole, in memory 0. */
  #inOnePiece(c: Float64Array, count: number): boolean {
    for (let m = 0; m < count; m++) {
      const at = c[8 + 5 * m] >>> 3;
      if (this.#doubles[at + 2] !== 1 || this.#doubles[at + 3] !== 0) return false;
    }
    return true;
  }

  /** {@link #project} for one token: a matrix is read as {@link STREAMS} streams. */
  #projectOne(c: Float64Array, index: number, x: number): void {
    const [, , , , , , then, count] = c;
    const each = then === THEN.gate ? 2 : 1;
    let total = 0;
    for (let m = 0; m < count; m += each) total += quadsOf(c[8 + 5 * m + 1]);
    const piece = this.#pieceOf(total, QUAD_TILE);
    for (let first = this.#next(index) * piece; first < total; first = this.#next(index) * piece) {
      const end = Math.min(first + piece, total);
      for (let m = 0, before = 0; m < count; m += each) {
        const at = 8 + 5 * m;
        const quads = quadsOf(c[at + 1]);
        const from = Math.max(first - before, 0);
        const to = Math.min(end - before, quads);
        before += quads;
        if (from < to) this.#quads(c, at, x, from, to);
      }
    }
  }

  /** Quads `from` to `to` - 1 of the matrix at word `at` of a command (gate and up: of both) times one token. */
  #quads(c: Float64Array, at: number, x: number, from: number, to: number): void {
    const [, , , , blocks, mode, then] = c;
    const [record, rows, y, , bias] = c.subarray(at);
    const wasm = this.#wasm[0];
    const groups = rows / GROUP;
    const perStream = Math.floor(groups / STREAMS);
    const quads = Math.min(to, perStream) - from;
    // What does not fill the streams goes with the last piece.
    const left = to === quadsOf(rows) ? groups - STREAMS * perStream : 0;
    const ROW = GROUP * 4;
    const product = (record: number, out: number, step: number, outLeft: number) => {
      const kind = this.#doubles[record >>> 3];
      const kernel = KERNELS[mode][kind];
      const w = this.#doubles[(record >>> 3) + 4];
      const bytes = blocks * GROUP_BYTES[kind];
      if (quads > 0) wasm[`${kernel}_far`](w + from * bytes, perStream * bytes, x, blocks, out, step, quads);
      if (left > 0) wasm[kernel](w + STREAMS * perStream * bytes, x, 0, blocks, outLeft, 0, left, 1);
    };
    const out = y + from * ROW;
    const outLeft = y + STREAMS * perStream * ROW;
    const tile = this.#tiles[0];
    const step = quads * ROW;
    const direct = then === THEN.write;
    if (direct) product(record, out, perStream * ROW, outLeft);
    else product(record, tile, step, tile + STREAMS * step);
    if (then === THEN.gate) product(c[at + 5], tile + TILE_BYTES, step, tile + TILE_BYTES + STREAMS * step);
    for (let s = 0; s <= STREAMS; s++) {
      const length = (s < STREAMS ? quads : left) * GROUP;
      if (length <= 0) continue;
      const to = s < STREAMS ? out + s * perStream * ROW : outLeft;
      const result = direct ? to : tile + s * step;
      if (bias !== 0) wasm.add(result, bias + (to - y), length);
      if (then === THEN.add) wasm.add(to, result, length);
      if (then === THEN.gate) wasm.gated(result, result + TILE_BYTES, to, length);
    }
  }

  #projectGated(c: Float64Array, index: number, x: number): void {
    const [, , xStride, tokens] = c;
    const groups = c[9] / GROUP;
    const [gate, up] = [c[8], c[13]];
    const [y, yStride] = [c[10], c[11]];
    const tile = this.#tiles[0];
    const piece = this.#pieceOf(groups, GROUP_TILE);
    for (let first = this.#next(index) * piece; first < groups; first = this.#next(index) * piece) {
      const end = Math.min(first + piece, groups);
      const rows = (end - first) * GROUP;
      for (let t = 0; t < tokens; t += TOKEN_TILE) {
        const n = Math.min(TOKEN_TILE, tokens - t);
        this.#product(gate, c, x + t * xStride, xStride, n, first, end, tile, rows * 4);
        this.#product(up, c, x + t * xStride, xStride, n, first, end, tile + TILE_BYTES, rows * 4);
        for (let k = 0; k < n; k++) {
          const at = tile + k * rows * 4;
          this.#wasm[0].gated(at, at + TILE_BYTES, y + (t + k) * yStride + first * GROUP * 4, rows);
        }
      }
    }
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
        this.#wasm[0][kernel](w, x, xStride, blocks, to, yStride, groups, tokens);
        return;
      }
      // The kernels see one memory: the activations go there, the results come back.
      const own = this.#prepared[memory];
      const rowBytes = groups * GROUP * 4;
      this.#move(0, x, memory, own, tokens * xStride);
      this.#wasm[memory][kernel](w, own, xStride, blocks, this.#tiles[memory], rowBytes, groups, tokens);
      for (let k = 0; k < tokens; k++) {
        this.#move(memory, this.#tiles[memory] + k * rowBytes, 0, to + k * yStride, rowBytes);
      }
    });
  }

  /** See {@link attentionOf}; for several tokens: rotates all heads and fills the cache. */
  #store(c: Float64Array, index: number): void {
    const a = attentionOf(c);
    for (let t = this.#next(index); t < a.tokens; t = this.#next(index)) {
      for (let h = 0; h < a.heads; h++) {
        const q = a.q + t * a.qStride + h * a.headDim * 4;
        this.#turn(a, q, a.qNorm, t, q);
      }
      for (let g = 0; g < a.groups; g++) this.#append(a, t, g);
    }
  }

  /** Normalizes and rotates a head of token t, in place or to `to`. */
  #turn(a: ReturnType<typeof attentionOf>, x: number, norm: number, t: number, to: number): void {
    const { rms_norm, rope } = this.#wasm[0];
    // Other threads may read what is written to the cache, so only final values may go there.
    const [normal] = this.#rooms;
    if (norm !== 0) rms_norm(x, norm, normal, a.headDim, a.headDim, a.eps);
    rope(norm !== 0 ? normal : x, to, a.headDim / 2, a.table + (a.position + t) * a.headDim * 4);
  }

  /** Puts the key and the value of token t, group g into the cache. */
  #append(a: ReturnType<typeof attentionOf>, t: number, g: number): void {
    const { copy, quantize_head, quantize_value } = this.#wasm[0];
    const { headDim, size, rowBytes } = a;
    const row = g * a.capacity + a.position + t;
    const [key, value] = [a.k, a.v].map((x) => x + t * a.kvStride + g * headDim * 4);
    if (size === 4) {
      this.#turn(a, key, a.kNorm, t, a.keys + row * rowBytes);
      copy(a.values + row * rowBytes, value, headDim * 4);
      return;
    }
    const [, turned] = this.#rooms;
    this.#turn(a, key, a.kNorm, t, turned);
    const scales = this.#floats;
    scales[(a.keyScales >>> 2) + row] = quantize_head(size, turned, headDim, a.top, a.keys + row * rowBytes);
    // Two positions stand side by side.
    const at = a.values + (row - row % 2) * rowBytes + (row % 2) * size;
    scales[(a.valueScales >>> 2) + row] = quantize_value(size, value, headDim, a.top, at);
  }

  /** Attends; the heads of a token that share keys and values are a piece, which for a single token stores them too. */
  #attend(c: Float64Array, index: number): void {
    const a = attentionOf(c);
    const { headDim, size, rowBytes } = a;
    const wasm = this.#wasm[0];
    const kernel = size === 4 ? "attend_f32_" : size === 2 ? "attend_i16_" : "attend_i8_";
    const kernels = [1, 2, 3].map((heads) => wasm[kernel + heads]);
    const scale = Math.fround(1 / Math.sqrt(headDim));
    const [, , turned, integers, sums, factors] = this.#rooms;
    const each = a.heads / a.groups;
    const length = rowBytes / size;
    for (let n = this.#next(index); n < a.tokens * a.groups; n = this.#next(index)) {
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
          for (let j = 0; j < heads; j++) this.#turn(a, q + j * headDim * 4, a.qNorm, 0, turned + j * headDim * 4);
          q = turned;
        }
        for (let j = 0; j < heads; j++) {
          this.#floats[(factors >>> 2) + j] = size === 4 ? scale : scale *
            wasm.quantize_head(2, q + j * headDim * 4, headDim, ATTENTION_TOP.query, integers + j * length * 2);
        }
        kernels[heads - 1](
          size === 4 ? q : integers,
          factors,
          a.keys + row * rowBytes,
          a.keyScales + row * 4,
          a.values + row * rowBytes,
          a.valueScales + row * 4,
          a.position + t + 1,
          length,
          this.#scores,
          this.#layout.scoreBytes / MOST_HEADS,
          sums,
          headDim,
          a.out + offset,
        );
        h += heads;
      }
    }
  }
}

/** The quads of a matrix of `rows` rows; one at least, that of the groups which are left over. */
function quadsOf(rows: number): number {
  return Math.max(1, Math.floor(rows / (STREAMS * GROUP)));
}

/** The kernels by mode and kind; those for one token and several streams have `_far` added. */
const KERNELS: readonly (readonly string[])[] = [
  KINDS.map((kind) => `f32_${kind}`),
  ["i8_q4"],
  ["i16_q4"],
  ["", "i16_q8"],
  ["", "i16_q8"],
];

/**
 * q, q stride, k, v, k and v stride, out, keys, values, their scales, bytes of a value in the cache and of a row of it,
 * capacity (positions), table, heads, groups, head dimension, position, tokens, q norm, k norm, eps
 */
function attentionOf(c: Float64Array) {
  const [, q, qStride, k, v, kvStride, out, keys, values, keyScales, valueScales, size, rowBytes] = c;
  const [capacity, table, heads, groups, headDim, position, tokens, qNorm, kNorm, eps] = c.subarray(13);
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
    kNorm,
    eps,
  };
}
