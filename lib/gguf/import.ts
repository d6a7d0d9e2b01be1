/**
 * Imports a GGUF file as a Hugging Face checkpoint, streamed.
 *
 * @module
 */

import { checkOptions, checkPath, isOpen, WATCH } from "../options.ts";
import { join } from "@std/path/join";
import { configOf, namedTensors, sourceTensors, type Weights } from "./names.ts";
import { ROPE_FACTORS } from "./rope_scaling.ts";
import { matchTensors } from "../model/tensors.ts";
import { specialIds, vocabularyFiles } from "./hugging_face.ts";
import { vocabularyOf } from "./vocabulary.ts";
import { convertedRows, type ImportedTensor, matrixShape, rowBytesOf } from "./convert.ts";
import { CheckpointError, Refusal } from "../errors.ts";
import { BF16, type BlockFormat, declarationOf, F16, F32, type FloatFormat, matrixBytes } from "../format/blocks.ts";
import { MODEL_FILE } from "../format/checkpoint.ts";
import { checkUnchanged, sameFile } from "../files/read.ts";
import { bf16ToF32, f16ToF32, f32ToBf16, f32ToF16 } from "../format/floats.ts";
import { READABLE } from "./types.ts";
import { openParts, type Part, type Parts, PartsReader, type PartTensor } from "./parts.ts";
import { NewFiles, type Seen } from "../files/new_files.ts";
import { checkOutput } from "../format/outputs.ts";
import { serializeHeader } from "../format/safetensors.ts";
import { type WriteOptions, writeParts } from "../files/write.ts";

/** The dtypes that an import can write. */
export const DTYPES: readonly Dtype[] = ["bf16", "f16", "f32", "same"];

/** A value of {@link DTYPES}. */
export type Dtype = "bf16" | "f16" | "f32" | "same";

/** Bytes of a tensor that are held in memory at a time, unless a row is larger. */
const CHUNK_BYTES = 1 << 20;

/** The float formats that weights can become, and the `torch_dtype` of each. */
const TARGETS = { bf16: BF16, f16: F16, f32: F32 };
const TORCH: ReadonlyMap<string, string> = new Map([["BF16", "bfloat16"], ["F16", "float16"], ["F32", "float32"]]);

/** The float formats, by dtype. */
const FLOATS: ReadonlyMap<string, FloatFormat> = new Map(Object.values(TARGETS).map((format) => [format.name, format]));

/** What an import will write, computed from the header and the vectors. */
export interface ImportPlan {
  /** The GGUF file; the first part of a split one. */
  readonly path: string;
  /** The files to read: one, unless it is split. */
  readonly parts: readonly Part[];
  /** Values of a head. */
  readonly headDim: number;
  /** llama.cpp's name of the architecture. */
  readonly architecture: string;
  /** The tensors, in the order of the checkpoint that was exported, or by name. */
  readonly tensors: readonly ImportedTensor[];
  /** The format of the matrices. */
  readonly format: FloatFormat | BlockFormat;
  /** The length field and header of the new file. */
  readonly header: Uint8Array<ArrayBuffer>;
  /** Bytes of the new file. */
  readonly bytes: number;
  /** The other files, by name. */
  readonly files: ReadonlyMap<string, string>;
  /** The reason if there is no tokenizer among them. */
  readonly missing?: string;
}

/**
 * Plans the import of a file.
 *
 * @param path the GGUF file; the first part of a split one
 * @param dtype undefined: the float format of all matrices; BF16 if they are quantized or mixed
 * @throws {CheckpointError} a file is invalid, or its model is not supported, naming key or tensor
 */
export function planImport(path: string, dtype?: Dtype): ImportPlan {
  checkPath("the path of the GGUF file", path);
  const parts = openParts(path);
  using reader = new PartsReader(parts.parts);
  return plan(path, parts, reader, dtype);
}

/**
 * {@link planImport}, with formats that keep all values: blocks if all matrices have the same, else of each tensor the
 * float format of its type, or F32.
 */
export function planExact(path: string): ImportPlan {
  const parts = openParts(path);
  using reader = new PartsReader(parts.parts);
  return plan(path, parts, reader, "exact");
}

