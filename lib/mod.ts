/**
 * rabbit as a library: quantized checkpoints of Llama-family models in 4 (Q4B32) and 8 bits (Q8B32).
 *
 * ```ts
 * import { encodeBlock, Q4B32 } from "./mod.ts";
 *
 * const block = new Uint8Array(Q4B32.blockBytes);
 * encodeBlock(Q4B32, new Float32Array(32).fill(0.5), block);
 * ```
 *
 * Limits: little-endian machines, files of less than 2^53 bytes, a row that is a multiple of 32 weights.
 *
 * @module
 */

export { CheckpointError, SystemError, UsageError } from "./errors.ts";
export {
  BF16,
  BLOCK,
  BlockRefusal,
  declarationOf,
  encodeBlock,
  F16,
  F32,
  F64,
  FORMATS,
  matrixBytes,
  Q4B32,
  Q8B32,
  WIDTHS,
} from "./format/blocks.ts";
export type { BlockFormat, FloatFormat, Format } from "./format/blocks.ts";
export { openCheckpoint } from "./format/checkpoint.ts";
export type { Checkpoint, Tensor } from "./format/checkpoint.ts";
export { exportGguf, planExport } from "./export.ts";
export { parseGguf, serializeGguf } from "./format/gguf.ts";
export { importGguf, planImport } from "./import.ts";
export { parseHeader, serializeHeader } from "./format/safetensors.ts";
export { planQuantize, quantize } from "./quantize.ts";
export { verify, verifyAgainst } from "./verify.ts";
