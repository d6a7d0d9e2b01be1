/**
 * Makes, checks and runs quantized checkpoints of Llama-family models, with 4 bits (Q4B32) or 8 bits (Q8B32) a weight.
 * Each command of the program is a function:
 *
 * ```ts
 * import { generateModel, open, quantize, verify } from "@rabbit/rabbit";
 *
 * const directory = Deno.makeTempDirSync();
 * // A small model with random weights, instead of a downloaded one.
 * generateModel(`${directory}/float`);
 *
 * await quantize(`${directory}/float`, `${directory}/q8`, { bits: 8 });
 * const { blocks } = await verify(`${directory}/q8`);
 * console.log(blocks);
 *
 * await using model = await open(`${directory}/q8`);
 * for await (const { text } of model.generate("The capital of France is", { maxTokens: 8 })) console.log(text);
 * Deno.removeSync(directory, { recursive: true });
 * ```
 *
 * The building blocks are in `@rabbit/rabbit/format` (blocks, safetensors, checkpoints), `/gguf`, `/measure` and
 * `/kernels`. Long calls take a `signal` that aborts them, and a `progress` callback.
 *
 * An error whose message is meant for users is a {@link RabbitError}: a {@link CheckpointError} (a file is invalid), a
 * {@link SystemError} (an operation of the system failed), a {@link Refusal} (the output cannot be written there), a
 * {@link LimitError} or a {@link NumericError}. An invalid argument is a RangeError or a TypeError.
 *
 * Limits: little-endian machines, files below 2^53 bytes, and matrices whose number of columns is a multiple of 32.
 *
 * @module
 */

export { CheckpointError, LimitError, NumericError, RabbitError, Refusal, SystemError } from "./errors.ts";
export type { Code, Place } from "./errors.ts";
export type { Progress, Watch } from "./pace.ts";
export type { WriteOptions } from "./files/write.ts";
export type { Activations, BlockFormat, Common, FloatFormat, Format, ScaleRule } from "./format/blocks.ts";
export type { Checkpoint, CheckpointFile, Tensor } from "./format/checkpoint.ts";
export type { Foreign, StoredTensor } from "./format/foreign.ts";
export type { Calibration, FileDigest, MatrixLoss, Method, Quantization } from "./format/quantization.ts";

export { LanguageModel, open } from "./library/open.ts";
export type { GeneratedToken, GenerateOptions, OpenOptions, Prompt } from "./library/open.ts";
export type { Config, Family, Rope } from "./model/config.ts";
export type { Message } from "./text/chat.ts";
export type { TextStream } from "./text/detokenizer.ts";
export type { Tokenizer } from "./text/tokenizer.ts";

export { quantize } from "./library/quantize.ts";
export type { MethodOptions } from "./library/quantize.ts";
export type { CalibrationOptions, RunOptions } from "./library/calibration.ts";
export { rederive } from "./library/rederive.ts";
export type { Rederived, RederiveOptions } from "./library/rederive.ts";
export type { Calibrated, Raised } from "./calibrate/calibrate.ts";
export { planQuantize } from "./quantize/quantize.ts";
export type { NewCheckpointOptions, Plan, PlannedTensor, Quantized, QuantizeOptions } from "./quantize/quantize.ts";
export { planShards } from "./quantize/shards.ts";
export type { PlannedFile } from "./quantize/shards.ts";
export { quantizePart } from "./quantize/write_part.ts";
export type { QuantizedPart } from "./quantize/write_part.ts";
export { merge, planMerge } from "./quantize/merge.ts";
export type { Merged, MergedFile, MergedTensor, MergePlan } from "./quantize/merge.ts";
export type { PartRecord } from "./quantize/part_record.ts";
export type { Part } from "./quantize/parts.ts";
export { verify, verifyAgainst } from "./quantize/verify.ts";
export type { Against, TensorReport, Verified, VerifyOptions } from "./quantize/verify.ts";

export { attest } from "./proof/attest.ts";
export type { Attested, AttestOptions, AttestSettings } from "./proof/attest.ts";
export type { DeriveOptions } from "./proof/derive.ts";
export type {
  AttestedTensor,
  Derivation,
  MeasuredAnswers,
  MeasuredText,
  NamedDigest,
  PrintedFigures,
  Program,
  StatedMethod,
  Statement,
} from "./proof/statement.ts";
export { verifyAttestation } from "./proof/verify.ts";
export type { VerifiedAttestation, VerifyAttestationOptions, VerifyAttestationSettings } from "./proof/verify.ts";

export { compare, compareText } from "./library/compare.ts";
export type { Compared, ComparedText, CompareOptions, CompareTextOptions } from "./library/compare.ts";
export { compareTextPart, mergeWindows as mergeTextParts } from "./library/text_parts.ts";
export type { CompareTextPartOptions, MeasuredPart, MergedText, TextRun } from "./library/text_parts.ts";
export type { TextPart } from "./library/texts.ts";
export { judge } from "./measure/gates.ts";
export type { Gate, Limits, Verdict } from "./measure/gates.ts";
export { advise } from "./library/advise.ts";
export type { Advice, AdviseOptions, WidthAdvice } from "./library/advise.ts";
export type { Answers, Judgement, Rule } from "./measure/advise.ts";
export type { Distribution, Pair } from "./measure/distribution.ts";
export type { Difference, Divergence, Estimate, Observations } from "./measure/metrics.ts";
export type { Decoder } from "./measure/compare.ts";
export type { TextModel } from "./measure/group.ts";

export { exportGguf, planExport } from "./gguf/export.ts";
export type { ExportedTensor, ExportPlan, PlanExportOptions } from "./gguf/export.ts";
export { exportCompressedTensors, planCompressedTensors } from "./compressed/export.ts";
export type { CompressedPlan, CompressedResult, PackedTensor } from "./compressed/export.ts";
export { importGguf, planImport } from "./gguf/import.ts";
export type { ImportedTensor } from "./gguf/convert.ts";
export type { Dtype, ImportPlan } from "./gguf/import.ts";
export { verifyGguf } from "./gguf/verify.ts";
export type { GgufAgainst } from "./gguf/verify.ts";

export { generate as generateModel } from "./dev/gen.ts";
export type { GenerateModelOptions, Shape } from "./dev/gen.ts";