function plan(
  path: string,
  { parts, metadata, tensors }: Parts,
  reader: PartsReader,
  dtype?: Dtype | "exact",
): ImportPlan {
  const found = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  for (const { name, type, part } of tensors) {
    if (type.decode !== undefined) continue;
    const known = READABLE.map(({ name }) => name).join(", ");
    throw new CheckpointError(
      { path: part.path, tensor: name, field: "type" },
      `${type.name} can't be imported (${known} can); make one of these with llama-quantize --allow-requantize`,
    );
  }
  const matrices = tensors.filter(({ shape }) => shape.length === 2);
  const format = formatOf(matrices, dtype);
  const embedding = found.get("token_embd.weight")?.shape[0] ?? 0;
  const tokenizer = vocabularyOf(path, metadata, embedding);
  const vocabulary = "vocabulary" in tokenizer ? tokenizer.vocabulary : undefined;
  const factors = found.get(ROPE_FACTORS);
  const weights: Weights = {
    shape: (name) => found.get(name)?.shape,
    ropeFactors: factors && decodeVector(factors, reader),
  };
  const torch = TORCH.get(format.name) ?? "bfloat16";
  const { architecture, config, json } = configOf(
    path,
    metadata,
    weights,
    torch,
    vocabulary ? specialIds(vocabulary) : {},
  );
  const original = sourceTensors(path, metadata);
  const wanted = function* () {
    for (const names of namedTensors(architecture, config)) yield { ...names, name: names.gguf };
  };
  matchTensors(
    wanted(),
    {
      path,
      names: found.keys(),
      find(name) {
        const tensor = found.get(name);
        return tensor && { shape: tensor.shape, path: tensor.part.path };
      },
    },
    { subject: "the metadata calls", model: architecture },
    (name) => name === ROPE_FACTORS,
  );
  const planned = Array.from(namedTensors(architecture, config), (names): ImportedTensor => {
    const source = found.get(names.gguf)!;
    const recorded = dtype === "same" ? FLOATS.get(original.get(names.huggingFace) ?? "") : undefined;
    const to = dtype === "exact"
      ? exactFormat(source, format)
      : source.shape.length === 1
      ? vectorFormat(decodeVector(source, reader), recorded ?? format)
      : dtype === "same"
      ? source.type.twin!
      : format;
    return { names, source, to, bytes: matrixBytes(to, names.shape[0], names.shape[1] ?? 1) };
  });
  // In the order of the checkpoint that was exported; other tensors follow, by name.
  const ranks = new Map([...original.keys()].map((name, rank) => [name, rank]));
  const rank = ({ names }: ImportedTensor) => ranks.get(names.huggingFace) ?? ranks.size;
  planned.sort((a, b) => rank(a) - rank(b) || (a.names.huggingFace < b.names.huggingFace ? -1 : 1));
  const header = serializeHeader(
    format.kind === "block" ? declarationOf(format) : { format: "pt" },
    planned.map(({ names, to, bytes }) => ({ name: names.huggingFace, dtype: to.name, shape: names.shape, bytes })),
  );
  const files = new Map([["config.json", JSON.stringify(json, null, 2) + "\n"]]);
  for (const [name, text] of vocabulary ? vocabularyFiles(vocabulary) : []) files.set(name, text);
  return {
    path,
    parts,
    headDim: config.headDim,
    architecture,
    tensors: planned,
    format,
    header,
    bytes: planned.reduce((sum, { bytes }) => sum + bytes, header.length),
    files,
    missing: "missing" in tokenizer ? tokenizer.missing : undefined,
  };
}

/** The types that the dtype `same` keeps as blocks. */
const BLOCK_TYPES = READABLE.filter(({ twin }) => twin?.kind === "block").map(({ name }) => `all ${name}`).join(", ");

/** The format with the values of a tensor: blocks where all matrices have `blocks`, else floats. */
function exactFormat({ shape, type: { twin } }: PartTensor, blocks: FloatFormat | BlockFormat) {
  return twin?.kind === "float" || (twin === blocks && shape.length === 2) ? twin : F32;
}

/** The format that the matrices become. */
function formatOf(matrices: PartTensor[], dtype: Dtype | "exact" | undefined): FloatFormat | BlockFormat {
  const twin = matrices[0]?.type.twin ?? BF16;
  const other = matrices.find(({ type }) => type.twin !== twin);
  if (dtype === "exact") return other === undefined ? twin : F32;
  if (dtype !== undefined && dtype !== "same") return TARGETS[dtype];
  if (dtype === undefined) return other === undefined && twin.kind === "float" ? twin : BF16;
  const odd = matrices.find(({ type }) => type.twin === undefined) ?? (twin.kind === "block" ? other : undefined) ??
    matrices.find(({ type }) => type.twin!.kind !== twin.kind);
  if (odd === undefined) return twin;
  const found = odd === matrices[0] ? odd.type.name : `${odd.type.name} mixed with ${matrices[0].type.name}`;
  throw new CheckpointError(
    { path: odd.part.path, tensor: odd.name, field: "type" },
    `${found}: the dtype "same" requires matrices that are ${BLOCK_TYPES}, or all floats`,
  );
}

