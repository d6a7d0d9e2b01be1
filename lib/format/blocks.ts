/**
 * The formats that a matrix can have: the meaning of the bytes of a row. A row of {@link FORMATS} is all that the rest
 * of the program needs to know about a format. lib/kernels has fast code for some formats; the others work without it.
 *
 * A matrix is stored row by row, left to right, as a sequence of blocks. A block of a float format is one weight; a
 * block of a quantized format is {@link BLOCK} consecutive weights of one row.
 *
 * @module
 */

import { bf16ToF32, f16IsFinite, f16ToF32, f32ToF16, roundHalfAway } from "./floats.ts";

/** Weights in a quantized block. */
export const BLOCK = 32;

/**
 * The activations that a matrix is multiplied with. `f32` are exact; `i16` and `i8`, for block formats only, are blocks
 * of 32 integers of at most 32767 or 127 with one binary32 scale.
 */
export type Activations = "f32" | "i16" | "i8";

/** All types of activations, the exact ones first. */
export const ACTIVATIONS: readonly Activations[] = ["f32", "i16", "i8"];

/** The properties of every format. */
export interface Common {
  /** The dtype of the format in a safetensors header. */
  readonly name: string;
  /** Weights in a block: 1 or {@link BLOCK}. */
  readonly blockWeights: number;
  /** Bytes of a block. */
  readonly blockBytes: number;
  /** The name of the ggml type with the same values, if there is one: see lib/gguf/types.ts. */
  readonly ggml?: string;
  /**
   * Decodes `count` blocks from byte `offset` on into `out` from index 0. Values are exact in binary32, except those of
   * F64, which are rounded to it.
   */
  decode(bytes: DataView, offset: number, count: number, out: Float32Array): void;
}

/** A format of unquantized weights; a source of quantization. */
export interface FloatFormat extends Common {
  /** Distinguishes it from a block format. */
  readonly kind: "float";
}

/** A block format: a binary16 scale and {@link BLOCK} integers. */
export interface BlockFormat extends Common {
  /** Distinguishes it from a float format. */
  readonly kind: "block";
  /** Bits per weight in the payload, at most 8. */
  readonly bits: number;
  /** The purpose of the width, for help texts. */
  readonly label: string;
  /** The default activations; see bench/RESULTS.md for the measurements. */
  readonly activations: Activations;
  /** The largest positive level; the range is -levels-1 to levels. */
  readonly levels: number;
  /** The value of `format` in `__metadata__`. */
  readonly declaration: string;
  /** Writes 32 levels as the payload that follows the scale. */
  pack(levels: Int8Array, out: Uint8Array): void;
  /** Reads the 32 levels of the payload at byte `payload`: the inverse of {@link pack}. */
  unpack(bytes: DataView, payload: number, levels: Int8Array): void;
}

/** A row of {@link FORMATS}. */
export type Format = FloatFormat | BlockFormat;

/** Why a block can't be encoded. */
export class BlockRefusal extends Error {
  /** The name of the class. */
  override name = "BlockRefusal";

  /**
   * Creates the error.
   *
   * @param column the weight in the block, 0 to 31, or -1 for the scale
   * @param value the weight, or the scale before it is rounded
   */
  constructor(readonly column: number, readonly value: number) {
    super(column < 0 ? `the scale ${value} rounds to infinity` : `weight ${column} is ${value}`);
  }
}

function float(
  name: string,
  bytes: number,
  read: (view: DataView, at: number) => number,
  ggml?: string,
): FloatFormat {
  return {
    kind: "float",
    name,
    ggml,
    blockWeights: 1,
    blockBytes: bytes,
    decode(view, offset, count, out) {
      for (let n = 0; n < count; n++) out[n] = read(view, offset + n * bytes);
    },
  };
}

/** The parameters of a block format; its other properties follow from the number of bits. */
export interface BlockRow extends Pick<BlockFormat, "bits" | "label" | "activations" | "ggml" | "pack"> {
  /** Level n of the payload at byte `payload`. */
  level(bytes: DataView, payload: number, n: number): number;
}

/** Creates a block format: binary16 scales, and two's complement integers of `bits` bits. */
export function blockFormat({ bits, label, activations, ggml, pack, level }: BlockRow): BlockFormat {
  const blockBytes = 2 + BLOCK * bits / 8;
  return {
    kind: "block",
    name: `Q${bits}B${BLOCK}`,
    declaration: `rabbit-q${bits}b${BLOCK}`,
    blockWeights: BLOCK,
    blockBytes,
    ggml,
    bits,
    label,
    activations,
    levels: 2 ** (bits - 1) - 1,
    pack,
    unpack(view, payload, levels) {
      for (let n = 0; n < BLOCK; n++) levels[n] = level(view, payload, n);
    },
    decode(view, offset, count, out) {
      for (let b = 0; b < count; b++, offset += blockBytes) {
        const scale = f16ToF32(view.getUint16(offset, true));
        for (let n = 0; n < BLOCK; n++) out[b * BLOCK + n] = level(view, offset + 2, n) * scale;
      }
    },
  };
}

/** Binary64; as a source it is rounded to binary32 first. */
export const F64: FloatFormat = float("F64", 8, (view, at) => view.getFloat64(at, true));
/** Binary32. */
export const F32: FloatFormat = float("F32", 4, (view, at) => view.getFloat32(at, true), "F32");
/** Binary16. */
export const F16: FloatFormat = float("F16", 2, (view, at) => f16ToF32(view.getUint16(at, true)), "F16");
/** Bfloat16. */
export const BF16: FloatFormat = float("BF16", 2, (view, at) => bf16ToF32(view.getUint16(at, true)), "BF16");

