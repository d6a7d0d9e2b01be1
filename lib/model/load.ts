/**
 * Opens a model (a checkpoint and its config.json), and loads the weights.
 *
 * @module
 */

import { join } from "@std/path/join";
import { CheckpointError, RabbitError } from "../errors.ts";
import { isOpen } from "../options.ts";
import { inTurns, type Watch } from "../pace.ts";
import { exists, readText, realPath } from "../files/read.ts";
import { FORMATS, matrixBytes } from "../format/blocks.ts";
import { type Checkpoint, nameOf, openCheckpoint, TensorReader } from "../format/checkpoint.ts";
import type { Operations } from "../kernels/operations.ts";
import type { Pool } from "../kernels/pool.ts";
import { type Config, parseConfig } from "./config.ts";
import { Llama } from "./llama.ts";
import { checkTensors, tensorsOf, type TensorSource } from "./tensors.ts";

/** The size limit of config.json. */
export const MAX_CONFIG_BYTES = 1_000_000;

/** A checkpoint and its configuration. */
export interface Model {
  readonly checkpoint: Checkpoint;
  readonly config: Config;
}

/**
 * Opens a model.
 *
 * @param from its checkpoint, opened or not
 * @param configPath its configuration (default: config.json in the same directory)
 * @throws {CheckpointError} a file is invalid, or the model is unsupported
 * @throws {SystemError} a file cannot be read
 */
export function openModel(from: string | Checkpoint, configPath?: string): Model {
  const checkpoint = isOpen(from) ? from : openCheckpoint(from);
  return { checkpoint, config: readConfig(configPath ?? join(checkpoint.directory, "config.json")) };
}

/**
 * Opens a model to compare with a float one, which it was usually quantized from. Without a config.json of its own it
 * gets that of the float model; otherwise the two must agree.
 *
 * @param from its checkpoint, opened or not
 * @param configPath the configuration of both (default: config.json in the directory of each)
 * @throws {CheckpointError} `float` is quantized
 * @throws {RabbitError} both are the same files, or the configurations differ; names the field
 */
export function openQuantized(from: string | Checkpoint, float: Model, configPath?: string): Model {
  const checkpoint = isOpen(from) ? from : openCheckpoint(from);
  checkOrder(float.checkpoint, checkpoint);
  if (configPath !== undefined) return { checkpoint, config: readConfig(configPath) };
  const own = join(checkpoint.directory, "config.json");
  if (!exists(own)) return { checkpoint, config: float.config };
  const model = { checkpoint, config: readConfig(own) };
  // GGUF has one name for the architectures of Llama and Mistral; what they compute is in the other fields.
  const free = [float, model].some(({ checkpoint }) => checkpoint.foreign) ? ["architecture" as const] : [];
  const difference = differing(float.config, model.config, free);
  if (difference !== undefined) {
    throw new RabbitError(
      `${nameOf(float.checkpoint)} and ${
        nameOf(model.checkpoint)
      } are not of one architecture: their config.json differ in ${difference}`,
    );
  }
  return model;
}

/** Refuses checkpoints of which the first is no float one, or that are one: their figures would be taken for others. */
function checkOrder(float: Checkpoint, quant: Checkpoint): void {
  if (float.width !== undefined || float.tensors.some(({ stored }) => stored?.quantized)) {
    const [field, type] = float.foreign
      ? ["type", float.foreign.types.join(", ")]
      : [`__metadata__ "format"`, float.width!.name];
    throw new CheckpointError(
      { path: nameOf(float), field },
      `quantized to ${type}; the first checkpoint must be the float one`,
    );
  }
  const [a, b] = [float, quant].map(({ files }) => files.map(({ path }) => realPath(path)));
  if (JSON.stringify(a) === JSON.stringify(b)) {
    throw new RabbitError(
      `${nameOf(float)} and ${nameOf(quant)} are the same checkpoint; compare it with one that was made from it`,
    );
  }
}

