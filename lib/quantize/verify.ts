/**
 * Verifies a checkpoint: checks every block, and with the source derives every block again and compares.
 *
 * @module
 */

import { checkOptions, isOpen, type Names, WATCH } from "../options.ts";
import type { Hash } from "node:crypto";
import { type Chunk, CHUNK_BYTES, type ChunkResult, runChunks, type Tagged } from "./chunks.ts";
import { checkEncoded, damageOf, floatsOf } from "./damage.ts";
import { checkSourceFiles, fileDigests } from "./digests.ts";
import { CheckpointError, RabbitError } from "../errors.ts";
import { BLOCK } from "../format/blocks.ts";
import { type Checkpoint, nameOf, openCheckpoint, QUANTIZATION_FILE, type Tensor } from "../format/checkpoint.ts";
import { refuseForeign } from "../format/foreign.ts";
import { type Quantization, quantizationOf } from "../format/quantization.ts";
import { wholeHeader } from "../format/shards.ts";
import { notFinite } from "../format/not_finite.ts";
import { readAt, reopen } from "../files/read.ts";
import { sha256 } from "../files/write.ts";
import type { Watch } from "../pace.ts";
import { type Part, partOf, type Slice, slicePlanned, sliceTensor } from "./parts.ts";
import { threadCount } from "../kernels/workers.ts";
import { type ChunkPlace, type PlannedTensor, planQuantize, tensorChunks } from "./quantize.ts";

/** Options of {@link verify} and {@link verifyAgainst}. Progress counts bytes of the checkpoint. */
export interface VerifyOptions extends Watch {
  /** Threads to use (default: one for each processor). */
  readonly threads?: number;
  /** Check one of several parts alone; the digests are left out. */
  readonly part?: Part;
}

/** The names of {@link VerifyOptions}. */
const VERIFY: Names<VerifyOptions> = { ...WATCH, threads: true, part: true };

/** The result of {@link verify}. */
export interface Verified {
  /** SHA-256 of each file, in hexadecimal; empty for a part. */
  readonly digests: readonly string[];
  /**
   * SHA-256 of the checkpoint as one file, in hexadecimal: of a quantized checkpoint in shards, the file that it is without
   * them. Undefined for a float checkpoint in shards, and for a part.
   */
  readonly digest?: string;
  /** Number of quantized blocks. */
  readonly blocks: number;
  /** What quantization.json says of them, if it is there. */
  readonly quantization?: Quantization;
}

/** The comparison of a tensor with the one derived from the source. */
export interface TensorReport {
  /** Its name. */
  readonly name: string;
  /** Whether all bytes are equal. Those of a calibrated matrix are not compared. */
  readonly equal: boolean;
  /** Whether the blocks were chosen by calibration: the source alone does not say what they have to be. */
  readonly calibrated?: boolean;
  /** The first difference: row and block of a quantized tensor, byte of any other. */
  readonly row?: number;
  /** See `row`. */
  readonly block?: number;
  /** See `row`. */
  readonly byte?: number;
  /** Why the bytes cannot be compared: the tensor is in one checkpoint only, or dtype or shape differ. */
  readonly problem?: string;
  /** sqrt(sum (w - v)^2 / sum w^2) over source weights w and stored values v; only for quantized tensors. */
  readonly rms?: number;
  /** sum w^2, to combine the errors of tensors: rms^2 * squares is the sum of (w - v)^2. */
  readonly squares?: number;
}

/** The result of {@link verifyAgainst}. */
export interface Against extends Verified {
  /** Every tensor of either checkpoint. */
  readonly tensors: readonly TensorReport[];
  /** The relative RMS error over all quantized tensors. */
  readonly rms: number;
}

/**
 * Reads every byte of a checkpoint, and checks every scale and every float.
 *
 * @param from the checkpoint, or its path
 * @throws {CheckpointError} a scale or a weight is not finite, which names tensor, row, and block or column; or quantization.json is invalid, or
 * describes other weights
 */
