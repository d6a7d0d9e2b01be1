/**
 * The tensor types of GGUF: the sizes of their blocks and, for those that rabbit reads, the meaning of the bytes.
 * https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
 *
 * @module
 */

import { BF16, BLOCK, F16, F32, type Format, FORMATS, Q4B32, Q8B32 } from "../format/blocks.ts";
import {
  type Decode,
  decodeIQ4NL,
  decodeIQ4XS,
  decodeMXFP4,
  decodeQ2K,
  decodeQ3K,
  decodeQ4K,
  decodeQ5K,
  decodeQ6K,
  nibbles,
  SUPERBLOCK,
} from "./decode.ts";

export type { Decode } from "./decode.ts";

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

/** Types of which only the size is known: number, name, weights and bytes of a block. */
const OPAQUE: readonly (readonly [number, string, number, number])[] = [
  [9, "Q8_1", 32, 40],
  [15, "Q8_K", 256, 292],
  [16, "IQ2_XXS", 256, 66],
  [17, "IQ2_XS", 256, 74],
  [18, "IQ3_XXS", 256, 98],
  [19, "IQ1_S", 256, 50],
  [21, "IQ3_S", 256, 110],
  [22, "IQ2_S", 256, 82],
  [24, "I8", 1, 1],
  [25, "I16", 1, 2],
  [26, "I32", 1, 4],
  [27, "I64", 1, 8],
  [28, "F64", 1, 8],
  [29, "IQ1_M", 256, 56],
  [34, "TQ1_0", 256, 54],
  [35, "TQ2_0", 256, 66],
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
    { id: 20, name: "IQ4_NL", fileType: 25, blockWeights: BLOCK, blockBytes: 18, decode: decodeIQ4NL },
    { id: 39, name: "MXFP4", fileType: 38, blockWeights: BLOCK, blockBytes: 17, decode: decodeMXFP4 },
    { id: 10, name: "Q2_K", fileType: 10, blockWeights: SUPERBLOCK, blockBytes: 84, decode: decodeQ2K },
    { id: 11, name: "Q3_K", fileType: 12, blockWeights: SUPERBLOCK, blockBytes: 110, decode: decodeQ3K },
    { id: 12, name: "Q4_K", fileType: 15, blockWeights: SUPERBLOCK, blockBytes: 144, decode: decodeQ4K },
    { id: 13, name: "Q5_K", fileType: 17, blockWeights: SUPERBLOCK, blockBytes: 176, decode: decodeQ5K },
    { id: 14, name: "Q6_K", fileType: 18, blockWeights: SUPERBLOCK, blockBytes: 210, decode: decodeQ6K },
    { id: 23, name: "IQ4_XS", fileType: 30, blockWeights: SUPERBLOCK, blockBytes: 136, decode: decodeIQ4XS },
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
