/**
 * The memory that a calibration takes, from headers alone.
 *
 * @module
 */

import { type BlockFormat, FORMATS } from "../format/blocks.ts";
import { capacityFor } from "../kernels/cache.ts";
import { packedBytes } from "../kernels/load.ts";
import { ATTENTION_CHUNK } from "../kernels/operations.ts";
import { longestContext } from "../model/config.ts";
import type { Model } from "../model/load.ts";
import { nameOfPart } from "../model/tensors.ts";
import { engineBytes } from "../quantize/calibrate/engine.ts";
import { HALVES, headWindows, placesFor, SOLVED_WEIGHTS } from "./calibrate.ts";
import { TOGETHER } from "./sampled.ts";

/** Bytes of a weight that is being solved (in binary32, as it is read, its block), and of three that are garbage. */
const WEIGHT_BYTES = 4 * (4 + 4 + 2);

/**
 * The memory that {@link calibrate} takes beside the program, in bytes, and the sampling of text before it.
 *
 * @param options how many windows of how many tokens there are; whether they are sampled first; and threads
 */
export function calibrationMemory(
  model: Model,
  format: BlockFormat,
  { count, window, sampled, threads }: {
    readonly count: number;
    readonly window: number;
    readonly sampled: boolean;
    readonly threads: number;
  },
): number {
  const { checkpoint: { tensors }, config } = model;
  const { hidden, intermediate, heads, kvHeads, headDim, vocabulary, layers, tied } = config;
  const queries = heads * headDim;
  const held = (dtype: string, [rows, columns]: readonly number[]) => {
    const format = FORMATS.get(dtype);
    return columns === undefined || format === undefined ? 4 * rows : packedBytes({ format, rows, columns });
  };
  const cache = (tokens: number) => 4 * 2 * capacityFor(tokens) * kvHeads * headDim;
  const activations = (tokens: number) =>
    4 * tokens * (3 * hidden + 2 * queries + 2 * kvHeads * headDim + intermediate);

  const groups = [
    { columns: hidden, residual: 0 },
    ...[queries, intermediate].map((columns) => {
      return { columns, residual: hidden };
    }),
  ];
  const sums = Math.max(...groups.map((group) => engineBytes({ ...group, target: true }, SOLVED_WEIGHTS, threads)));
  const sizes = new Map(tensors.map(({ name, dtype, shape }) => [name, { dtype, shape }]));
  // Both models' weights of half a layer.
  const halves = HALVES.map(([, parts]) =>
    parts.reduce((sum, part) => {
      const found = sizes.get(nameOfPart(part, 0));
      return found === undefined ? sum : sum + held(found.dtype, found.shape) + held(format.name, found.shape);
    }, 0)
  );
  const streams = 2 * count * window * hidden;
  const first = tied ? Math.min(count, headWindows(hidden, window)) * window * hidden : hidden * hidden;
  const calibrating = sums + Math.max(...halves) + cache(window) + activations(window) +
    4 * (placesFor(model, count, window) + streams + first) + WEIGHT_BYTES * SOLVED_WEIGHTS;
  if (!sampled) return calibrating;

  const room = Math.ceil(window / ATTENTION_CHUNK) * ATTENTION_CHUNK;
  const context = Math.max(window, Math.min(TOGETHER * room, longestContext(config)));
  const weights = tensors.reduce((sum, { dtype, shape }) => sum + held(dtype, shape), 0);
  const sampling = weights + layers * cache(context) + activations(context) + 4 * TOGETHER * vocabulary;
  return Math.max(calibrating, sampling);
}
