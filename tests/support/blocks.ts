/**
 * The formats of weights as their descriptions have them, and the known answers of fixtures/blocks.json. Nothing here
 * uses the code under test.
 *
 * @module
 */

import { fixture } from "./fixtures.ts";

/** The declarations of the two widths. */
export const DECLARED = {
  4: { format: "rabbit-q4b32", block: "32", scale: "f16" },
  8: { format: "rabbit-q8b32", block: "32", scale: "f16" },
} as const;

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
  const width = (block as unknown as Record<string, KnownWidth | undefined>)[`q${bits}`];
  if (width === undefined) throw new Error(`fixtures/blocks.json has no answers for ${bits} bits`);
  return width;
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

/** The bits of weight `n` in the payload of a block, by the bits of a width, from the description of the format. */
const FIELDS: Readonly<Record<number, (payload: Uint8Array, n: number) => number>> = {
  4: (payload, n) => Math.floor(payload[Math.floor(n / 2)] / (n % 2 ? 16 : 1)) % 16,
  8: (payload, n) => payload[n],
};

/** The level of weight `n` of a block. */
export function levelOf(bits: number, block: Uint8Array, n: number): number {
  const field = FIELDS[bits](block.subarray(2), n);
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

/** Writes a value as `dtype`; one that BF16 does not have is cut, not rounded. */
export function writeFloat(view: DataView, at: number, dtype: string, value: number): void {
  if (dtype === "F64") view.setFloat64(at, value, true);
  else if (dtype === "F32") view.setFloat32(at, value, true);
  else if (dtype === "F16") view.setFloat16(at, value, true);
  else {
    single.setFloat32(0, value);
    view.setUint16(at, single.getUint16(0), true);
  }
}

/** Reads a value of `dtype`, rounded to binary32. */
export function readFloat(view: DataView, at: number, dtype: string): number {
  if (dtype === "F64") return Math.fround(view.getFloat64(at, true));
  if (dtype === "F32") return view.getFloat32(at, true);
  if (dtype === "F16") return view.getFloat16(at, true);
  single.setUint32(0, view.getUint16(at, true) << 16);
  return single.getFloat32(0);
}

const single = new DataView(new ArrayBuffer(4));