/** Decodes a vector. Values that are not finite are refused later, when the vector is read again to be written. */
function decodeVector(tensor: PartTensor, reader: PartsReader): Float32Array {
  const { name, type, shape, bytes, part: { path } } = tensor;
  if (bytes > CHUNK_BYTES) {
    throw new CheckpointError({ path, tensor: name, field: "shape" }, `[${shape}] is too large for a vector`);
  }
  const raw = new Uint8Array(bytes);
  reader.read(tensor, 0, raw);
  const values = new Float32Array(shape.reduce((a, b) => a * b, 1));
  type.decode!(new DataView(raw.buffer), 0, values.length / type.blockWeights, values);
  return values;
}

/** Vectors become `format` (BF16 if matrices are blocks) if that keeps every value, and F32 otherwise. */
function vectorFormat(values: Float32Array, format: FloatFormat | BlockFormat): FloatFormat {
  const to = format.kind === "float" ? format : BF16;
  const kept = to === BF16
    ? (x: number) => bf16ToF32(f32ToBf16(x)) === x
    : to === F16
    ? (x: number) => f16ToF32(f32ToF16(x)) === x
    : () => true;
  return values.every(kept) ? to : F32;
}

/**
 * Imports a GGUF file as a checkpoint. Its files appear when all are complete and synced; until then, and after an
 * error, existing files are unchanged.
 *
 * @returns the SHA-256 of model.safetensors in hexadecimal
 * @throws {CheckpointError} a weight is not finite, or too large for the dtype, naming tensor, row and column
 * @throws {Refusal} a file exists and `force` is not set
 * @throws {SystemError} for example, the disk is full, the source changed during the import, or another process wrote a
 * checkpoint to the directory
 */
export async function importGguf(
  source: string,
  directory: string,
  options?: WriteOptions & { readonly dtype?: Dtype },
): Promise<string>;
/** Imports according to a plan of {@link planImport}. */
export async function importGguf(plan: ImportPlan, directory: string, options?: WriteOptions): Promise<string>;
export async function importGguf(
  from: ImportPlan | string,
  directory: string,
  options: WriteOptions & { readonly dtype?: Dtype } = {},
): Promise<string> {
  checkOptions("importGguf", options, { ...WATCH, force: true, dtype: true });
  const plan = isOpen(from) ? from : planImport(from, options.dtype);
  const seen = checkImport(plan, directory, options.force ?? false);
  using reader = new PartsReader(plan.parts);
  using files = new NewFiles(directory, seen);
  for (const [name, text] of plan.files) files.write(name, new TextEncoder().encode(text));
  const digest = await writeParts(files.create(MODEL_FILE, plan.bytes), piecesOf(plan, reader), plan.bytes, options);
  checkUnchanged(plan.parts);
  files.commit();
  return digest;
}

/** The new file in pieces. */
function* piecesOf(plan: ImportPlan, reader: PartsReader): Generator<Uint8Array> {
  yield plan.header;
  for (const tensor of plan.tensors) yield* chunksOf(plan, tensor, reader);
}

/** Refuses a directory to which the planned checkpoint can't be written. @throws {Refusal} */
export function checkImport(plan: ImportPlan, directory: string, force: boolean): Seen {
  const names = [MODEL_FILE, ...plan.files.keys()];
  for (const path of names.map((name) => join(directory, name))) {
    const source = plan.parts.find((part) => sameFile(path, part.path));
    if (source === undefined) continue;
    throw new Refusal(
      "source",
      path,
      `${path} is the source itself (${source.path}), which would be overwritten; choose another directory`,
    );
  }
  return checkOutput(directory, undefined, names, force);
}

/** The data of a tensor in the new file, in chunks. */
function* chunksOf({ headDim }: ImportPlan, tensor: ImportedTensor, reader: PartsReader): Generator<Uint8Array> {
  const { source } = tensor;
  const [rows, columns] = matrixShape(source);
  const most = Math.max(1, Math.floor(CHUNK_BYTES / rowBytesOf(source.type, columns)));
  const read = (offset: number, into: Uint8Array) => reader.read(source, offset, into);
  for (let row = 0; row < rows; row += most) {
    yield convertedRows(tensor, headDim, read, row, Math.min(most, rows - row));
  }
}
