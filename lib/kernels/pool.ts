/**
 * The operations of a decoder on WebAssembly kernels and several threads. Calls are recorded as a program in shared
 * memory; {@link Pool.run} lets every thread run it, this one included (see machine.ts).
 *
 * @module
 */

import { UsageError } from "../errors.ts";
import { BF16, F16, F32, type Format, matrixBytes, Q4B32, Q8B32 } from "../format/blocks.ts";
import {
  checkAttend,
  checkBuffer,
  checkCache,
  checkEmbed,
  checkMatrix,
  checkProject,
  checkRopeTable,
  checkRow,
  checkVector,
} from "./checks.ts";
import { Handles } from "./handles.ts";
import { adviseHugePages } from "../libc.ts";
import {
  COMMAND_WORDS,
  CONTROL,
  controlWords,
  countersOf,
  GROUP_BYTES,
  KINDS,
  type Layout,
  Machine,
  MAX_COMMANDS,
  MESSAGE_BYTES,
  MODE,
  MOST_HEAD_DIM,
  MOST_HEADS,
  MOST_MATRICES,
  OP,
  preparedBytes,
  PRIVATE,
  takeScratch,
  THEN,
} from "./machine.ts";
import {
  type Activations,
  type Attention,
  ATTENTION_CHUNK,
  BadScale,
  type Buffer,
  type Cache,
  cacheFor,
  COLUMNS,
  type Input,
  type Matrix,
  type Norm,
  type Operations,
  padded,
  type Projection,
  type ReadBytes,
  type RopeTable,
  type Vector,
} from "./operations.ts";
import { GROUP } from "./wasm/layout.ts";
import { FIRST_ADDRESS, instantiate, MARGIN_BYTES, MAX_PAGES, PAGE } from "./codec_wasm.ts";

/** How the matrices of a format are held. */
interface Packing {
  /** The format that the kernels see. */
  readonly format: Format;
  /** An index of KINDS. */
  readonly kind: number;
  /** The name of the kernel that packs groups of rows. */
  readonly pack: string;
  /** The MODE of each sort of activations that can be asked for. */
  readonly modes: Readonly<Record<Activations, number>>;
}

const FLOAT_MODES = { f32: MODE.f32, i16: MODE.f32, i8: MODE.f32 };

/** The formats that there are kernels for. */
const PACKINGS: ReadonlyMap<Format, Packing> = new Map(
  ([
    { format: Q4B32, kind: "q4", pack: "pack_q4", modes: { f32: MODE.f32, i16: MODE.i16, i8: MODE.i8 } },
    { format: Q8B32, kind: "q8", pack: "pack_q8", modes: { f32: MODE.f32, i16: MODE.i16paired, i8: MODE.i8paired } },
    { format: BF16, kind: "bf16", pack: "pack_16", modes: FLOAT_MODES },
    { format: F16, kind: "f16", pack: "pack_16", modes: FLOAT_MODES },
    { format: F32, kind: "f32", pack: "pack_f32", modes: FLOAT_MODES },
  ] as const).map(({ kind, ...packing }) => [packing.format, { ...packing, kind: KINDS.indexOf(kind) }]),
);

/**
 * How a format is held. Weights of a float format without kernels are decoded to binary32, which is what they count as.
 *
 * @throws {RangeError} a block format without kernels
 */
function packingOf(format: Format): Packing {
  const packing = PACKINGS.get(format) ?? (format.kind === "float" ? PACKINGS.get(F32) : undefined);
  if (packing === undefined) throw new RangeError(`there are no kernels for matrices of ${format.name}`);
  return packing;
}

/** What a pool keeps of a matrix. */
interface PackedMatrix {
  /** Address of the record that machine.ts reads. */
  readonly record: number;
  /** Rows rounded up to whole groups. */
  readonly rowsHeld: number;
  /** How it is multiplied: a MODE. */
  readonly mode: number;
}

/** What a pool keeps of a cache. */
interface PlacedCache {
  /** Addresses. */
  readonly keys: number;
  readonly values: number;
  readonly keyScales: number;
  readonly valueScales: number;
  /** Bytes of a value, and of the row of a head. */
  readonly size: number;
  readonly rowBytes: number;
  /** Positions there is room for. */
  readonly capacity: number;
}

