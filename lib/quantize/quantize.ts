/**
 * `rabbit quantize`: a float checkpoint to a block checkpoint, streamed.
 *
 * @module
 */

import { join } from "@std/path/join";
import { type Chunk, CHUNK_BYTES, type ChunkResult, runChunks, type Span, type Tagged } from "./chunks.ts";
import { CheckpointError } from "../errors.ts";
import {
  BLOCK,
  type BlockFormat,
  BlockRefusal,
  declarationOf,
  DEFAULT_WIDTH,
  encodeBlock,
  type FloatFormat,
  FORMATS,
  matrixBytes,
  WIDTHS,
} from "../format/blocks.ts";
import {
  bytesOf,
  type Checkpoint,
  COMPANIONS,
  memberOf,
  MODEL_FILE,
  nameOf,
  openCheckpoint,
  type Tensor,
} from "../format/checkpoint.ts";
import { exists, readAt, readRegular, reopen, writeAt } from "../files/read.ts";
import { NewFiles, type Seen } from "../files/new_files.ts";
import { checkOutput } from "../format/outputs.ts";
import { serializeHeader } from "../format/safetensors.ts";
import { sha256 } from "../files/write.ts";
import type { Watch } from "../pace.ts";
import { threadCount } from "../kernels/workers.ts";

/** A tensor of the new file. */
export interface PlannedTensor {
  /** The tensor of the source. */
  readonly source: Tensor;
  /** The name of its new format. */
  readonly dtype: string;
  /** Its new size. */
  readonly bytes: number;
  /** The format of the source when the tensor is quantized, undefined when it is kept byte for byte. */
  readonly from?: FloatFormat;
}

/** What quantizing a checkpoint will write; made from headers alone. */
export interface Plan {
  /** The float checkpoint. */
  readonly source: Checkpoint;
  /** The width. */
  readonly format: BlockFormat;
  /** The tensors, in their order. */
  readonly tensors: readonly PlannedTensor[];
  /** The length field and header of the new file. */
  readonly header: Uint8Array<ArrayBuffer>;
  /** Bytes of the new file, and of the source's files. */
  readonly bytes: number;
  /** Bytes of the source's files. */
  readonly sourceBytes: number;
  /** Tensors that are quantized; the others are kept. */
  readonly quantized: number;
}

/** Larger than the tokenizer of any model known (Gemma: 33 MB). */
const MAX_SIDECAR_BYTES = 200_000_000;

/** Files that a user of the checkpoint needs beside the weights: those that are missing are reported. */
const NEEDED = ["config.json", "vocab.json", "merges.txt"];

/**
 * Decides what becomes of every tensor: two-dimensional ones are quantized, others kept.
 *
 * @param from the float checkpoint, or its path
 * @param width the block format, or its bits
 * @throws {CheckpointError} naming the tensor and the field: the source is quantized already, a matrix is not of F64,
 * F32, F16 or BF16, or its columns are not a multiple of 32
 */
export function planQuantize(from: Checkpoint | string, width: BlockFormat | number = DEFAULT_WIDTH): Plan {
  const format = typeof width === "number" ? widthOf(width) : width;
  const source = typeof from === "string" ? openCheckpoint(from) : from;
  if (source.width !== undefined) {
    throw new CheckpointError(
      { path: nameOf(source), field: `__metadata__ "format"` },
      `already quantized to ${source.width.name}; quantize the float checkpoint that it was made from`,
    );
  }
  const tensors = source.tensors.map((tensor): PlannedTensor => {
    const { name, dtype, shape, bytes } = tensor;
    if (shape.length !== 2) return { source: tensor, dtype, bytes };
    const path = source.files[tensor.file].path;
    const from = FORMATS.get(dtype);
    if (from?.kind !== "float") {
      throw new CheckpointError(
        { path, tensor: name, field: "dtype" },
        `${dtype} is not a float format that can be quantized (F64, F32, F16, BF16); convert the checkpoint to BF16 first`,
      );
    }
    if (shape[1] % BLOCK !== 0) {
      throw new CheckpointError(
        { path, tensor: name, field: "shape" },
        `[${shape}]: ${shape[1]} columns are not a multiple of ${BLOCK}; the format has no partial block`,
      );
    }
    return { source: tensor, dtype: format.name, bytes: matrixBytes(format, shape[0], shape[1]), from };
  });
  const header = serializeHeader(
    declarationOf(format),
    tensors.map(({ source, dtype, bytes }) => ({ name: source.name, shape: source.shape, dtype, bytes })),
  );
  return {
    source,
    format,
    tensors,
    header,
    bytes: tensors.reduce((sum, { bytes }) => sum + bytes, header.length),
    sourceBytes: bytesOf(source),
    quantized: tensors.filter(({ from }) => from).length,
  };
}

