/**
 * Products of matrices with prepared activations. The work is divided into units: quads of groups for one token if the
 * matrices allow it, otherwise pairs of groups. A unit of a gated product covers both matrices.
 *
 * @module
 */

import type { Work } from "./execute.ts";
import { KERNELS, PACKINGS } from "./packings.ts";
import { type Fields, type MatrixFields, PRIVATE, THEN } from "./program.ts";
import { GROUP_TILE, type MatrixRecord, TILE_BYTES, TOKEN_TILE, type View } from "./view.ts";
import { COLUMNS, GROUP, GROUP_RESULT, STREAMS } from "./wasm/layout.ts";

/** The maximum number of quads in a task: their results, with those of the remaining groups, fit a tile. */
const QUAD_TILE = 256;

/**
 * The maximum number of tasks per thread and product, so that a thread that finishes early can take over others' tasks.
 * There are more only if the results would not fit a tile otherwise: each task starts new streams of memory, and reads
 * all tokens.
 */
const TASKS = 8;

/**
 * The minimum number of multiplications in each of those tasks, about ten times the cost of starting one. Each thread
 * has at least one task, however small.
 */
const TASK_PRODUCTS = 400000;

type Project = Fields<"project">;

/** The product with one matrix: `run` computes units `from` to `to` - 1. */
interface Part {
  readonly units: number;
  readonly run: (from: number, to: number) => void;
  /** Prefetches the n-th cache lines of the weights that `run` reads from unit `from` on. */
  readonly ahead?: (from: number, n: number) => void;
}

/** The work of a `project` command. */
export function projectWork(view: View, command: Project, matrices: readonly MatrixFields[]): Work {
  const { threads } = view.layout;
  const { tokens, blocks, then } = command;
  const gated = then === THEN.gate;
  const quads = tokens === 1 && matrices.every(({ record }) => isWhole(view.record(record)));
  const partOf = quads ? quadsOf : groupsOf;
  const parts = gated
    ? [partOf(view, command, matrices[0], matrices[1])]
    : matrices.map((matrix) => partOf(view, command, matrix));
  const total = parts.reduce((sum, { units }) => sum + units, 0);
  const most = quads ? QUAD_TILE : GROUP_TILE / 2;
  const unitProducts = (quads ? STREAMS : 2) * GROUP * COLUMNS * blocks * tokens * (gated ? 2 : 1);
  const least = Math.ceil(TASK_PRODUCTS / unitProducts);
  const perThread = Math.min(TASKS, Math.floor(total / (threads * least)));
  const fewest = Math.ceil(total / most);
  const count = Math.max(fewest, Math.min(total, Math.max(1, perThread) * threads));
  const cut = (tasks: number) => {
    const task = (n: number) => {
      const start = Math.floor(n * total / tasks);
      const end = Math.floor((n + 1) * total / tasks);
      let before = 0;
      for (const { units, run } of parts) {
        const from = Math.max(start - before, 0);
        const to = Math.min(end - before, units);
        before += units;
        if (from < to) run(from, to);
      }
    };
    return { tasks, task };
  };
  let from = Math.floor(Math.floor(view.thread * count / threads) * total / count);
  let part = 0;
  while (from >= parts[part].units) from -= parts[part++].units;
  const { ahead } = parts[part];
  return { ...cut(count), alone: cut(fewest), ahead: ahead && ((n) => ahead(from, n)) };
}

/** Whether all of a matrix is in memory 0. */
function isWhole({ segments }: MatrixRecord): boolean {
  return segments.length === 1 && segments[0].memory === 0;
}

/** The address of a product's activations. */
function sourceOf(view: View, { x }: Project): number {
  return x === PRIVATE ? view.scratch[0].prepared : x;
}

/** The product of a matrix (or of gate and up) with one token, in quads. */
function quadsOf(view: View, command: Project, matrix: MatrixFields, up?: MatrixFields): Part {
  const { then } = command;
  const { rows, y, bias } = matrix;
  const groups = rows / GROUP;
  const perStream = Math.floor(groups / STREAMS);
  const units = Math.max(1, perStream);
  const first = farOf(view, command, matrix, perStream);
  const second = up && farOf(view, command, up, perStream);
  const rest = y + STREAMS * perStream * GROUP_RESULT;
  const tile = view.scratch[0].tiles;
  const direct = then === THEN.write;
  const run = (from: number, to: number) => {
    const quads = Math.min(to, perStream) - from;
    // The last task includes the groups that do not fill all streams.
    const left = to === units ? groups - STREAMS * perStream : 0;
    const out = y + from * GROUP_RESULT;
    const step = quads * GROUP_RESULT;
    if (direct) first.multiply(from, quads, left, out, perStream * GROUP_RESULT, rest);
    else first.multiply(from, quads, left, tile, step, tile + STREAMS * step);
    if (direct && bias === 0) return;
    if (second !== undefined) {
      const upTile = tile + TILE_BYTES;
      second.multiply(from, quads, left, upTile, step, upTile + STREAMS * step);
    }
    for (let s = 0; s <= STREAMS; s++) {
      const length = (s < STREAMS ? quads : left) * GROUP;
      if (length <= 0) continue;
      const place = s < STREAMS ? out + s * perStream * GROUP_RESULT : rest;
      finish(view, then, direct ? place : tile + s * step, bias === 0 ? 0 : bias + (place - y), place, length);
    }
  };
  return { units, run, ahead: first.ahead };
}

