/**
 * Derives a quantized checkpoint from its source again, file by file.
 *
 * @module
 */

import { basename } from "@std/path/basename";
import { join } from "@std/path/join";
import { CheckpointError } from "../errors.ts";
import { beginsWith, readRegular } from "../files/read.ts";
import { bytesOf, type Checkpoint, INDEX_FILE, memberOf, nameOf, QUANTIZATION_FILE } from "../format/checkpoint.ts";
import { serializeQuantization } from "../format/quantization.ts";
import { serializeIndex, wholeHeader } from "../format/shards.ts";
import type { CalibrationOptions } from "../library/calibration.ts";
import { planRederivation, runRederivation } from "../library/rederive.ts";
import { printed } from "../measure/printed.ts";
import { figureOf } from "../measure/metrics.ts";
import { checkSourceFiles } from "../quantize/digests.ts";
import { type Plan, planQuantize } from "../quantize/quantize.ts";
import { plannedFile } from "../quantize/shards.ts";
import { sidecarsOf } from "../quantize/sidecars.ts";
import { type Against, type TensorReport, verifyAgainst } from "../quantize/verify.ts";
import { digestsOf, sizeOf } from "./files.ts";
import type { Phase } from "./phase.ts";
import type { Derivation, NamedDigest } from "./statement.ts";

/** How a checkpoint is derived. */
export interface DeriveOptions {
  /** Whether a calibration is run again. */
  readonly rederive?: boolean;
  /** The texts of the calibration, in their order; `self` (the default) if the text was sampled. */
  readonly calibrate?: CalibrationOptions["calibrate"];
  /** Threads to use (default: one for each processor). */
  readonly threads?: number;
}

/** What was derived. */
export interface Derived extends Pick<Derivation, "source" | "derived" | "rms"> {
  /** The comparison of all tensors. */
  readonly against: Against;
  /** Whether the blocks of the matrices were derived: not those of a calibrated checkpoint without `rederive`. */
  readonly matrices: boolean;
  /** The files that are derived whether the matrices are or not. */
  readonly least: readonly string[];
  /** The files that are derived if the matrices are. */
  readonly most: readonly string[];
}

/** The largest index or quantization.json. */
const MAX_BYTES = 200_000_000;

/**
 * Derives every file of a checkpoint that its source determines, and compares.
 *
 * @param files the digests of all files of the checkpoint
 * @param checkSource gets the digests of all files of the source, before anything is derived
 * @throws {CheckpointError} a file is not what the source gives; names the file, and what in it
 */
export async function derive(
  checkpoint: Checkpoint,
  source: Checkpoint,
  files: readonly NamedDigest[],
  { rederive = false, calibrate = "self", threads }: DeriveOptions,
  phase: Phase,
  checkSource?: (files: readonly NamedDigest[]) => void,
): Promise<Derived> {
  const of = await phase("source", sizeOf(source.directory, namesOf(source)), "bytes", (watch) => {
    return digestsOf({ ...source, tensors: [] }, namesOf(source), watch);
  });
  checkSource?.(of.files);
  const against = await phase("derive", bytesOf(checkpoint), "bytes", (watch) => {
    return verifyAgainst(checkpoint, source, { threads, ...watch });
  });
  const { quantization } = against;
  checkTensors(checkpoint, source, against.tensors);
  checkHeaders(
    checkpoint,
    planQuantize(source, checkpoint.width, quantization?.method === "signed" ? "signed" : "absmax"),
  );
  const copied = checkCopies(checkpoint, source, of.files, files);
  if (quantization !== undefined) {
    const own = source.files.map(({ path }) => {
      const file = basename(path);
      return { file, sha256: of.files.find(({ name }) => name === file)!.sha256 };
    });
    checkSourceFiles(checkpoint, quantization.source, source, own);
  }
  if (rederive) await runAgain(checkpoint, source, calibrate, threads, phase);
  const [weights, index, description] = [
    checkpoint.files.map(({ path }) => basename(path)),
    holds(checkpoint, INDEX_FILE, indexOf(checkpoint)) ? [INDEX_FILE] : [],
    quantization && holds(checkpoint, QUANTIZATION_FILE, serializeQuantization(quantization))
      ? [QUANTIZATION_FILE]
      : [],
  ];
  const known = new Set([...copied, ...index]);
  const all = new Set([...known, ...weights, ...description]);
  const matrices = quantization?.calibration === undefined || rederive;
  const names = files.map(({ name }) => name);
  const [least, most] = [known, all].map((set) => names.filter((name) => set.has(name)));
  return {
    against,
    matrices,
    source: of.files,
    derived: matrices ? most : least,
    least,
    most,
    rms: printed(figureOf(against.rms), 6),
  };
}

