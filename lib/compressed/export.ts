/**
 * Exports a quantized checkpoint in the format `pack-quantized` of the Python package compressed-tensors, with which
 * transformers loads it. The weights do not change: a matrix keeps its levels and its scales. It is streamed.
 *
 * compressed-tensors quantizes the modules of class `Linear`. It decompresses no embedding when transformers loads a
 * model, so the embedding is decoded to binary32, the narrowest dtype that holds level times scale exactly.
 *
 * https://github.com/vllm-project/compressed-tensors (compressors/pack_quantized)
 *
 * @module
 */

import { checkOptions, isOpen, WATCH } from "../options.ts";
import { join } from "@std/path/join";
import { CheckpointError } from "../errors.ts";
import { BLOCK, type BlockFormat, type Format, FORMATS, matrixBytes } from "../format/blocks.ts";
import { type Checkpoint, MODEL_FILE, nameOf, TensorReader } from "../format/checkpoint.ts";
import { f16ToF32 } from "../format/floats.ts";
import { checkOutput } from "../format/outputs.ts";
import { serializeHeader } from "../format/safetensors.ts";
import { NewFiles, type Seen } from "../files/new_files.ts";
import { readText } from "../files/read.ts";
import { type WriteOptions, writeParts } from "../files/write.ts";
import type { Config } from "../model/config.ts";
import { MAX_CONFIG_BYTES, openModel } from "../model/load.ts";
import { checkTensors, nameOfPart } from "../model/tensors.ts";
import { checkFinite } from "../quantize/damage.ts";
import { leftOut, readSidecar, sidecarsOf } from "../quantize/sidecars.ts";

/** The name of the new format in config.json. */
export const PACK_QUANTIZED = "pack-quantized";

/** Bytes of a tensor that are held in memory at a time. */
const CHUNK_BYTES = 1 << 20;

const CONFIG_FILE = "config.json";

/** The dtypes in the order of a file, which is that of the safetensors library: then by name. */
const ORDER = ["I64", "F64", "F32", "I32", "BF16", "F16"];

/** A tensor of the new file. */
export interface PackedTensor {
  /** Its name in the new file. */
  readonly name: string;
  /** Its dtype there. */
  readonly dtype: string;
  /** Its shape there. */
  readonly shape: readonly number[];
  /** Its size there. */
  readonly bytes: number;
  /** The name of the checkpoint's tensor that it is made of. */
  readonly source: string;
  /** What of it: the levels, the scales or the shape of a matrix, a matrix decoded, or a vector as it is. */
  readonly part: "packed" | "scale" | "shape" | "decoded" | "kept";
}

/** What an export will write, computed from the headers and the configuration. */
export interface CompressedPlan {
  /** The checkpoint. */
  readonly source: Checkpoint;
  /** Its width. */
  readonly width: BlockFormat;
  /** The tensors of the new file, in order. */
  readonly tensors: readonly PackedTensor[];
  /** The length field and header of the new file. */
  readonly header: Uint8Array<ArrayBuffer>;
  /** Bytes of the new file. */
  readonly bytes: number;
  /** The new config.json. */
  readonly config: string;
}

/** The result of {@link exportCompressedTensors}. */
export interface CompressedResult {
  /** SHA-256 of the new model.safetensors, in hexadecimal. */
  readonly digest: string;
  /** Files of a complete checkpoint that the source lacks. */
  readonly missing: readonly string[];
  /** Directories of the source that affect the model's behaviour and are not copied. */
  readonly left: readonly string[];
}

/**
 * Plans the export of a quantized checkpoint.
 *
 * @param path the checkpoint: a directory, or a safetensors file
 * @throws {CheckpointError} a file is invalid, the checkpoint is not quantized, or the model is unsupported
 * @throws {SystemError} a file can't be read
 */
