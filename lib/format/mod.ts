/**
 * The formats of weights, safetensors headers, and checkpoints on disk.
 *
 * ```ts
 * import { encodeBlock, Q4B32 } from "@rabbit/rabbit/format";
 *
 * const block = new Uint8Array(Q4B32.blockBytes);
 * encodeBlock(Q4B32, new Float32Array(32).fill(0.5), block);
 * ```
 *
 * @module
 */

export {
  ACTIVATIONS,
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
  SCALE_RULES,
  WIDTHS,
} from "./blocks.ts";
export type { Activations, BlockFormat, Common, FloatFormat, Format, ScaleRule } from "./blocks.ts";
export { openCheckpoint, TensorReader } from "./checkpoint.ts";
export type { Checkpoint, CheckpointFile, Tensor } from "./checkpoint.ts";
export type { Foreign, StoredTensor } from "./foreign.ts";
export { headerLength, LENGTH_BYTES, parseHeader, serializeHeader } from "./safetensors.ts";
export type { Header, TensorEntry } from "./safetensors.ts";
