/**
 * Decodes the blocks of ggml's types that are not formats of rabbit.
 *
 * Each weight is a scale times an integer, some minus or plus a minimum. The products are exact in binary32, and the
 * sums in binary64, so that storing a weight rounds once, as ggml's binary32 does: the values are the same to the bit.
 * https://github.com/ggml-org/ggml/blob/master/src/ggml-quants.c
 *
 * @module
 */

import { BLOCK } from "../format/blocks.ts";
import { f16ToF32 } from "../format/floats.ts";

/** Decodes `count` blocks from byte `offset` on into `out` from index 0. The values are the same binary32 as ggml's. */
export type Decode = (bytes: DataView, offset: number, count: number, out: Float32Array) => void;

/** Weights of a superblock, the block of K-quants. */
export const SUPERBLOCK = 256;

/** The values of IQ4_NL's and IQ4_XS's nibbles. */
const NON_LINEAR = Int8Array.of(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);

/** Twice the values of MXFP4's nibbles (E2M1); the one of -0 is 0. */
const E2M1 = Int8Array.of(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);

/**
 * Decodes blocks of 32: a binary16 scale, a binary16 minimum (`_1` types; `_0` types have a fixed offset of the
 * integers), 32 high bits (five bits), and the low nibbles: weight n is the low (n < 16) or high nibble of byte n % 16.
 */
export function nibbles(high: boolean, minimum: boolean): Decode {
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
        out[b * BLOCK + n] = ((nibble | ((fifth >>> n) & 1) << 4) - bias) * scale + least;
      }
    }
  };
}

/** Decodes blocks of 32 whose nibbles, in the order of {@link nibbles}, are indices into `values`. */
function listed(scaleBytes: 1 | 2, scaleOf: (view: DataView, at: number) => number, values: Int8Array): Decode {
  return (view, offset, count, out) => {
    for (let b = 0; b < count; b++, offset += scaleBytes + BLOCK / 2) {
      const scale = scaleOf(view, offset);
      for (let n = 0; n < BLOCK; n++) {
        const nibble = (view.getUint8(offset + scaleBytes + n % 16) >> (n < 16 ? 0 : 4)) & 15;
        out[b * BLOCK + n] = scale * values[nibble];
      }
    }
  };
}

/** IQ4_NL: a binary16 scale, and 32 nibbles. */
export const decodeIQ4NL: Decode = listed(2, f16At, NON_LINEAR);

/** MXFP4: an exponent with a bias of 127, and 32 nibbles. ggml gives the exponent 255, OCP's NaN, no special meaning. */
export const decodeMXFP4: Decode = listed(1, (view, at) => 2 ** (view.getUint8(at) - 128), E2M1);

function f16At(view: DataView, at: number): number {
  return f16ToF32(view.getUint16(at, true));
}

/** Decodes superblocks of `bytes` bytes: `one` writes the weights of the superblock at `at` to `out` from `to` on. */
function superblocks(
  bytes: number,
  one: (view: DataView, at: number, out: Float32Array, to: number) => void,
): Decode {
  return (view, offset, count, out) => {
    for (let b = 0; b < count; b++) one(view, offset + b * bytes, out, b * SUPERBLOCK);
  };
}

/** Bits 2 (n / 32 % 4) and up of byte n % 32 of the half of `payload` with weight n: two bits are its own. */
function pair(view: DataView, payload: number, n: number): number {
  return (view.getUint8(payload + 32 * (n >> 7) + n % 32) >> 2 * (n >> 5 & 3)) & 3;
}

/** The nibble of weight n: 64 weights are the low nibbles of 32 bytes, then the high ones. */
function nibble(view: DataView, payload: number, n: number): number {
  return (view.getUint8(payload + 32 * (n >> 6) + n % 32) >> 4 * (n >> 5 & 1)) & 15;
}

/** The bit of weight n: bit n / 32 of byte n % 32. */
function bit(view: DataView, payload: number, n: number): number {
  return (view.getUint8(payload + n % 32) >> (n >> 5)) & 1;
}

