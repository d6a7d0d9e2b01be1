/**
 * Divides the tensors of a checkpoint into parts for several machines, from headers alone, so that all of them agree.
 *
 * @module
 */

import { checkWhole } from "../options.ts";
import type { Tensor } from "../format/checkpoint.ts";
import { MAX_SHARDS, shardName } from "../format/shards.ts";
import type { Plan, PlannedTensor } from "./quantize.ts";
import { plannedFile } from "./shards.ts";

/** One of several parts. */
export interface Part {
  /** Its number, from 1 on. */
  readonly number: number;
  /** The number of parts. */
  readonly count: number;
}

/** A place in a list of tensors: before a row of a tensor, which is 0 if it is before the whole tensor. */
interface Cut {
  readonly tensor: number;
  readonly row: number;
}

/** Rows of a matrix, from `begin` up to `end` (exclusive). */
export interface Rows {
  /** The first row. */
  readonly begin: number;
  /** The row after the last. */
  readonly end: number;
}

/** A tensor of a part. */
export interface Slice<T> {
  readonly tensor: T;
  /** The rows of it; undefined for the whole tensor. */
  readonly rows?: Rows;
}

/** @throws {RangeError} a part is not one of its number of parts */
export function checkNumbers({ number, count }: Part): void {
  checkWhole("the number of parts", count, 1, MAX_SHARDS);
  checkWhole("the part", number, 1, count);
}

/**
 * Returns a part of a list of tensors. The parts have nearly the same number of bytes. A part begins and ends between
 * tensors, or between the rows of a matrix that has more bytes than a part.
 *
 * @throws {RangeError} the part is not one of its number of parts
 */
export function partOf<T extends { readonly bytes: number; readonly shape: readonly number[] }>(
  tensors: readonly T[],
  part: Part,
): Slice<T>[] {
  checkNumbers(part);
  const { number, count } = part;
  const total = tensors.reduce((sum, { bytes }) => sum + bytes, 0);
  const [begin, end] = [number - 1, number].map((n) => cutAt(tensors, total, n, count));
  return tensors.flatMap((tensor, n): Slice<T>[] => {
    if (n < begin.tensor || n > end.tensor) return [];
    const first = n === begin.tensor ? begin.row : 0;
    if (first === 0 && n < end.tensor) return [{ tensor }];
    const last = n < end.tensor ? tensor.shape[0] : end.row;
    return first < last ? [{ tensor, rows: { begin: first, end: last } }] : [];
  });
}

/** The end of part `n` of `count`, and the beginning of the next. */
function cutAt(
  tensors: readonly { readonly bytes: number; readonly shape: readonly number[] }[],
  total: number,
  n: number,
  count: number,
): Cut {
  if (n === 0) return { tensor: 0, row: 0 };
  if (n === count) return { tensor: tensors.length, row: 0 };
  // total * n / count without a product that exceeds 2^53.
  const wanted = Math.floor(total / count) * n + Math.floor((total % count) * n / count);
  let before = 0;
  for (const [tensor, { bytes, shape }] of tensors.entries()) {
    if (before + bytes <= wanted) {
      before += bytes;
      continue;
    }
    const inside = wanted - before;
    const [rows] = shape;
    const row = Math.round(inside / (bytes / rows));
    const cuts = shape.length === 2 && bytes * count > total && row > 0 && row < rows;
    if (cuts) return { tensor, row };
    return { tensor: inside * 2 < bytes ? tensor : tensor + 1, row: 0 };
  }
  return { tensor: tensors.length, row: 0 };
}

/** Some rows of a matrix, as a tensor; the whole tensor without `rows`. */
export function sliceTensor(tensor: Tensor, slice: Rows | undefined): Tensor {
  if (slice === undefined) return tensor;
  const { begin, end } = slice;
  const [rows, columns] = tensor.shape;
  const rowBytes = tensor.bytes / rows;
  return {
    ...tensor,
    shape: [end - begin, columns],
    bytes: (end - begin) * rowBytes,
    offset: tensor.offset + begin * rowBytes,
    firstRow: begin,
  };
}

/** Some rows of a planned matrix; the whole tensor without `rows`. */
export function slicePlanned(planned: PlannedTensor, rows: Rows | undefined): PlannedTensor {
  if (rows === undefined) return planned;
  const source = sliceTensor(planned.source, rows);
  return { ...planned, source, bytes: planned.bytes / planned.source.shape[0] * source.shape[0] };
}

/** Plans a part of a planned checkpoint: a file with some of its tensors, and rows of others. */
export function planPart(plan: Plan, part: Part): Plan {
  const sized = plan.tensors.map((tensor) => ({ planned: tensor, bytes: tensor.bytes, shape: tensor.source.shape }));
  const tensors = partOf(sized, part).map(({ tensor: { planned }, rows }) => slicePlanned(planned, rows));
  const file = plannedFile(shardName(part.number, part.count), plan.format, tensors);
  return {
    ...plan,
    tensors,
    files: [file],
    bytes: file.bytes,
    sourceBytes: tensors.reduce((sum, { source }) => sum + source.bytes, 0),
    quantized: tensors.filter(({ from }) => from).length,
  };
}
