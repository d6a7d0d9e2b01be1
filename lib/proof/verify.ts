/**
 * Verifies a statement on a checkpoint: its signature, its digests, the derivation, and the figures.
 *
 * @module
 */

import { basename } from "@std/path/basename";
import { join } from "@std/path/join";
import { CheckpointError, quote, RabbitError } from "../errors.ts";
import { exists, readText, stat } from "../files/read.ts";
import { bytesOf, type Checkpoint, openCheckpoint } from "../format/checkpoint.ts";
import { isObject, JsonFields } from "../format/json_fields.ts";
import { quantizationOf } from "../format/quantization.ts";
import { longestContext } from "../model/config.ts";
import { openModel, openQuantized } from "../model/load.ts";
import { checkOptions, checkPath, WATCH } from "../options.ts";
import type { Watch } from "../pace.ts";
import { type Verified, verify } from "../quantize/verify.ts";
import { openDirectory, statedMethod } from "./attest.ts";
import { type Bundle, checkSignature, parseBundle } from "./bundle.ts";
import { canonical, type Json, parseStrict } from "./canonical.ts";
import { derive, type Derived, type DeriveOptions } from "./derive.ts";
import { digestsOf, filesIn, pathWithin, sizeOf } from "./files.ts";
import { readPublicKey } from "./keys.ts";
import { type GivenText, measureKept, measureText, readGivenText } from "./measure.ts";
import { type Phase, phasesOf } from "./phase.ts";
import {
  type Derivation,
  GIT_FILES,
  LEFT_OUT,
  type MeasuredText,
  type NamedDigest,
  parseStatement,
  type Statement,
} from "./statement.ts";

/** The longest file: a line for each of a million tensors. */
const MAX_BYTES = 400_000_000;

/** What {@link verifyAttestation} checks beside the digests. */
export interface VerifyAttestationSettings extends DeriveOptions {
  /** The float checkpoint: derive the checkpoint again. */
  readonly against?: string;
  /** The path of the public key of the signature: P-256, in PEM. */
  readonly publicKey?: string;
  /** The paths of texts: measure them again, with the models of `against`. */
  readonly texts?: readonly string[];
}

/** Options of {@link verifyAttestation}. Progress counts bytes while files are read, and tokens while texts are measured. */
export interface VerifyAttestationOptions extends VerifyAttestationSettings, Watch {}

/** What was checked, and is true. */
export interface VerifiedAttestation {
  /** What is stated. */
  readonly statement: Statement;
  /** `valid`; or `unchecked` if no key was given; or `none` if the file is not signed. */
  readonly signature: "valid" | "unchecked" | "none";
  /** The hint to the key of the signature: SHA-256 of the public key as PEM. */
  readonly key?: string;
  /** The checkpoint itself, whose files have the stated digests. */
  readonly verified: Verified;
  /** Whether the checkpoint was derived from its source; the blocks of a calibrated one only with `rederive`. */
  readonly derived: boolean;
  /** Number of tensors whose bytes were derived. */
  readonly derivedTensors: number;
  /** The names of the stated texts that were measured, with the stated figures. */
  readonly measured: readonly string[];
}

/**
 * Verifies a statement of {@link attest}, or a signature that model_signing made with a key, on a checkpoint.
 *
 * @param checkpoint the directory of the checkpoint
 * @param attestation the path of the statement, or of the bundle with a signed one
 * @throws {CheckpointError} the statement is invalid, or does not hold; names the field
 * @throws {RabbitError} the key cannot be used, or the statement has no such part
 * @throws {SystemError} a file cannot be read
 * @throws the reason of the signal
 */
export async function verifyAttestation(
  checkpoint: string,
  attestation: string,
  options: VerifyAttestationOptions = {},
): Promise<VerifiedAttestation> {
  checkOptions("verifyAttestation", options, {
    ...WATCH,
    ...{ rederive: true, calibrate: true, threads: true, against: true, publicKey: true, texts: true },
  });
  const { signal, progress, ...settings } = options;
  return await verifyAttestationIn(phasesOf({ signal, progress }), checkpoint, attestation, settings);
}

