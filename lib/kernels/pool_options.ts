/**
 * The options of a pool.
 *
 * @module
 */

import type { Activations } from "../format/blocks.ts";

/** Options of a pool. */
export interface PoolOptions {
  /** The number of threads, including the calling one. */
  readonly threads: number;
  /** The type of the activations that block formats are multiplied with; `f32` is exact. */
  readonly activations?: Activations;
  /** The maximum size of one memory in bytes: less than 4 GiB for tests. */
  readonly memoryBytes?: number;
  /**
   * The size of the guards before and after each area, for tests (see `checkGuards`); at most 60,000 bytes.
   */
  readonly guardBytes?: number;
}
