/**
 * The record beside each part of a checkpoint: what it is a part of, and its digest.
 *
 * @module
 */

import { CheckpointError, quote, systemError } from "../errors.ts";
import { readAt, reopen } from "../files/read.ts";
import { system } from "../files/system.ts";
import { sha256 } from "../files/write.ts";
import { WIDTHS } from "../format/blocks.ts";
import { type Checkpoint, memberOf } from "../format/checkpoint.ts";
import { storedBytes } from "../format/foreign.ts";
import { readJsonObject } from "../format/json.ts";
import { MAX_SHARDS, shardName } from "../format/shards.ts";
import { pacer } from "../pace.ts";
import type { Part } from "./parts.ts";

/** The version of the parts. It is raised if their division changes, or any byte of a block. */
export const PARTS_VERSION = 1;

/** The record of a finished part. */
export interface PartRecord {
  /** {@link PARTS_VERSION} of the program that wrote the part. */
  readonly version: number;
  /** The declaration of the width. */
  readonly format: string;
  /** The number of the part, from 1 on. */
  readonly part: number;
  /** The number of parts. */
  readonly parts: number;
  /** {@link fingerprint} of the float checkpoint. */
  readonly source: string;
  /** SHA-256 of the header that all parts have as one file. */
  readonly header: string;
  /** Size of the part's file. */
  readonly bytes: number;
  /** SHA-256 of the part's file. */
  readonly sha256: string;
}

/** The file names of records. */
const RECORD = /^model-\d{5}-of-\d{5}\.part\.json$/;

/** A longer file is not a record. */
const MAX_RECORD_BYTES = 10_000;

/** The name of a part's record. */
export function recordName({ number, count }: Part): string {
  return shardName(number, count).replace(/safetensors$/, "part.json");
}

/** The bytes of a record. */
export function serializeRecord(record: PartRecord): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(JSON.stringify(record, null, 2) + "\n");
}

/**
 * Reads the records in a directory.
 *
 * @returns the records by their paths, in the order of their names
 * @throws {CheckpointError} one is not a record, or not that of its name
 * @throws {SystemError}
 */
export function readRecords(directory: string): Map<string, PartRecord> {
  const names = list(directory).filter((name) => RECORD.test(name)).sort();
  return new Map(names.flatMap((name): [string, PartRecord][] => {
    const path = memberOf(directory, name);
    // A merge may have removed it in the meantime.
    if (path === undefined) return [];
    const record = readRecord(path);
    if (recordName({ number: record.part, count: record.parts }) !== name) {
      throw new CheckpointError(
        { path },
        `is the record of part ${record.part} of ${record.parts}; was it renamed? ${AGAIN}`,
      );
    }
    return [[path, record]];
  }));
}

function list(directory: string): string[] {
  try {
    return system.list(directory).map(({ name }) => name);
  } catch (cause) {
    throw systemError(`cannot read ${directory}`, cause, directory);
  }
}

/** What to do with a record that is none. */
const AGAIN = "Remove it, and write the part again";

function readRecord(path: string): PartRecord {
  let json: Record<string, unknown>;
  try {
    json = readJsonObject(path, MAX_RECORD_BYTES);
  } catch (error) {
    if (!(error instanceof CheckpointError)) throw error;
    throw new CheckpointError({ path }, `${error.message.replace(`${path}: `, "")}. ${AGAIN}`);
  }
  const take = <T>(field: keyof PartRecord, wanted: string, good: (value: unknown) => value is T): T => {
    const value = Object.hasOwn(json, field) ? json[field] : undefined;
    if (good(value)) return value;
    throw new CheckpointError({ path, field }, `expected ${wanted}. ${AGAIN}`);
  };
  const whole = (max: number) => (value: unknown): value is number => {
    return Number.isSafeInteger(value) && Number(value) >= 1 && Number(value) <= max;
  };
  const digest = (value: unknown): value is string => typeof value === "string" && /^[0-9a-f]{64}$/.test(value);
  const parts = take("parts", "the number of parts", whole(MAX_SHARDS));
  return {
    version: take("version", "a version", whole(Infinity)),
    format: take("format", "a width's declaration", (value): value is string => {
      return WIDTHS.some(({ declaration }) => declaration === value);
    }),
    part: take("part", `a number of 1 to ${parts}`, whole(parts)),
    parts,
    source: take("source", "64 hexadecimal digits", digest),
    header: take("header", "64 hexadecimal digits", digest),
    bytes: take("bytes", "a number of bytes", whole(Infinity)),
    sha256: take("sha256", "64 hexadecimal digits", digest),
  };
}

/**
 * Says how a record disagrees with what a part of a checkpoint must have.
 *
 * @returns undefined if both are of parts of one checkpoint
 */
export function disagreement(
  found: PartRecord,
  wanted: Pick<PartRecord, "version" | "format" | "parts" | "source" | "header">,
): string | undefined {
  if (found.version !== wanted.version) return `is of version ${found.version} of the parts, not ${wanted.version}`;
  if (found.parts !== wanted.parts) return `is one of ${found.parts} parts, not ${wanted.parts}`;
  if (found.format !== wanted.format) return `has the format ${quote(found.format)}, not ${quote(wanted.format)}`;
  if (found.source !== wanted.source || found.header !== wanted.header) return "was made from another source";
  return undefined;
}

/** Bytes of a sample, and from one sample to the next. */
const SAMPLE_BYTES = 4096;
const SAMPLE_STEP = 1 << 24;

/**
 * Identifies a source without reading all of it: SHA-256 of the headers of its files, and of samples from every tensor
 * (its beginning, its end, and every 16 MiB between). Sources that differ only between samples have the same fingerprint.
 *
 * @throws {SystemError} a file can't be read, or has changed
 * @throws the reason of `signal`
 */
export async function fingerprint({ files, tensors }: Checkpoint, signal?: AbortSignal): Promise<string> {
  const hash = await sha256();
  const pause = pacer(signal);
  const buffer = new Uint8Array(SAMPLE_BYTES);
  for (const [index, { path, version, dataStart }] of files.entries()) {
    using file = reopen(path, version);
    const header = new Uint8Array(dataStart);
    readAt(file, path, 0, header);
    hash.update(header);
    for (const tensor of tensors) {
      if (tensor.file !== index) continue;
      const [offset, bytes] = [tensor.offset, storedBytes(tensor)];
      const last = Math.max(0, bytes - SAMPLE_BYTES);
      for (let at = 0; at < bytes; at = at === last ? bytes : Math.min(at + SAMPLE_STEP, last)) {
        const sample = buffer.subarray(0, bytes - at);
        readAt(file, path, offset + at, sample);
        hash.update(sample);
        await pause();
      }
    }
  }
  return hash.digest("hex");
}
