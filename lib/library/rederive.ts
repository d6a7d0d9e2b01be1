/**
 * Runs the calibration of a checkpoint again, and compares the blocks.
 *
 * @module
 */

import { join } from "@std/path/join";
import { CheckpointError, RabbitError } from "../errors.ts";
import { BLOCK } from "../format/blocks.ts";
import { type Checkpoint, nameOf, openCheckpoint, QUANTIZATION_FILE, TensorReader } from "../format/checkpoint.ts";
import { type MatrixLoss, type Quantization, quantizationOf } from "../format/quantization.ts";
import { nameOfPart } from "../model/tensors.ts";
import type { Calibrated } from "../calibrate/calibrate.ts";
import { checkSourceFiles, fileDigests } from "../quantize/digests.ts";
import { planQuantize } from "../quantize/quantize.ts";
import {
  type CalibrationOptions,
  idsDigest,
  METHOD_VERSION,
  planCalibration,
  type PlannedCalibration,
  runCalibration,
  type RunOptions,
} from "./calibration.ts";

/** What running a calibration again gave. */
export interface Rederived extends Calibrated {
  /** The first block that differs; none if all are the same. */
  readonly difference?: { readonly tensor: string; readonly row: number; readonly block: number };
}

/** A calibration that is ready to run again. */
export interface PlannedRederivation extends PlannedCalibration {
  /** What quantization.json says of the first run. */
  readonly said: Quantization;
}

/**
 * Reads what is needed to run the calibration of a checkpoint again.
 *
 * @param calibrate the texts of the calibration, in their order; `self` if the text was sampled
 * @throws {CheckpointError} the source or a text is another one
 * @throws {RabbitError} the checkpoint is not calibrated, or was made by another version of the method
 */
export async function planRederivation(
  checkpoint: Checkpoint,
  source: Checkpoint,
  calibrate: CalibrationOptions["calibrate"],
  signal?: AbortSignal,
): Promise<PlannedRederivation> {
  const said = described(checkpoint);
  const { version, calibration, source: files } = said;
  if (version !== METHOD_VERSION) {
    throw new RabbitError(
      `${
        nameOf(checkpoint)
      } was calibrated by version ${version} of the method, and this program has ${METHOD_VERSION}`,
    );
  }
  checkSourceFiles(checkpoint, files, source, await fileDigests(source, signal));
  const { texts, tokens, window, seed, damping } = calibration!;
  const given = calibrate === "self" ? [] : calibrate;
  if (given.length !== texts.length) {
    const names = texts.map(({ file }) => file).join(", ");
    const wanted = texts.length === 0
      ? "text that was sampled from the model; give no text"
      : `${texts.length} ${texts.length === 1 ? "text" : "texts"}: ${names}; give these`;
    throw new RabbitError(`${nameOf(checkpoint)} was calibrated with ${wanted}`);
  }
  const plan = planQuantize(source, checkpoint.width);
  const planned = await planCalibration(plan, { calibrate, tokens, window, seed, damping }, texts);
  if (planned.windows) checkIds(checkpoint, calibration!.ids, await idsDigest(planned.windows));
  return { ...planned, said };
}

/** Compares the token ids of a calibration, which depend on the tokenizer, or on the float model's samples. */
function checkIds(checkpoint: Checkpoint, stored: string, found: string): void {
  if (stored === found) return;
  throw new CheckpointError(
    { path: join(checkpoint.directory, QUANTIZATION_FILE), field: "calibration ids" },
    `is ${stored}, but the token ids that were found now have the digest ${found}`,
  );
}

/** Compares the losses, which are those of the same blocks. */
function checkLosses(checkpoint: Checkpoint, stored: readonly MatrixLoss[], found: readonly MatrixLoss[]): void {
  const show = ({ name, before, after }: MatrixLoss) => `${name} ${before} ${after}`;
  const differs = found.findIndex((matrix, n) => stored[n] === undefined || show(matrix) !== show(stored[n]));
  if (differs < 0 && stored.length === found.length) return;
  const at = differs < 0 ? found.length : differs;
  throw new CheckpointError(
    { path: join(checkpoint.directory, QUANTIZATION_FILE), field: `matrices ${at}` },
    "is not what the calibration gives when it runs again",
  );
}

/** What describes a calibrated checkpoint. */
function described(checkpoint: Checkpoint): Quantization {
  const quantization = quantizationOf(checkpoint);
  if (quantization?.calibration !== undefined) return quantization;
  throw new RabbitError(`${nameOf(checkpoint)} is not a calibrated checkpoint, so there is nothing to run again`);
}

/**
 * Runs the calibration of a checkpoint again, and compares every block.
 *
 * @param checkpoint the calibrated checkpoint, which has been verified
 * @throws {CheckpointError} quantization.json has other token ids or losses
 */
export async function runRederivation(
  planned: PlannedRederivation,
  checkpoint: Checkpoint,
  options: RunOptions,
): Promise<Rederived> {
  using reader = new TensorReader(checkpoint);
  const tensors = new Map(checkpoint.tensors.map((tensor) => [tensor.name, tensor]));
  const { blockBytes } = planned.plan.format;
  let difference: Rederived["difference"];
  const compare = (name: string, first: number, blocks: Uint8Array) => {
    const { shape: [, columns] } = tensors.get(name)!;
    const perRow = columns / BLOCK;
    const stored = new Uint8Array(blocks.length);
    reader.read(name, first * perRow * blockBytes, stored);
    const byte = blocks.findIndex((byte, n) => byte !== stored[n]);
    if (byte < 0) return;
    const block = Math.floor(byte / blockBytes);
    difference ??= { tensor: name, row: first + Math.floor(block / perRow), block: block % perRow };
  };
  const [embedding, head] = [nameOfPart("embedding"), nameOfPart("head")];
  const { calibration, matrices, raised } = await runCalibration(planned, (name, first, blocks) => {
    compare(name, first, blocks);
    // Some files have a tied embedding twice.
    if (planned.model.config.tied && name === embedding && tensors.has(head)) compare(head, first, blocks);
  }, options);
  const { said } = planned;
  checkIds(checkpoint, said.calibration!.ids, calibration.ids);
  if (difference === undefined) checkLosses(checkpoint, said.matrices ?? [], matrices);
  return { matrices, raised, ...difference && { difference } };
}

/** Options of {@link rederive}. */
export interface RederiveOptions extends RunOptions {
  /** The texts of the calibration, in their order; `self` (the default) if the text was sampled. */
  readonly calibrate?: CalibrationOptions["calibrate"];
}

/**
 * Runs the calibration of a checkpoint again: the same source, texts and parameters give the same blocks on every machine.
 *
 * @param quant the calibrated checkpoint, or its path
 * @param source the float checkpoint, or its path
 * @throws {CheckpointError} the source or a text is another one
 * @throws {RabbitError} the checkpoint is not calibrated, or was made by another version of the method
 */
export async function rederive(
  quant: Checkpoint | string,
  source: Checkpoint | string,
  { calibrate = "self", ...options }: RederiveOptions = {},
): Promise<Rederived> {
  const [checkpoint, from] = [quant, source].map((each) => typeof each === "string" ? openCheckpoint(each) : each);
  const planned = await planRederivation(checkpoint, from, calibrate, options.signal);
  return await runRederivation(planned, checkpoint, options);
}
