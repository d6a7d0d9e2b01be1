/**
 * Opens a GGUF file where a checkpoint is read: tensors are converted as `import` converts them, but one after the other
 * and without files, and the configuration and the tokenizer are those that it would write.
 *
 * @module
 */

import { holdTexts } from "../files/held.ts";
import { type Checkpoint, type CheckpointFile, openCheckpoint, type Tensor } from "../format/checkpoint.ts";
import { checkPath } from "../options.ts";
import { convertedRows, type ImportedTensor, matrixShape } from "./convert.ts";
import { type ImportPlan, planExact } from "./import.ts";
import { isGguf, type Part } from "./parts.ts";

/**
 * Opens a checkpoint, or a GGUF file as if `import` had made a checkpoint of it that keeps every value: matrices that
 * are all Q8_0 or all Q4_0 are blocks, as with the dtype `same`; other quantized ones are F32, as with the dtype `f32`.
 *
 * @param path a directory or a file; of a split GGUF file the first part
 * @throws {CheckpointError} @throws {SystemError} as {@link openCheckpoint} and `planImport`
 */
export function openAny(path: string): Checkpoint {
  checkPath("the path of the checkpoint", path);
  return isGguf(path) ? openGguf(path) : openCheckpoint(path);
}

function openGguf(path: string): Checkpoint {
  const plan = planExact(path);
  holdTexts(path, plan.files);
  const { format, parts, missing } = plan;
  const matrices = plan.tensors.filter(({ names }) => names.shape.length === 2).map(({ source }) => source);
  const weights = new Map<string, number>();
  for (const { type, shape: [rows, columns] } of matrices) {
    weights.set(type.name, (weights.get(type.name) ?? 0) + rows * columns);
  }
  return {
    path,
    directory: path,
    files: parts.map((part) => fileOf(part, plan)),
    tensors: plan.tensors.map((tensor) => tensorOf(tensor, plan)),
    width: format.kind === "block" ? format : undefined,
    foreign: {
      types: [...weights].sort((a, b) => b[1] - a[1]).map(([name]) => name),
      missing,
    },
  };
}

function fileOf({ path, bytes, version }: Part, { tensors }: ImportPlan): CheckpointFile {
  const own = tensors.filter(({ source }) => source.part.path === path);
  return { path, bytes, version, dataStart: Math.min(bytes, ...own.map(({ source }) => source.offset)) };
}

function tensorOf(tensor: ImportedTensor, { parts, headDim }: ImportPlan): Tensor {
  const { names, source, to, bytes } = tensor;
  const rowBytes = bytes / matrixShape(source)[0];
  return {
    name: names.huggingFace,
    dtype: to.name,
    shape: names.shape,
    bytes,
    file: parts.findIndex(({ path }) => path === source.part.path),
    offset: source.offset,
    stored: {
      type: source.type.name,
      quantized: source.type.blockWeights > 1,
      bytes: source.bytes,
      read(file, offset, into) {
        const first = Math.floor(offset / rowBytes);
        const end = Math.ceil((offset + into.length) / rowBytes);
        const rows = convertedRows(tensor, headDim, file, first, end - first);
        into.set(rows.subarray(offset - first * rowBytes, offset - first * rowBytes + into.length));
      },
    },
  };
}