export async function verify(
  from: Checkpoint | string,
  options: VerifyOptions = {},
): Promise<Verified> {
  checkOptions("verify", options, VERIFY);
  const { threads, part, signal, progress } = options;
  const checkpoint = isOpen(from) ? from : openCheckpoint(from);
  refuseForeign(checkpoint);
  const { width } = checkpoint;
  const quantization = quantizationOf(checkpoint);
  const tensors = partOfTensors(checkpoint.tensors, part).map(({ tensor, rows }) => sliceTensor(tensor, rows));
  const digests = part ? undefined : await Digests.of(checkpoint);
  const chunks = function* (): Generator<Tagged<{ tensor: Tensor; first: number }>> {
    for (const tensor of tensors) {
      const unit = tensor.dtype === width?.name ? width.blockBytes : 1;
      const units = tensor.bytes / unit;
      const most = Math.floor(CHUNK_BYTES / unit);
      for (let first = 0; first < units; first += most) {
        const count = Math.min(most, units - first);
        const stored = { file: tensor.file, offset: tensor.offset + first * unit, bytes: count * unit };
        const blocks = unit > 1 ? { count, target: width!.name } : undefined;
        const chunk: Chunk = { stored, blocks, floats: floatsOf(tensor.dtype) };
        yield { chunk, tag: { tensor, first } };
      }
    }
  };
  const dataBytes = tensors.reduce((sum, { bytes }) => sum + bytes, 0);
  let blocks = 0;
  let done = 0;
  await runChunks(checkpoint.files, chunks(), threadCount(threads), ({ tensor, first }, chunk, result, bytes) => {
    checkScale(checkpoint, tensor, first, result);
    checkFloat(checkpoint, tensor, first, result);
    blocks += chunk.blocks?.count ?? 0;
    digests?.update(chunk.stored!.file, bytes);
    progress?.(done += bytes.length, dataBytes);
  }, signal);
  return { ...finish(digests, checkpoint, quantization), blocks, ...quantization && { quantization } };
}

/**
 * Verifies a quantized checkpoint, and compares every tensor with the result of quantizing the source by the rule that
 * quantization.json names. Of a calibrated checkpoint the tensors that are copied are compared, and the error of the others
 * is measured; the source has to be the one that quantization.json names, by its digests, since other weights of the
 * matrices would not be noticed. Tensors are matched by name, in any order.
 *
 * @param from the quantized checkpoint, or its path
 * @param sourceFrom the float checkpoint, or its path
 * @throws {CheckpointError} as {@link verify}; the checkpoint is not quantized; the source cannot be quantized; a
 * calibrated checkpoint was made from another one
 * @throws {RabbitError} a part of a calibrated checkpoint is to be verified
 */