/** Q2_K: 16 bytes with a scale and a minimum for 16 weights each, 256 pairs, the scale of scales and of minima. */
export const decodeQ2K: Decode = superblocks(84, (view, at, out, to) => {
  const [scale, least] = [f16At(view, at + 80), f16At(view, at + 82)];
  for (let n = 0; n < SUPERBLOCK; n++) {
    const both = view.getUint8(at + (n >> 4));
    out[to + n] = scale * (both & 15) * pair(view, at + 16, n) - least * (both >> 4);
  }
});

/** Q3_K: 256 high bits, 256 pairs, 16 scales of six bits for 16 weights each, the scale of scales. */
export const decodeQ3K: Decode = superblocks(110, (view, at, out, to) => {
  const scale = f16At(view, at + 108);
  for (let n = 0; n < SUPERBLOCK; n++) {
    const group = n >> 4;
    const low = (view.getUint8(at + 96 + group % 8) >> 4 * (group >> 3)) & 15;
    const high = (view.getUint8(at + 104 + group % 4) >> 2 * (group >> 2)) & 3;
    const level = pair(view, at + 32, n) + 4 * bit(view, at, n) - 4;
    out[to + n] = scale * ((low | high << 4) - 32) * level;
  }
});

/**
 * Q4_K and Q5_K: the scales of scales and of minima, eight scales and eight minima of six bits for 32 weights each, 256
 * high bits (five bits), 256 nibbles.
 */
function scaled(high: boolean): Decode {
  const payload = high ? 48 : 16;
  return superblocks(payload + 128, (view, at, out, to) => {
    const [scale, least] = [f16At(view, at), f16At(view, at + 2)];
    const byte = (n: number) => view.getUint8(at + 4 + n);
    for (let group = 0; group < 8; group++) {
      // The last four are in the last four bytes, with their high two bits on top of the first four.
      const [by, minus] = group < 4
        ? [byte(group) & 63, byte(group + 4) & 63]
        : [byte(group + 4) & 15 | byte(group - 4) >> 6 << 4, byte(group + 4) >> 4 | byte(group) >> 6 << 4];
      for (let n = 32 * group; n < 32 * group + 32; n++) {
        const level = nibble(view, at + payload, n) + (high ? 16 * bit(view, at + 16, n) : 0);
        out[to + n] = scale * by * level - least * minus;
      }
    }
  });
}

/** Q4_K; see {@link scaled}. */
export const decodeQ4K: Decode = scaled(false);

/** Q5_K; see {@link scaled}. */
export const decodeQ5K: Decode = scaled(true);

/** Q6_K: 256 nibbles, 256 pairs of higher bits, 16 scales of eight bits for 16 weights each, the scale of scales. */
export const decodeQ6K: Decode = superblocks(210, (view, at, out, to) => {
  const scale = f16At(view, at + 208);
  for (let n = 0; n < SUPERBLOCK; n++) {
    const low = (view.getUint8(at + 64 * (n >> 7) + n % 64) >> 4 * (n >> 6 & 1)) & 15;
    const level = (low | pair(view, at + 128, n) << 4) - 32;
    out[to + n] = scale * view.getInt8(at + 192 + (n >> 4)) * level;
  }
});

/** IQ4_XS: the scale of scales, the high and the low bits of eight scales for 32 weights each, and IQ4_NL's nibbles. */
export const decodeIQ4XS: Decode = superblocks(136, (view, at, out, to) => {
  const scale = f16At(view, at);
  const high = view.getUint16(at + 2, true);
  for (let n = 0; n < SUPERBLOCK; n++) {
    const group = n >> 5;
    const low = (view.getUint8(at + 4 + (group >> 1)) >> 4 * (group & 1)) & 15;
    const by = (low | (high >> 2 * group & 3) << 4) - 32;
    const index = (view.getUint8(at + 8 + 16 * group + n % 16) >> 4 * (n >> 4 & 1)) & 15;
    out[to + n] = scale * by * NON_LINEAR[index];
  }
});
