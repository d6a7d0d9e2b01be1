/**
 * Converts the tensors of a GGUF file to those of a Hugging Face checkpoint: rows in the order of their halves, and a
 * format of this program.
 *
 * @module
 */

import { CheckpointError } from "../errors.ts";
import { BF16, type BlockFormat, F32, firstNotFinite, type FloatFormat } from "../format/blocks.ts";
import { f16IsFinite, f32ToBf16, f32ToF16 } from "../format/floats.ts";
import { notFinite } from "../format/not_finite.ts";
import { scalarKernels } from "../kernels/codec.ts";
import { interleavedRow, type NamedTensor } from "./names.ts";
import type { PartTensor } from "./parts.ts";
import type { GgmlType } from "./types.ts";

/** A tensor of the checkpoint. */
export interface ImportedTensor {
  /** Its names in both files, and its shape. */
  readonly names: NamedTensor;
  /** The tensor of the GGUF file. */
  readonly source: PartTensor;
  /** Its format in the checkpoint. */
  readonly to: FloatFormat | BlockFormat;
  /** Its size there. */
  readonly bytes: number;
}

/** Rows and columns of a tensor in its file. A vector is a column, or a row if its type has blocks. */
export function matrixShape({ shape, type }: PartTensor): readonly [rows: number, columns: number] {
  if (shape.length > 1) return [shape[0], shape[1]];
  return type.blockWeights === 1 ? [shape[0], 1] : [1, shape[0]];
}

/** The bytes of `columns` weights. */
export function rowBytesOf({ blockWeights, blockBytes }: GgmlType, columns: number): number {
  return columns / blockWeights * blockBytes;
}

/**
 * Reads and converts rows.
 *
 * @param headDim rows of a head, if they are interleaved
 * @param read reads bytes of the tensor in its file
 * @param first the first row in the checkpoint
 * @throws {CheckpointError} a weight is not finite, or too large for the format, naming tensor, row and column
 */
export function convertedRows(
  tensor: ImportedTensor,
  headDim: number,
  read: (offset: number, into: Uint8Array) => void,
  first: number,
  count: number,
): Uint8Array {
  const { names: { interleaved }, source } = tensor;
  const [, columns] = matrixShape(source);
  const rowBytes = rowBytesOf(source.type, columns);
  const bytes = new Uint8Array(count * rowBytes);
  const place = (row: number) => interleaved ? interleavedRow(first + row, headDim) : first + row;
  if (interleaved) {
    for (let n = 0; n < count; n++) read(place(n) * rowBytes, bytes.subarray(n * rowBytes, (n + 1) * rowBytes));
  } else read(first * rowBytes, bytes);
  return converted(tensor, bytes, columns, place);
}

/** @param place the number in the file of a row, for messages */
function converted(
  { source, to }: ImportedTensor,
  bytes: Uint8Array<ArrayBuffer>,
  columns: number,
  place: (row: number) => number,
): Uint8Array {
  const { type, name, part: { path } } = source;
  const check = (blockWeights: number, bad: number) => {
    if (bad < 0) return;
    const perRow = columns / blockWeights;
    throw notFinite(
      { path, tensor: name },
      blockWeights,
      columns,
      place(Math.floor(bad / perRow)) * perRow + bad % perRow,
    );
  };
  if (type.twin === to) {
    if (to.kind === "block") {
      check(to.blockWeights, scalarKernels(bytes.buffer).checkScales(to, 0, bytes.length / to.blockBytes));
      type.toTwin?.(bytes);
    } else check(1, firstNotFinite(to, bytes));
    return bytes;
  }
  const values = new Float32Array(bytes.length / type.blockBytes * type.blockWeights);
  type.decode!(new DataView(bytes.buffer), 0, values.length / type.blockWeights, values);
  check(1, values.findIndex((x) => !Number.isFinite(x)));
  if (to === F32) return new Uint8Array(values.buffer);
  const out = new Uint16Array(values.length);
  const [round, finite] = to === BF16
    ? [f32ToBf16, (bits: number) => (bits & 0x7fff) !== 0x7f80]
    : [f32ToF16, f16IsFinite];
  for (let n = 0; n < values.length; n++) out[n] = round(values[n]);
  const high = out.findIndex((bits) => !finite(bits));
  if (high < 0) return new Uint8Array(out.buffer);
  throw new CheckpointError(
    { path, tensor: name },
    `row ${place(Math.floor(high / columns))} column ${high % columns}: ${values[high]} overflows ${to.name}`,
    "overflow",
  );
}
