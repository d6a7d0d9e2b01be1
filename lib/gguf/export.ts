/**
 * Exports a checkpoint as one GGUF file for llama.cpp, streamed. Weights don't change: blocks keep their scales and
 * levels, floats their bits. Vectors become binary32, in which ggml computes.
 *
 * @module
 */

import { checkOptions, isOpen, WATCH } from "../options.ts";
import { basename } from "@std/path/basename";
import { dirname } from "@std/path/dirname";
import { join } from "@std/path/join";
import type { Config } from "../model/config.ts";
import { checkModel, MAX_CONFIG_BYTES, openModel } from "../model/load.ts";
import { readJsonObject } from "../format/json.ts";
import { architectureOf, interleaveRows, metadataOf, type NamedTensor, namedTensors, SOURCE_TENSORS } from "./names.ts";
import { ROPE_FACTORS, ropeFactorsOf } from "./rope_scaling.ts";
import { value } from "./values.ts";
import { checkTensors } from "../model/tensors.ts";
import { readVocabulary, type Vocabulary, vocabularyMetadata } from "./vocabulary.ts";
import { CheckpointError } from "../errors.ts";
import { F32, type Format, FORMATS, matrixBytes, WIDTHS } from "../format/blocks.ts";
import { type Checkpoint, TensorReader } from "../format/checkpoint.ts";
import { F32_TYPE, type ReadableType, typeOf } from "./types.ts";
import { type NewTensor, offsetsOf, serializeGguf } from "./container.ts";
import { NewFiles } from "../files/new_files.ts";
import { checkOutputFile } from "../format/outputs.ts";
import { checkFinite } from "../quantize/damage.ts";
import { type WriteOptions, writeParts } from "../files/write.ts";

/** Bytes of a tensor that are held in memory at a time, unless its heads are larger. */
const CHUNK_BYTES = 4 << 20;

/** A tensor of the new file. */
export interface ExportedTensor extends NewTensor {
  /** Its type in the new file. */
  readonly type: ReadableType;
  /** The tensor of the checkpoint; undefined for the rotary factors, which are in `values`. */
  readonly source?: NamedTensor;
  /** Its format in the checkpoint. */
  readonly from: Format;
  /** The values of a tensor without a source. */
  readonly values?: Float32Array<ArrayBuffer>;
}

/** What an export will write, computed from the headers and the tokenizer. */
export interface ExportPlan {
  /** The checkpoint. */
  readonly source: Checkpoint;
  /** Its configuration. */
  readonly config: Config;
  /** Undefined if the checkpoint has no tokenizer. */
  readonly vocabulary?: Vocabulary;
  /** llama.cpp's name of the architecture. */
  readonly architecture: string;
  /** The tensors of the new file, in order. */
  readonly tensors: readonly ExportedTensor[];
  /** The type of the matrices. */
  readonly type: ReadableType;
  /** The header of the new file. */
  readonly header: Uint8Array<ArrayBuffer>;
  /** Bytes of the new file. */
  readonly bytes: number;
}

/** Options of {@link planExport}. */
export interface PlanExportOptions {
  /** llama.cpp's name of the pre-tokenizer (default: inferred from tokenizer.json). */
  readonly pre?: string;
}

/**
 * Plans the export of a checkpoint.
 *
 * @param path the checkpoint, quantized or float: a directory, or a safetensors file
 * @throws {CheckpointError} a file is invalid, or llama.cpp can't run the model
 * @throws {SystemError} a file can't be read
 */
export function planExport(path: string, { pre }: PlanExportOptions = {}): ExportPlan {
  const model = openModel(path);
  // Checked first, since the configuration determines the size of the vocabulary.
  checkModel(model);
  const { checkpoint, config } = model;
  const configPath = join(checkpoint.directory, "config.json");
  const json = readJsonObject(configPath, MAX_CONFIG_BYTES);
  const vocabulary = readVocabulary(checkpoint.directory, config.vocabulary, json, pre);
  return planTensors(checkpoint, config, configPath, vocabulary);
}

/**
 * Plans the conversion of every tensor.
 *
 * @param configPath for messages
 * @throws {CheckpointError} llama.cpp can't run the model, or a tensor is missing, unexpected, or of another shape or
 * dtype
 * @throws {SystemError} the source can't be read
 */
export function planTensors(
  source: Checkpoint,
  config: Config,
  configPath: string,
  vocabulary: Vocabulary | undefined,
): ExportPlan {
  const architecture = architectureOf(configPath, config);
  using reader = new TensorReader(source);
  const found = checkTensors(config, reader);
  const tensors = Array.from(namedTensors(architecture, config), (named) => {
    const { path, dtype } = found.get(named.huggingFace)!;
    return plan({ path, tensor: named.huggingFace }, named, dtype);
  });
  if (config.rope.scaling === "llama3") {
    const values = ropeFactorsOf(config);
    tensors.push({
      name: ROPE_FACTORS,
      type: F32_TYPE,
      shape: [values.length],
      bytes: values.byteLength,
      from: F32,
      values,
    });
  }
  const { type } = tensors[0];
  const taken = new Set(tensors.map(({ source }) => source?.huggingFace));
  const order = source.tensors.filter(({ name }) => taken.has(name)).map(({ name, dtype }) => `${name} ${dtype}`);
  const metadata = metadataOf(architecture, config);
  metadata.set(SOURCE_TENSORS, { type: "string", values: order });
  metadata.set("general.file_type", value("u32", type.fileType));
  metadata.set("general.quantization_version", value("u32", 2));
  for (const [key, value] of vocabularyMetadata(vocabulary)) metadata.set(key, value);
  const header = serializeGguf(metadata, tensors);
  const bytes = offsetsOf(header.length, tensors).at(-1)!;
  return { source, config, vocabulary, architecture, tensors, type, header, bytes };
}

