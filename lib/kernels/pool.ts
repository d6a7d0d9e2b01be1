/**
 * The operations of a decoder on WebAssembly kernels and several threads. Calls are recorded as a program in shared
 * memory (program.ts); {@link Pool.run} runs it on all threads, including the calling one (schedule.ts).
 *
 * @module
 */

import type { Activations, Format } from "../format/blocks.ts";
import { AheadMatrices, type LoadAhead, type PlacedMatrix } from "./ahead.ts";
import { Arenas, layoutFixed, stride } from "./arena.ts";
import { capacityFor, placeCache, type PlacedCache } from "./cache.ts";
import {
  checkAttend,
  checkBuffer,
  checkCache,
  checkCompare,
  checkEmbed,
  checkMatrix,
  checkProject,
  checkRopeTable,
  checkRow,
} from "./checks.ts";
import { MARGIN_BYTES, MAX_PAGES, PAGE } from "./codec_wasm.ts";
import { Handles } from "./handles.ts";
import { loadMatrix, type PackedMatrix, reloadMatrix } from "./load.ts";
import {
  type ActivationBuffer,
  type Attention,
  ATTENTION_CHUNK,
  COLUMNS,
  type Input,
  type KeyValueCache,
  type Matrix,
  type Norm,
  type Operations,
  padded,
  type Pair,
  type Place,
  type Projection,
  type ReadBytes,
  type RopeTable,
  type Vector,
  vectorOf,
} from "./operations.ts";
import { MODE, packingOf, preparedBytes } from "./packings.ts";
import type { PoolOptions } from "./pool_options.ts";
import {
  type Fields,
  type MatrixFields,
  MAX_COMMANDS,
  MOST_MATRICES,
  type Op,
  placeOf,
  PRIVATE,
  THEN,
} from "./program.ts";
import { takeLayout, Thread } from "./schedule.ts";
import { type Assigned, MOST_HEADS } from "./view.ts";
import { COMPARED, GROUP } from "./wasm/layout.ts";
import { startWorker, type SystemWorker } from "./workers.ts";

export type { PoolOptions };

/** The maximum number of commands of one operation. */
const OPERATION_COMMANDS = 2;

/** The operations of a decoder on several threads. */
export class Pool implements Operations {
  readonly threads: number;
  readonly #activations: Activations;
  readonly #arenas: Arenas;
  readonly #workers: SystemWorker<Assigned | LoadAhead, "left">[];
  readonly #ahead: AheadMatrices;
  readonly #matrices = new Handles<Matrix, PackedMatrix>("matrix");
  readonly #caches = new Handles<KeyValueCache, PlacedCache>("cache");
  // The data of these is their address.
  readonly #vectors = new Handles<Vector, number>("vector");
  readonly #buffers = new Handles<ActivationBuffer, number>("buffer");
  readonly #tables = new Handles<RopeTable, number>("table");
  /** The calling thread's part, from the first operation on. */
  #thread?: Thread;
  /** Settles when the workers have left their program loop. */
  #left: Promise<unknown> = Promise.resolve();
  /** The number of commands recorded so far. */
  #count = 0;
  /** The number of the program that is being recorded or run. */
  #epoch = 0;
  /** The last program that was released to the workers. */
  #released = 0;
  // The largest sizes so far. The scratch is allocated for them.
  #maxBlocks = 1;
  #maxPositions = ATTENTION_CHUNK;
  #maxTokens = 1;
  /** The addresses of the ids of embed, of prepared activations that the threads share, and of results of compare. */
  #ids = 0;
  #prepared = 0;
  #results = 0;
  /** What was compared last: the two buffers, and how many rows. */
  #compared?: { readonly p: ActivationBuffer; readonly q: ActivationBuffer; readonly tokens: number };

