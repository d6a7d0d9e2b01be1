/**
 * Checkpoints in shards as they are written: names, division, index, and the file that they are together.
 *
 * @module
 */

import { CheckpointError } from "../errors.ts";
import { declarationOf } from "./blocks.ts";
import { type Checkpoint, nameOf } from "./checkpoint.ts";
import { serializeHeader } from "./safetensors.ts";

/** The most shards that their names can number. */
export const MAX_SHARDS = 99_999;

/** The name of a shard, as Hugging Face's tools number them from 1 on. */
export function shardName(number: number, count: number): string {
  const [n, of] = [number, count].map((value) => String(value).padStart(5, "0"));
  return `model-${n}-of-${of}.safetensors`;
}

/**
 * Divides tensors into shards of at most `limit` bytes, in their order: a shard ends before the tensor that would make it
 * larger than that. A tensor above the limit has a shard of its own.
 */
export function divide<T extends { readonly bytes: number }>(tensors: readonly T[], limit: number): T[][] {
  const shards: T[][] = [[]];
  let size = 0;
  for (const tensor of tensors) {
    if (size + tensor.bytes > limit && shards.at(-1)!.length > 0) {
      shards.push([]);
      size = 0;
    }
    shards.at(-1)!.push(tensor);
    size += tensor.bytes;
  }
  return shards;
}

/** The bytes of model.safetensors.index.json. */
export function serializeIndex(
  shards: Iterable<{ readonly name: string; readonly tensors: Iterable<{ name: string; bytes: number }> }>,
): Uint8Array<ArrayBuffer> {
  let total_size = 0;
  const places: [tensor: string, shard: string][] = [];
  for (const shard of shards) {
    for (const { name, bytes } of shard.tensors) {
      places.push([name, shard.name]);
      total_size += bytes;
    }
  }
  const index = { metadata: { total_size }, weight_map: Object.fromEntries(places) };
  return new TextEncoder().encode(JSON.stringify(index, null, 2) + "\n");
}

/**
 * The length field and header of the one file that a quantized checkpoint is without its division into shards. That
 * file's SHA-256 is the digest of the checkpoint.
 *
 * @throws {CheckpointError} the checkpoint declares no width
 */
export function wholeHeader(checkpoint: Checkpoint): Uint8Array<ArrayBuffer> {
  const { width, tensors } = checkpoint;
  if (width === undefined) {
    throw new CheckpointError(
      { path: nameOf(checkpoint), field: "__metadata__" },
      "declares no width, so it is not a quantized checkpoint",
    );
  }
  return serializeHeader(declarationOf(width), tensors);
}
