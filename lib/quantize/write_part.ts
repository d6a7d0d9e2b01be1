/**
 * Quantizes one part of a checkpoint, so that several machines can share the work. A part is written under its final
 * name, complete or not at all, with a record of its digest; merge.ts puts the parts together.
 *
 * @module
 */

import { checkOptions, WATCH } from "../options.ts";
import { join } from "@std/path/join";
import { CheckpointError, Refusal } from "../errors.ts";
import { beginsWith, exists, openRegular } from "../files/read.ts";
import { holds, INCOMPLETE_FILE, NewFiles } from "../files/new_files.ts";
import { sha256 } from "../files/write.ts";
import { SCALE_RULES } from "../format/blocks.ts";
import { INDEX_FILE, MODEL_FILE } from "../format/checkpoint.ts";
import { BESIDE, checkSource, staleFile } from "../format/outputs.ts";
import type { Watch } from "../pace.ts";
import { digestOf } from "./digests.ts";
import {
  disagreement,
  fingerprint,
  type PartRecord,
  PARTS_VERSION,
  readRecords,
  recordName,
  serializeRecord,
} from "./part_record.ts";
import { type Part, planPart } from "./parts.ts";
import { type Plan, type Quantized, type QuantizeOptions, writeWeights } from "./quantize.ts";
import { leftOut, readSidecar, sidecarsOf } from "./sidecars.ts";
import type { PlannedFile } from "./shards.ts";

/** The result of {@link quantizePart}. */
export interface QuantizedPart extends Quantized {
  /** Whether the part was there already, with its digest. */
  readonly skipped: boolean;
}

/** What the record of a part will say, but for the digest of its file. */
type Expected = Omit<PartRecord, "sha256">;

/**
 * Quantizes one of several parts of a planned checkpoint into the directory of all of them. Part 1 also copies the
 * tokenizer and the configuration. A part that is finished is recognized by its digest, and not written again; a part may
 * be run twice at the same time.
 *
 * @param plan the whole checkpoint
 * @returns `digest` is that of the part's file
 * @throws {CheckpointError} as quantize; or the directory has parts of another checkpoint
 * @throws {Refusal} the directory is the source's, contains a checkpoint, or a different file has the part's name and
 * `force` is not set
 * @throws {SystemError} for example the disk is full
 */
export async function quantizePart(
  plan: Plan,
  directory: string,
  part: Part,
  options: QuantizeOptions = {},
): Promise<QuantizedPart> {
  checkOptions("quantizePart", options, { ...WATCH, force: true, threads: true });
  const { force = false, threads, signal, progress } = options;
  if (plan.rule !== SCALE_RULES[0]) throw new RangeError("parts are made by the format's own rule");
  const planned = planPart(plan, part);
  const [file] = planned.files;
  const path = join(directory, file.name);
  const { own, expected } = await checkPart(plan, directory, part, force, signal);
  const { sourceBytes } = planned;
  const result = (digest: string, skipped: boolean, damage?: string): QuantizedPart => {
    return { model: path, bytes: file.bytes, sourceBytes, digest, damage, ...leftOut(plan.source), skipped };
  };
  if (own !== undefined) {
    if (await isWhole(path, own, { signal, progress })) return result(own.sha256, true);
    checkDirectory(directory, undefined, force);
  }
  if (part.number === 1) copySidecars(plan, directory);

  using files = new NewFiles(directory);
  const digest = (await sha256()).update(file.header);
  const damage = await writeWeights(planned, [files.create(file.name, file.bytes)], digest, {
    threads,
    signal,
    progress,
  });
  const record = { ...expected, sha256: digest.digest("hex") };
  // Another process may have written the same part in the meantime.
  const other = readRecords(directory).get(join(directory, recordName(part)));
  const done = own === undefined && other?.sha256 === record.sha256 && exists(path) && openSize(path) === file.bytes;
  if (!done) {
    files.commit();
    writeOne(directory, recordName(part), serializeRecord(record));
  }
  return result(record.sha256, false, damage);
}

function openSize(path: string): number {
  const { file, bytes } = openRegular(path);
  file.close();
  return bytes;
}

