/**
 * Merges the parts of a quantized checkpoint that several machines wrote (write_part.ts) into the checkpoint that one
 * machine would have written.
 *
 * @module
 */

import { checkOptions, WATCH } from "../options.ts";
import type { Hash } from "node:crypto";
import { basename } from "@std/path/basename";
import { join } from "@std/path/join";
import { CheckpointError, Refusal, systemError } from "../errors.ts";
import { beginsWith, exists, readAt, reopen, writeAt } from "../files/read.ts";
import { NewFiles, versionAt } from "../files/new_files.ts";
import { system } from "../files/system.ts";
import { sha256 } from "../files/write.ts";
import { type BlockFormat, declarationOf } from "../format/blocks.ts";
import { type Checkpoint, collect, INDEX_FILE, memberOf, MODEL_FILE, QUANTIZATION_FILE } from "../format/checkpoint.ts";
import { shardsIn } from "../format/given.ts";
import { staleFile } from "../format/outputs.ts";
import { serializeHeader } from "../format/safetensors.ts";
import { serializeIndex, shardName } from "../format/shards.ts";
import { pacer, type Watch } from "../pace.ts";
import { disagreement, type PartRecord, readRecords } from "./part_record.ts";

/** A tensor of the merged checkpoint. */
export interface MergedTensor {
  /** Its name. */
  readonly name: string;
  /** The name of its format. */
  readonly dtype: string;
  /** Rows and columns of a matrix, the length of a vector. */
  readonly shape: readonly number[];
  /** Its size. */
  readonly bytes: number;
}

/** A file of the merged checkpoint. */
export interface MergedFile {
  /** Its name. */
  readonly name: string;
  /** Its length field and header. */
  readonly header: Uint8Array<ArrayBuffer>;
  /** Its tensors, in the order of their data. */
  readonly tensors: readonly MergedTensor[];
  /** Its size. */
  readonly bytes: number;
  /** Indexes of the parts with its data. */
  readonly parts: readonly number[];
}

/** What merging will do, from records and headers alone. */
export interface MergePlan {
  /** The directory. */
  readonly directory: string;
  /** The width. */
  readonly format: BlockFormat;
  /** The parts: their files and tensors. */
  readonly parts: Checkpoint;
  /** The records of the parts, by their paths. */
  readonly records: ReadonlyMap<string, PartRecord>;
  /** The length field and header of the checkpoint as one file. */
  readonly header: Uint8Array<ArrayBuffer>;
  /** The files of the merged checkpoint. */
  readonly files: readonly MergedFile[];
  /** Whether the parts are these files, so that only the index is written. */
  readonly inPlace: boolean;
  /** Size of the merged files. */
  readonly bytes: number;
  /** Number of tensors. */
  readonly tensors: number;
}

/** The result of {@link merge}. */
export interface Merged {
  /** Path of the merged file, or of the index of the shards. */
  readonly model: string;
  /** SHA-256 of the checkpoint as one file, in hexadecimal. */
  readonly digest: string;
}

/**
 * Plans a merge: the parts become the shards of the checkpoint. Parts with rows of one matrix are joined.
 *
 * @param single make one file
 * @throws {CheckpointError} there are no parts, one is missing, or they are not of one checkpoint; names the part
 * @throws {SystemError}
 */