export function planCompressedTensors(path: string): CompressedPlan {
  const { checkpoint: source, config } = openModel(path);
  const { width } = source;
  if (width === undefined) {
    throw new CheckpointError(
      { path: nameOf(source) },
      "not quantized, so there is nothing to pack; quantize it first",
    );
  }
  const tensors = tensorsOf(source, config, width);
  const header = serializeHeader({ format: "pt" }, tensors);
  return {
    source,
    width,
    tensors,
    header,
    bytes: tensors.reduce((sum, { bytes }) => sum + bytes, header.length),
    config: describe(readText(join(source.directory, CONFIG_FILE), MAX_CONFIG_BYTES), config, width),
  };
}

/** The tensors of the new file, in order. */
function tensorsOf(source: Checkpoint, config: Config, width: BlockFormat): PackedTensor[] {
  using reader = new TensorReader(source);
  const found = checkTensors(config, reader);
  const tensors = [...found].flatMap(([name, { path, dtype, shape }]): PackedTensor[] => {
    const format = FORMATS.get(dtype);
    if (shape.length === 1) {
      if (format?.kind === "float") {
        return [{ name, dtype, shape, bytes: bytesOf(format, shape), source: name, part: "kept" }];
      }
      throw new CheckpointError({ path, tensor: name, field: "dtype" }, `vectors of ${dtype} are not supported`);
    }
    const [rows, columns] = shape;
    if (name === nameOfPart("embedding")) {
      return [{ name, dtype: "F32", shape, bytes: 4 * rows * columns, source: name, part: "decoded" }];
    }
    const of = (part: "packed" | "scale" | "shape", dtype: string, shape: readonly number[]): PackedTensor => {
      const bytes = (dtype === "I64" ? 8 : 4) * shape.reduce((a, b) => a * b);
      return { name: `${name}_${part}`, dtype, shape, bytes, source: name, part };
    };
    return [
      of("packed", "I32", [rows, columns * width.bits / 32]),
      // In binary16, the library would round products where it decompresses at loading (dequantize=True).
      of("scale", "F32", [rows, columns / BLOCK]),
      of("shape", "I64", [2]),
    ];
  });
  return tensors.sort((a, b) => ORDER.indexOf(a.dtype) - ORDER.indexOf(b.dtype) || (a.name < b.name ? -1 : 1));
}

function bytesOf(format: Format, [rows, columns = 1]: readonly number[]): number {
  return matrixBytes(format, rows, columns);
}

/** JSON with numbers as they are written, which V8 has and TypeScript's library does not declare. */
const exactJson = JSON as unknown as {
  parse(
    text: string,
    reviver: (key: string, value: unknown, context: { readonly source: string }) => unknown,
  ): Record<string, unknown>;
  rawJSON(text: string): unknown;
};

/**
 * The new config.json: that of the source, with the quantization, and with binary32 as the dtype, in which the weights are
 * exact. Numbers are kept as they are written: transformers refuses 1 where it expects 1.0.
 */
function describe(text: string, { tied }: Config, { bits }: BlockFormat): string {
  const { dtype: _, ...json } = exactJson.parse(
    text,
    (_, value, { source }) => typeof value === "number" ? exactJson.rawJSON(source) : value,
  );
  const weights = {
    num_bits: bits,
    type: "int",
    symmetric: true,
    strategy: "group",
    group_size: BLOCK,
    dynamic: false,
  };
  const quantization_config = {
    quant_method: "compressed-tensors",
    format: PACK_QUANTIZED,
    quantization_status: "compressed",
    global_compression_ratio: null,
    kv_cache_scheme: null,
    // A head that is the embedding is not packed, as the embedding isn't.
    ignore: tied ? ["lm_head"] : [],
    config_groups: { group_0: { targets: ["Linear"], weights, input_activations: null, output_activations: null } },
  };
  return JSON.stringify({ ...json, torch_dtype: "float32", quantization_config }, null, 2) + "\n";
}

/**
 * Checks that the planned checkpoint can be written to a directory (see {@link checkOutput}).
 *
 * @throws {Refusal}
 * @throws {CheckpointError} a file of the source's directory can't be copied
 */
export function checkCompressed({ source }: CompressedPlan, directory: string, force: boolean): Seen {
  return checkOutput(directory, source, [MODEL_FILE, ...sidecarsOf(source)], force);
}

