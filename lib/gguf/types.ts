/**
 * The tensor types of GGUF: the sizes of their blocks and, for those that rabbit reads, the meaning of the bytes.
 * https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
 *
 * @module
 */

import { BF16, BLOCK, F16, F32, type Format, FORMATS, Q4B32, Q8B32 } from "../format/blocks.ts";
import { f16ToF32 } from "../format/floats.ts";

/** Decodes `count` blocks from byte `offset` on into `out` from index 0. The values are the same binary32 as ggml's. */
export type Decode = (bytes: DataView, offset: number, count: number, out: Float32Array) => void;

/** A type of ggml. */
export interface GgmlType {
  /** Its number in a file. */
  readonly id: number;
  /** ggml's name of it. */
  readonly name: string;
  /** Weights in a block. */
  readonly blockWeights: number;
  /** Bytes of a block. */
  readonly blockBytes: number;
  /** Absent for types of which rabbit knows only the size. */
  readonly decode?: Decode;
  /** rabbit's format with the same values. Its bytes are the same, unless there are `fromTwin` and `toTwin`. */
  readonly twin?: Format;
  /** Converts blocks of the twin to this type, in place. */
  fromTwin?(blocks: Uint8Array): void;
  /** The inverse of `fromTwin`. */
  toTwin?(blocks: Uint8Array): void;
}

/** A type that rabbit reads. */
export interface ReadableType extends GgmlType {
  /** Decodes blocks. */
  readonly decode: Decode;
  /** llama.cpp's number (llama_ftype) for a file with mostly this type; it is only displayed. */
  readonly fileType: number;
}

/**
 * Decodes blocks of 32: a binary16 scale, a binary16 minimum (`_1` types; `_0` types have a fixed offset of the
 * integers), 32 high bits (five bits), and the low nibbles: weight n is the low (n < 16) or high nibble of byte n % 16.
 */
function nibbles(high: boolean, minimum: boolean): Decode {
  const at = minimum ? 4 : 2;
  const payload = at + (high ? 4 : 0);
  const bytes = payload + BLOCK / 2;
  const bias = minimum ? 0 : high ? 16 : 8;
  return (view, offset, count, out) => {
    for (let b = 0; b < count; b++, offset += bytes) {
      const scale = f16ToF32(view.getUint16(offset, true));
      // Adding -0 changes nothing: a zero with a negative scale stays -0, as in ggml.
      const least = minimum ? f16ToF32(view.getUint16(offset + 2, true)) : -0;
      const fifth = high ? view.getUint32(offset + at, true) : 0;
      for (let n = 0; n < BLOCK; n++) {
        const nibble = (view.getUint8(offset + payload + n % 16) >> (n < 16 ? 0 : 4)) & 15;
        // The sum is exact in binary64, so that storing it rounds once, as ggml's binary32 does.
        out[b * BLOCK + n] = ((nibble | ((fifth >>> n) & 1) << 4) - bias) * scale + least;
      }
    }
  };
}

/** Types of which only the size is known: number, name, weights and bytes of a block. */
const OPAQUE: readonly (readonly [number, string, number, number])[] = [
  [9, "Q8_1", 32, 40],
  [10, "Q2_K", 256, 84],
  [11, "Q3_K", 256, 110],
  [12, "Q4_K", 256, 144],
  [13, "Q5_K", 256, 176],
  [14, "Q6_K", 256, 210],
  [15, "Q8_K", 256, 292],
  [16, "IQ2_XXS", 256, 66],
  [17, "IQ2_XS", 256, 74],
  [18, "IQ3_XXS", 256, 98],
  [19, "IQ1_S", 256, 50],
  [20, "IQ4_NL", 32, 18],
  [21, "IQ3_S", 256, 110],
  [22, "IQ2_S", 256, 82],
  [23, "IQ4_XS", 256, 136],
  [24, "I8", 1, 1],
  [25, "I16", 1, 2],
  [26, "I32", 1, 4],
  [27, "I64", 1, 8],
  [28, "F64", 1, 8],
  [29, "IQ1_M", 256, 56],
  [34, "TQ1_0", 256, 54],
  [35, "TQ2_0", 256, 66],
  [39, "MXFP4", 32, 17],
  [40, "NVFP4", 64, 36],
];

