/**
 * Turns commands into tasks. What the tasks of a command share is computed once, when the command is read.
 *
 * @module
 */

import { attendWork, storeWork } from "./attention.ts";
import { MODE, MODES } from "./packings.ts";
import { projectWork } from "./products.ts";
import { type Commands, type Fields, PRIVATE } from "./program.ts";
import { TOKEN_TILE, type View } from "./view.ts";
import { BLOCK_F32, COLUMNS, COMPARED, GROUP } from "./wasm/layout.ts";

/**
 * The work of a command: tasks that are independent of each other. If their number is PRIVATE, each thread runs one
 * task for itself.
 */
export interface Work {
  readonly tasks: number;
  readonly task: (n: number) => void;
  /** The same work for a thread without others, where it has fewer and larger tasks. */
  readonly alone?: Pick<Work, "tasks" | "task">;
  /** Prefetches the n-th cache lines of the weights that this thread will need first. */
  readonly ahead?: (n: number) => void;
}

/** Turns the commands of a pool into work for one thread. */
export class Executor {
  readonly #view: View;
  readonly #commands: Commands;

  constructor(view: View, commands: Commands) {
    this.#view = view;
    this.#commands = commands;
  }

  /** The work of the command at a place. @throws {RangeError} the command ends a program or the thread */
  workOf(place: number): Work {
    const [view, commands] = [this.#view, this.#commands];
    const op = commands.op(place);
    switch (op) {
      case "embed":
        return embedWork(view, commands.read(place, op));
      case "prepare":
        return prepareWork(view, commands.read(place, op));
      case "project":
        return projectWork(view, commands.read(place, op), commands.matrices(place));
      case "store":
        return storeWork(view, commands.read(place, op));
      case "attend":
        return attendWork(view, commands.read(place, op));
      case "compare":
        return compareWork(view, commands.read(place, op));
      case "exit":
      case "end":
        throw new RangeError(`the command ${op} has no tasks`);
    }
  }
}

/** One task per token: decodes a row of the matrix. */
function embedWork(view: View, { tokens, record: address, ids, out, outStride }: Fields<"embed">): Work {
  const record = view.record(address);
  const task = (t: number) => {
    const id = view.words[(ids >>> 2) + t];
    const group = Math.floor(id / GROUP);
    view.segments(record, group, group + 1, (memory, w) => {
      const to = out + t * outStride;
      // The scratch of every memory has room for a row of prepared activations.
      const at = memory === 0 ? to : view.scratch[memory].prepared;
      view.kernel("unpack_row", memory)(record.kind, w, id % GROUP, record.blocks, at);
      if (memory !== 0) view.move(memory, at, 0, to, record.blocks * BLOCK_F32);
    });
  };
  return { tasks: tokens, task };
}

/** One task per token: normalizes and quantizes its activations. */
function prepareWork(view: View, command: Fields<"prepare">): Work {
  const { tokens, x, xStride, length, width, norm, eps, mode, out, outStride } = command;
  const [wasm] = view.wasm;
  const [scratch] = view.scratch;
  const alone = out === PRIVATE;
  const blocks = length / COLUMNS;
  const { top, paired } = MODES[mode];
  const task = (t: number) => {
    const to = alone ? scratch.prepared : out + t * outStride;
    let from = x + t * xStride;
    if (norm !== 0) {
      const at = alone && mode === MODE.f32 ? to : scratch.normal;
      wasm.rms_norm(from, norm, at, length, width, eps);
      from = at;
    }
    if (mode === MODE.f32) {
      if (alone) return;
      // Products read a block of every token of a tile, then the next block.
      const first = t - t % TOKEN_TILE;
      const step = Math.min(TOKEN_TILE, tokens - first) * BLOCK_F32;
      wasm.arrange(from, blocks, out + first * outStride + (t - first) * BLOCK_F32, step);
    } else if (mode === MODE.i8) wasm.quantize_i8(from, blocks, to);
    else wasm.quantize_i16(from, blocks, to, top!, paired!);
  };
  return { tasks: alone ? PRIVATE : tokens, task };
}

/** One task per token: compares two rows. */
function compareWork(view: View, { tokens, p, pStride, q, qStride, width, out }: Fields<"compare">): Work {
  const { compare_rows } = view.wasm[0];
  const task = (t: number) => void compare_rows(p + t * pStride, q + t * qStride, width, out + t * COMPARED);
  return { tasks: tokens, task };
}
