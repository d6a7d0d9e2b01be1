/**
 * Allocates the keys and values of a layer.
 *
 * @module
 */

import { LimitError } from "../errors.ts";
import type { Arena } from "./arena.ts";
import { type Activations, ATTENTION_CHUNK, cacheFor } from "./operations.ts";
import { MOST_HEAD_DIM } from "./view.ts";

/** The addresses and sizes of a cache. */
export interface PlacedCache {
  /** Addresses. */
  readonly keys: number;
  readonly values: number;
  readonly keyScales: number;
  readonly valueScales: number;
  /** Bytes of a value, and of a row: one head at one position. */
  readonly size: number;
  readonly rowBytes: number;
  /** Positions, rounded up. */
  readonly capacity: number;
}

/** `positions` rounded up to the number that the kernels read at a time. */
export function capacityFor(positions: number): number {
  return Math.ceil(positions / ATTENTION_CHUNK) * ATTENTION_CHUNK;
}

/** Allocates a cache. @throws {LimitError} the heads are too large, or the memory is full */
export function placeCache(
  arena: Arena,
  positions: number,
  heads: number,
  headDim: number,
  activations: Activations,
): PlacedCache {
  if (headDim > MOST_HEAD_DIM) {
    throw new LimitError(`heads of ${headDim} values are not supported: the maximum is ${MOST_HEAD_DIM}`);
  }
  const capacity = capacityFor(positions);
  const size = { f32: 4, i16: 2, i8: 1 }[cacheFor(headDim, activations)];
  // The kernels read 16 values of a head at a time.
  const rowBytes = Math.ceil(headDim / 16) * 16 * size;
  const [keys, values] = [1, 2].map(() => arena.take(heads * capacity * rowBytes));
  const [keyScales, valueScales] = [1, 2].map(() => size === 4 ? 0 : arena.take(heads * capacity * 4));
  return { keys, values, keyScales, valueScales, size, rowBytes, capacity };
}
