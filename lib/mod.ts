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
 * A checkpoint as GGUF:
 *
 * ```ts ignore
 * import { exportGguf, openCheckpoint, parseConfig, planExport, readVocabulary } from "./mod.ts";
 *
 * const source = openCheckpoint("smol-q8");
 * const text = Deno.readTextFileSync("smol-q8/config.json");
 * const config = parseConfig("smol-q8/config.json", text);
 * const vocabulary = readVocabulary(source.directory, config.vocabulary, JSON.parse(text));
 * const plan = planExport(source, config, "smol-q8/config.json", vocabulary);
 * console.log(await exportGguf(plan, "smol-q8.gguf", { force: false }));
 * ```
 *
 * Limits: little-endian machines, files of less than 2^53 bytes, a row that is a multiple of 32 weights.
 *
 * @module
 */

export { parseConfig } from "./model/config.ts";
export type { Config, Family, Rope } from "./model/config.ts";
export { readVocabulary } from "./gguf/vocabulary.ts";
export type { Special, Vocabulary } from "./gguf/vocabulary.ts";
export { CheckpointError, LimitError, NumericError, RabbitError, Refusal, SystemError } from "./errors.ts";
export type { Code, Place } from "./errors.ts";
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
export type { Activations, BlockFormat, Common, FloatFormat, Format } from "./format/blocks.ts";
export { openCheckpoint, TensorReader } from "./format/checkpoint.ts";
export type { Checkpoint, CheckpointFile, Tensor } from "./format/checkpoint.ts";
export { exportGguf, planExport } from "./gguf/export.ts";
export type { ExportPlan } from "./gguf/export.ts";
export type { Decode, GgmlType, ReadableType } from "./gguf/types.ts";
export { parseGguf, serializeGguf } from "./gguf/container.ts";
export type { ByteSource, Gguf, GgufTensor, Metadata, NewTensor, Scalar, Value, ValueType } from "./gguf/container.ts";
export { DTYPES, importGguf, planImport } from "./gguf/import.ts";
export type { Dtype, ImportPlan } from "./gguf/import.ts";
export type { WriteOptions } from "./files/write.ts";
export { headerLength, parseHeader, serializeHeader } from "./format/safetensors.ts";
export type { Header, TensorEntry } from "./format/safetensors.ts";
export { planQuantize, quantize } from "./quantize/quantize.ts";
export type { Plan, PlannedTensor, Progress, Quantized, QuantizeOptions } from "./quantize/quantize.ts";
export { verify, verifyAgainst } from "./quantize/verify.ts";
export type { Against, TensorReport, Verified, VerifyOptions } from "./quantize/verify.ts";