/** The first field that differs, with both values. Fields that do not affect the logits are ignored, and `others`. */
export function differing(a: Config, b: Config, others: readonly (keyof Config)[] = []): string | undefined {
  const free: (keyof Config)[] = ["endOfText", "endAssumed", "maxPositions", "window", "rope", "tied", ...others];
  for (const field of Object.keys(a) as (keyof Config)[]) {
    const [x, y] = [JSON.stringify(a[field]), JSON.stringify(b[field])];
    if (!free.includes(field) && x !== y) return `${field}: ${x.slice(0, 60)} and ${y.slice(0, 60)}`;
  }
  return undefined;
}

/** Reads a config.json. @throws {CheckpointError} @throws {SystemError} */
export function readConfig(path: string): Config {
  return parseConfig(path, readText(path, MAX_CONFIG_BYTES));
}

/** @throws {CheckpointError} a tensor of the model is missing, or the checkpoint has an unexpected one */
export function checkModel({ checkpoint, config }: Model): void {
  using reader = new TensorReader(checkpoint);
  checkTensors(config, reader);
}

/** A source of weights: an open checkpoint, or one that is quantized while it is read. */
export interface Source extends TensorSource, Disposable {
  /** @throws {SystemError} a file has changed since it was opened */
  checkUnchanged(): void;
}

/**
 * Starts loading the matrices of a model on the other threads of a pool; {@link loadModel} takes them. What is wrong with
 * the tensors is left to it.
 *
 * @throws {LimitError} there is no room for them
 */
export function loadAhead(pool: Pool, { checkpoint, config }: Model): void {
  using reader = new TensorReader(checkpoint);
  const matrices = [];
  for (const { name, shape } of tensorsOf(config)) {
    const tensor = reader.find(name);
    if (tensor === undefined || String(tensor.shape) !== String(shape)) return;
    const format = FORMATS.get(tensor.dtype);
    const [rows, columns] = shape;
    const place = reader.place(name);
    if (format !== undefined && columns !== undefined && place !== undefined) {
      matrices.push({ format, rows, columns, place });
    }
  }
  pool.loadAhead(matrices);
}

/**
 * Loads the weights of a checkpoint. The parameters are those of {@link Llama}.
 *
 * @param change wraps the source, for tests
 * @throws {CheckpointError} @throws {SystemError} for example a file changed while it was being read
 */
export function loadModel(
  ops: Operations,
  { checkpoint, config }: Model,
  context: number,
  logitRows = 1,
  change: (source: TensorSource) => TensorSource = (source) => source,
): Llama {
  using reader = new TensorReader(checkpoint);
  const model = new Llama(ops, config, change(reader), context, logitRows);
  reader.checkUnchanged();
  return model;
}

/**
 * Loads the weights of a source without blocking the event loop, and closes it. Progress counts bytes.
 *
 * @throws {CheckpointError} @throws {SystemError} as {@link loadModel}
 * @throws the reason of the signal
 */
export async function loadInTurns(
  ops: Operations,
  config: Config,
  source: Source,
  context: number,
  logitRows: number,
  { signal, progress }: Watch,
): Promise<Llama> {
  using opened = source;
  let done = 0;
  const counted: TensorSource = {
    path: opened.path,
    names: opened.names,
    find: (name) => opened.find(name),
    read(name, offset, into) {
      opened.read(name, offset, into);
      done += into.length;
    },
  };
  const bytes = bytesOf(config, opened);
  const loading = Llama.loading(ops, config, counted, context, logitRows);
  const model = await inTurns(loading, signal, () => progress?.(Math.min(done, bytes), bytes));
  opened.checkUnchanged();
  progress?.(bytes, bytes);
  return model;
}

/** The size of the tensors of a model, in bytes. */
function bytesOf(config: Config, source: TensorSource): number {
  let bytes = 0;
  for (const { name } of tensorsOf(config)) {
    const { dtype, shape } = source.find(name) ?? {};
    const format = FORMATS.get(dtype ?? "");
    if (format === undefined || shape === undefined) return bytes;
    const [rows, columns] = shape.length === 1 ? [1, shape[0]] : shape;
    bytes += matrixBytes(format, rows, columns);
  }
  return bytes;
}