/** Eight bits, for fidelity: 34 bytes for 32 weights, byte for byte ggml's Q8_0. */
export const Q8B32: BlockFormat = blockFormat({
  bits: 8,
  label: "fidelity",
  activations: "i16",
  ggml: "Q8_0",
  level: (view, payload, n) => view.getInt8(payload + n),
  pack(levels, out) {
    for (let n = 0; n < BLOCK; n++) out[n] = levels[n];
  },
});

/** Four bits, for size: 18 bytes for 32 weights; weight n is the low (even n) or high (odd n) nibble of byte n / 2. */
export const Q4B32: BlockFormat = blockFormat({
  bits: 4,
  label: "size",
  activations: "i8",
  ggml: "Q4_0",
  level: (view, payload, n) => (((view.getUint8(payload + (n >> 1)) >> (4 * (n & 1))) & 15) ^ 8) - 8,
  pack(levels, out) {
    for (let n = 0; n < BLOCK; n += 2) out[n >> 1] = (levels[n] & 15) | ((levels[n + 1] & 15) << 4);
  },
});

/** All formats, by dtype. */
export const FORMATS: ReadonlyMap<string, Format> = byName([
  F64,
  F32,
  F16,
  BF16,
  Q8B32,
  Q4B32,
]);

function byName(formats: readonly Format[]): Map<string, Format> {
  return new Map(formats.map((format) => [format.name, format]));
}

/** The block formats. */
export const WIDTHS: readonly BlockFormat[] = [...FORMATS.values()].filter((f) => f.kind === "block");

/** The default width. */
export const DEFAULT_WIDTH: BlockFormat = Q4B32;

/** The block format of a dtype. @throws {RangeError} there is none */
export function widthNamed(name: string): BlockFormat {
  const format = FORMATS.get(name);
  if (format?.kind !== "block") throw new RangeError(`${name} is not a block format`);
  return format;
}

/** The float format of a dtype. @throws {RangeError} there is none */
export function floatNamed(name: string): FloatFormat {
  const format = FORMATS.get(name);
  if (format?.kind !== "float") throw new RangeError(`${name} is not a float format`);
  return format;
}

/** The `__metadata__` that declares a width: exactly these fields, in this order. */
export function declarationOf(format: BlockFormat): Record<string, string> {
  return { format: format.declaration, block: String(BLOCK), scale: "f16" };
}

/** Bytes of a matrix. `columns` must be a multiple of the format's blockWeights. */
export function matrixBytes(format: Format, rows: number, columns: number): number {
  return rows * (columns / format.blockWeights) * format.blockBytes;
}

/** The index of the first weight that is a NaN or an infinity, or -1; `bytes` must begin at a multiple of 8. */
export function firstNotFinite(format: FloatFormat, bytes: Uint8Array): number {
  const { buffer, byteOffset, byteLength } = bytes;
  const count = byteLength / format.blockBytes;
  if (format === F64) return new Float64Array(buffer, byteOffset, count).findIndex((x) => !Number.isFinite(x));
  const bits = format === F32 ? new Uint32Array(buffer, byteOffset, count) : new Uint16Array(buffer, byteOffset, count);
  const exponent = format === F32 ? 0x7f800000 : format === F16 ? 0x7c00 : 0x7f80;
  // A plain loop, since a function call for each weight of a model would take longer than reading the file.
  for (let n = 0; n < count; n++) if ((bits[n] & exponent) === exponent) return n;
  return -1;
}

/**
 * How the scale of a block follows from its weights: `absmax` is max |w| / levels, the format's own rule; `signed` is the
 * weight of the largest magnitude, the first of several, over -(levels + 1), so that this weight takes the level of which
 * there is one more. ggml makes Q4_0 by the signed rule.
 */
export type ScaleRule = "absmax" | "signed";

/** All of them; the first is used where none is asked for. */
export const SCALE_RULES: readonly ScaleRule[] = ["absmax", "signed"];

/**
 * Encodes 32 weights as one block: the definition for all kernels.
 *
 * All steps are in binary32. The scale follows from the weights by a {@link ScaleRule} and is rounded to binary16; a level
 * is w / scale, rounded half away from zero and clamped. A scale of zero is positive, and its payload is zero.
 *
 * @param weights 32 binary32 values
 * @param out at least blockBytes bytes
 * @throws {BlockRefusal} a weight is not finite, or the scale rounds to infinity
 */
export function encodeBlock(
  format: BlockFormat,
  weights: Float32Array,
  out: Uint8Array,
  rule: ScaleRule = "absmax",
): void {
  let peak = 0;
  for (let n = 0; n < BLOCK; n++) {
    if (!Number.isFinite(weights[n])) throw new BlockRefusal(n, weights[n]);
    if (Math.abs(weights[n]) > Math.abs(peak)) peak = weights[n];
  }
  const exact = Math.fround(rule === "signed" ? peak / -(format.levels + 1) : Math.abs(peak) / format.levels);
  const rounded = f32ToF16(exact);
  if (!f16IsFinite(rounded)) throw new BlockRefusal(-1, exact);
  const scale = f16ToF32(rounded);
  const bits = scale === 0 ? 0 : rounded;
  const levels = new Int8Array(BLOCK);
  if (scale !== 0) {
    for (let n = 0; n < BLOCK; n++) {
      const level = roundHalfAway(Math.fround(weights[n] / scale));
      levels[n] = Math.min(Math.max(level, -format.levels - 1), format.levels);
    }
  }
  out[0] = bits & 255;
  out[1] = bits >> 8;
  format.pack(levels, out.subarray(2));
}