/** {@link verifyAttestation} in phases. */
export async function verifyAttestationIn(
  phase: Phase,
  path: string,
  attestation: string,
  { against, publicKey, texts = [], ...how }: VerifyAttestationSettings,
): Promise<VerifiedAttestation> {
  checkPath("the path of the attestation", attestation);
  if (texts.length > 0 && against === undefined) throw new RabbitError("to measure a text, give the source too");
  if (how.rederive && against === undefined) throw new RabbitError("to run a calibration again, give the source too");
  const key = publicKey === undefined ? undefined : { name: publicKey, key: await readPublicKey(publicKey) };
  const checkpoint = openDirectory(path);
  const source = against === undefined ? undefined : openCheckpoint(against);
  const { statement, bundle, fields } = await readAttestation(attestation);
  if (key !== undefined && bundle === undefined) {
    throw fields.fail("dsseEnvelope", "is missing: the file is not signed");
  }
  if (key !== undefined) await checkSignature(fields, bundle!, key);
  const files = await checkFiles(checkpoint, attestation, statement, phase);
  const { derivation } = statement;
  const fail = (field: string, problem: string) => fields.fail(`rabbit ${field}`, problem);
  let derived: Derived | undefined;
  let verified: Verified;
  if (source === undefined) {
    verified = await phase("verify", bytesOf(checkpoint), "bytes", (watch) => {
      return verify(checkpoint, { threads: how.threads, ...watch });
    });
  } else {
    derived = await derive(checkpoint, source, files, how, phase, (found) => {
      if (derivation !== undefined) checkSource(against!, found, derivation, fail);
    });
    verified = derived.against;
  }
  if (derivation !== undefined) checkStated(checkpoint, verified, derivation, fail);
  if (derivation !== undefined && derived !== undefined) checkDerived(derived, derivation, fail);
  const given = await Promise.all(texts.map(readGivenText));
  const wanted = given.map((text) => statedText(text, derivation, fail));
  if (given.length > 0) await checkFigures(path, against!, given, wanted, derivation!, how.threads, phase, fail);
  return {
    statement,
    signature: bundle === undefined ? "none" : key === undefined ? "unchecked" : "valid",
    ...bundle && { key: bundle.hint },
    verified,
    derived: derived !== undefined,
    derivedTensors: derived?.against.tensors.filter(({ calibrated }) => derived.matrices || !calibrated).length ?? 0,
    measured: wanted.map(({ name }) => name),
  };
}

/** The error for a part of the statement that does not hold. */
type Fail = (field: string, problem: string) => CheckpointError;

/** A file that was read. */
interface Attestation {
  readonly statement: Statement;
  /** Undefined if the file is not signed. */
  readonly bundle?: Bundle;
  readonly fields: JsonFields;
}

/**
 * Reads a statement, or a bundle with one.
 *
 * @throws {CheckpointError} it is neither; names the field
 * @throws {RabbitError} the bundle is signed in another way than by a key
 * @throws {SystemError}
 */
export async function readAttestation(path: string): Promise<Attestation> {
  const text = readText(path, MAX_BYTES);
  const json = parseStrict(path, text);
  if (!isObject(json)) throw new CheckpointError({ path }, "expected a statement or a bundle, an object of JSON");
  const fields = new JsonFields(path, json);
  if (!fields.has("mediaType")) return { statement: await parseStatement(path, text), fields };
  const bundle = parseBundle(fields);
  let payload: string;
  try {
    payload = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bundle.payload);
  } catch {
    throw fields.fail("dsseEnvelope payload", "not valid UTF-8");
  }
  return { statement: await parseStatement(path, payload), bundle, fields };
}