/** The files of a source: weights, index, configuration and tokenizer. */
function namesOf(source: Checkpoint): string[] {
  const index = source.files.length > 1 && memberOf(source.directory, INDEX_FILE) ? [INDEX_FILE] : [];
  return [...source.files.map(({ path }) => basename(path)), ...index, ...sidecarsOf(source)].sort();
}

function checkTensors(checkpoint: Checkpoint, source: Checkpoint, tensors: readonly TensorReport[]): void {
  const wrong = tensors.find(({ equal }) => !equal);
  if (wrong === undefined) return;
  const { name, problem, row, block, byte } = wrong;
  const place = row === undefined ? `byte ${byte}` : `row ${row}, block ${block}`;
  const file = checkpoint.tensors.find((tensor) => tensor.name === name)?.file ?? 0;
  throw new CheckpointError(
    { path: checkpoint.files[file].path, tensor: name },
    problem ?? `${place} is not what ${nameOf(source)} gives`,
  );
}

/** Checks order, metadata and padding, which the comparison of tensors does not. */
function checkHeaders(checkpoint: Checkpoint, plan: Plan): void {
  const planned = new Map(plan.tensors.map((tensor) => [tensor.source.name, tensor]));
  for (const [n, { path }] of checkpoint.files.entries()) {
    const own = checkpoint.tensors.filter(({ file }) => file === n).map(({ name }) => planned.get(name)!);
    const whole = n > 0 || same(wholeHeader(checkpoint), plan.header);
    if (whole && beginsWith(path, plannedFile(basename(path), plan.format, own).header)) continue;
    throw new CheckpointError({ path, field: "header" }, "is not the one that quantizing the source writes");
  }
}

/** Checks that configuration and tokenizer are those of the source. @returns their names */
function checkCopies(
  checkpoint: Checkpoint,
  source: Checkpoint,
  wanted: readonly NamedDigest[],
  found: readonly NamedDigest[],
): string[] {
  const names = new Set([source, checkpoint].flatMap(sidecarsOf));
  return [...names].sort().map((name) => {
    const [there, here] = [wanted, found].map((files) => files.find((file) => file.name === name)?.sha256);
    if (there === here) return name;
    const path = join(checkpoint.directory, name);
    const problem = there === undefined
      ? `${source.directory} has no such file`
      : here === undefined
      ? `is missing, ${source.directory} has it`
      : `is not the file of ${source.directory}`;
    throw new CheckpointError({ path }, problem);
  });
}

async function runAgain(
  checkpoint: Checkpoint,
  source: Checkpoint,
  calibrate: CalibrationOptions["calibrate"],
  threads: number | undefined,
  phase: Phase,
): Promise<void> {
  const planned = await phase("calibration", 0, "parts", ({ signal }) => {
    return planRederivation(checkpoint, source, calibrate, signal);
  });
  const { difference } = await phase(
    "calibration",
    1000,
    "parts",
    ({ signal, progress }) =>
      runRederivation(planned, checkpoint, {
        threads,
        signal,
        progress: (done, total) => progress?.(Math.min(1000, 1000 * done / total), 1000),
      }),
  );
  if (difference === undefined) return;
  const { tensor, row, block } = difference;
  throw new CheckpointError(
    { path: nameOf(checkpoint), tensor },
    `row ${row}, block ${block} is not what the calibration gives when it runs again`,
  );
}

function indexOf({ files, tensors }: Checkpoint): Uint8Array {
  return serializeIndex(files.map(({ path }, n) => ({
    name: basename(path),
    tensors: tensors.filter(({ file }) => file === n),
  })));
}

function holds({ directory }: Checkpoint, name: string, bytes: Uint8Array): boolean {
  const path = memberOf(directory, name);
  return path !== undefined && same(readRegular(path, MAX_BYTES), bytes);
}

function same(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, n) => byte === b[n]);
}
