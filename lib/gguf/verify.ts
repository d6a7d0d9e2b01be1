/**
 * Verifies that a GGUF file was made from a checkpoint by llama.cpp's own rules: derives every tensor again and compares.
 *
 * @module
 */

import { join } from "@std/path/join";
import { CheckpointError, quote, RabbitError } from "../errors.ts";
import { firstNotFinite, floatNamed, FORMATS, matrixBytes } from "../format/blocks.ts";
import { TensorReader } from "../format/checkpoint.ts";
import { notFinite } from "../format/not_finite.ts";
import { checkUnchanged } from "../files/read.ts";
import { sha256 } from "../files/write.ts";
import { scalarKernels } from "../kernels/codec.ts";
import { parseConfig } from "../model/config.ts";
import { checkModel, differing, type Model, openModel } from "../model/load.ts";
import { checkOptions, checkPath, WATCH } from "../options.ts";
import { type Counted, counted, type Watch } from "../pace.ts";
import type { TensorReport } from "../quantize/verify.ts";
import { ENCODE } from "./encode.ts";
import type { ImportedTensor } from "./convert.ts";
import { type ImportPlan, planImport } from "./import.ts";
import { architectureOf, interleaveRows, sourceTensors } from "./names.ts";
import { openParts, PartsReader, type PartTensor } from "./parts.ts";
import type { GgmlType } from "./types.ts";

/** Bytes of a stored tensor that are held in memory at a time, unless its heads are larger. */
const CHUNK_BYTES = 1 << 20;

/** The result of {@link verifyGguf}. */
export interface GgufAgainst {
  /** The files: one, unless the file is split. */
  readonly files: readonly { readonly path: string; readonly digest: string }[];
  /** Bytes of all files. */
  readonly bytes: number;
  /** Number of quantized blocks. */
  readonly blocks: number;
  /** Every tensor with weights, by its name in the file; `row` and `block` are those of the file. */
  readonly tensors: readonly TensorReport[];
}

/**
 * Compares every tensor of a GGUF file with the one that llama.cpp derives from the source. The settings in the metadata
 * that the computation depends on must be those of the source's config.json; the tokenizer is not compared.
 *
 * ```ts
 * import { exportGguf, generateModel, verifyGguf } from "@rabbit/rabbit";
 *
 * const directory = Deno.makeTempDirSync();
 * generateModel(`${directory}/float`);
 * await exportGguf(`${directory}/float`, `${directory}/float.gguf`);
 *
 * const { tensors } = await verifyGguf(`${directory}/float.gguf`, `${directory}/float`);
 * console.log(tensors.every(({ equal }) => equal));
 * Deno.removeSync(directory, { recursive: true });
 * ```
 *
 * @param path the GGUF file; the first part of a split one
 * @param source the float checkpoint: a directory, or a safetensors file
 * @param watch the progress is in bytes of the files, which are read twice
 * @throws {CheckpointError} a file is invalid, or the file describes another model than the source
 * @throws {RabbitError} a tensor has a type that can't be derived, or the blocks of a rabbit checkpoint
 * @throws {SystemError} a file can't be read, or changed in the meantime
 * @throws the reason of the signal
 */
export async function verifyGguf(path: string, source: string, watch: Watch = {}): Promise<GgufAgainst> {
  checkPath("the path of the GGUF file", path);
  checkOptions("verifyGguf", watch, WATCH);
  const model = openSource(source);
  return await runVerify(planVerify(path, model), model, watch);
}

/** {@link verifyGguf} for what is already open. */
export async function runVerify(plan: ImportPlan, model: Model, watch: Watch): Promise<GgufAgainst> {
  const { parts } = plan;
  const bytes = filesBytes(plan);
  const hashes = await Promise.all(parts.map(() => sha256()));
  using stored = new PartsReader(parts);
  using floats = new TensorReader(model.checkpoint);
  const work = function* (): Counted<TensorReport[]> {
    let done = 0;
    const reports: TensorReport[] = [];
    for (const tensor of plan.tensors) {
      let report: TensorReport = { name: tensor.source.name, equal: true };
      for (const { at, found, derived } of derivedChunks(plan, tensor, stored, floats)) {
        const differs = found.findIndex((byte, n) => byte !== derived[n]);
        if (differs >= 0) {
          report = { name: report.name, equal: false, ...placeOf(tensor.source, at + differs) };
          break;
        }
        yield done += found.length;
      }
      reports.push(report);
    }
    const chunk = new Uint8Array(CHUNK_BYTES);
    for (const [n, part] of parts.entries()) {
      for (let at = 0; at < part.bytes; at += CHUNK_BYTES) {
        const some = chunk.subarray(0, Math.min(CHUNK_BYTES, part.bytes - at));
        stored.readAt(part, at, some);
        hashes[n].update(some);
        yield done += some.length;
      }
    }
    return reports;
  };
  const tensors = await counted(work(), 2 * bytes, watch);
  checkUnchanged(parts);
  floats.checkUnchanged();
  return {
    files: parts.map(({ path }, n) => ({ path, digest: hashes[n].digest("hex") })),
    bytes,
    blocks: plan.tensors.reduce((sum, { source: { type, bytes } }) => {
      return sum + (type.blockWeights > 1 ? bytes / type.blockBytes : 0);
    }, 0),
    tensors,
  };
}