/**
 * Exports a quantized checkpoint as a directory for compressed-tensors, and copies the tokenizer. The files appear when
 * all are complete and synced; until then, and after an error, the directory is unchanged.
 *
 * @throws {CheckpointError} a weight or the scale of a block is not finite
 * @throws {Refusal} the directory is the source's, or contains a checkpoint and `force` is not set
 * @throws {SystemError} for example, the disk is full, or the source changed during the export
 */
export async function exportCompressedTensors(
  from: CompressedPlan | string,
  directory: string,
  options: WriteOptions = {},
): Promise<CompressedResult> {
  checkOptions("exportCompressedTensors", options, { ...WATCH, force: true });
  const plan = isOpen(from) ? from : planCompressedTensors(from);
  const { source, bytes } = plan;
  const seen = checkCompressed(plan, directory, options.force ?? false);
  using reader = new TensorReader(source);
  using files = new NewFiles(directory, seen);
  for (const name of sidecarsOf(source)) {
    files.write(name, name === CONFIG_FILE ? new TextEncoder().encode(plan.config) : readSidecar(source, name));
  }
  const digest = await writeParts(files.create(MODEL_FILE, bytes), partsOf(plan, reader), bytes, options);
  reader.checkUnchanged();
  files.commit();
  return { digest, ...leftOut(source) };
}

/** The new file in parts. */
function* partsOf(plan: CompressedPlan, reader: TensorReader): Generator<Uint8Array> {
  yield plan.header;
  for (const tensor of plan.tensors) yield* chunksOf(tensor, reader);
}

/** The data of a tensor in the new file, in chunks. */
function* chunksOf({ source, part }: PackedTensor, reader: TensorReader): Generator<Uint8Array> {
  const { dtype, shape, path } = reader.find(source)!;
  if (part === "shape") return yield new Uint8Array(BigInt64Array.from(shape, BigInt).buffer);
  const format = FORMATS.get(dtype)!;
  const [rows, columns = 1] = shape;
  const rowBytes = bytesOf(format, [1, columns]);
  const most = Math.max(1, Math.floor(CHUNK_BYTES / rowBytes));
  for (let row = 0; row < rows; row += most) {
    const bytes = new Uint8Array(Math.min(most, rows - row) * rowBytes);
    reader.read(source, row * rowBytes, bytes);
    checkFinite({ path, tensor: source }, format, { row, columns }, bytes);
    yield format.kind === "float" ? bytes : convert(part, format, new DataView(bytes.buffer));
  }
}

/** What of blocks a tensor holds. */
function convert(part: PackedTensor["part"], format: BlockFormat, blocks: DataView): Uint8Array {
  if (part === "packed") return pack(format, blocks);
  const { blockBytes } = format;
  const count = blocks.byteLength / blockBytes;
  const values = new Float32Array(part === "scale" ? count : count * BLOCK);
  if (part === "decoded") format.decode(blocks, 0, count, values);
  else for (let b = 0; b < count; b++) values[b] = f16ToF32(blocks.getUint16(b * blockBytes, true));
  return new Uint8Array(values.buffer);
}

/**
 * The levels of blocks, without scales, as the library's `pack_to_int32` stores them: each plus 2^(bits-1), so that none
 * is negative, one after the other from the lowest bit of little-endian words on.
 */
export function pack({ bits, blockBytes, unpack }: BlockFormat, blocks: DataView): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(blocks.byteLength / blockBytes * BLOCK * bits / 8);
  const levels = new Int8Array(BLOCK);
  const offset = 2 ** (bits - 1);
  let at = 0;
  for (let block = 0; block < blocks.byteLength; block += blockBytes) {
    unpack(blocks, block + 2, levels);
    for (let n = 0, held = 0, count = 0; n < BLOCK; n++) {
      held |= (levels[n] + offset) << count;
      for (count += bits; count >= 8; count -= 8, held >>= 8) out[at++] = held & 255;
    }
  }
  return out;
}