export async function verifyAgainst(
  from: Checkpoint | string,
  sourceFrom: Checkpoint | string,
  options: VerifyOptions = {},
): Promise<Against> {
  checkOptions("verifyAgainst", options, VERIFY);
  const { threads, part, signal, progress } = options;
  const [checkpoint, source] = [from, sourceFrom].map((each) => isOpen(each) ? each : openCheckpoint(each));
  refuseForeign(checkpoint);
  const format = checkpoint.width;
  if (format === undefined) {
    throw new CheckpointError(
      { path: nameOf(checkpoint), field: "__metadata__" },
      "declares no width, so it is not a quantized checkpoint; only those can be compared with a source",
    );
  }
  const quantization = quantizationOf(checkpoint);
  const calibrated = quantization?.calibration !== undefined;
  if (calibrated && part !== undefined) {
    throw new RabbitError(
      `${
        nameOf(checkpoint)
      } is calibrated, and only the digest of the whole tells whether its blocks are those that were ` +
        "chosen; verify it in one run",
    );
  }
  const plan = planQuantize(source, format, quantization?.method === "signed" ? "signed" : "absmax");
  const planned = new Map(plan.tensors.map((tensor) => [tensor.source.name, tensor]));
  const slices = partOfTensors(checkpoint.tensors, part);
  const digests = part ? undefined : await Digests.of(checkpoint);
  const reports = new Map<string, { -readonly [K in keyof TensorReport]: TensorReport[K] }>();
  const sums = new Map<string, { errors: number; squares: number }>();
  const shift = checkpoint.files.length;
  // Chunks of a tensor that cannot be compared have no tag: they are only hashed.
  const chunks = function* (): Generator<Tagged<ChunkPlace & { stored: Tensor } | undefined>> {
    for (const { tensor: whole, rows } of slices) {
      const tensor = planned.get(whole.name);
      const problem = mismatch(whole, tensor);
      const stored = sliceTensor(whole, rows);
      const report = { name: stored.name, equal: problem === undefined, problem };
      reports.set(stored.name, calibrated && tensor?.from ? { ...report, calibrated } : report);
      if (problem !== undefined) {
        yield* plainChunks(stored);
        continue;
      }
      for (const { chunk, tag } of tensorChunks(slicePlanned(tensor!, rows), plan, stored, "stored")) {
        const source = { ...chunk.source!, file: chunk.source!.file + shift };
        yield { chunk: { ...chunk, source }, tag: { ...tag, stored } };
      }
    }
  };
  const dataBytes = slices.reduce((sum, { tensor, rows }) => sum + sliceTensor(tensor, rows).bytes, 0);
  let blocks = 0;
  let done = 0;
  await runChunks(
    [...checkpoint.files, ...source.files],
    chunks(),
    threadCount(threads),
    (place, chunk, result, bytes) => {
      digests?.update(chunk.stored!.file, bytes);
      progress?.(done += bytes.length, dataBytes);
      if (place === undefined) return;
      const { stored, first, tensor } = place;
      checkScale(checkpoint, stored, first, result);
      checkFloat(checkpoint, stored, first, result);
      checkEncoded(plan, place, result);
      const report = reports.get(stored.name)!;
      if (report.equal && !report.calibrated && result.difference >= 0) {
        report.equal = false;
        if (tensor.from) {
          Object.assign(report, blockAt(stored, first + Math.floor(result.difference / format.blockBytes)));
        } else report.byte = first + result.difference;
      }
      if (tensor.from) {
        blocks += chunk.blocks!.count;
        const sum = sums.get(stored.name) ?? { errors: 0, squares: 0 };
        sums.set(stored.name, { errors: sum.errors + result.errors, squares: sum.squares + result.squares });
      }
    },
    signal,
  );
  const names = new Set(checkpoint.tensors.map(({ name }) => name));
  for (const name of planned.keys()) {
    if (!names.has(name)) reports.set(name, { name, equal: false, problem: "missing from the quantized checkpoint" });
  }
  const total = { errors: 0, squares: 0 };
  for (const [name, { errors, squares }] of sums) {
    Object.assign(reports.get(name)!, { rms: relativeError(errors, squares), squares });
    total.errors += errors;
    total.squares += squares;
  }
  const found = finish(digests, checkpoint, quantization);
  // A tensor that differs says more than a digest.
  if (calibrated && [...reports.values()].every(({ equal }) => equal)) {
    checkSourceFiles(checkpoint, quantization.source, source, await fileDigests(source, signal));
  }
  return {
    ...found,
    blocks,
    ...quantization && { quantization },
    tensors: [...reports.values()],
    rms: relativeError(total.errors, total.squares),
  };
}

/**
 * The bytes of tensors that verifying reads.
 *
 * @param source what the checkpoint is compared with, if anything
 * @param part one of several parts, if not all is verified
 * @returns those of the checkpoint, and those of the source
 */
export function verifiedBytes(
  checkpoint: Checkpoint,
  source?: Checkpoint,
  part?: Part,
): { readonly bytes: number; readonly sourceBytes: number } {
  const sources = new Map(source?.tensors.map((tensor) => [tensor.name, tensor]));
  let [bytes, sourceBytes] = [0, 0];
  for (const { tensor, rows } of partOfTensors(checkpoint.tensors, part)) {
    const share = sliceTensor(tensor, rows).bytes;
    bytes += share;
    sourceBytes += Math.round((sources.get(tensor.name)?.bytes ?? 0) * (share / tensor.bytes));
  }
  return { bytes, sourceBytes };
}