/** Bytes of all files of a plan. */
export function filesBytes({ parts }: ImportPlan): number {
  return parts.reduce((sum, { bytes }) => sum + bytes, 0);
}

/**
 * Opens the source of a GGUF file.
 *
 * @throws {CheckpointError} a file is invalid, or a tensor has no float dtype
 * @throws {SystemError} a file can't be read
 */
export function openSource(path: string): Model {
  const model = openModel(path);
  checkModel(model);
  const { files, tensors } = model.checkpoint;
  for (const { name, dtype, file } of tensors) {
    if (FORMATS.get(dtype)?.kind === "float") continue;
    throw new CheckpointError(
      { path: files[file].path, tensor: name, field: "dtype" },
      `${dtype} is not a float; give the float checkpoint that the file was made from`,
    );
  }
  return model;
}

/**
 * Opens a GGUF file, and checks that it describes the model of the source and that its tensors can be derived.
 *
 * @throws {CheckpointError} @throws {RabbitError} @throws {SystemError} see {@link verifyGguf}
 */
export function planVerify(path: string, { checkpoint, config }: Model): ImportPlan {
  const { metadata, tensors } = openParts(path);
  const types = [...ENCODE.keys()].join(", ");
  for (const { name, type, part } of tensors) {
    if (ENCODE.has(type.name)) continue;
    throw new RabbitError(
      `${part.path}: tensor ${quote(name)}: type: ${type.name} can't be derived from floats (${types} can); ` +
        "compare what it computes with what the source computes",
    );
  }
  for (const [name, dtype] of sourceTensors(path, metadata)) {
    if (FORMATS.get(dtype)?.kind !== "block") continue;
    throw new RabbitError(
      `${path}: an export of a rabbit checkpoint (tensor ${
        quote(name)
      } was ${dtype}), whose blocks follow another rule; ` +
        'import it with the dtype "same", and verify that, with the quantization.json of the checkpoint beside it if it has one',
    );
  }
  const plan = planImport(path);
  const settings = parseConfig(path, plan.files.get("config.json")!);
  const wanted = architectureOf(join(checkpoint.directory, "config.json"), config);
  const difference = wanted === plan.architecture
    // Mistral without a window is a llama in GGUF.
    ? differing(config, settings, ["architecture"])
    : `architecture: ${wanted} and ${plan.architecture}`;
  if (difference === undefined) return plan;
  throw new CheckpointError({ path, field: "metadata" }, `the source has another ${difference}`);
}

/** Consecutive bytes of a tensor, from `at` on, and what they are if derived from the source. */
interface DerivedChunk {
  readonly at: number;
  readonly found: Uint8Array;
  readonly derived: Uint8Array;
}

function* derivedChunks(
  { headDim }: ImportPlan,
  { names, source: tensor }: ImportedTensor,
  stored: PartsReader,
  source: TensorReader,
): Generator<DerivedChunk> {
  const { type } = tensor;
  const { dtype, path } = source.find(names.huggingFace)!;
  const place = { path, tensor: names.huggingFace };
  const from = floatNamed(dtype);
  const [rows, columns = 1] = names.shape;
  const [sourceBytes, rowBytes] = [matrixBytes(from, 1, columns), columns / type.blockWeights * type.blockBytes];
  const most = names.interleaved ? headDim : Math.max(1, Math.floor(CHUNK_BYTES / sourceBytes));
  for (let row = 0; row < rows; row += most) {
    const count = Math.min(most, rows - row);
    const raw = new Uint8Array(count * sourceBytes);
    source.read(names.huggingFace, row * sourceBytes, raw);
    const bad = firstNotFinite(from, raw);
    if (bad >= 0) throw notFinite(place, 1, columns, row * columns + bad);
    const ordered = names.interleaved ? interleaveRows(raw, sourceBytes) : raw;
    const weights = new Float32Array(count * columns);
    from.decode(new DataView(ordered.buffer), 0, weights.length, weights);
    const found = new Uint8Array(count * rowBytes);
    stored.read(tensor, row * rowBytes, found);
    const derived = ENCODE.get(type.name)!(weights);
    const high = overflowing(type, derived);
    if (high >= 0) {
      const at = row + Math.floor(high / (columns / type.blockWeights));
      throw new CheckpointError(place, `row ${at}: a weight is too large for ${type.name}`);
    }
    yield { at: row * rowBytes, found, derived };
  }
}

/** The first block that has an infinity, or -1. */
function overflowing({ twin }: GgmlType, blocks: Uint8Array<ArrayBuffer>): number {
  return twin!.kind === "float"
    ? firstNotFinite(twin!, blocks)
    : scalarKernels(blocks.buffer).checkScales(twin!, 0, blocks.length / twin!.blockBytes);
}

/** The place of a byte of a tensor: row and block if it is quantized. */
function placeOf({ shape, type }: PartTensor, byte: number): Pick<TensorReport, "row" | "block" | "byte"> {
  if (type.blockWeights === 1) return { byte };
  const perRow = shape[1] / type.blockWeights;
  const block = Math.floor(byte / type.blockBytes);
  return { row: Math.floor(block / perRow), block: block % perRow };
}
