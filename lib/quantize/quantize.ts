/**
 * Quantizes a float checkpoint, in chunks, without loading it into memory.
 *
 * @module
 */

import { isOpen } from "../options.ts";
import type { Hash } from "node:crypto";
import { join } from "@std/path/join";
import { type Chunk, CHUNK_BYTES, runChunks, type Span, type Tagged } from "./chunks.ts";
import { checkEncoded, damageOf, floatsOf } from "./damage.ts";
import { CheckpointError } from "../errors.ts";
import {
  BLOCK,
  type BlockFormat,
  DEFAULT_WIDTH,
  type FloatFormat,
  FORMATS,
  matrixBytes,
  SCALE_RULES,
  type ScaleRule,
  WIDTHS,
} from "../format/blocks.ts";
import {
  bytesOf,
  type Checkpoint,
  INDEX_FILE,
  MODEL_FILE,
  nameOf,
  openCheckpoint,
  QUANTIZATION_FILE,
  type Tensor,
} from "../format/checkpoint.ts";
import { refuseForeign } from "../format/foreign.ts";
import { writeAt } from "../files/read.ts";
import { type NewFile, NewFiles, type Seen } from "../files/new_files.ts";
import { checkOutput } from "../format/outputs.ts";
import { type Method, type Quantization, serializeQuantization } from "../format/quantization.ts";
import { serializeIndex } from "../format/shards.ts";
import { sha256 } from "../files/write.ts";
import type { Watch } from "../pace.ts";
import { threadCount } from "../kernels/workers.ts";
import { fileDigests } from "./digests.ts";
import { leftOut, readSidecar, sidecarsOf } from "./sidecars.ts";
import { type PlannedFile, plannedFile, plannedName, planShards } from "./shards.ts";

/** A tensor of the new checkpoint. */
export interface PlannedTensor {
  /** The source tensor. */
  readonly source: Tensor;
  /** The name of the new format. */
  readonly dtype: string;
  /** The new size. */
  readonly bytes: number;
  /** The source's format if the tensor is quantized; undefined if it is copied. */
  readonly from?: FloatFormat;
}

/** The checkpoint that quantizing will write, computed from headers alone. */
export interface Plan {
  /** The float checkpoint. */
  readonly source: Checkpoint;
  /** The width. */
  readonly format: BlockFormat;
  /** Where the scales come from. */
  readonly rule: ScaleRule;
  /** Blocks of matrices that are not made by the rule but chosen already, and how: they are read as they are here. */
  readonly made?: ReadonlyMap<string, Uint8Array>;
  /** See `made`. */
  readonly method?: Method;
  /** The tensors, in file order. */
  readonly tensors: readonly PlannedTensor[];
  /** The length field and header of the checkpoint as one file, which its digest begins with. */
  readonly header: Uint8Array<ArrayBuffer>;
  /** The new files of weights: one, or shards (see {@link planShards}). */
  readonly files: readonly PlannedFile[];
  /** Size of the new files. */
  readonly bytes: number;
  /** Size of the source's files. */
  readonly sourceBytes: number;
  /** Number of tensors that are quantized; the others are copied. */
  readonly quantized: number;
}

/**
 * Plans the new checkpoint: matrices (tensors of two dimensions) are quantized, other tensors are copied.
 *
 * @param from the float checkpoint, or its path
 * @param width the block format, or its bits
 * @param rule where the scales come from (default: the format's own rule)
 * @throws {CheckpointError} the source is already quantized, a matrix is not F64, F32, F16 or BF16, or the number of
 * its columns is not a multiple of 32; names the tensor and the field
 */