/** Adds the twin: the format that names this type. */
function withTwin(type: Omit<ReadableType, "twin">): ReadableType {
  return { ...type, twin: [...FORMATS.values()].find(({ ggml }) => ggml === type.name) };
}

/** Binary32, the type of all vectors. */
export const F32_TYPE: ReadableType = withTwin({
  id: 0,
  name: "F32",
  fileType: 0,
  blockWeights: 1,
  blockBytes: 4,
  decode: F32.decode,
});

/** The types that rabbit reads. */
export const READABLE: readonly ReadableType[] = [
  F32_TYPE,
  ...[
    { id: 1, name: "F16", fileType: 1, blockWeights: 1, blockBytes: 2, decode: F16.decode },
    { id: 30, name: "BF16", fileType: 32, blockWeights: 1, blockBytes: 2, decode: BF16.decode },
    { id: 8, name: "Q8_0", fileType: 7, blockWeights: BLOCK, blockBytes: 34, decode: Q8B32.decode },
    {
      id: 2,
      name: "Q4_0",
      fileType: 2,
      blockWeights: BLOCK,
      blockBytes: 18,
      decode: nibbles(false, false),
      fromTwin: fromQ4B32,
      toTwin: toQ4B32,
    },
    { id: 3, name: "Q4_1", fileType: 3, blockWeights: BLOCK, blockBytes: 20, decode: nibbles(false, true) },
    { id: 6, name: "Q5_0", fileType: 8, blockWeights: BLOCK, blockBytes: 22, decode: nibbles(true, false) },
    { id: 7, name: "Q5_1", fileType: 9, blockWeights: BLOCK, blockBytes: 24, decode: nibbles(true, true) },
  ].map(withTwin),
];

/** All types that a file may have, by number. */
export const GGML_TYPES: ReadonlyMap<number, GgmlType> = new Map(
  [...READABLE, ...OPAQUE.map(([id, name, blockWeights, blockBytes]) => ({ id, name, blockWeights, blockBytes }))]
    .map((type) => [type.id, type]),
);

/** The type with the same values as a format, if there is one. */
export function typeOf(format: Format): ReadableType | undefined {
  return READABLE.find(({ twin }) => twin === format);
}

/**
 * Converts blocks of Q4B32 to Q4_0, in place: the scale stays, 8 is added to the levels, and weight n moves from a
 * nibble of byte n / 2 to the low (n < 16) or high nibble of byte n % 16.
 */
export function fromQ4B32(blocks: Uint8Array): void {
  const old = new Uint8Array(BLOCK / 2);
  for (let at = 2; at < blocks.length; at += Q4B32.blockBytes) {
    old.set(blocks.subarray(at, at + BLOCK / 2));
    for (let n = 0; n < BLOCK / 2; n++) {
      const shift = 4 * (n & 1);
      const low = (old[n >> 1] >> shift) & 15;
      const high = (old[8 + (n >> 1)] >> shift) & 15;
      blocks[at + n] = (low | high << 4) ^ 0x88;
    }
  }
}

/** Converts blocks of Q4_0 to Q4B32, in place: the inverse of {@link fromQ4B32}. */
export function toQ4B32(blocks: Uint8Array): void {
  const old = new Uint8Array(BLOCK / 2);
  for (let at = 2; at < blocks.length; at += Q4B32.blockBytes) {
    old.set(blocks.subarray(at, at + BLOCK / 2));
    for (let n = 0; n < BLOCK / 2; n++) {
      // Byte n holds weights 2n and 2n + 1, which are in one half of the old block.
      const shift = n < 8 ? 0 : 4;
      const first = (2 * n) % 16;
      const low = (old[first] >> shift) & 15;
      const high = (old[first + 1] >> shift) & 15;
      blocks[at + n] = (low | high << 4) ^ 0x88;
    }
  }
}