  /** Starts the threads. */
  constructor(
    { threads, activations = "f32", memoryBytes = MAX_PAGES * PAGE - MARGIN_BYTES, guardBytes = 0 }: PoolOptions,
  ) {
    this.threads = threads;
    this.#activations = activations;
    this.#arenas = new Arenas(memoryBytes, guardBytes);
    this.#ahead = new AheadMatrices(this.#arenas);
    this.#workers = Array.from({ length: threads - 1 }, () => {
      return startWorker(new URL("./worker.ts", import.meta.url));
    });
  }

  /** Starts loading matrices on the workers, if any, in the order of {@link matrix}. @throws {LimitError} no room */
  loadAhead(matrices: Iterable<PlacedMatrix>): void {
    if (this.#workers.length > 0) this.#ahead.start(matrices, this.#workers);
  }

  matrix(format: Format, rows: number, columns: number, read: ReadBytes, place?: Place): Matrix {
    checkMatrix(format, rows, columns);
    const matrix = { format, rows, columns };
    const ahead = place && this.#ahead.take(matrix, place, read);
    const loaded = ahead === undefined ? loadMatrix(this.#arenas, matrix, read) : { record: ahead };
    this.#maxBlocks = this.#most(this.#maxBlocks, padded(columns) / COLUMNS);
    const mode = packingOf(format).modes[this.#activations];
    return this.#matrices.add(matrix, { ...loaded, rowsHeld: Math.ceil(rows / GROUP) * GROUP, mode });
  }

  replace(matrix: Matrix, read: ReadBytes): void {
    const { parts } = this.#matrices.of(matrix);
    if (parts === undefined) throw new RangeError("a matrix that was loaded ahead can't be replaced");
    this.run();
    reloadMatrix(this.#arenas, matrix, parts, read);
  }

  /** The larger of two sizes. @throws {RangeError} the scratch is allocated already, for a smaller size */
  #most(now: number, wanted: number): number {
    if (this.#thread && wanted > now) throw layoutFixed();
    return Math.max(now, wanted);
  }

  vector(format: Format, length: number, read: ReadBytes): Vector {
    return this.#vectors.add({ length }, this.#store(vectorOf(format, length, read)));
  }

  replaceVector(vector: Vector, format: Format, read: ReadBytes): void {
    const at = this.#vectors.of(vector);
    this.run();
    this.#floats(at, vector.length).set(vectorOf(format, vector.length, read));
  }

  #floats(address: number, length: number): Float32Array {
    return new Float32Array(this.#arenas.main.memory.buffer, address, length);
  }

  #store(values: Float32Array): number {
    const address = this.#arenas.main.take(padded(values.length) * 4);
    this.#floats(address, values.length).set(values);
    return address;
  }

  buffer(tokens: number, width: number): ActivationBuffer {
    checkBuffer(tokens, width);
    this.#maxTokens = this.#most(this.#maxTokens, tokens);
    return this.#buffers.add({ tokens, width }, this.#arenas.main.take(tokens * padded(width) * 4));
  }

  cache(positions: number, heads: number, headDim: number): KeyValueCache {
    checkCache(positions, heads, headDim);
    this.#maxPositions = this.#most(this.#maxPositions, capacityFor(positions));
    const placed = placeCache(this.#arenas.main, positions, heads, headDim, this.#activations);
    return this.#caches.add({ positions, heads, headDim }, placed);
  }

  ropeTable(positions: number, values: Float32Array): RopeTable {
    checkRopeTable(positions, values);
    return this.#tables.add({ positions, width: values.length / positions }, this.#store(values));
  }

  embed(table: Matrix, ids: readonly number[], out: ActivationBuffer): void {
    checkEmbed(table, ids, out);
    const { record } = this.#matrices.of(table);
    const to = this.#buffers.of(out);
    // Recorded commands may still need the previous ids.
    this.run();
    this.#begin();
    new Int32Array(this.#arenas.main.memory.buffer, this.#ids, ids.length).set(ids);
    this.#record("embed", { tokens: ids.length, record, ids: this.#ids, out: to, outStride: stride(out) });
  }

  project(input: Input, tokens: number, projections: readonly Projection[]): void {
    checkProject(input, tokens, projections);
    // Matrices of the same mode, which is the usual case, share a command.
    const byMode = Map.groupBy(projections, ({ matrix }) => this.#matrices.of(matrix).mode);
    for (const some of byMode.values()) {
      for (let n = 0; n < some.length; n += MOST_MATRICES) {
        this.#project(input, tokens, THEN.write, some.slice(n, n + MOST_MATRICES));
      }
    }
  }

  projectAdd(input: Input, tokens: number, matrix: Matrix, to: ActivationBuffer, bias?: Vector): void {
    const projections = [{ matrix, bias, out: to }];
    checkProject(input, tokens, projections);
    this.#project(input, tokens, THEN.add, projections);
  }

  projectGated(input: Input, tokens: number, gate: Matrix, up: Matrix, out: ActivationBuffer): void {
    const [first, second] = [gate, up].map((matrix) => ({ matrix, out }));
    checkProject(input, tokens, [first, second]);
    const [mode, other] = [gate, up].map((matrix) => this.#matrices.of(matrix).mode);
    if (mode === other) {
      this.#project(input, tokens, THEN.gate, [first, second]);
    } else {
      this.#project(input, tokens, THEN.write, [second]);
      this.#project(input, tokens, THEN.gateInPlace, [first]);
    }
  }

  /** Records products with matrices of the same mode. */
  #project(input: Input, tokens: number, then: number, projections: readonly Projection[]): void {
    const { from, first = 0, norm } = input;
    const { mode } = this.#matrices.of(projections[0].matrix);
    const blocks = padded(from.width) / COLUMNS;
    let [x, xStride] = [this.#rowAt(from, first), stride(from)];
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
    const { q, k, v, out, rope, heads, cache, first = 0, position, start = 0 } = attention;
    // Spreading these into the fields would take several times as long.
    const { keys, values, keyScales, valueScales, size, rowBytes, capacity } = this.#caches.of(cache);
    const [qNorm, qEps] = this.#norm(attention.qNorm);
    const [kNorm, kEps] = this.#norm(attention.kNorm);
    const fields = {
      tokens,
      q: this.#rowAt(q, first),
      qStride: stride(q),
      k: this.#rowAt(k, first),
      v: this.#rowAt(v, first),
      kvStride: stride(k),
      out: this.#rowAt(out, first),
      keys: keys + start * rowBytes,
      values: values + start * rowBytes,
      keyScales: keyScales + start * 4,
      valueScales: valueScales + start * 4,
      size,
      rowBytes,
      capacity,
      table: this.#tables.of(rope),
      heads,
      kvHeads: cache.heads,
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

  compare(p: ActivationBuffer, q: ActivationBuffer, tokens: number): void {
    checkCompare(p, q, tokens);
    this.#begin();
    const [[first, pStride], [second, qStride]] = [p, q].map((buffer) => [this.#rowAt(buffer, 0), stride(buffer)]);
    this.#record("compare", { tokens, p: first, pStride, q: second, qStride, width: p.width, out: this.#results });
    this.#compared = { p, q, tokens };
  }

  /** The address of a norm's weight and its eps; both are 0 if there is no norm. */
  #norm(norm: Norm | undefined): [number, number] {
    return norm === undefined ? [0, 0] : [this.#vectors.of(norm.weight), norm.eps];
  }

  /** Prepares for recording an operation: runs the program if it has no room for more commands. */
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
    const { alone } = thread;
    if (!alone) this.#released = this.#epoch;
    thread.lead(this.#epoch, alone);
  }

  /**
   * Checks the guards (see {@link PoolOptions.guardBytes}).
   *
   * @returns their total size in bytes
   * @throws {Error} a guard was overwritten
   */
  checkGuards(): number {
    return this.#arenas.checkGuards();
  }

  row(buffer: ActivationBuffer, token: number): Float32Array {
    checkRow(buffer, token);
    return this.#floats(this.#rowAt(buffer, token), buffer.width);
  }

  /** The address of a row of a buffer. */
  #rowAt(buffer: ActivationBuffer, row: number): number {
    return this.#buffers.of(buffer) + row * stride(buffer);
  }

  compared(token: number): Pair {
    checkRow({ tokens: this.#compared?.tokens ?? 0 }, token);
    const { p, q } = this.#compared!;
    const at = this.#results + token * COMPARED;
    const [topP, topQ, sumP, sumQ, cross] = new Float64Array(this.#arenas.main.memory.buffer, at, 5);
    return { p: this.row(p, token), q: this.row(q, token), topP, topQ, sumP, sumQ, cross };
  }

  /** At the first operation: allocates the scratch, whose size is known now, and starts the workers' program loops. */
  #start(): void {
    if (this.#thread) return;
    this.#ahead.stop();
    const own = preparedBytes(MODE.f32, this.#maxBlocks);
    const scoreBytes = MOST_HEADS * this.#maxPositions * 4;
    const { main, all } = this.#arenas;
    this.#prepared = main.take(this.#maxTokens * own);
    this.#ids = main.take(this.#maxTokens * 4);
    this.#results = main.take(this.#maxTokens * COMPARED);
    const layout = takeLayout(all, this.threads, own, scoreBytes);
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
    this.#ahead.stop();
    this.#arenas.reset();
    for (const handles of [this.#matrices, this.#vectors, this.#buffers, this.#caches, this.#tables]) handles.clear();
    this.#compared = undefined;
    this.#maxBlocks = 1;
    this.#maxPositions = ATTENTION_CHUNK;
    this.#maxTokens = 1;
  }

  /** Tells the workers to leave their program loop. */
  #leave(): void {
    const thread = this.#thread;
    if (thread === undefined) return;
    this.#epoch = this.#released + 1;
    try {
      thread.makeRoom(this.#epoch);
    } catch {
      // A thread has failed, so results no longer matter. Workers that wait for a program get this one.
    }
    thread.commands.write(placeOf(this.#epoch, 0), "exit", { tokens: 0 });
    thread.clear(this.#epoch, 1);
    this.#released = this.#epoch;
    thread.release(this.#epoch);
    this.#thread = undefined;
    this.#count = 0;
  }

  close(): void {
    // Deno 2.9 can't terminate a worker that sleeps in Atomics.wait; leaving the loop wakes it.
    this.#leave();
    for (const worker of this.#workers) worker.end();
  }
}