/** Compares the digests of all files. */
async function checkFiles(
  checkpoint: Checkpoint,
  path: string,
  { files: stated, ignored, links, derivation }: Statement,
  phase: Phase,
): Promise<NamedDigest[]> {
  const { directory } = checkpoint;
  const own = pathWithin(directory, path);
  // A statement leaves itself out; a copy of it may be verified.
  for (const name of derivation === undefined ? [] : ignored.slice(LEFT_OUT.length)) {
    const there = join(directory, name);
    if (
      name === own || !exists(there) || stat(there).isFile && readText(there, MAX_BYTES) === readText(path, MAX_BYTES)
    ) {
      continue;
    }
    throw new CheckpointError({ path, field: "ignore_paths" }, `leaves out ${quote(name)}, which is not the statement`);
  }
  const names = filesIn(directory, [...GIT_FILES, ...ignored, ...own === undefined ? [] : [own]], links);
  const fail = (name: string, problem: string) => {
    return new CheckpointError({ path, field: `resources ${quote(name)}` }, problem);
  };
  const missing = stated.find(({ name }) => !names.includes(name));
  if (missing !== undefined) throw fail(missing.name, `is not in ${directory}`);
  const extra = names.find((name) => !stated.some((file) => file.name === name));
  if (extra !== undefined) throw fail(extra, `is missing, but ${directory} has such a file`);
  const { files, tensors } = await phase("digests", sizeOf(directory, names), "bytes", (watch) => {
    return digestsOf(checkpoint, names, watch);
  });
  for (const { name, sha256 } of stated) {
    const found = files.find((file) => file.name === name)!.sha256;
    if (found !== sha256) throw fail(name, `is stated with the SHA-256 ${sha256}, but the file has ${found}`);
  }
  if (derivation !== undefined) checkTensors(checkpoint, path, derivation, tensors);
  return files;
}

function checkTensors(
  checkpoint: Checkpoint,
  path: string,
  derivation: Derivation,
  digests: ReadonlyMap<string, string>,
): void {
  const stated = new Map(derivation.tensors.map((tensor) => [tensor.name, tensor]));
  const fail = (name: string, problem: string) => {
    return new CheckpointError({ path, tensor: name, field: "rabbit tensors" }, problem);
  };
  for (const { name, dtype, shape } of checkpoint.tensors) {
    const tensor = stated.get(name);
    const found = digests.get(name)!;
    if (tensor === undefined) throw fail(name, "is missing, but the checkpoint has it");
    if (tensor.dtype !== dtype || String(tensor.shape) !== String(shape)) {
      throw fail(name, `is stated as ${tensor.dtype} [${tensor.shape}], but is ${dtype} [${shape}]`);
    }
    if (tensor.sha256 !== found) throw fail(name, `is stated with the SHA-256 ${tensor.sha256}, but has ${found}`);
    stated.delete(name);
  }
  for (const name of stated.keys()) throw fail(name, "is stated, but the checkpoint does not have it");
}

/** Compares what the checkpoint says of itself. */
function checkStated(checkpoint: Checkpoint, { digest }: Verified, stated: Derivation, fail: Fail): void {
  const format = checkpoint.width?.declaration ?? "none";
  if (stated.format !== format) throw fail("format", `is ${quote(stated.format)}, but the checkpoint has ${format}`);
  if (stated.digest !== digest) throw fail("digest", `is ${stated.digest}, but the checkpoint has ${digest}`);
  const method = statedMethod(quantizationOf(checkpoint));
  const [wanted, found] = [stated.method, method].map((value) => canonical(value as unknown as Json));
  if (wanted !== found) throw fail("method", `is ${wanted}, but the checkpoint was made by ${found}`);
  checkClaims(checkpoint, stated, fail);
}

/** Compares the files of the source. */
function checkSource(path: string, found: readonly NamedDigest[], stated: Derivation, fail: Fail): void {
  for (const { name, sha256 } of found) {
    const wanted = stated.source.find((file) => file.name === name)?.sha256;
    const field = `resolvedDependencies ${quote(name)}`;
    if (wanted === undefined) throw fail(field, `is missing, but ${path} has it: is it another source?`);
    if (wanted !== sha256) {
      throw fail(field, `has the SHA-256 ${wanted}, but that of ${path} has ${sha256}: it is another source`);
    }
  }
  const extra = stated.source.find(({ name }) => !found.some((file) => file.name === name));
  if (extra !== undefined) {
    throw fail(`resolvedDependencies ${quote(extra.name)}`, `is not in ${path}: is it another source?`);
  }
}

