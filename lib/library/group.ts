/**
 * Loads a float model and quantized ones into a pool, all weights or one layer at a time.
 *
 * @module
 */

import { inTurns } from "../pace.ts";
import { availableMemory } from "../files/memory.ts";
import { Pool } from "../kernels/pool.ts";
import { threadCount } from "../kernels/workers.ts";
import { LlamaGroup } from "../model/group.ts";
import { Llama } from "../model/llama.ts";
import { loadInTurns, type Source } from "../model/load.ts";
import { type Needs, planMemory, type Weighed } from "./memory_plan.ts";

/** A model that is to be loaded. */
export interface Unloaded extends Weighed {
  /** Opens its weights. */
  open(): Source;
}

/** What the work may use. */
export interface Resources {
  /** The number of threads (default: one for each processor). */
  readonly threads?: number;
  /** The memory of the process, in bytes (default: what is available). */
  readonly memory?: number;
  readonly signal?: AbortSignal;
}

/**
 * Loads models, calls `work` with them, and closes them.
 *
 * @param models the float model first
 * @throws {LimitError} the memory does not suffice
 * @throws {CheckpointError} @throws {SystemError} for example a file changed while it was being read
 * @throws the reason of the signal
 */
export async function withGroup<T>(
  models: readonly Unloaded[],
  needs: Needs,
  { threads, memory = availableMemory(), signal }: Resources,
  work: (group: LlamaGroup) => Promise<T>,
): Promise<T> {
  const count = threadCount(threads);
  const { rows } = planMemory(models, needs, count, memory);
  const { context, logitRows } = needs;
  const pool = new Pool({ threads: count });
  const sources: Source[] = [];
  try {
    const loaded: Llama[] = [];
    for (const { config, open } of models) {
      const source = open();
      if (rows === undefined) {
        loaded.push(await loadInTurns(pool, config, source, context, logitRows, { signal }));
      } else {
        sources.push(source);
        loaded.push(await inTurns(Llama.loading(pool, config, source, context, logitRows, needs), signal));
      }
    }
    const [float, ...quants] = loaded;
    const result = await work(new LlamaGroup(pool, float, quants, rows));
    for (const source of sources) source.checkUnchanged();
    return result;
  } finally {
    for (const source of sources) source[Symbol.dispose]();
    pool.close();
  }
}