export function planMerge(directory: string, single = false): MergePlan {
  const records = readRecords(directory);
  const [first] = records.values();
  if (first === undefined) refuseNoParts(directory);
  for (const [path, record] of records) {
    const problem = disagreement(record, first);
    if (problem === undefined) continue;
    throw new CheckpointError(
      { path },
      `the part there ${problem}, as part ${first.part} of ${first.parts} is; remove it`,
    );
  }
  const sorted = [...records.values()];
  for (let number = 1; number <= first.parts; number++) {
    if (sorted[number - 1]?.part === number) continue;
    throw new CheckpointError(
      { path: directory },
      `part ${number} of ${first.parts} is missing or not finished; write it, and merge again`,
    );
  }
  const paths = sorted.map(({ part, parts }) => {
    const name = shardName(part, parts);
    const path = memberOf(directory, name);
    if (path !== undefined) return path;
    throw new CheckpointError({ path: directory }, `part ${part} of ${parts} is missing (${name}); write it again`);
  });
  const parts = collect(directory, directory, paths);
  for (const [n, { path, bytes }] of parts.files.entries()) {
    if (bytes !== sorted[n].bytes) throw changed(path, `${bytes} bytes`, `${sorted[n].bytes} bytes`);
    const declared = parts.width?.declaration ?? "none";
    if (declared !== sorted[n].format) throw changed(path, `format ${declared}`, sorted[n].format);
  }
  const format = parts.width!;
  const groups = single ? [sorted.map((_, n) => n)] : groupsOf(parts);
  const files = groups.map((group, n) => {
    const name = groups.length === 1 ? MODEL_FILE : shardName(n + 1, groups.length);
    return mergedFile(name, format, joined(parts, group), group);
  });
  const whole = files.length === 1
    ? files[0]
    : mergedFile(MODEL_FILE, format, files.flatMap(({ tensors }) => tensors), []);
  return {
    directory,
    format,
    parts,
    records,
    header: whole.header,
    files,
    inPlace: files.length === sorted.length && sorted.length > 1,
    bytes: files.reduce((sum, { bytes }) => sum + bytes, 0),
    tensors: whole.tensors.length,
  };
}

function refuseNoParts(directory: string): never {
  const complete = [INDEX_FILE, MODEL_FILE].find((name) => exists(join(directory, name)));
  throw new CheckpointError(
    { path: directory },
    complete === undefined
      ? "no parts of a checkpoint in this directory"
      : `no parts of a checkpoint in this directory, but a complete one (${complete}); is it merged already?`,
  );
}

function changed(path: string, found: string, wanted: string): CheckpointError {
  return new CheckpointError({ path }, `${found}, but its record says ${wanted}; the part was changed, write it again`);
}

/** The parts of each shard: one, or several that have rows of one matrix, or no tensors. */
function groupsOf({ files, tensors }: Checkpoint): number[][] {
  const groups: number[][] = [];
  for (const file of files.keys()) {
    const own = tensors.filter((tensor) => tensor.file === file);
    const before = tensors.filter((tensor) => tensor.file < file).at(-1);
    const follows = own.length === 0 || before === undefined || before.name === own[0].name;
    if (groups.length > 0 && follows) groups.at(-1)!.push(file);
    else groups.push([file]);
  }
  return groups;
}

/** The tensors of some parts, with the rows of a matrix joined. */
function joined({ tensors }: Checkpoint, parts: readonly number[]): MergedTensor[] {
  const merged: MergedTensor[] = [];
  for (const { name, dtype, shape, bytes, file } of tensors) {
    if (!parts.includes(file)) continue;
    const last = merged.at(-1);
    if (last?.name !== name) merged.push({ name, dtype, shape, bytes });
    else {
      const [rows, columns] = last.shape;
      merged[merged.length - 1] = { name, dtype, shape: [rows + shape[0], columns], bytes: last.bytes + bytes };
    }
  }
  return merged;
}

function mergedFile(
  name: string,
  format: BlockFormat,
  tensors: readonly MergedTensor[],
  parts: readonly number[],
): MergedFile {
  const header = serializeHeader(declarationOf(format), tensors);
  return { name, header, tensors, parts, bytes: tensors.reduce((sum, { bytes }) => sum + bytes, header.length) };
}

/**
 * Merges parts. The digest of each is checked first; then the index is written, or the files of the merged checkpoint,
 * and then the parts are removed.
 *
 * @param force overwrite existing files of weights
 * @throws {CheckpointError} a part has another digest than its record, or the parts don't form the planned checkpoint
 * @throws {Refusal} the directory contains a checkpoint, and `force` is not set
 * @throws {SystemError} for example the disk is full, or another process merges the parts; the parts remain
 */
