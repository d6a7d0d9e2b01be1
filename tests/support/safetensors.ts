/**
 * Safetensors files and checkpoints that tests write and read by hand. Nothing here uses the code under test.
 *
 * @module
 */

import { createHash } from "node:crypto";
import { DECLARED } from "./blocks.ts";
import { concat, utf8 } from "./bytes.ts";
import { write } from "./files.ts";

/** A safetensors file: the length field, the header as given, the data. */
export function container(header: string | Uint8Array, ...data: Uint8Array[]): Uint8Array<ArrayBuffer> {
  const text = typeof header === "string" ? utf8(header) : header;
  const length = new Uint8Array(8);
  new DataView(length.buffer).setBigUint64(0, BigInt(text.length), true);
  return concat(length, text, ...data);
}

/** One tensor of a file that a test writes. */
export interface Entry {
  name: string;
  dtype: string;
  shape: number[];
  bytes: Uint8Array;
}

/** A safetensors file of tensors, one after the other. */
export function safetensors(entries: readonly Entry[], metadata?: Record<string, unknown>): Uint8Array<ArrayBuffer> {
  const parts = metadata ? [`"__metadata__":${JSON.stringify(metadata)}`] : [];
  let at = 0;
  for (const { name, dtype, shape, bytes } of entries) {
    const data_offsets = [at, at += bytes.length];
    parts.push(`${JSON.stringify(name)}:${JSON.stringify({ dtype, shape, data_offsets })}`);
  }
  return container(`{${parts.join(",")}}`, ...entries.map(({ bytes }) => bytes));
}

/** What quantize writes for `entries`: the same, with the header padded to a multiple of eight bytes. */
export function quantizedFile(bits: 4 | 8, entries: readonly Entry[]): Uint8Array<ArrayBuffer> {
  const plain = safetensors(entries, DECLARED[bits]);
  const header = headerText(plain);
  return container(header.padEnd(Math.ceil(header.length / 8) * 8), ...entries.map(({ bytes }) => bytes));
}

/** The header of a file, as it stands there. */
export function headerText(file: Uint8Array): string {
  const length = Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
  return new TextDecoder().decode(file.subarray(8, 8 + length));
}

/** The tensors of a file, in the order of its header. */
export function entriesOf(file: Uint8Array): Entry[] {
  const text = headerText(file);
  const header: Record<string, { dtype: string; shape: number[]; data_offsets: [number, number] }> = JSON.parse(text);
  const start = 8 + utf8(text).length;
  return Object.entries(header).filter(([name]) => name !== "__metadata__").map(([name, { data_offsets, ...rest }]) => {
    return { name, ...rest, bytes: file.slice(start + data_offsets[0], start + data_offsets[1]) };
  });
}

/** The SHA-256 of every tensor of a file, by name. */
export function digestsOf(path: string): Record<string, string> {
  const digest = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
  return Object.fromEntries(entriesOf(Deno.readFileSync(path)).map(({ name, bytes }) => [name, digest(bytes)]));
}

/** A tensor of F32 values. */
export function f32(name: string, shape: number[], value: (n: number) => number): Entry {
  const values = Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, n) => value(n));
  return { name, dtype: "F32", shape, bytes: new Uint8Array(values.buffer) };
}

/** Writes a sharded checkpoint: shard names to tensors, and the index that they give unless `index` is given. */
export function writeShards(directory: string, shards: Record<string, Entry[]>, index?: string): void {
  const files = Object.entries(shards).map(([name, entries]) => [name, safetensors(entries)]);
  const weight_map = Object.fromEntries(
    Object.entries(shards).flatMap(([shard, entries]) => entries.map(({ name }) => [name, shard])),
  );
  const text = index ?? JSON.stringify({ metadata: { total_size: 0 }, weight_map });
  write(directory, { ...Object.fromEntries(files), "model.safetensors.index.json": text });
}

/** The metadata in the header of a file. */
export function metadataOf(file: Uint8Array): Record<string, unknown> | undefined {
  return JSON.parse(headerText(file)).__metadata__;
}
