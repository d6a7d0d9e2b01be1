/**
 * Measures by how much the weights of a GGUF file differ from those of the float checkpoint.
 *
 * @module
 */

import { firstNotFinite, floatNamed, type Format, FORMATS, matrixBytes } from "../format/blocks.ts";
import { type Checkpoint, TensorReader } from "../format/checkpoint.ts";
import { notFinite } from "../format/not_finite.ts";
import { type Counted, counted, type Watch } from "../pace.ts";
import { type Against, relativeError, type TensorReport } from "../quantize/verify.ts";

/** Weights that are compared at a time, unless a row has more. */
const CHUNK_WEIGHTS = 1 << 18;

/** The errors of a checkpoint. Where other rules than this program's made the blocks, no tensor is `equal` or not. */
export interface WeightErrors extends Pick<Against, "rms" | "quantization"> {
  /** Every tensor. `rms` is that of a quantized tensor, or of one with other values than the source. */
  readonly tensors: readonly (Omit<TensorReport, "equal"> & { readonly equal?: boolean })[];
}

/**
 * Compares the weights of every tensor of an opened GGUF file with those of the source.
 *
 * @param watch the progress is in weights
 * @throws {CheckpointError} a weight is not finite
 * @throws {SystemError} a file can't be read, or has changed
 */
export async function weightErrors(
  { tensors, ...rest }: Checkpoint,
  source: Checkpoint,
  watch: Watch = {},
): Promise<WeightErrors> {
  using stored = new TensorReader({ tensors, ...rest });
  using floats = new TensorReader(source);
  const work = function* (): Counted<WeightErrors> {
    const reports: WeightErrors["tensors"][number][] = [];
    const total = { errors: 0, squares: 0 };
    let done = 0;
    for (const { name, shape, dtype, stored: { quantized } = { quantized: false } } of tensors) {
      const original = floats.find(name);
      if (original === undefined || String(original.shape) !== String(shape)) {
        const problem = original ? `shape [${shape}], the source has [${original.shape}]` : "not in the source";
        reports.push({ name, equal: false, problem });
        continue;
      }
      const [format, from] = [FORMATS.get(dtype)!, floatNamed(original.dtype)];
      const [rows, columns] = shape.length === 1 ? [1, shape[0]] : shape;
      const most = Math.max(1, Math.floor(CHUNK_WEIGHTS / columns));
      let [errors, squares] = [0, 0];
      for (let row = 0; row < rows; row += most) {
        const count = Math.min(most, rows - row);
        const [raw, own] = [[floats, from] as const, [stored, format] as const].map(([reader, format]) => {
          const bytes = new Uint8Array(matrixBytes(format, count, columns));
          reader.read(name, matrixBytes(format, row, columns), bytes);
          return bytes;
        });
        const bad = firstNotFinite(from, raw);
        if (bad >= 0) throw notFinite({ path: original.path, tensor: name }, 1, columns, row * columns + bad);
        const [wanted, found] = [decoded(from, raw), decoded(format, own)];
        for (let n = 0; n < wanted.length; n++) {
          errors += (wanted[n] - found[n]) ** 2;
          squares += wanted[n] ** 2;
        }
        yield done += wanted.length;
      }
      if (!quantized && errors === 0) {
        reports.push({ name });
        continue;
      }
      total.errors += errors;
      total.squares += squares;
      reports.push({ name, rms: relativeError(errors, squares), squares });
    }
    return { tensors: reports, rms: relativeError(total.errors, total.squares) };
  };
  const weights = tensors.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
  const measured = await counted(work(), weights, watch);
  stored.checkUnchanged();
  floats.checkUnchanged();
  return measured;
}

/** The values of bytes in a format. */
function decoded(format: Format, bytes: Uint8Array<ArrayBuffer>): Float32Array {
  const [blockBytes, blockWeights] = format.kind === "block"
    ? [format.blockBytes, format.blockWeights]
    : [matrixBytes(format, 1, 1), 1];
  const units = bytes.length / blockBytes;
  const values = new Float32Array(units * blockWeights);
  format.decode(new DataView(bytes.buffer), 0, units, values);
  return values;
}
