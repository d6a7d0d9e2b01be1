// AssemblyScript: products of a matrix with the binary32 activations of one token, computed from the blocks. See exact.as.ts.

import {
  columnBytes, highBias, highNibble, highOf, highPower, lowBias, lowOf, lowPower, maskOf, pairOf, quadBytes, wordOf,
} from "./decode.as";
import { madd } from "./fused.as";
import { blockBytes, halfBits, halfPower, hasScales, scalesOf } from "./lanes.as";
import { BF16, BLOCK_F32, F16, F32, GROUP_RESULT, Q4, Q8, STREAMS } from "./layout";

/** Adds the sum of one block with one token to the row's sum; `scales` are used for q4 and q8 only. */
@inline
export function finish(kind: i32, sum: v128, low: v128, high: v128, scales: v128): v128 {
  const block = f32x4.add(low, high);
  return hasScales(kind) ? madd(sum, block, scales) : f32x4.add(sum, block);
}

/** Adds the sums of a block of 8 rows to those at y. `scalesAt` is the address of the scales, used for q4 and q8 only. */
@inline
function addRows(
  kind: i32,
  scalesAt: usize,
  y: usize,
  aLow: v128,
  aHigh: v128,
  bLow: v128,
  bHigh: v128,
  bits: v128,
  scale: v128,
): void {
  const packed = hasScales(kind) ? v128.load(scalesAt) : bits;
  const a = finish(kind, v128.load(y), aLow, aHigh, scalesOf(0, packed, bits, scale));
  const b = finish(kind, v128.load(y, 16), bLow, bHigh, scalesOf(1, packed, bits, scale));
  v128.store(y, a);
  v128.store(y, b, 16);
}

/**
 * Adds the products of one block of each of two groups (8 rows), or of four, with one token to the sums at y. The processor
 * starts eight or more fused operations before it ends the first, so with one group it would wait for each sum.
 *
 * @param four whether there are four groups, a compile-time constant. For q4 the registers suffice for two.
 * @param step,yStep bytes from one group to the next, and from its sums to those of the next
 */
@inline
function addBlocks(
  kind: i32,
  four: bool,
  w: usize,
  step: usize,
  x: usize,
  y: usize,
  yStep: usize,
  mask: v128,
  mask2: v128,
  power: v128,
  power2: v128,
  bias: v128,
  bias2: v128,
  bits: v128,
  scale: v128,
): void {
  let aLow = f32x4.splat(0), aHigh = aLow, bLow = aLow, bHigh = aLow, cLow = aLow, cHigh = aLow, dLow = aLow, dHigh = aLow;
  let eLow = aLow, eHigh = aLow, fLow = aLow, fHigh = aLow, gLow = aLow, gHigh = aLow, hLow = aLow, hHigh = aLow;
  let w2 = w + step, w3 = w2 + step, w4 = w3 + step;
  for (const end = x + 64; x < end;) {
    // For q4 these words hold four columns, the current one in the lowest byte.
    let i = wordOf(kind, w, 0), j = wordOf(kind, w, 1), k = wordOf(kind, w2, 0), l = wordOf(kind, w2, 1);
    for (const stop = x + (kind == Q4 ? 16 : 64); x < stop; x += 4) {
      const v = v128.load32_splat(x), u = v128.load32_splat(x, 64);
      let p = pairOf(kind, w, 0, 0, i), q = pairOf(kind, w, 0, 1, j);
      let r = pairOf(kind, w2, 0, 0, k), s = pairOf(kind, w2, 0, 1, l);
      aLow = madd(aLow, lowOf(kind, w, 0, 0, p, mask, power, bias), v);
      bLow = madd(bLow, lowOf(kind, w, 0, 1, q, mask, power, bias), v);
      cLow = madd(cLow, lowOf(kind, w2, 0, 0, r, mask, power, bias), v);
      dLow = madd(dLow, lowOf(kind, w2, 0, 1, s, mask, power, bias), v);
      aHigh = madd(aHigh, highOf(kind, w, 0, 0, p, mask2, power2, bias2), u);
      bHigh = madd(bHigh, highOf(kind, w, 0, 1, q, mask2, power2, bias2), u);
      cHigh = madd(cHigh, highOf(kind, w2, 0, 0, r, mask2, power2, bias2), u);
      dHigh = madd(dHigh, highOf(kind, w2, 0, 1, s, mask2, power2, bias2), u);
      if (four) {
        p = pairOf(kind, w3, 0, 0, i), q = pairOf(kind, w3, 0, 1, j);
        r = pairOf(kind, w4, 0, 0, k), s = pairOf(kind, w4, 0, 1, l);
        eLow = madd(eLow, lowOf(kind, w3, 0, 0, p, mask, power, bias), v);
        fLow = madd(fLow, lowOf(kind, w3, 0, 1, q, mask, power, bias), v);
        gLow = madd(gLow, lowOf(kind, w4, 0, 0, r, mask, power, bias), v);
        hLow = madd(hLow, lowOf(kind, w4, 0, 1, s, mask, power, bias), v);
        eHigh = madd(eHigh, highOf(kind, w3, 0, 0, p, mask2, power2, bias2), u);
        fHigh = madd(fHigh, highOf(kind, w3, 0, 1, q, mask2, power2, bias2), u);
        gHigh = madd(gHigh, highOf(kind, w4, 0, 0, r, mask2, power2, bias2), u);
        hHigh = madd(hHigh, highOf(kind, w4, 0, 1, s, mask2, power2, bias2), u);
      }
      if (kind == Q4) {
        i = i32x4.shr_u(i, 8), j = i32x4.shr_u(j, 8), k = i32x4.shr_u(k, 8), l = i32x4.shr_u(l, 8);
      } else {
        w += columnBytes(kind), w2 += columnBytes(kind), w3 += columnBytes(kind), w4 += columnBytes(kind);
      }
    }
    if (kind == Q4) w += quadBytes(kind), w2 += quadBytes(kind);
  }
  addRows(kind, w, y, aLow, aHigh, bLow, bHigh, bits, scale);
  addRows(kind, w2, y + yStep, cLow, cHigh, dLow, dHigh, bits, scale);
  if (four) {
    addRows(kind, w3, y + 2 * yStep, eLow, eHigh, fLow, fHigh, bits, scale);
    addRows(kind, w4, y + 3 * yStep, gLow, gHigh, hLow, hHigh, bits, scale);
  }
}