/** The advice for formats that llama.cpp lacks. */
const INSTEAD = {
  float: "convert the checkpoint to BF16, or quantize it",
  block: `quantize the float checkpoint to ${
    WIDTHS.filter(({ ggml }) => ggml !== undefined).map(({ name }) => name).join(" or ")
  }, or export it as it is`,
} as const;

function plan(place: { path: string; tensor: string }, source: NamedTensor, dtype: string): ExportedTensor {
  const { gguf: name, shape } = source;
  const from = FORMATS.get(dtype);
  const refuse = (problem: string) => new CheckpointError({ ...place, field: "dtype" }, problem);
  if (from === undefined) throw refuse(`${dtype} can't be exported`);
  if (shape.length === 1) {
    if (from.kind !== "float") throw refuse(`vectors of ${dtype} are not supported`);
    return { name, source, shape, from, type: F32_TYPE, bytes: 4 * shape[0] };
  }
  const type = typeOf(from);
  if (type === undefined) throw refuse(`llama.cpp has no ${from.name} matrices; ${INSTEAD[from.kind]}`);
  return { name, source, shape, from, type, bytes: matrixBytes(from, shape[0], shape[1]) };
}

/**
 * Exports a checkpoint as a GGUF file. The file appears when it is complete and synced; until then, and after an error,
 * an existing file is unchanged.
 *
 * @returns the file's SHA-256 in hexadecimal
 * @throws {CheckpointError} a weight or the scale of a block is not finite
 * @throws {Refusal} the file exists and `force` is not set, or the file is part of the source
 * @throws {SystemError} for example, the disk is full, or the source changed during the export
 */
export async function exportGguf(
  source: string,
  path: string,
  options?: WriteOptions & PlanExportOptions,
): Promise<string>;
/** Exports according to a plan of {@link planExport}. */
export async function exportGguf(plan: ExportPlan, path: string, options?: WriteOptions): Promise<string>;
export async function exportGguf(
  from: ExportPlan | string,
  path: string,
  options: WriteOptions & PlanExportOptions = {},
): Promise<string> {
  checkOptions("exportGguf", options, { ...WATCH, force: true, pre: true });
  const plan = isOpen(from) ? from : planExport(from, options);
  const seen = checkOutputFile(path, [plan.source], options.force ?? false);
  using reader = new TensorReader(plan.source);
  using files = new NewFiles(dirname(path), seen);
  const digest = await writeParts(files.create(basename(path), plan.bytes), partsOf(plan, reader), plan.bytes, options);
  reader.checkUnchanged();
  files.commit();
  return digest;
}

/** The new file in parts: the header, then each tensor, padded up to the next one. */
function* partsOf(plan: ExportPlan, reader: TensorReader): Generator<Uint8Array> {
  const offsets = offsetsOf(plan.header.length, plan.tensors);
  yield plan.header;
  for (const [n, tensor] of plan.tensors.entries()) {
    let offset = offsets[n];
    for (const bytes of chunksOf(tensor, plan.config.headDim, reader)) {
      yield bytes;
      offset += bytes.length;
    }
    yield new Uint8Array(offsets[n + 1] - offset);
  }
}

/** The data of a tensor in the new file, in chunks. */
function* chunksOf(tensor: ExportedTensor, headDim: number, reader: TensorReader): Generator<Uint8Array> {
  const { source, from, shape, type } = tensor;
  if (source === undefined) return yield new Uint8Array(tensor.values!.buffer);
  const [rows, columns = 1] = shape;
  const rowBytes = matrixBytes(from, rows, columns) / rows;
  const most = source.interleaved ? headDim : Math.max(1, Math.floor(CHUNK_BYTES / rowBytes));
  for (let row = 0; row < rows; row += most) {
    const count = Math.min(most, rows - row);
    const bytes = new Uint8Array(count * rowBytes);
    reader.read(source.huggingFace, row * rowBytes, bytes);
    const place = { path: reader.find(source.huggingFace)!.path, tensor: source.huggingFace };
    checkFinite(place, from, { row, columns }, bytes);
    const out = shape.length === 1 ? singles(reader, source.huggingFace, from, row, bytes) : bytes;
    type.fromTwin?.(out);
    yield source.interleaved ? interleaveRows(out, type.blockBytes * columns / type.blockWeights) : out;
  }
}

/** Converts the elements of a vector, from `row` on, to binary32, which can't hold the largest values of F64. */
function singles(
  reader: TensorReader,
  tensor: string,
  from: Format,
  row: number,
  bytes: Uint8Array<ArrayBuffer>,
): Uint8Array<ArrayBuffer> {
  const values = new Float32Array(bytes.length / from.blockBytes);
  from.decode(new DataView(bytes.buffer), 0, values.length, values);
  const large = values.findIndex((value) => !Number.isFinite(value));
  if (large >= 0) {
    const value = new Float64Array(bytes.buffer)[large];
    throw new CheckpointError(
      { path: reader.find(tensor)!.path, tensor },
      `row ${row + large} column 0: ${value} overflows binary32, the type of llama.cpp's vectors`,
    );
  }
  return new Uint8Array(values.buffer);
}