/** Bytes of a matrix that are read and packed at once. */
const STAGING_BYTES = 1 << 20;

/** The most that a memory keeps free of weights, for activations and scratch. */
const RESERVE_BYTES = 1 << 29;

/** A memory grows to a multiple of so many bytes, or to its limit. */
const GROWTH_BYTES = 1 << 27;

/** Areas begin at multiples of this: a cache line. */
const ALIGNMENT = 64;

/** Every byte of a guard. Four of them are a NaN, so that results show where a kernel has read one. */
const GUARD = 0xff;

/** The most commands of one operation. */
const OPERATION_COMMANDS = 2;

/** A shared memory that areas are taken from, one after the other. */
class Arena {
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

  /**
   * Takes an area.
   *
   * @param zero whether it must hold zeros; weights are written over anyway
   * @throws {UsageError} the memory is full
   */
  take(bytes: number, zero = true): number {
    const at = Math.ceil(this.#top / ALIGNMENT) * ALIGNMENT;
    const end = at + Math.ceil(bytes);
    const top = end + this.#guardBytes;
    if (top > this.#limit) {
      throw new UsageError(
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

  /** See {@link Pool.checkGuards}. */
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
    this.#top = FIRST_ADDRESS + this.#guardBytes;
    this.#guard(0, this.#top);
  }

  bytes(at: number, length: number): Uint8Array {
    return new Uint8Array(this.memory.buffer, at, length);
  }
}

/** Options of {@link Pool}. */
export interface PoolOptions {
  readonly threads: number;
  /** What block formats are multiplied with; `f32` is exact. */
  readonly activations?: Activations;
  /** Bytes that one memory may have: less than 4 GiB for tests. */
  readonly memoryBytes?: number;
  /** Bytes before and after each area of the memories that {@link Pool.checkGuards} looks at, for tests; at most 60,000. */
  readonly guardBytes?: number;
}

/** See the module. */
export class Pool implements Operations {
  readonly threads: number;
  readonly #activations: Activations;
  readonly #memoryBytes: number;
  readonly #guardBytes: number;
  readonly #arenas: Arena[];
  readonly #workers: Worker[];
  readonly #matrices = new Handles<Matrix, PackedMatrix>("matrix");
  readonly #caches = new Handles<Cache, PlacedCache>("cache");
  // Of these the address is kept.
  readonly #vectors = new Handles<Vector, number>("vector");
  readonly #buffers = new Handles<Buffer, number>("buffer");
  readonly #tables = new Handles<RopeTable, number>("table");
  #machine?: Machine;
  /** Settles when the workers have left their program loop. */
  #left: Promise<unknown> = Promise.resolve();
  #control: Int32Array = new Int32Array(0);
  #commands: Float64Array = new Float64Array(0);
  #count = 0;
  /** The number of the program that is being recorded or run. */
  #epoch = 0;
  /** The last program that the workers have seen. */
  #released = 0;
  #weightBytes = 0;
  #maxBlocks = 1;
  #maxPositions = ATTENTION_CHUNK;
  #ids = 0;
  #prepared = 0;
  #maxTokens = 1;
  /** Address of the area of each memory that bytes are read into before they are packed. */
  #staging: number[] = [];

  constructor(
    { threads, activations = "f32", memoryBytes = MAX_PAGES * PAGE - MARGIN_BYTES, guardBytes = 0 }: PoolOptions,
  ) {
    this.threads = threads;
    this.#activations = activations;
    this.#memoryBytes = memoryBytes;
    this.#guardBytes = guardBytes;
    this.#arenas = [new Arena(memoryBytes, guardBytes)];
    this.#workers = Array.from({ length: threads - 1 }, () => {
      return new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });
    });
  }

  get weightBytes(): number {
    return this.#weightBytes;
  }

  matrix(format: Format, rows: number, columns: number, read: ReadBytes): Matrix {
    checkMatrix(format, rows, columns);
    const packing = packingOf(format);
    const blocks = padded(columns) / COLUMNS;
    const groups = Math.ceil(rows / GROUP);
    const groupBytes = blocks * GROUP_BYTES[packing.kind];
    const segments: number[][] = [];
    for (let first = 0; first < groups;) {
      const memory = this.#arenaFor(groupBytes);
      const count = Math.min(groups - first, Math.floor(this.#arenas[memory].free / groupBytes));
      segments.push(this.#pack(format, columns, rows, first, count, memory, packing, read));
      first += count;
    }
    const record = this.#arenas[0].take(8 * (3 + 4 * segments.length));
    new Float64Array(this.#arenas[0].memory.buffer, record).set([
      packing.kind,
      blocks,
      segments.length,
      ...segments.flat(),
    ]);
    this.#weightBytes += matrixBytes(format, rows, columns);
    this.#maxBlocks = this.#most(this.#maxBlocks, blocks);
    const mode = packing.modes[this.#activations];
    return this.#matrices.add({ format, rows, columns }, { record, rowsHeld: groups * GROUP, mode });
  }

  /** The larger of two sizes that the scratch is made for, with the first operation: after that it can't grow. */
  #most(now: number, wanted: number): number {
    if (this.#machine && wanted > now) throw late();
    return Math.max(now, wanted);
  }

  /** The memory that has room for a group, a new one if none has. @throws {UsageError} nor has a new one */
  #arenaFor(groupBytes: number): number {
    for (const [memory, arena] of this.#arenas.entries()) {
      this.#stagingOf(memory);
      if (arena.free >= groupBytes) return memory;
    }
    if (this.#machine) throw late();
    const memory = this.#arenas.push(new Arena(this.#memoryBytes, this.#guardBytes)) - 1;
    this.#stagingOf(memory);
    if (this.#arenas[memory].free < groupBytes) {
      throw new UsageError(
        `${GROUP} rows of a matrix take ${groupBytes} bytes, more than a memory of ${this.#memoryBytes} bytes has room for`,
      );
    }
    return memory;
  }

  #stagingOf(memory: number): number {
    return this.#staging[memory] ??= this.#arenas[memory].take(STAGING_BYTES);
  }

  /** Reads and packs `count` groups from group `first` on. @returns the segment for the record */
  #pack(
    format: Format,
    columns: number,
    rows: number,
    first: number,
    count: number,
    memory: number,
    { format: held, kind, pack }: Packing,
    read: ReadBytes,
  ): number[] {
    const arena = this.#arenas[memory];
    const blocks = padded(columns) / COLUMNS;
    const payload = arena.take(count * blocks * GROUP_BYTES[kind], false);
    const heldBytes = matrixBytes(held, 1, padded(columns));
    // A very long row gets an area of its own.
    const room = GROUP * heldBytes > STAGING_BYTES ? arena.take(GROUP * heldBytes) : this.#stagingOf(memory);
    const step = Math.max(1, Math.floor(STAGING_BYTES / (GROUP * heldBytes)));
    for (let done = 0; done < count; done += step) {
      const groups = Math.min(step, count - done);
      const row = (first + done) * GROUP;
      const present = Math.min(groups * GROUP, rows - row);
      const staging = arena.bytes(room, groups * GROUP * heldBytes);
      readRows(format, held, columns, row, present, staging, read);
      if (format.kind === "block" || format === F16) {
        // Of a binary16 matrix every weight is checked, padding included, which is zero.
        const perRow = heldBytes / format.blockBytes;
        const bad = arena.wasm.check_scales(room, format.blockBytes, present * perRow);
        if (bad >= 0) {
          throw new BadScale((row + Math.floor(bad / perRow)) * (columns / format.blockWeights) + bad % perRow);
        }
      }
      arena.wasm[pack](room, heldBytes, blocks, groups, payload + done * blocks * GROUP_BYTES[kind]);
    }
    return [memory, payload, first, count];
  }

  vector(format: Format, length: number, read: ReadBytes): Vector {
    checkVector(format, length);
    const bytes = new Uint8Array(matrixBytes(format, 1, length));
    read(0, bytes);
    const values = new Float32Array(length);
    format.decode(new DataView(bytes.buffer), 0, length, values);
    this.#weightBytes += bytes.length;
    return this.#vectors.add({ length }, this.#store(values));
  }

  #store(values: Float32Array): number {
    const address = this.#arenas[0].take(padded(values.length) * 4);
    new Float32Array(this.#arenas[0].memory.buffer, address, values.length).set(values);
    return address;
  }

  buffer(tokens: number, width: number): Buffer {
    checkBuffer(tokens, width);
    this.#maxTokens = this.#most(this.#maxTokens, tokens);
    return this.#buffers.add({ tokens, width }, this.#arenas[0].take(tokens * padded(width) * 4));
  }

  cache(positions: number, heads: number, headDim: number): Cache {
    checkCache(positions, heads, headDim);
    if (headDim > MOST_HEAD_DIM) {
      throw new UsageError(`heads of ${headDim} values: rabbit knows up to ${MOST_HEAD_DIM}`);
    }
    // The kernels read so many positions at a time, and so many values of a head.
    const capacity = Math.ceil(positions / ATTENTION_CHUNK) * ATTENTION_CHUNK;
    const size = { f32: 4, i16: 2, i8: 1 }[cacheFor(headDim, this.#activations)];
    const rowBytes = Math.ceil(headDim / 16) * 16 * size;
    this.#maxPositions = this.#most(this.#maxPositions, capacity);
    const [main] = this.#arenas;
    const [keys, values] = [1, 2].map(() => main.take(heads * capacity * rowBytes));
    const [keyScales, valueScales] = [1, 2].map(() => size === 4 ? 0 : main.take(heads * capacity * 4));
    const placed = { keys, values, keyScales, valueScales, size, rowBytes, capacity };
    return this.#caches.add({ positions, heads, headDim }, placed);
  }

  ropeTable(positions: number, values: Float32Array): RopeTable {
    checkRopeTable(positions, values);
    return this.#tables.add({ positions, width: values.length / positions }, this.#store(values));
  }

  embed(table: Matrix, ids: readonly number[], out: Buffer): void {
    checkEmbed(table, ids, out);
    const { record } = this.#matrices.of(table);
    const to = this.#buffers.of(out);
    // What was recorded may still need the ids that are there.
    this.run();
    this.#begin();
    new Int32Array(this.#arenas[0].memory.buffer, this.#ids, ids.length).set(ids);
    this.#record(OP.embed, record, this.#ids, ids.length, to, stride(out));
  }

  project(input: Input, tokens: number, projections: readonly Projection[]): void {
    checkProject(input, tokens, projections);
    // Matrices of one format, which is the rule, share a command.
    const byMode = Map.groupBy(projections, ({ matrix }) => this.#matrices.of(matrix).mode);
    for (const some of byMode.values()) {
      for (let n = 0; n < some.length; n += MOST_MATRICES) {
        this.#project(input, tokens, THEN.write, some.slice(n, n + MOST_MATRICES));
      }
    }
  }

  projectAdd(input: Input, tokens: number, matrix: Matrix, to: Buffer, bias?: Vector): void {
    const projections = [{ matrix, bias, out: to }];
    checkProject(input, tokens, projections);
    this.#project(input, tokens, THEN.add, projections);
  }

  projectGated(input: Input, tokens: number, gate: Matrix, up: Matrix, out: Buffer): void {
    const [first, second] = [gate, up].map((matrix) => ({ matrix, out }));
    checkProject(input, tokens, [first, second]);
    const [mode, other] = [gate, up].map((matrix) => this.#matrices.of(matrix).mode);
    if (mode === other) {
      this.#project(input, tokens, THEN.gate, [first, second]);
    } else {
      this.#project(input, tokens, THEN.write, [second]);
      this.#project(input, tokens, THEN.gateIt, [first]);
    }
  }

  /** Matrices of one mode. */
  #project(input: Input, tokens: number, then: number, projections: readonly Projection[]): void {
    const { from, first = 0, norm } = input;
    const { mode } = this.#matrices.of(projections[0].matrix);
    const blocks = padded(from.width) / COLUMNS;
    let x = this.#buffers.of(from) + first * stride(from);
    let xStride = stride(from);
    const matrices = projections.flatMap(({ matrix, bias, out }) => {
      const { record, rowsHeld } = this.#matrices.of(matrix);
      return [record, rowsHeld, this.#buffers.of(out), stride(out), bias ? this.#vectors.of(bias) : 0];
    });
    const [weight, eps] = this.#norm(norm);
    this.#begin();
    if (norm !== undefined || mode !== MODE.f32 || tokens > 1) {
      const out = tokens === 1 ? PRIVATE : this.#prepared;
      const outStride = preparedBytes(mode, blocks);
      this.#record(
        OP.prepare,
        x,
        xStride,
        tokens,
        blocks * COLUMNS,
        from.width,
        weight,
        eps,
        mode,
        out,
        outStride,
      );
      x = out;
      xStride = outStride;
    }
    this.#record(OP.project, x, xStride, tokens, blocks, mode, then, projections.length, ...matrices);
  }

  attend(attention: Attention, tokens: number): void {
    checkAttend(attention, tokens);
    const { q, k, v, out, rope, heads, cache, position } = attention;
    const { keys, values, keyScales, valueScales, size, rowBytes, capacity } = this.#caches.of(cache);
    const words = [
      this.#buffers.of(q),
      stride(q),
      tokens,
      this.#buffers.of(k),
      this.#buffers.of(v),
      stride(k),
      this.#buffers.of(out),
      keys,
      values,
      keyScales,
      valueScales,
      size,
      rowBytes,
      capacity,
      this.#tables.of(rope),
      heads,
      cache.heads,
      cache.headDim,
      position,
      ...this.#norm(attention.qNorm),
      ...this.#norm(attention.kNorm),
    ];
    this.#begin();
    if (tokens > 1) this.#record(OP.store, ...words);
    this.#record(OP.attend, ...words);
  }

  /** The address of a norm's weight, 0 if there is no norm, and its eps. */
  #norm(norm: Norm | undefined): [number, number] {
    return norm === undefined ? [0, 0] : [this.#vectors.of(norm.weight), norm.eps];
  }

  /** Before an operation is recorded: what was recorded is run if there is no room for more. */
  #begin(): void {
    this.#start();
    if (this.#count + OPERATION_COMMANDS + 1 > MAX_COMMANDS) this.run();
  }

  #record(...words: number[]): void {
    if (this.#count === 0) this.#machine!.makeRoom(this.#epoch = this.#released + 1);
    this.#write(words);
  }

  #write(words: readonly number[]): void {
    let at = ((this.#epoch & 1) * MAX_COMMANDS + this.#count++) * COMMAND_WORDS;
    // What stays the same from token to token is not written again: the other threads have it in their caches.
    for (const word of words) {
      if (this.#commands[at] !== word) this.#commands[at] = word;
      at++;
    }
  }

  run(): void {
    if (this.#count === 0) return;
    this.#record(OP.end);
    this.#clear();
    this.#count = 0;
    if (!this.#machine!.alone) this.#release();
    this.#machine!.run(this.#epoch);
  }

  /** Nothing of the program is done yet. */
  #clear(): void {
    const { done } = countersOf(this.#epoch, this.threads);
    for (let n = 0, at = done; n <= this.threads; n++, at += MAX_COMMANDS) this.#control.fill(0, at, at + this.#count);
  }

  /** Lets the workers see the program. */
  #release(): void {
    this.#released = this.#epoch;
    Atomics.store(this.#control, CONTROL.epoch, this.#epoch);
    Atomics.notify(this.#control, CONTROL.epoch);
  }

  /**
   * Looks at the guards that {@link PoolOptions.guardBytes} asks for.
   *
   * @returns how many bytes they are
   * @throws {Error} one of them has been written to
   */
  checkGuards(): number {
    return this.#arenas.reduce((sum, arena, memory) => sum + arena.checkGuards(memory), 0);
  }

  row(buffer: Buffer, token: number): Float32Array {
    checkRow(buffer, token);
    const address = this.#buffers.of(buffer) + token * stride(buffer);
    return new Float32Array(this.#arenas[0].memory.buffer, address, buffer.width);
  }

  /** Before the first operation: the scratch, whose size is known now, and the threads. */
  #start(): void {
    if (this.#machine) return;
    const own = preparedBytes(MODE.f32, this.#maxBlocks);
    const scoreBytes = MOST_HEADS * this.#maxPositions * 4;
    const [main] = this.#arenas;
    this.#prepared = main.take(this.#maxTokens * own);
    this.#ids = main.take(this.#maxTokens * 4);
    const layout: Layout = {
      memories: this.#arenas.map(({ memory }) => memory),
      threads: this.threads,
      control: main.take(controlWords(this.threads) * 4),
      commands: main.take(2 * MAX_COMMANDS * COMMAND_WORDS * 8),
      message: main.take(MESSAGE_BYTES),
      scratch: Array.from({ length: this.threads }, () => {
        return this.#arenas.map((arena) => takeScratch((bytes) => arena.take(bytes), own, scoreBytes));
      }),
      scoreBytes,
    };
    const { buffer } = main.memory;
    this.#control = new Int32Array(buffer, layout.control, controlWords(this.threads));
    this.#commands = new Float64Array(buffer, layout.commands, 2 * MAX_COMMANDS * COMMAND_WORDS);
    this.#left = Promise.all(this.#workers.map((worker, n) => {
      worker.postMessage({ layout, thread: n + 1 });
      return new Promise<void>((resolve) => worker.addEventListener("message", () => resolve(), { once: true }));
    }));
    for (const arena of this.#arenas) arena.grows = false;
    this.#machine = new Machine(layout, 0);
    this.#released = 0;
  }

  async reset(): Promise<void> {
    this.#leave();
    await this.#left;
    for (const arena of this.#arenas) arena.reset();
    this.#arenas.length = 1;
    for (const handles of [this.#matrices, this.#vectors, this.#buffers, this.#caches, this.#tables]) handles.clear();
    this.#staging = [];
    this.#weightBytes = 0;
    this.#maxBlocks = 1;
    this.#maxPositions = ATTENTION_CHUNK;
    this.#maxTokens = 1;
  }

  /** Asks the workers to leave their program loop. */
  #leave(): void {
    if (!this.#machine) return;
    this.#epoch = this.#released + 1;
    this.#count = 0;
    try {
      this.#machine.makeRoom(this.#epoch);
    } catch {
      // A thread has failed, and no result of a program counts any more. Those that still wait for a program get this one.
    }
    this.#write([OP.exit]);
    this.#clear();
    this.#release();
    this.#machine = undefined;
    this.#count = 0;
  }

  close(): void {
    // Deno 2.9 does not wake a thread that sleeps on an address to end it: it has to be awake.
    this.#leave();
    for (const worker of this.#workers) worker.terminate();
  }
}

/** What comes after the first operation does not fit what was laid out then. */
function late(): RangeError {
  return new RangeError("larger than what there was before the first operation");
}

/**
 * Reads rows of a matrix, as they are packed: decoded where the kernels see another format, and padded with zeros.
 *
 * @param held the format that the kernels see
 * @param first the first row
 * @param out room for `rows` rows and more, which become zeros
 */
function readRows(
  format: Format,
  held: Format,
  columns: number,
  first: number,
  rows: number,
  out: Uint8Array,
  read: ReadBytes,
): void {
  const rowBytes = matrixBytes(format, 1, columns);
  const heldBytes = matrixBytes(held, 1, padded(columns));
  if (format === held && columns === padded(columns)) {
    read(first * rowBytes, out.subarray(0, rows * rowBytes));
    out.fill(0, rows * rowBytes);
    return;
  }
  const row = new Uint8Array(rowBytes);
  const values = new Float32Array(columns);
  out.fill(0);
  for (let r = 0; r < rows; r++) {
    read((first + r) * rowBytes, row);
    if (format === held) out.set(row, r * heldBytes);
    else {
      format.decode(new DataView(row.buffer), 0, columns, values);
      out.set(new Uint8Array(values.buffer), r * heldBytes);
    }
  }
}

/** Bytes from one row of a buffer to the next. */
function stride(buffer: Buffer): number {
  return padded(buffer.width) * 4;
}
