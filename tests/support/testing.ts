/**
 * What the tests of the format, the encoder, quantize and verify share: files written by hand, the known answers of
 * fixtures/, and seeded random numbers. Nothing here uses the code under test.
 *
 * @module
 */

import { join } from "@std/path/join";
import { ROOT } from "./program.ts";

/** The tiny model. */
export const TINY = `${ROOT}fixtures/tiny`;

/** The declarations of the two widths. */
export const DECLARED = {
  4: { format: "rabbit-q4b32", block: "32", scale: "f16" },
  8: { format: "rabbit-q8b32", block: "32", scale: "f16" },
} as const;

/** A JSON file of fixtures/. */
export function fixture<T>(name: string): T {
  return JSON.parse(Deno.readTextFileSync(`${ROOT}fixtures/${name}`));
}

/** What one width stores for a block, or why it refuses. */
export interface KnownWidth {
  scale?: string;
  payload?: string;
  refused?: "not-finite" | "scale-overflow";
}

/** A block of fixtures/blocks.json. */
export interface KnownBlock {
  name: string;
  /** The weights, and their patterns. */
  weights: Float32Array<ArrayBuffer>;
  q4: KnownWidth;
  q8: KnownWidth;
}

/** The blocks of fixtures/blocks.json. */
export function knownBlocks(): KnownBlock[] {
  const { blocks } = fixture<{ blocks: (Omit<KnownBlock, "weights"> & { f32: string[] })[] }>("blocks.json");
  return blocks.map(({ f32, ...block }) => ({ ...block, weights: singles(f32.map((hex) => parseInt(hex, 16))) }));
}

/** The bytes of a block of fixtures/blocks.json: the scale, little endian, and the payload. */
export function blockBytes({ scale, payload }: KnownWidth): Uint8Array {
  return Uint8Array.fromHex(scale!.slice(2) + scale!.slice(0, 2) + payload!);
}

/** The known answer of a width. */
export function known(block: KnownBlock, bits: number): KnownWidth {
  return bits === 4 ? block.q4 : block.q8;
}

/** Binary32 values of bit patterns. */
export function singles(bits: readonly number[]): Float32Array<ArrayBuffer> {
  return new Float32Array(Uint32Array.from(bits).buffer);
}

/** The value of a finite binary16, from its definition. */
export function half(bits: number): number {
  const exponent = (bits >> 10) & 31;
  const significand = exponent === 0 ? bits & 1023 : 1024 + (bits & 1023);
  return (bits & 0x8000 ? -1 : 1) * significand * 2 ** (Math.max(exponent, 1) - 25);
}

/** The level of weight `n` of a block, from the description of the format. */
export function levelOf(bits: number, block: Uint8Array, n: number): number {
  const field = bits === 8 ? block[2 + n] : Math.floor(block[2 + Math.floor(n / 2)] / (n % 2 ? 16 : 1)) % 16;
  return field < 2 ** (bits - 1) ? field : field - 2 ** bits;
}

/** The 32 values of a block: level * scale. */
export function valuesOf(bits: number, block: Uint8Array): number[] {
  const scale = half(block[0] + 256 * block[1]);
  return Array.from({ length: 32 }, (_, n) => levelOf(bits, block, n) * scale);
}

/** The bytes of values in a float format, or undefined when one of them is not exact in it. */
export function exactBytes(dtype: string, values: Float32Array<ArrayBuffer>): Uint8Array<ArrayBuffer> | undefined {
  switch (dtype) {
    case "F64":
      return new Uint8Array(Float64Array.from(values).buffer);
    case "F32":
      return new Uint8Array(values.slice().buffer);
    case "BF16": {
      const bits = new Uint32Array(values.slice().buffer);
      if (bits.some((b) => (b & 0xffff) !== 0)) return undefined;
      return new Uint8Array(Uint16Array.from(bits, (b) => b >>> 16).buffer);
    }
    case "F16": {
      const halves = Float16Array.from(values);
      if (values.some((x, n) => !Object.is(x, halves[n]))) return undefined;
      return new Uint8Array(halves.buffer);
    }
  }
  throw new Error(`no float format: ${dtype}`);
}

/** All parts in one. */
export function concat(...parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** The UTF-8 bytes of a text. */
export function utf8(text: string): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(text);
}

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

/** A tensor of F32 values. */
export function f32(name: string, shape: number[], value: (n: number) => number): Entry {
  const values = Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, n) => value(n));
  return { name, dtype: "F32", shape, bytes: new Uint8Array(values.buffer) };
}

/** Writes files to `directory`, which is made. */
export function write(directory: string, files: Record<string, string | Uint8Array>): void {
  Deno.mkdirSync(directory, { recursive: true });
  for (const [name, content] of Object.entries(files)) {
    Deno.writeFileSync(join(directory, name), typeof content === "string" ? utf8(content) : content);
  }
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

/** Seeded random numbers (the generator is splitmix32). */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** 32 random bits, as an unsigned number. */
  bits(): number {
    let z = this.#state = (this.#state + 0x9e3779b9) >>> 0;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return (z ^ (z >>> 15)) >>> 0;
  }

  /** A whole number of 0 to `limit` - 1. */
  below(limit: number): number {
    return Math.floor(this.bits() / 2 ** 32 * limit);
  }

  /** A number of 0 to 1. */
  unit(): number {
    return this.bits() / 2 ** 32;
  }

  /** A number of the standard normal distribution. */
  gaussian(): number {
    return Math.sqrt(-2 * Math.log(this.unit() + 2 ** -33)) * Math.cos(2 * Math.PI * this.unit());
  }

  /** One of `items`. */
  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)];
  }
}

/** The tokenizer.json of a byte-level vocabulary without merges, in the order of the ids; `added` are its special ids. */
export function tokenizerJson(words: readonly string[], added: readonly number[] = []): string {
  return JSON.stringify({
    added_tokens: added.map((id) => ({ id, content: words[id], special: true, normalized: false })),
    normalizer: null,
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, use_regex: true },
    post_processor: null,
    decoder: { type: "ByteLevel" },
    model: { type: "BPE", vocab: Object.fromEntries(words.map((word, n) => [word, n])), merges: [] },
  });
}

/** How often a test of random input does `count` rounds: RABBIT_FUZZ times as many, for a long run. */
export function rounds(count: number): number {
  return count * Number(Deno.env.get("RABBIT_FUZZ") ?? 1);
}

/** Counts what became of random inputs; a long run prints it. */
export class Tally {
  #accepted = 0;
  #refused = 0;
  #slowest = 0;

  constructor(readonly what: string) {}

  /** How many were accepted. */
  get accepted(): number {
    return this.#accepted;
  }

  /** Counts an input that was accepted or not, and that took since `start` (performance.now). */
  add(accepted: boolean, start: number): void {
    if (accepted) this.#accepted++;
    else this.#refused++;
    const took = performance.now() - start;
    this.#slowest = Math.max(this.#slowest, took);
    // Generous, for machines that do other things; what hangs takes longer.
    if (took > 20_000) throw new Error(`${this.what}: one input took ${took} ms`);
  }

  /** Prints the counts of a long run. */
  print(): void {
    if (!Deno.env.has("RABBIT_FUZZ")) return;
    const tried = this.#accepted + this.#refused;
    console.log(
      `${this.what}: ${tried} tried, ${this.#accepted} right, ${this.#refused} refused, slowest ${this.#slowest.toFixed()} ms`,
    );
  }
}
