/**
 * The files of a new checkpoint: one, or shards.
 *
 * @module
 */

import { LimitError } from "../errors.ts";
import { type BlockFormat, declarationOf } from "../format/blocks.ts";
import { INDEX_FILE } from "../format/checkpoint.ts";
import { serializeHeader } from "../format/safetensors.ts";
import { divide, MAX_SHARDS, shardName } from "../format/shards.ts";
import type { Plan, PlannedTensor } from "./quantize.ts";

/** A new file of weights. */
export interface PlannedFile {
  /** Its name. */
  readonly name: string;
  /** Its length field and header. */
  readonly header: Uint8Array<ArrayBuffer>;
  /** Its tensors, in the order of their data. */
  readonly tensors: readonly PlannedTensor[];
  /** Its size. */
  readonly bytes: number;
}

/** Plans a file of some tensors. */
export function plannedFile(name: string, format: BlockFormat, tensors: readonly PlannedTensor[]): PlannedFile {
  const header = serializeHeader(
    declarationOf(format),
    tensors.map(({ source, dtype, bytes }) => ({ name: source.name, shape: source.shape, dtype, bytes })),
  );
  return { name, header, tensors, bytes: tensors.reduce((sum, { bytes }) => sum + bytes, header.length) };
}

/**
 * Divides the planned checkpoint into shards, as Hugging Face's tools do, but with the tensors in their order. The plan
 * is returned unchanged if one file is enough.
 *
 * @param limit the most bytes of tensors in a shard; a larger tensor has a shard of its own
 * @throws {LimitError} there would be more shards than their names can number
 */
export function planShards(plan: Plan, limit: number): Plan {
  const shards = divide(plan.tensors, limit);
  if (shards.length === 1) return plan;
  if (shards.length > MAX_SHARDS) {
    throw new LimitError(`${shards.length} shards of ${limit} bytes, the limit is ${MAX_SHARDS}; use larger shards`);
  }
  const files = shards.map((tensors, n) => plannedFile(shardName(n + 1, shards.length), plan.format, tensors));
  return { ...plan, files, bytes: files.reduce((sum, { bytes }) => sum + bytes, 0) };
}

/** The name of a planned checkpoint in its directory: its file, or the index of its shards. */
export function plannedName({ files }: Plan): string {
  return files.length === 1 ? files[0].name : INDEX_FILE;
}
