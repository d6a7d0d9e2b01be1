/**
 * The operations on blocks in plain TypeScript, for every block format: the definition of their results. Short and
 * slow.
 *
 * @module
 */

import {
  BLOCK,
  type BlockFormat,
  BlockRefusal,
  encodeBlock,
  type FloatFormat,
  type ScaleRule,
} from "../format/blocks.ts";
import { f16IsFinite } from "../format/floats.ts";

/** The operations on blocks. Their operands are areas of one memory, given by byte addresses. */
export interface BlockKernels {
  /**
   * Encodes `blocks` blocks of 32 weights at `src` into blocks at `dst`.
   *
   * @param rule where the scales come from; `absmax` if it is not given
   * @returns the index of the first block that can't be encoded (see BlockRefusal), or -1
   */
  encode(source: FloatFormat, target: BlockFormat, src: number, dst: number, blocks: number, rule?: ScaleRule): number;
  /** The index of the first of `blocks` blocks whose scale is not finite, or -1. */
  checkScales(format: BlockFormat, src: number, blocks: number): number;
  /** Sums, in binary64, of (w - v)^2 and w^2: w the weights at `src`, v the values of the blocks at `quant`. */
  error(source: FloatFormat, target: BlockFormat, src: number, quant: number, blocks: number): SquaredError;
  /** The index of the first byte that differs between two areas, or -1. */
  firstDifference(a: number, b: number, bytes: number): number;
}

/** Sums of squares over weights; the relative RMS error is sqrt(errors / squares). */
export interface SquaredError {
  errors: number;
  squares: number;
}

/** Creates the operations on areas of `buffer`. */
export function scalarKernels(buffer: ArrayBufferLike): BlockKernels {
  const view = new DataView(buffer);
  const bytes = new Uint8Array(buffer);
  const weights = new Float32Array(BLOCK);
  const values = new Float32Array(BLOCK);
  return {
    encode(source, target, src, dst, blocks, rule) {
      for (let b = 0; b < blocks; b++) {
        source.decode(view, src + b * BLOCK * source.blockBytes, BLOCK, weights);
        try {
          encodeBlock(target, weights, bytes.subarray(dst + b * target.blockBytes), rule);
        } catch (error) {
          if (error instanceof BlockRefusal) return b;
          throw error;
        }
      }
      return -1;
    },
    checkScales(format, src, blocks) {
      for (let b = 0; b < blocks; b++) {
        if (!f16IsFinite(view.getUint16(src + b * format.blockBytes, true))) return b;
      }
      return -1;
    },
    error(source, target, src, quant, blocks) {
      const sum = { errors: 0, squares: 0 };
      for (let b = 0; b < blocks; b++) {
        source.decode(view, src + b * BLOCK * source.blockBytes, BLOCK, weights);
        target.decode(view, quant + b * target.blockBytes, 1, values);
        for (let n = 0; n < BLOCK; n++) {
          sum.errors += (weights[n] - values[n]) ** 2;
          sum.squares += weights[n] ** 2;
        }
      }
      return sum;
    },
    firstDifference(a, b, length) {
      for (let n = 0; n < length; n++) if (bytes[a + n] !== bytes[b + n]) return n;
      return -1;
    },
  };
}