export async function merge(
  plan: MergePlan,
  options: Watch & { readonly force?: boolean } = {},
): Promise<Merged> {
  checkOptions("merge", options, { ...WATCH, force: true });
  const { force = false, signal, progress } = options;
  const { directory, files: merged, inPlace, header, parts, records } = plan;
  const [{ header: planned }] = records.values();
  const own = (await sha256()).update(header).digest("hex");
  if (own !== planned) {
    throw new CheckpointError({ path: directory }, "the parts do not form the planned checkpoint; write them again");
  }
  const index = merged.length > 1 ? serializeIndex(merged) : undefined;
  const starts = new Map([
    ...inPlace ? [] : merged.map(({ name, header }): [string, Uint8Array] => [name, header]),
    ...index ? [[INDEX_FILE, index] satisfies [string, Uint8Array]] : [],
  ]);
  const seen = new Map([...starts.keys()].map((name) => [name, versionAt(join(directory, name))]));
  checkMerged(directory, parts.files.map(({ path }) => basename(path)), starts, force);
  // The same index may be written by another process at the same time.
  using files = new NewFiles(directory, inPlace ? undefined : seen);
  const digest = (await sha256()).update(header);
  await readParts(plan, inPlace ? undefined : files, digest, { signal, progress });
  if (index) files.write(INDEX_FILE, index);
  files.commit();
  if (!inPlace) removeParts(plan);
  return { model: join(directory, index ? INDEX_FILE : MODEL_FILE), digest: digest.digest("hex") };
}

/**
 * Checks that the merged files can be written. Those of an earlier merge that was interrupted are replaced.
 *
 * @param parts the names of the parts
 * @param starts the names of the files, and how they begin
 * @throws {Refusal} another file exists that would be overwritten, or would be beside the shards
 */
function checkMerged(
  directory: string,
  parts: readonly string[],
  starts: ReadonlyMap<string, Uint8Array>,
  force: boolean,
): void {
  for (const [name, start] of starts) {
    const path = join(directory, name);
    if (!force && exists(path) && !beginsWith(path, start)) throw new Refusal("exists", path, `${path} exists already`);
  }
  // Parts are made by the format's rule, which needs no description.
  const described = join(directory, QUANTIZATION_FILE);
  if (exists(described)) throw staleFile(described);
  const weights = [...shardsIn(directory), ...exists(join(directory, MODEL_FILE)) ? [MODEL_FILE] : []];
  const stray = weights.find((name) => !starts.has(name) && !parts.includes(name));
  if (stray === undefined) return;
  const path = join(directory, stray);
  throw new Refusal("stale", path, `${path} exists, beside the parts of a checkpoint; remove it first`);
}

/** Bytes that are read at once. */
const PIECE = 1 << 22;

/**
 * Reads all parts and checks their digests, and copies their data into the merged files.
 *
 * @param files where the merged files are created; undefined to check the parts alone
 * @param whole gets the data of all parts
 * @throws {CheckpointError} a part has another digest than its record
 */
async function readParts(
  { parts, records, files: merged }: MergePlan,
  files: NewFiles | undefined,
  whole: Hash,
  { signal, progress }: Watch,
): Promise<void> {
  const pause = pacer(signal);
  const total = parts.files.reduce((sum, { bytes }) => sum + bytes, 0);
  const wanted = [...records.values()];
  const piece = new Uint8Array(PIECE);
  let done = 0;
  for (const { name, header, bytes: size, parts: numbers } of merged) {
    const target = files?.create(name, size);
    if (target) writeAt(target.file, target.partial, 0, header);
    let offset = header.length;
    for (const number of numbers) {
      const { path, version, bytes, dataStart } = parts.files[number];
      using file = reopen(path, version);
      const digest = await sha256();
      for (let at = 0; at < bytes;) {
        // The header is a piece of its own, since it is not copied.
        const end = at < dataStart ? dataStart : bytes;
        const part = piece.subarray(0, Math.min(PIECE, end - at));
        readAt(file, path, at, part);
        digest.update(part);
        if (at >= dataStart) {
          whole.update(part);
          if (target) writeAt(target.file, target.partial, offset, part);
          offset += part.length;
        }
        at += part.length;
        progress?.(done += part.length, total);
        await pause();
      }
      const found = digest.digest("hex");
      if (found !== wanted[number].sha256) throw changed(path, `SHA-256 ${found}`, wanted[number].sha256);
    }
  }
}

/** Removes the parts after their data was copied: first the index of an earlier merge, and last the records. */
function removeParts({ directory, parts, records, files }: MergePlan): void {
  const index = files.length === 1 ? [join(directory, INDEX_FILE)] : [];
  for (const path of [...index.filter(exists), ...parts.files.map(({ path }) => path), ...records.keys()]) {
    try {
      system.remove(path);
    } catch (cause) {
      throw systemError(`cannot remove ${path}, whose data was merged`, cause, path);
    }
  }
}
