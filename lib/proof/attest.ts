/**
 * Makes a statement on a quantized checkpoint: what it is made of, what it was derived from, and what was measured.
 *
 * @module
 */

import { RabbitError } from "../errors.ts";
import { stat } from "../files/read.ts";
import { type Checkpoint, openCheckpoint } from "../format/checkpoint.ts";
import type { Quantization } from "../format/quantization.ts";
import { openModel, openQuantized } from "../model/load.ts";
import { checkOptions, checkPath, checkString, WATCH } from "../options.ts";
import type { Watch } from "../pace.ts";
import { signBundle } from "./bundle.ts";
import { derive, type DeriveOptions } from "./derive.ts";
import { digestsOf, filesIn, pathWithin, sizeOf } from "./files.ts";
import { readPrivateKey } from "./keys.ts";
import { measureKept, measureText, readGivenText } from "./measure.ts";
import { type Phase, phasesOf } from "./phase.ts";
import {
  type Derivation,
  isTime,
  LEFT_OUT,
  type Program,
  serializeStatement,
  type StatedMethod,
  type Statement,
} from "./statement.ts";

/** What {@link attest} does beside deriving. */
export interface AttestSettings extends DeriveOptions {
  /** The paths of texts (UTF-8) to measure. With one or more, the answers to built-in prompts are measured too. */
  readonly texts?: readonly string[];
  /** When the statement is made (RFC 3339; default: now). */
  readonly time?: string;
  /** The path of the private key to sign with: P-256, in PEM. */
  readonly key?: string;
  /** The path that the statement will have, which it does not list if it is in the checkpoint's directory. */
  readonly output?: string;
  /** The program that makes the statement (default: this library, without a version). */
  readonly program?: Program;
}

/** Options of {@link attest}. Progress counts bytes while files are read, and tokens while texts are measured. */
export interface AttestOptions extends AttestSettings, Watch {}

/** The result of {@link attest}. */
export interface Attested {
  /** What is stated. */
  readonly statement: Statement & { readonly derivation: Derivation };
  /** The file: the statement as canonical JSON, or with a key the Sigstore bundle with it. */
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/**
 * Derives a quantized checkpoint from its source again, measures it, and makes an in-toto statement of both, signed or not.
 * Two calls for equal files with the same `time` give equal statements.
 *
 * ```ts
 * import { attest, generateModel, quantize, verifyAttestation } from "@rabbit/rabbit";
 *
 * const directory = Deno.makeTempDirSync();
 * const [float, q8, path] = ["float", "q8", "q8.json"].map((name) => `${directory}/${name}`);
 * generateModel(float);
 * await quantize(float, q8, { bits: 8 });
 *
 * const { bytes } = await attest(q8, float);
 * Deno.writeFileSync(path, bytes);
 * const { derived } = await verifyAttestation(q8, path, { against: float });
 * console.log(derived);
 * Deno.removeSync(directory, { recursive: true });
 * ```
 *
 * @param checkpoint the directory of the quantized checkpoint
 * @param source the float checkpoint: a directory, or a safetensors file
 * @throws {CheckpointError} the checkpoint is not what the source gives, and there is nothing to state; a file is invalid
 * @throws {RabbitError} the key cannot be used
 * @throws {SystemError} a file cannot be read
 * @throws the reason of the signal
 */
export async function attest(checkpoint: string, source: string, options: AttestOptions = {}): Promise<Attested> {
  checkOptions("attest", options, {
    ...WATCH,
    ...{ rederive: true, calibrate: true, threads: true, texts: true, time: true, key: true, output: true },
    program: true,
  });
  const { signal, progress, ...settings } = options;
  return await attestIn(phasesOf({ signal, progress }), checkpoint, source, settings);
}

/** {@link attest} in phases. */
export async function attestIn(
  phase: Phase,
  path: string,
  sourcePath: string,
  { texts = [], time = new Date().toISOString(), key, output, program = { name: "rabbit", version: "" }, ...how }:
    AttestSettings,
): Promise<Attested> {
  checkString("the time", time);
  if (!isTime(time)) throw new RangeError(`time ${time}: expected RFC 3339, such as 2026-01-31T12:00:00Z`);
  const signer = key === undefined ? undefined : await readPrivateKey(key);
  const [checkpoint, source] = [openDirectory(path), openCheckpoint(sourcePath)];
  const given = await Promise.all(texts.map(readGivenText));
  const same = given.find(({ sha256, name }, n) => {
    return given.slice(0, n).some((other) => other.sha256 === sha256 || other.name === name);
  });
  if (same !== undefined) throw new RabbitError(`${same.path}: the same text, or one of its name, is given twice`);
  const float = given.length > 0 ? openModel(sourcePath) : undefined;
  const models = float && { float, quant: openQuantized(path, float) };
  const own = output === undefined ? undefined : pathWithin(checkpoint.directory, output);
  const ignored = [...LEFT_OUT, ...own === undefined ? [] : [own]];
  const names = filesIn(checkpoint.directory, ignored);
  const { files, tensors } = await phase("digests", sizeOf(checkpoint.directory, names), "bytes", (watch) => {
    return digestsOf(checkpoint, names, watch);
  });
  const { against, matrices, source: materials, derived, rms } = await derive(checkpoint, source, files, how, phase);
  const measured = [];
  for (const text of given) measured.push(await measureText(models!, text, how.threads, phase));
  const format = checkpoint.width!.declaration;
  const reports = new Map(against.tensors.map((report) => [report.name, report]));
  const derivation: Derivation = {
    program,
    time,
    format,
    digest: against.digest!,
    method: statedMethod(against.quantization),
    source: materials,
    derived,
    notDerived: names.filter((name) => !derived.includes(name)),
    rms,
    tensors: checkpoint.tensors.map(({ name, dtype, shape }) => {
      const derived = matrices || !reports.get(name)!.calibrated;
      return { name, sha256: tensors.get(name)!, dtype, shape, derived };
    }),
    ...models && { answers: await measureKept(models, how.threads, phase) },
    texts: measured,
  };
  const statement = { name: format, files, ignored, links: false, derivation };
  const bytes = await serializeStatement(statement);
  return { statement, bytes: signer === undefined ? bytes : await signBundle(bytes, signer) };
}

/** Opens a checkpoint, of which every file of the directory is a part. @throws {RabbitError} it is no directory */
export function openDirectory(path: string): Checkpoint {
  checkPath("the path of the checkpoint", path);
  if (stat(path).isDirectory) return openCheckpoint(path);
  throw new RabbitError(`${path} is a file; a statement is of all files of a directory, so give the directory`);
}

/** How the blocks of a checkpoint were chosen, as a statement has it. */
export function statedMethod(quantization: Quantization | undefined): StatedMethod {
  if (quantization === undefined) return { name: "absmax" };
  const { method: name, version, calibration } = quantization;
  if (calibration === undefined) return { name, version };
  const { texts, tokens, window, seed, damping, ids } = calibration;
  const named = texts.map(({ file: name, sha256 }) => ({ name, sha256 }));
  return { name, version, calibration: { texts: named, tokens, window, seed, damping, ids } };
}