/** Compares what was derived. */
function checkDerived(found: Derived, stated: Derivation, fail: Fail): void {
  if (stated.rms !== found.rms) throw fail("rms", `is ${stated.rms}, but ${found.rms} was found`);
  // The statement may say less of a calibrated checkpoint, or more than was derived now.
  if ([found.least, found.most].every((names) => !sameNames(names, stated.derived))) {
    throw fail("derived", `is ${stated.derived.join(", ")}; the source gives ${found.most.join(", ")}`);
  }
}

function sameNames(a: readonly string[], b: readonly string[]): boolean {
  return canonical(a.toSorted()) === canonical(b.toSorted());
}

/** Checks that a statement agrees with itself in what was derived. */
function checkClaims(checkpoint: Checkpoint, { method, tensors, derived }: Derivation, fail: Fail): void {
  const weights = checkpoint.files.map(({ path }) => basename(path));
  const all = weights.every((name) => derived.includes(name));
  if (!all && (method.calibration === undefined || weights.some((name) => derived.includes(name)))) {
    throw fail("notDerived", `has ${quote(weights.find((name) => !derived.includes(name))!)}, which has to be derived`);
  }
  const wrong = tensors.find((tensor) => {
    return tensor.derived !== (all || tensor.dtype !== checkpoint.width?.name);
  });
  if (wrong !== undefined) {
    throw fail(`tensors ${quote(wrong.name)} derived`, `is ${wrong.derived}, which derived contradicts`);
  }
}

/** What is stated of a text. */
function statedText({ path, name, sha256 }: GivenText, derivation: Derivation | undefined, fail: Fail): MeasuredText {
  const stated = derivation?.texts ?? [];
  const found = stated.find((text) => text.sha256 === sha256);
  if (found !== undefined) return found;
  const other = stated.find((text) => text.name === name);
  throw other === undefined ? fail("texts", `has no figures of ${path}, whose SHA-256 is ${sha256}`) : fail(
    `texts ${quote(name)}`,
    `has the SHA-256 ${other.sha256}, but ${path} has ${sha256}: the text was changed, or is another one`,
  );
}

/** Measures texts and answers again. */
async function checkFigures(
  path: string,
  source: string,
  given: readonly GivenText[],
  wanted: readonly MeasuredText[],
  { answers }: Derivation,
  threads: number | undefined,
  phase: Phase,
  fail: Fail,
): Promise<void> {
  const float = openModel(source);
  const models = { float, quant: openQuantized(path, float) };
  const longest = Math.min(...[float, models.quant].map(({ config }) => longestContext(config)));
  for (const [n, text] of given.entries()) {
    const stated = wanted[n];
    const field = `texts ${quote(stated.name)}`;
    if (stated.window > longest || stated.stride > stated.window) {
      throw fail(field, `has a window of ${stated.window} and a stride of ${stated.stride}, the context is ${longest}`);
    }
    const { figures, ...found } = await measureText(models, text, threads, phase, stated);
    compare(field, stated.figures, figures, fail);
    for (const key of ["tokens", "scored"] as const) {
      if (stated[key] !== found[key]) {
        throw fail(`${field} ${key}`, `is ${stated[key]}, but ${found[key]} was measured`);
      }
    }
  }
  if (answers === undefined) throw fail("answers", "is missing, although texts were measured");
  const kept = await measureKept(models, threads, phase);
  compare("answers", { stated: answers }, { stated: kept }, fail);
}

type Groups = Readonly<Record<string, unknown>>;

/** Compares figures to the last digit. */
function compare(field: string, stated: Groups, found: Groups, fail: Fail): void {
  const flat = (groups: Groups): Map<string, unknown> =>
    new Map(
      Object.entries(groups).flatMap(([word, group]) => {
        return Object.entries(group as Groups).map((
          [key, figure],
        ) => [`${word} ${key}`.replace(/^stated /, ""), figure]);
      }),
    );
  const [wanted, measured] = [flat(stated), flat(found)];
  for (const key of new Set([...measured.keys(), ...wanted.keys()])) {
    const [a, b] = [wanted, measured].map((figures) => figures.get(key) ?? "missing");
    if (a !== b) throw fail(`${field} ${key}`, `is ${a}, but ${b} was measured`);
  }
}