/**
 * Multiplies `groups` groups of each of `streams` streams with one token, in exact binary32. See {@link f32_q4_far}.
 *
 * @param streams 2 or 4, a compile-time constant
 * @param xStep bytes from one block of the token to the next
 */
@inline
export function far(
  kind: i32,
  streams: i32,
  w: usize,
  step: usize,
  x: usize,
  xStep: usize,
  blocks: i32,
  y: usize,
  yStep: usize,
  groups: i32,
): void {
  const mask = maskOf(kind), mask2 = kind == Q4 ? i32x4.splat(highNibble) : mask;
  const power = f32x4.splat(kind == Q4 ? lowPower : halfPower), power2 = kind == Q4 ? f32x4.splat(highPower) : power;
  const bias = f32x4.splat(lowBias), bias2 = f32x4.splat(highBias);
  const bits = i32x4.splat(halfBits), scale = f32x4.splat(halfPower);
  for (let g = 0; g < groups; g++, y += GROUP_RESULT) {
    for (let s = 0, out = y; s < streams; s++, out += yStep) {
      v128.store(out, f32x4.splat(0));
      v128.store(out, f32x4.splat(0), 16);
    }
    for (let n = 0, at = x; n < blocks; n++, at += xStep, w += blockBytes(kind)) {
      if (kind != Q4 && streams == 4) {
        addBlocks(kind, true, w, step, at, y, yStep, mask, mask2, power, power2, bias, bias2, bits, scale);
      } else {
        for (let s = 0, from = w, out = y; s < streams; s += 2, from += 2 * step, out += 2 * yStep) {
          addBlocks(kind, false, from, step, at, out, yStep, mask, mask2, power, power2, bias, bias2, bits, scale);
        }
      }
    }
  }
}

/**
 * y = W x for one token and four streams of groups. A processor reads one stream of memory at two thirds of the speed
 * of four distant ones (bench/RESULTS.md).
 *
 * @param w the first group of the first stream; the next stream begins `step` bytes later
 * @param x 32 * blocks binary32
 * @param y 8 * groups binary32 of each stream, yStep bytes apart
 * @param groups groups of each stream
 */
export function f32_q4_far(
  w: usize, step: usize, x: usize, blocks: i32, y: usize, yStep: usize, groups: i32,
): void {
  far(Q4, STREAMS, w, step, x, BLOCK_F32, blocks, y, yStep, groups);
}
export function f32_q8_far(
  w: usize, step: usize, x: usize, blocks: i32, y: usize, yStep: usize, groups: i32,
): void {
  far(Q8, STREAMS, w, step, x, BLOCK_F32, blocks, y, yStep, groups);
}
export function f32_bf16_far(
  w: usize, step: usize, x: usize, blocks: i32, y: usize, yStep: usize, groups: i32,
): void {
  far(BF16, STREAMS, w, step, x, BLOCK_F32, blocks, y, yStep, groups);
}
export function f32_f16_far(
  w: usize, step: usize, x: usize, blocks: i32, y: usize, yStep: usize, groups: i32,
): void {
  far(F16, STREAMS, w, step, x, BLOCK_F32, blocks, y, yStep, groups);
}
export function f32_f32_far(
  w: usize, step: usize, x: usize, blocks: i32, y: usize, yStep: usize, groups: i32,
): void {
  far(F32, STREAMS, w, step, x, BLOCK_F32, blocks, y, yStep, groups);
}