function partOfTensors(tensors: readonly Tensor[], part: Part | undefined): Slice<Tensor>[] {
  return part ? partOf(tensors, part) : tensors.map((tensor) => ({ tensor }));
}

function finish(
  digests: Digests | undefined,
  checkpoint: Checkpoint,
  quantization: Quantization | undefined,
): Pick<Verified, "digests" | "digest"> {
  return digests?.finish(checkpoint, quantization) ?? { digests: [] };
}

/** The root of the ratio of two sums: of the squares of errors, and of the squares of weights. */
export function relativeError(errors: number, squares: number): number {
  return squares === 0 ? 0 : Math.sqrt(errors / squares);
}

function mismatch(stored: Tensor, planned: PlannedTensor | undefined): string | undefined {
  if (planned === undefined) return "not in the source";
  const { shape } = planned.source;
  if (String(stored.shape) !== String(shape) || stored.shape.length !== shape.length) {
    return `shape [${stored.shape}], the source has [${shape}]`;
  }
  if (stored.dtype !== planned.dtype) return `dtype ${stored.dtype}, the source has ${planned.dtype}`;
  return undefined;
}

function* plainChunks(tensor: Tensor): Generator<Tagged<undefined>> {
  for (let at = 0; at < tensor.bytes; at += CHUNK_BYTES) {
    const bytes = Math.min(CHUNK_BYTES, tensor.bytes - at);
    yield { chunk: { stored: { file: tensor.file, offset: tensor.offset + at, bytes } }, tag: undefined };
  }
}

function blockAt(tensor: Tensor, index: number): { row: number; block: number } {
  const perRow = tensor.shape[1] / BLOCK;
  return { row: (tensor.firstRow ?? 0) + Math.floor(index / perRow), block: index % perRow };
}

function checkScale(checkpoint: Checkpoint, tensor: Tensor, first: number, result: ChunkResult): void {
  if (result.badScale < 0) return;
  const place = { path: checkpoint.files[tensor.file].path, tensor: tensor.name };
  const before = (tensor.firstRow ?? 0) * tensor.shape[1] / BLOCK;
  throw notFinite(place, BLOCK, tensor.shape[1], before + first + result.badScale);
}

function checkFloat(checkpoint: Checkpoint, tensor: Tensor, first: number, result: ChunkResult): void {
  const damage = damageOf(checkpoint, tensor, first, result);
  if (damage !== undefined) throw damage;
}

/**
 * Computes the SHA-256 of each file and of the whole checkpoint: `of` reads the headers, `update` gets the tensors in file
 * order.
 */
class Digests {
  private constructor(readonly hashes: readonly Hash[], readonly whole?: Hash) {}

  static async of(checkpoint: Checkpoint): Promise<Digests> {
    const hashes = checkpoint.files.map(async ({ path, dataStart, version }) => {
      using file = reopen(path, version);
      const start = new Uint8Array(dataStart);
      readAt(file, path, 0, start);
      return (await sha256()).update(start);
    });
    const shards = checkpoint.files.length > 1 && checkpoint.width !== undefined;
    const whole = shards ? (await sha256()).update(wholeHeader(checkpoint)) : undefined;
    return new Digests(await Promise.all(hashes), whole);
  }

  update(file: number, bytes: Uint8Array): void {
    this.hashes[file].update(bytes);
    this.whole?.update(bytes);
  }

  /** @throws {CheckpointError} the weights are not those that quantization.json describes */
  finish(checkpoint: Checkpoint, quantization: Quantization | undefined): Pick<Verified, "digests" | "digest"> {
    const digests = this.hashes.map((hash) => hash.digest("hex"));
    const digest = digests.length === 1 ? digests[0] : this.whole?.digest("hex");
    if (quantization === undefined || quantization.digest === digest) return { digests, digest };
    throw new CheckpointError(
      { path: nameOf(checkpoint) },
      `its digest is ${digest}, but ${QUANTIZATION_FILE} beside it describes weights of the digest ` +
        `${quantization.digest}; the weights were changed, or the file belongs to another checkpoint`,
    );
  }
}
