/**
 * Encodes weights by ggml's own rules, as llama-quantize does without an importance matrix.
 *
 * All steps are in binary32, each rounded, as in ggml's quantize_row_q8_0_ref and quantize_row_q4_0_ref where the
 * compiler fuses no product with a sum. Unlike in rabbit's formats, the integers are of the scale before it is rounded to
 * binary16, by a product with its reciprocal. https://github.com/ggml-org/ggml/blob/master/src/ggml-quants.c
 *
 * @module
 */

import { BLOCK } from "../format/blocks.ts";
import { f32ToBf16, f32ToF16, roundHalfAway } from "../format/floats.ts";

/** Encodes finite weights, of which there are whole blocks. A scale may round to infinity. */
export type Encode = (weights: Float32Array<ArrayBuffer>) => Uint8Array<ArrayBuffer>;

/** The types that can be derived from floats, by ggml's name. */
export const ENCODE: ReadonlyMap<string, Encode> = new Map<string, Encode>([
  ["F32", ({ buffer, byteOffset, byteLength }) => new Uint8Array(buffer, byteOffset, byteLength)],
  ["F16", (weights) => new Uint8Array(Uint16Array.from(weights, f32ToF16).buffer)],
  ["BF16", (weights) => new Uint8Array(Uint16Array.from(weights, f32ToBf16).buffer)],
  [
    "Q8_0",
    blocks(32, (block) => block.reduce((most, x) => Math.max(most, Math.abs(x)), 0) / 127, (scaled, out) => {
      for (let n = 0; n < BLOCK; n++) out[n] = roundHalfAway(scaled[n]);
    }),
  ],
  [
    "Q4_0",
    blocks(16, (block) => {
      // The first of the largest magnitude becomes the level -8.
      return block.reduce((peak, x) => Math.abs(x) > Math.abs(peak) ? x : peak, 0) / -8;
    }, (scaled, out) => {
      const level = (x: number) => Math.min(15, Math.fround(x + 8.5) | 0);
      for (let n = 0; n < BLOCK / 2; n++) out[n] = level(scaled[n]) | level(scaled[n + BLOCK / 2]) << 4;
    }),
  ],
]);

/**
 * Blocks of a binary16 scale and `payload` bytes.
 *
 * @param pack writes the payload of weights that are divided by the scale. If the scale is so small that its reciprocal is
 * infinite, they are not finite, and become 0, as the conversions of x86 make them.
 */
function blocks(
  payload: number,
  scaleOf: (block: Float32Array) => number,
  pack: (scaled: Float32Array, out: Uint8Array) => void,
): Encode {
  return (weights) => {
    const out = new Uint8Array(weights.length / BLOCK * (2 + payload));
    const scaled = new Float32Array(BLOCK);
    for (let b = 0, at = 0; b < weights.length; b += BLOCK, at += 2 + payload) {
      const block = weights.subarray(b, b + BLOCK);
      const scale = Math.fround(scaleOf(block));
      const reciprocal = scale === 0 ? 0 : Math.fround(1 / scale);
      for (let n = 0; n < BLOCK; n++) scaled[n] = block[n] * reciprocal;
      const bits = f32ToF16(scale);
      out[at] = bits & 255;
      out[at + 1] = bits >> 8;
      pack(scaled, out.subarray(at + 2, at + 2 + payload));
    }
    return out;
  };
}