/** The block format of so many bits. @throws {RangeError} there is none */
function widthOf(bits: number): BlockFormat {
  const width = WIDTHS.find((format) => format.bits === bits);
  if (width !== undefined) return width;
  throw new RangeError(`there is no width of ${bits} bits, only ${WIDTHS.map(({ bits }) => bits).join(" and ")}`);
}

/** Options of {@link quantize}; the progress is in bytes of the source. */
export interface QuantizeOptions extends Watch {
  /** Threads to use (default: one for each processor). */
  readonly threads?: number;
  /** Replace a checkpoint that is there. */
  readonly force?: boolean;
}

/** What {@link quantize} wrote. */
export interface Quantized {
  /** Path of the new file. */
  readonly model: string;
  /** Its size. */
  readonly bytes: number;
  /** Bytes of the files that it was made from. */
  readonly sourceBytes: number;
  /** SHA-256 of the new file, in hexadecimal. */
  readonly digest: string;
  /** Files that a complete checkpoint has beside the weights, and the source has not. */
  readonly missing: readonly string[];
  /** Folders of the source that say what a checkpoint does, and are not copied. */
  readonly left: readonly string[];
}

/** Folders of a checkpoint whose files change what it does. */
const FOLDERS = ["additional_chat_templates"];

/**
 * Refuses a directory that the planned checkpoint can't be written to ({@link checkOutput}).
 *
 * @throws {Refusal}
 * @throws {CheckpointError} a file beside the source's weights can't be copied
 */
export function checkTarget({ source }: Plan, directory: string, force: boolean): Seen {
  return checkOutput(directory, source, [MODEL_FILE, ...sidecarsOf(source)], force);
}

/**
 * Writes a quantized checkpoint of a float one, and the source's tokenizer and configuration, to a directory. They appear
 * when all is written and synced; until then, and after an error, what was there is untouched.
 *
 * @param source the float checkpoint: a directory, or a safetensors file
 * @param directory made where it is missing
 * @throws {CheckpointError} a weight is not finite or a scale overflows, naming tensor, row, and column or block
 * @throws {Refusal} the directory is the source's, or holds a checkpoint and `force` is not set
 * @throws {SystemError} such as a full disk, a source that was changed meanwhile, or another process that wrote a
 * checkpoint to the directory meanwhile
 */
export async function quantize(
  source: string,
  directory: string,
  options?: QuantizeOptions & { readonly bits?: number },
): Promise<Quantized>;
/** Writes a plan of {@link planQuantize}. */
export async function quantize(plan: Plan, directory: string, options?: QuantizeOptions): Promise<Quantized>;
export async function quantize(
  from: Plan | string,
  directory: string,
  { bits, threads, force = false, signal, progress }: QuantizeOptions & { readonly bits?: number } = {},
): Promise<Quantized> {
  const plan = typeof from === "string" ? planQuantize(from, bits) : from;
  const seen = checkTarget(plan, directory, force);
  using files = new NewFiles(directory, seen);
  // First, because they may be refused, and it takes no time.
  const sidecars = sidecarsOf(plan.source);
  for (const name of sidecars) {
    files.write(name, readRegular(join(plan.source.directory, name), MAX_SIDECAR_BYTES));
  }
  const { file, partial, inode } = files.create(MODEL_FILE, plan.bytes);
  writeAt(file, partial, 0, plan.header);
  const digest = (await sha256()).update(plan.header);
  const target = plan.source.files.length;
  const total = plan.tensors.reduce((sum, { source }) => sum + source.bytes, 0);
  let done = 0;
  await runChunks(
    [...plan.source.files, { path: partial, inode }],
    chunksOf(plan, target),
    threadCount(threads),
    (place, chunk, result, bytes) => {
      checkEncoded(plan, place, result);
      digest.update(bytes);
      done += chunk.source!.bytes;
      progress?.(done, total);
    },
    signal,
  );
  files.commit();
  const missing = NEEDED.filter((name) => !sidecars.includes(name));
  const left = FOLDERS.filter((name) => exists(join(plan.source.directory, name)));
  const { bytes, sourceBytes } = plan;
  return { model: join(directory, MODEL_FILE), bytes, sourceBytes, digest: digest.digest("hex"), missing, left };
}