export function planQuantize(
  from: Checkpoint | string,
  width: BlockFormat | number = DEFAULT_WIDTH,
  rule: ScaleRule = "absmax",
): Plan {
  const format = typeof width === "object" && width !== null ? width : widthOf(width);
  if (!SCALE_RULES.includes(rule)) throw new RangeError(`rule ${rule}: expected ${SCALE_RULES.join(" or ")}`);
  const source = isOpen(from) ? from : openCheckpoint(from);
  refuseForeign(source);
  if (source.width !== undefined) {
    throw new CheckpointError(
      { path: nameOf(source), field: `__metadata__ "format"` },
      `already quantized to ${source.width.name}; give the float checkpoint that it was made from`,
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
  const file = plannedFile(MODEL_FILE, format, tensors);
  return {
    source,
    format,
    rule,
    tensors,
    header: file.header,
    files: [file],
    bytes: file.bytes,
    sourceBytes: bytesOf(source),
    quantized: tensors.filter(({ from }) => from).length,
  };
}

/** The block format with this number of bits. @throws {RangeError} there is none */
function widthOf(bits: number): BlockFormat {
  const width = WIDTHS.find((format) => format.bits === bits);
  if (width !== undefined) return width;
  throw new RangeError(
    `unsupported width: ${JSON.stringify(bits)} bits; expected ${WIDTHS.map(({ bits }) => bits).join(" or ")}`,
  );
}

/** Options of {@link quantize}. Progress counts bytes of the source. */
export interface QuantizeOptions extends Watch {
  /** Threads to use (default: one for each processor). */
  readonly threads?: number;
  /** Overwrite an existing checkpoint. */
  readonly force?: boolean;
}

/** What {@link quantize} makes of a source without a plan. */
export interface NewCheckpointOptions {
  /** Bits of a weight (default: 4). */
  readonly bits?: number;
  /** Where scales come from (default: the format's own rule). */
  readonly rule?: ScaleRule;
  /** Write shards of at most this many bytes of tensors (default: one file). */
  readonly maxShardBytes?: number;
}

/** The result of {@link quantize}. */
export interface Quantized {
  /** Path of the new file, or of the index of its shards. */
  readonly model: string;
  /** Size of the new file, or of all shards. */
  readonly bytes: number;
  /** Size of the source's files. */
  readonly sourceBytes: number;
  /** SHA-256 of the checkpoint as one file, in hexadecimal. */
  readonly digest: string;
  /** How the blocks were chosen, where that was not by the format's rule. */
  readonly quantization?: Quantization;
  /** Files of a complete checkpoint that the source lacks. */
  readonly missing: readonly string[];
  /** Directories of the source that affect the model's behaviour and are not copied. */
  readonly left: readonly string[];
  /** The first weight that is not finite in the tensors that are copied, if any: the model cannot be used. */
  readonly damage?: string;
}

/**
 * Checks that the planned checkpoint can be written to a directory (see {@link checkOutput}).
 *
 * @param described whether quantization.json will be among its files
 * @throws {Refusal}
 * @throws {CheckpointError} a file of the source's directory cannot be copied
 */
export function checkTarget(
  { source, rule, files }: Plan,
  directory: string,
  force: boolean,
  described: boolean = rule !== SCALE_RULES[0],
): Seen {
  const names = [
    ...files.map(({ name }) => name),
    ...files.length > 1 ? [INDEX_FILE] : [],
    ...sidecarsOf(source),
    ...described ? [QUANTIZATION_FILE] : [],
  ];
  return checkOutput(directory, source, names, force);
}

/** What was written into the files of a new checkpoint. */
export interface Filled {
  /** SHA-256 of the checkpoint as one file, in hexadecimal. */
  readonly digest: string;
  /** See {@link Quantized}. */
  readonly damage?: string;
  /** What quantization.json says, if anything. */
  readonly quantization?: Quantization;
}

/**
 * Quantizes a float checkpoint into a directory, and copies the tokenizer and the configuration. The files appear after
 * all of them have been written and synced; until then, and after an error, the directory is unchanged.
 *
 * @param source the float checkpoint: a directory, or a safetensors file
 * @param directory the output directory, created if missing
 * @throws {CheckpointError} a weight is not finite or a scale overflows; names tensor, row, and column or block
 * @throws {Refusal} the directory is the source's, or contains a checkpoint and `force` is not set
 * @throws {SystemError} for example the disk is full, the source changed while it was being read, or another process
 * wrote a checkpoint to the directory
 */
export async function quantize(
  source: string,
  directory: string,
  options?: QuantizeOptions & NewCheckpointOptions,
): Promise<Quantized>;
/** Writes a plan of {@link planQuantize}. */
export async function quantize(plan: Plan, directory: string, options?: QuantizeOptions): Promise<Quantized>;
export async function quantize(
  from: Plan | string,
  directory: string,
  { bits, rule, maxShardBytes, threads, force = false, signal, progress }: QuantizeOptions & NewCheckpointOptions = {},
): Promise<Quantized> {
  const plan = typeof from === "string" ? planShards(planQuantize(from, bits, rule), maxShardBytes ?? Infinity) : from;
  const seen = checkTarget(plan, directory, force);
  return await writeQuantized(plan, directory, seen, async (files) => {
    const hash = (await sha256()).update(plan.header);
    const damage = await writeWeights(plan, files, hash, { threads, signal, progress });
    const digest = hash.digest("hex");
    if (plan.rule !== "signed") return { digest, damage };
    const source = await fileDigests(plan.source, signal);
    return { digest, damage, quantization: { method: plan.rule, version: 1, digest, source } };
  });
}

/**
 * Writes the files of a planned checkpoint, which appear when `fill` has written the weights.
 *
 * @param seen what {@link checkTarget} saw
 * @param fill gets the new files of weights
 */
export async function writeQuantized(
  plan: Plan,
  directory: string,
  seen: Seen,
  fill: (weights: readonly NewFile[]) => Promise<Filled>,
): Promise<Quantized> {
  using files = new NewFiles(directory, seen);
  // Copied first, so that a file that is refused is reported before the long work.
  for (const name of sidecarsOf(plan.source)) files.write(name, readSidecar(plan.source, name));
  const { digest, damage, quantization } = await fill(plan.files.map(({ name, bytes }) => files.create(name, bytes)));
  if (plan.files.length > 1) {
    const shards = plan.files.map(({ name, tensors }) => {
      return { name, tensors: tensors.map(({ source, bytes }) => ({ name: source.name, bytes })) };
    });
    files.write(INDEX_FILE, serializeIndex(shards));
  }
  if (quantization !== undefined) files.write(QUANTIZATION_FILE, serializeQuantization(quantization));
  files.commit();
  const { source, bytes, sourceBytes } = plan;
  const described = quantization && { quantization };
  const model = join(directory, plannedName(plan));
  return { model, bytes, sourceBytes, digest, damage, ...described, ...leftOut(source) };
}

/**
 * Quantizes into the planned files of weights.
 *
 * @param files the new files
 * @param digest gets the data of all files, in their order
 * @returns the damage of the source, see {@link Quantized}
 */
export async function writeWeights(
  plan: Plan,
  files: readonly NewFile[],
  digest: Hash,
  { threads, signal, progress }: QuantizeOptions,
): Promise<string | undefined> {
  for (const [n, { header }] of plan.files.entries()) writeAt(files[n].file, files[n].partial, 0, header);
  const targets = files.map(({ partial, inode }) => ({ path: partial, inode }));
  const total = plan.tensors.reduce((sum, { source }) => sum + source.bytes, 0);
  let done = 0;
  let damage: CheckpointError | undefined;
  await runChunks(
    [...plan.source.files, ...targets],
    chunksOf(plan),
    threadCount(threads),
    (place, chunk, result, bytes) => {
      checkEncoded(plan, place, result);
      damage ??= damageOf(plan.source, place.tensor.source, place.first, result);
      digest.update(bytes);
      done += chunk.source!.bytes;
      progress?.(done, total);
    },
    signal,
  );
  return damage?.message;
}

/**
 * Reads all weights of a plan's source, and writes nothing.
 *
 * @throws {CheckpointError} a weight is not finite, or too large for the format; names tensor, row, and column or block
 * @throws {SystemError} the source can't be read
 * @throws the reason of the signal
 */
export async function checkWeights(plan: Plan, { threads, signal }: QuantizeOptions): Promise<void> {
  const reads = function* (): Generator<Tagged<ChunkPlace>> {
    for (const { chunk: { target: _, ...chunk }, tag } of chunksOf(plan)) yield { chunk, tag };
  };
  await runChunks(plan.source.files, reads(), threadCount(threads), (place, _, result) => {
    checkEncoded(plan, place, result);
    const damage = damageOf(plan.source, place.tensor.source, place.first, result);
    if (damage !== undefined) throw damage;
  }, signal);
}

/** The position of a chunk in its tensor. */
export interface ChunkPlace {
  readonly tensor: PlannedTensor;
  /** The first block of the chunk; for a tensor that is copied, the first byte. */
  readonly first: number;
}

/** The chunks of all tensors; the new files come after those of the source. */
function* chunksOf(plan: Plan): Generator<Tagged<ChunkPlace>> {
  for (const [n, { header, tensors }] of plan.files.entries()) {
    let offset = header.length;
    for (const tensor of tensors) {
      const place = { file: plan.source.files.length + n, offset, bytes: tensor.bytes };
      yield* tensorChunks(tensor, plan, place, "target");
      offset += tensor.bytes;
    }
  }
}

/** The chunks of one tensor, whose quantized bytes are to be written at `place`, or are stored there. */
export function* tensorChunks(
  tensor: PlannedTensor,
  { format, rule }: Plan,
  place: Span,
  role: "target" | "stored",
): Generator<Tagged<ChunkPlace>> {
  const { source, from } = tensor;
  // A tensor that is copied is a sequence of single bytes.
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
      blocks: from && { count, source: from.name, target: format.name, rule },
      floats: from ? undefined : floatsOf(source.dtype),
    };
    yield { chunk, tag: { tensor, first } };
  }
}