/**
 * Checks that a part can be written to a directory.
 *
 * @returns the record of the part if it was finished, and what it must say
 * @throws {CheckpointError} @throws {Refusal} as {@link quantizePart}
 */
export async function checkPart(
  plan: Plan,
  directory: string,
  part: Part,
  force: boolean,
  signal?: AbortSignal,
): Promise<{ readonly own?: PartRecord; readonly expected: Expected }> {
  checkSource(directory, plan.source);
  const [file] = planPart(plan, part).files;
  const expected: Expected = {
    version: PARTS_VERSION,
    format: plan.format.declaration,
    part: part.number,
    parts: part.count,
    source: await fingerprint(plan.source, signal),
    header: (await sha256()).update(plan.header).digest("hex"),
    bytes: file.bytes,
  };
  const own = ownRecord(directory, part, expected, force);
  if (own === undefined) checkDirectory(directory, file, force);
  checkSidecars(plan, directory, force);
  return { own, expected };
}

/** Writes a small file of its own. The others of the directory may be written by other machines at the same time. */
function writeOne(directory: string, name: string, bytes: Uint8Array): void {
  using files = new NewFiles(directory);
  files.write(name, bytes);
  files.commit();
}

/**
 * The record of the part, if it was finished.
 *
 * @throws {CheckpointError} the directory has parts of another checkpoint
 * @throws {Refusal} the part of another checkpoint has its name, and `force` is not set
 */
function ownRecord(directory: string, part: Part, expected: Expected, force: boolean): PartRecord | undefined {
  let own: PartRecord | undefined;
  for (const [path, record] of exists(directory) ? readRecords(directory) : []) {
    const problem = disagreement(record, expected);
    const same = record.part === part.number && record.parts === part.count;
    if (same && problem === undefined) own = record;
    if (problem === undefined || same && force) continue;
    if (same) throw new Refusal("exists", path, `${path} exists already: the part there ${problem}`);
    throw new CheckpointError({ path }, `the part there ${problem}; remove it or choose another directory`);
  }
  return own?.bytes === expected.bytes ? own : undefined;
}

/** Whether the file of a part has the size and the digest of its record. */
async function isWhole(path: string, record: PartRecord, watch: Watch): Promise<boolean> {
  if (!exists(path)) return false;
  const { file: opened, bytes } = openRegular(path);
  using file = opened;
  return bytes === record.bytes && await digestOf({ file, path, bytes }, watch) === record.sha256;
}

/**
 * Checks that a directory has no checkpoint, and no other file with the name of a part.
 *
 * @param file the file of the part, if there is no record of it
 * @throws {Refusal} the directory contains a checkpoint, or, without `force`, another file of the same name
 */
function checkDirectory(directory: string, file: PlannedFile | undefined, force: boolean): void {
  if (!exists(directory)) return;
  const complete = [INDEX_FILE, MODEL_FILE].find((name) => exists(join(directory, name)));
  if (complete !== undefined) {
    throw new Refusal(
      "sharded",
      directory,
      `${directory} contains a checkpoint (${complete}); choose another directory or remove it first`,
    );
  }
  if (exists(join(directory, INCOMPLETE_FILE))) {
    throw new Refusal(
      "stale",
      directory,
      `a write of ${directory} was interrupted (${INCOMPLETE_FILE}); remove the directory or choose another`,
    );
  }
  if (force || file === undefined) return;
  const path = join(directory, file.name);
  // A process that was killed before it wrote the record has left the part: it is replaced.
  if (exists(path) && !beginsWith(path, file.header)) {
    throw new Refusal("exists", path, `${path} exists already`);
  }
}

/** @throws {Refusal} the directory has a companion that the source lacks, or, without `force`, a different one */
function checkSidecars({ source }: Plan, directory: string, force: boolean): void {
  const names = sidecarsOf(source);
  for (const name of BESIDE) {
    const path = join(directory, name);
    if (!exists(path)) continue;
    if (!names.includes(name)) throw staleFile(path);
    if (!force && !holds(path, readSidecar(source, name))) {
      throw new Refusal("exists", path, `${path} exists already`);
    }
  }
}

function copySidecars({ source }: Plan, directory: string): void {
  for (const name of sidecarsOf(source)) writeOne(directory, name, readSidecar(source, name));
}