/** Where in a tensor a chunk begins. */
export interface ChunkPlace {
  readonly tensor: PlannedTensor;
  /** The first block of the chunk, or its first byte for a tensor that is kept. */
  readonly first: number;
}

/** The chunks of all tensors, which know the source's bytes and the new file's; `target` is the index of the new file. */
function* chunksOf(plan: Plan, target: number): Generator<Tagged<ChunkPlace>> {
  let offset = plan.header.length;
  for (const tensor of plan.tensors) {
    yield* tensorChunks(tensor, plan.format, { file: target, offset, bytes: tensor.bytes }, "target");
    offset += tensor.bytes;
  }
}

/** The chunks of one tensor whose new bytes are to be written at `place`, or are stored there already. */
export function* tensorChunks(
  tensor: PlannedTensor,
  format: BlockFormat,
  place: Span,
  role: "target" | "stored",
): Generator<Tagged<ChunkPlace>> {
  const { source, from } = tensor;
  // A kept tensor is a sequence of single bytes.
  const sourceUnit = from ? BLOCK * from.blockBytes : 1;
  const targetUnit = from ? format.blockBytes : 1;
  const units = source.bytes / sourceUnit;
  const most = Math.floor(CHUNK_BYTES / sourceUnit);
  for (let first = 0; first < units; first += most) {
    const count = Math.min(most, units - first);
    const span = { file: place.file, offset: place.offset + first * targetUnit, bytes: count * targetUnit };
    const chunk: Chunk = {
      source: { file: source.file, offset: source.offset + first * sourceUnit, bytes: count * sourceUnit },
      [role]: span,
      blocks: from && { count, source: from.name, target: format.name },
    };
    yield { chunk, tag: { tensor, first } };
  }
}

/**
 * Says where and why a block of the source can't be encoded, if there is one.
 *
 * @throws {CheckpointError} naming tensor, row, column and value, or row and block
 */
export function checkEncoded(
  plan: Plan,
  { tensor, first }: ChunkPlace,
  result: Pick<ChunkResult, "unencodable">,
): void {
  if (result.unencodable < 0) return;
  const { source, from } = tensor;
  const index = first + result.unencodable;
  const perRow = source.shape[1] / BLOCK;
  const row = Math.floor(index / perRow);
  const block = index % perRow;
  const { path, version } = plan.source.files[source.file];
  const bytes = new Uint8Array(BLOCK * from!.blockBytes);
  {
    using file = reopen(path, version);
    readAt(file, path, source.offset + index * bytes.length, bytes);
  }
  const weights = new Float32Array(BLOCK);
  const view = new DataView(bytes.buffer);
  from!.decode(view, 0, BLOCK, weights);
  try {
    encodeBlock(plan.format, weights, new Uint8Array(plan.format.blockBytes));
  } catch (error) {
    if (!(error instanceof BlockRefusal)) throw error;
    const place = { path, tensor: source.name };
    if (error.column < 0) {
      throw new CheckpointError(
        place,
        `row ${row} block ${block}: the scale ${error.value} overflows binary16 (65504); the weights are too large for ${plan.format.name}`,
      );
    }
    const value = from!.name === "F64" ? view.getFloat64(error.column * 8, true) : error.value;
    const problem = Number.isFinite(value) ? `${value} overflows binary32` : `weight is ${value}`;
    throw new CheckpointError(
      place,
      `row ${row} column ${
        block * BLOCK + error.column
      } (block ${block}): ${problem}; only finite weights can be quantized`,
    );
  }
  throw new Error(`a kernel refused block ${index} of ${source.name}, which the definition encodes`);
}

/** The names of the files that stand beside the source's weights and are copied. */
function sidecarsOf({ directory }: Checkpoint): string[] {
  return COMPANIONS.filter((name) => memberOf(directory, name) !== undefined);
}
