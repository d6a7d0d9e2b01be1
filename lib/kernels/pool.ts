/**
 * The operations of a decoder on WebAssembly kernels and several threads. Calls are recorded as a program in shared
 * memory (program.ts); {@link Pool.run} lets every thread run it, this one included (schedule.ts).
 *
 * @module
 */

import { type Activations, type Format, matrixBytes } from "../format/blocks.ts";
import { Arenas, late } from "./arena.ts";
import { capacityFor, placeCache, type PlacedCache } from "./cache.ts";
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
import { MARGIN_BYTES, MAX_PAGES, PAGE } from "./codec_wasm.ts";
import { Handles } from "./handles.ts";
import { loadMatrix } from "./load.ts";
import {
  type Attention,
  ATTENTION_CHUNK,
  type Buffer,
  type Cache,
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
import { MODE, packingOf, preparedBytes } from "./packings.ts";
import {
  type Fields,
  type MatrixFields,
  MAX_COMMANDS,
  MOST_MATRICES,
  type Op,
  placeOf,
  PRIVATE,
  PROGRAM_BYTES,
  THEN,
} from "./program.ts";
import { controlBytes, MESSAGE_BYTES, Thread } from "./schedule.ts";
import { type Assigned, type Layout, MOST_HEADS, takeScratch } from "./view.ts";
import { GROUP } from "./wasm/layout.ts";
import { startWorker, type SystemWorker } from "./workers.ts";

/** What a pool keeps of a matrix. */
interface PackedMatrix {
  /** Address of the record that the threads read. */
  readonly record: number;
  /** Rows rounded up to whole groups. */
  readonly rowsHeld: number;
  /** How it is multiplied: a MODE. */
  readonly mode: number;
}

/** The most commands of one operation. */
const OPERATION_COMMANDS = 2;

/** Options of {@link Pool}. */
export interface PoolOptions {
  /** Threads in all, the calling one among them. */
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
  readonly #arenas: Arenas;
  readonly #workers: SystemWorker<Assigned, "left">[];
  readonly #matrices = new Handles<Matrix, PackedMatrix>("matrix");
  readonly #caches = new Handles<Cache, PlacedCache>("cache");
  // Of these the address is kept.
  readonly #vectors = new Handles<Vector, number>("vector");
  readonly #buffers = new Handles<Buffer, number>("buffer");
  readonly #tables = new Handles<RopeTable, number>("table");
  /** This thread's part, from the first operation on. */
  #thread?: Thread;
  /** Settles when the workers have left their program loop. */
  #left: Promise<unknown> = Promise.resolve();
  /** Commands of the program that is being recorded. */
  #count = 0;
  /** The number of the program that is being recorded or run. */
  #epoch = 0;
  /** The last program that the workers have seen. */
  #released = 0;
  // The largest sizes, which the scratch is made for.
  #maxBlocks = 1;
  #maxPositions = ATTENTION_CHUNK;
  #maxTokens = 1;
  /** Addresses of the ids of embed, and of activations that several tokens share. */
  #ids = 0;
  #prepared = 0;

  /** Starts the threads. */
  constructor(
    { threads, activations = "f32", memoryBytes = MAX_PAGES * PAGE - MARGIN_BYTES, guardBytes = 0 }: PoolOptions,
  ) {
    this.threads = threads;
    this.#activations = activations;
    this.#arenas = new Arenas(memoryBytes, guardBytes);
    this.#workers = Array.from({ length: threads - 1 }, () => {
      return startWorker(new URL("./worker.ts", import.meta.url));
    });
  }

  matrix(format: Format, rows: number, columns: number, read: ReadBytes): Matrix {
    checkMatrix(format, rows, columns);
    const matrix = { format, rows, columns };
    const record = loadMatrix(this.#arenas, matrix, read);
    this.#maxBlocks = this.#most(this.#maxBlocks, padded(columns) / COLUMNS);
    const mode = packingOf(format).modes[this.#activations];
    return this.#matrices.add(matrix, { record, rowsHeld: Math.ceil(rows / GROUP) * GROUP, mode });
  }

  /** The larger of two sizes that the scratch is made for, with the first operation: after that it can't grow. */
  #most(now: number, wanted: number): number {
    if (this.#thread && wanted > now) throw late();
    return Math.max(now, wanted);
  }

  vector(format: Format, length: number, read: ReadBytes): Vector {
    checkVector(format, length);
    const bytes = new Uint8Array(matrixBytes(format, 1, length));
    read(0, bytes);
    const values = new Float32Array(length);
    format.decode(new DataView(bytes.buffer), 0, length, values);
    return this.#vectors.add({ length }, this.#store(values));
  }

  #store(values: Float32Array): number {
    const { main } = this.#arenas;
    const address = main.take(padded(values.length) * 4);
    new Float32Array(main.memory.buffer, address, values.length).set(values);
    return address;
  }

  buffer(tokens: number, width: number): Buffer {
    checkBuffer(tokens, width);
    this.#maxTokens = this.#most(this.#maxTokens, tokens);
    return this.#buffers.add({ tokens, width }, this.#arenas.main.take(tokens * padded(width) * 4));
  }

  cache(positions: number, heads: number, headDim: number): Cache {
    checkCache(positions, heads, headDim);
    this.#maxPositions = this.#most(this.#maxPositions, capacityFor(positions));
    const placed = placeCache(this.#arenas.main, positions, heads, headDim, this.#activations);
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
    new Int32Array(this.#arenas.main.memory.buffer, this.#ids, ids.length).set(ids);
    this.#record("embed", { tokens: ids.length, record, ids: this.#ids, out: to, outStride: stride(out) });
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
    const matrices = projections.map(({ matrix, bias, out }): MatrixFields => {
      const { record, rowsHeld: rows } = this.#matrices.of(matrix);
      const y = this.#buffers.of(out);
      return { record, rows, y, yStride: stride(out), bias: bias ? this.#vectors.of(bias) : 0 };
    });
    this.#begin();
    if (norm !== undefined || mode !== MODE.f32 || tokens > 1) {
      const out = tokens === 1 ? PRIVATE : this.#prepared;
      const outStride = preparedBytes(mode, blocks);
      const [weight, eps] = this.#norm(norm);
      const length = blocks * COLUMNS;
      const width = from.width;
      this.#record("prepare", { tokens, x, xStride, length, width, norm: weight, eps, mode, out, outStride });
      x = out;
      xStride = outStride;
    }
    this.#record("project", { tokens, x, xStride, blocks, mode, then, matrices: matrices.length }, matrices);
  }

  attend(attention: Attention, tokens: number): void {
    checkAttend(attention, tokens);
    const { q, k, v, out, rope, heads, cache, position } = attention;
    // Not spread into the fields, which takes several times as long.
    const { keys, values, keyScales, valueScales, size, rowBytes, capacity } = this.#caches.of(cache);
    const [qNorm, qEps] = this.#norm(attention.qNorm);
    const [kNorm, kEps] = this.#norm(attention.kNorm);
    const fields = {
      tokens,
      q: this.#buffers.of(q),
      qStride: stride(q),
      k: this.#buffers.of(k),
      v: this.#buffers.of(v),
      kvStride: stride(k),
      out: this.#buffers.of(out),
      keys,
      values,
      keyScales,
      valueScales,
      size,
      rowBytes,
      capacity,
      table: this.#tables.of(rope),
      heads,
      groups: cache.heads,
      headDim: cache.headDim,
      position,
      qNorm,
      qEps,
      kNorm,
      kEps,
    };
    this.#begin();
    if (tokens > 1) this.#record("store", fields);
    this.#record("attend", fields);
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

  #record<O extends Op>(op: O, fields: Fields<O>, matrices?: readonly MatrixFields[]): void {
    if (this.#count === 0) this.#thread!.makeRoom(this.#epoch = this.#released + 1);
    this.#thread!.commands.write(placeOf(this.#epoch, this.#count++), op, fields, matrices);
  }

  run(): void {
    const thread = this.#thread;
    if (this.#count === 0 || thread === undefined) return;
    this.#record("end", { tokens: 0 });
    thread.clear(this.#epoch, this.#count);
    this.#count = 0;
    if (!thread.alone) this.#release(thread);
    thread.run(this.#epoch);
  }

  /** Lets the workers see the program. */
  #release(thread: Thread): void {
    this.#released = this.#epoch;
    thread.release(this.#epoch);
  }

  /**
   * Looks at the guards that {@link PoolOptions.guardBytes} asks for.
   *
   * @returns how many bytes they are
   * @throws {Error} one of them has been written to
   */
  checkGuards(): number {
    return this.#arenas.checkGuards();
  }

  row(buffer: Buffer, token: number): Float32Array {
    checkRow(buffer, token);
    const address = this.#buffers.of(buffer) + token * stride(buffer);
    return new Float32Array(this.#arenas.main.memory.buffer, address, buffer.width);
  }

  /** Before the first operation: the scratch, whose size is known now, and the threads. */
  #start(): void {
    if (this.#thread) return;
    const own = preparedBytes(MODE.f32, this.#maxBlocks);
    const scoreBytes = MOST_HEADS * this.#maxPositions * 4;
    const { main, all } = this.#arenas;
    this.#prepared = main.take(this.#maxTokens * own);
    this.#ids = main.take(this.#maxTokens * 4);
    const layout: Layout = {
      memories: all.map(({ memory }) => memory),
      threads: this.threads,
      control: main.take(controlBytes(this.threads)),
      commands: main.take(PROGRAM_BYTES),
      message: main.take(MESSAGE_BYTES),
      scratch: Array.from({ length: this.threads }, () => {
        return all.map((arena) => takeScratch((bytes) => arena.take(bytes), own, scoreBytes));
      }),
      scoreBytes,
    };
    this.#left = Promise.all(this.#workers.map((worker, n) => {
      worker.post({ layout, thread: n + 1 });
      return new Promise<void>((resolve) => worker.onMessage = () => resolve());
    }));
    this.#arenas.freeze();
    this.#thread = new Thread(layout, 0);
    this.#released = 0;
  }

  async reset(): Promise<void> {
    this.#leave();
    await this.#left;
    this.#arenas.reset();
    for (const handles of [this.#matrices, this.#vectors, this.#buffers, this.#caches, this.#tables]) handles.clear();
    this.#maxBlocks = 1;
    this.#maxPositions = ATTENTION_CHUNK;
    this.#maxTokens = 1;
  }

  /** Asks the workers to leave their program loop. */
  #leave(): void {
    const thread = this.#thread;
    if (thread === undefined) return;
    this.#epoch = this.#released + 1;
    try {
      thread.makeRoom(this.#epoch);
    } catch {
      // A thread has failed, and no result of a program counts any more. Those that still wait for a program get this one.
    }
    thread.commands.write(placeOf(this.#epoch, 0), "exit", { tokens: 0 });
    thread.clear(this.#epoch, 1);
    this.#release(thread);
    this.#thread = undefined;
    this.#count = 0;
  }

  close(): void {
    // Deno 2.9 does not wake a thread that sleeps on an address to end it: it has to be awake.
    this.#leave();
    for (const worker of this.#workers) worker.end();
  }
}

/** Bytes from one row of a buffer to the next. */
function stride(buffer: Buffer): number {
  return padded(buffer.width) * 4;
}