/**
 * Products with one token. `multiply` computes `quads` quads from quad `from` on, and the `left` groups that follow the
 * streams; `ahead` prefetches the n-th cache lines from quad `from` on.
 */
function farOf(view: View, command: Project, matrix: MatrixFields, perStream: number) {
  const { blocks, mode } = command;
  const x = sourceOf(view, command);
  const { kind, segments: [{ address: w }] } = view.record(matrix.record);
  const bytes = blocks * PACKINGS[kind].groupBytes;
  const name = KERNELS[mode][kind];
  const [far, near, touch] = [view.kernel(`${name}_far`), view.kernel(name), view.kernel("touch")];
  const rest = w + STREAMS * perStream * bytes;
  const room = view.scratch[0].unpacked;
  const multiply = (from: number, quads: number, left: number, out: number, step: number, outLeft: number) => {
    if (quads > 0) far(w + from * bytes, perStream * bytes, x, blocks, out, step, quads);
    if (left > 0) near(rest, x, blocks, outLeft, 0, left, 1, room);
  };
  const ahead = (from: number, n: number) => {
    if ((n + 1) * 128 <= (perStream - from) * bytes) touch(w + from * bytes + n * 128, perStream * bytes);
  };
  return { multiply, ahead };
}

/**
 * Applies the bias and `then` to a row of `length` results: in place, or in a tile (the results of up are in the next
 * tile).
 */
function finish(view: View, then: number, result: number, bias: number, to: number, length: number): void {
  const wasm = view.wasm[0];
  if (bias !== 0) wasm.add(result, bias, length);
  if (then === THEN.add) wasm.add(to, result, length);
  if (then === THEN.gate) wasm.gated(result, result + TILE_BYTES, to, length);
  if (then === THEN.gateInPlace) wasm.gated(result, to, to, length);
}

/** The product of a matrix (or of gate and up) with several tokens, in pairs of groups. */
function groupsOf(view: View, command: Project, matrix: MatrixFields, up?: MatrixFields): Part {
  const { xStride, tokens, then } = command;
  const { rows, y, yStride, bias } = matrix;
  const x = sourceOf(view, command);
  const tile = view.scratch[0].tiles;
  const direct = then === THEN.write;
  const first = nearOf(view, command, matrix);
  const second = up && nearOf(view, command, up);
  const run = (from: number, to: number) => {
    const [start, end] = [2 * from, Math.min(2 * to, rows / GROUP)];
    const length = (end - start) * GROUP;
    for (let t = 0; t < tokens; t += TOKEN_TILE) {
      const n = Math.min(TOKEN_TILE, tokens - t);
      const out = y + t * yStride + start * GROUP_RESULT;
      const result = direct ? out : tile;
      const stride = direct ? yStride : length * 4;
      first(x + t * xStride, n, start, end, result, stride);
      if (second !== undefined) second(x + t * xStride, n, start, end, tile + TILE_BYTES, stride);
      for (let k = 0; k < n; k++) {
        const own = bias === 0 ? 0 : bias + start * GROUP_RESULT;
        finish(view, then, result + k * stride, own, out + k * yStride, length);
      }
    }
  };
  return { units: Math.ceil(rows / (2 * GROUP)), run };
}

/**
 * Returns a function that multiplies groups `first` to `end` - 1 of a matrix with `tokens` prepared tokens at `x`, and
 * writes to `y`.
 */
function nearOf(view: View, { xStride, blocks, mode }: Project, matrix: MatrixFields) {
  const record = view.record(matrix.record);
  const name = KERNELS[mode][record.kind];
  const kernels = view.wasm.map((_, memory) => view.kernel(name, memory));
  return (x: number, tokens: number, first: number, end: number, y: number, yStride: number) => {
    view.segments(record, first, end, (memory, w, from, groups) => {
      const to = y + (from - first) * GROUP_RESULT;
      const { prepared, tiles, unpacked } = view.scratch[memory];
      if (memory === 0) {
        kernels[0](w, x, blocks, to, yStride, groups, tokens, unpacked);
        return;
      }
      // A kernel sees one memory: copy the activations there, and the results back.
      const rowBytes = groups * GROUP_RESULT;
      view.move(0, x, memory, prepared, tokens * xStride);
      kernels[memory](w, prepared, blocks, tiles, rowBytes, groups, tokens, unpacked);
      for (let k = 0; k < tokens; k++) view.move(memory, tiles + k * rowBytes, 0, to + k * yStride, rowBytes);
    });
  };
}
