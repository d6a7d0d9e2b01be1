/**
 * The errors for weights that cannot be quantized, or are not finite in a tensor that is kept or exported.
 *
 * @module
 */

import { CheckpointError, type Place } from "../errors.ts";
import { BLOCK, BlockRefusal, encodeBlock, firstNotFinite, type Format, FORMATS } from "../format/blocks.ts";
import type { Checkpoint, Tensor } from "../format/checkpoint.ts";
import { notFinite } from "../format/not_finite.ts";
import { readAt, reopen } from "../files/read.ts";
import { scalarKernels } from "../kernels/codec.ts";
import type { ChunkResult } from "./chunks.ts";
import type { ChunkPlace, Plan } from "./quantize.ts";

/** The float format of a dtype, for `floats` of a chunk; undefined for any other dtype. */
export function floatsOf(dtype: string): string | undefined {
  return FORMATS.get(dtype)?.kind === "float" ? dtype : undefined;
}

/**
 * The error for a weight of a float tensor that is not finite, if there is one; names tensor, row and column.
 *
 * @param first the first byte of the chunk
 */
export function damageOf(
  { files }: Checkpoint,
  { file, name, dtype, shape, firstRow = 0 }: Tensor,
  first: number,
  result: Pick<ChunkResult, "notFinite">,
): CheckpointError | undefined {
  if (result.notFinite < 0) return undefined;
  const columns = shape.at(-1) ?? 1;
  const index = firstRow * columns + first / FORMATS.get(dtype)!.blockBytes + result.notFinite;
  return notFinite({ path: files[file].path, tensor: name }, 1, columns, index);
}

/**
 * Checks that weights, or the scales of blocks, are finite.
 *
 * @param place the file and the tensor
 * @param from the first row, and the columns of each; a vector is a column
 * @param bytes whole rows; they begin at the beginning of their buffer
 * @throws {CheckpointError} one is not; names tensor, row, and column or block
 */
export function checkFinite(
  place: Omit<Place, "field">,
  format: Format,
  { row, columns }: { readonly row: number; readonly columns: number },
  bytes: Uint8Array<ArrayBuffer>,
): void {
  const bad = format.kind === "float"
    ? firstNotFinite(format, bytes)
    : scalarKernels(bytes.buffer).checkScales(format, 0, bytes.length / format.blockBytes);
  if (bad < 0) return;
  const { blockWeights } = format;
  throw notFinite(place, blockWeights, columns, row * columns / blockWeights + bad);
}

/**
 * Reports a block of the source that a kernel could not encode.
 *
 * @throws {CheckpointError} there is one; names tensor, row, column and value, or row and block
 */
export function checkEncoded(
  plan: Plan,
  { tensor, first }: ChunkPlace,
  result: Pick<ChunkResult, "unencodable">,
): void {
  if (result.unencodable < 0) return;
  const { source, from } = tensor;
  const index = first + result.unencodable;
  const perRow = source.shape[1] / BLOCK;
  const row = (source.firstRow ?? 0) + Math.floor(index / perRow);
  const block = index % perRow;
  const { path, version } = plan.source.files[source.file];
  const bytes = new Uint8Array(BLOCK * from!.blockBytes);
  {
    using file = reopen(path, version);
    readAt(file, path, source.offset + index * bytes.length, bytes);
  }
  const weights = new Float32Array(BLOCK);
  const view = new DataView(bytes.buffer);
  from!.decode(view, 0, BLOCK, weights);
  try {
    encodeBlock(plan.format, weights, new Uint8Array(plan.format.blockBytes), plan.rule);
  } catch (error) {
    if (!(error instanceof BlockRefusal)) throw error;
    const place = { path, tensor: source.name };
    if (error.column < 0) {
      throw new CheckpointError(
        place,
        `row ${row} block ${block}: the scale ${error.value} overflows binary16 (65504); the weights are too large for ${plan.format.name}`,
      );
    }
    const value = from!.name === "F64" ? view.getFloat64(error.column * 8, true) : error.value;
    const problem = Number.isFinite(value) ? `${value} overflows binary32` : `weight is ${value}`;
    throw new CheckpointError(
      place,
      `row ${row} column ${
        block * BLOCK + error.column
      } (block ${block}): ${problem}; only finite weights can be quantized`,
    );
  }
  throw new Error(`a kernel refused block ${index} of ${source.name}, which the definition encodes`);
}
