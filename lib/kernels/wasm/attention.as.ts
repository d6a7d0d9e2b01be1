// AssemblyScript: attention over a cache. reference.ts defines the result, down to the order of the additions.

import {
  exp0, exp1, exp2, exp3, exp4, exp5, expBias, expLeast, expMost, expOne, exponential, ln2High, ln2Low, log2e,
} from "./exponential.as";
import { madd } from "./fused.as";
import { largest, TINY, toIntegers } from "./integers.as";
import { across } from "./lanes.as";
import {
  ATTEND_COUNT, ATTEND_FACTORS, ATTEND_HEAD_DIM, ATTEND_KEY_SCALES, ATTEND_KEYS, ATTEND_LENGTH, ATTEND_OUT, ATTEND_Q, ATTEND_SCORE_ROW,
  ATTEND_SCORES, ATTEND_SUMS, ATTEND_VALUE_SCALES, ATTEND_VALUES, CHUNK, KEY_POSITIONS, VALUE_POSITIONS,
} from "./layout";

/** Bytes of a cache line. */
const LINE: usize = 64;

/** Values of a head in a vector of products. */
@inline
function step(size: i32): i32 {
  return size == 4 ? 4 : 8;
}

/**
 * Loads a vector of values of the cache: the first or the second vector of a pair. V8 pairs extending loads only if
 * each has an offset, so one load of 16 bytes serves both.
 */
@inline
function some(size: i32, at: usize, second: i32): v128 {
  if (size != 1) return v128.load(at + second * 16);
  const both = v128.load(at);
  return second ? i16x8.extend_high_i8x16_s(both) : i16x8.extend_low_i8x16_s(both);
}

@inline
function product(size: i32, sum: v128, x: v128, y: v128): v128 {
  return size == 4 ? madd(sum, x, y) : i32x4.add(sum, i32x4.dot_i16x8_s(x, y));
}

/** The sums of the lanes of four vectors, each as (0 + 2) + (1 + 3). */
@inline
function transposedSum(a: v128, b: v128, c: v128, d: v128): v128 {
  const ab0 = v128.shuffle<i32>(a, b, 0, 4, 1, 5), ab1 = v128.shuffle<i32>(a, b, 2, 6, 3, 7);
  const cd0 = v128.shuffle<i32>(c, d, 0, 4, 1, 5), cd1 = v128.shuffle<i32>(c, d, 2, 6, 3, 7);
  const e0 = v128.shuffle<i64>(ab0, cd0, 0, 2), e1 = v128.shuffle<i64>(ab1, cd1, 0, 2);
  const o0 = v128.shuffle<i64>(ab0, cd0, 1, 3), o1 = v128.shuffle<i64>(ab1, cd1, 1, 3);
  return f32x4.add(f32x4.add(e0, e1), f32x4.add(o0, o1));
}

/**
 * Scales and stores the scores of four positions; those from `count` on become -Infinity.
 *
 * @returns the larger lanes of these and `top`
 */
@inline
function storeScores(s: v128, factor: v128, p: i32, count: i32, at: usize, top: v128): v128 {
  s = f32x4.mul(s, factor);
  if (p + 4 > count) {
    const lanes = i32x4.add(i32x4.splat(p), i32x4(0, 1, 2, 3));
    s = v128.bitselect(s, f32x4.splat(-Infinity), i32x4.lt_s(lanes, i32x4.splat(count)));
  }
  v128.store(at, s);
  return f32x4.pmax(top, s);
}

/** Scales the integer sums of eight positions and stores them. */
@inline
function storeSums(s: v128, t: v128, scale: v128, scale2: v128, factor: v128, at: usize): void {
  s = f32x4.mul(f32x4.mul(f32x4.convert_i32x4_s(s), scale), factor);
  t = f32x4.mul(f32x4.mul(f32x4.convert_i32x4_s(t), scale2), factor);
  v128.store(at, s);
  v128.store(at, t, 16);
}

/** The largest scores of each lane; scores from `count` up to a multiple of 16 become -Infinity. */
@inline
function largestOf(scores: usize, count: i32): v128 {
  const end = scores + (<usize> ((count + 15) & -16) << 2);
  for (let at = scores + (<usize> count << 2); at < end; at += 4) store<f32>(at, -Infinity);
  let top = f32x4.splat(-Infinity), top2 = top;
  for (let at = scores; at < end; at += 32) {
    top = f32x4.pmax(top, v128.load(at)), top2 = f32x4.pmax(top2, v128.load(at, 16));
  }
  return f32x4.pmax(top, top2);
}

/**
 * Replaces the scores of one head by softmax weights: binary32, or int16. Each int16 weight includes the scale of its
 * value. @returns the factor for the sum of the weighted values
 */
@inline
function weigh(size: i32, scores: usize, topLanes: v128, count: i32, vScales: usize): f32 {
  const top = f32x4.splat(largest(topLanes));
  const least = f32x4.splat(expLeast), most = f32x4.splat(expMost), turns = f32x4.splat(log2e);
  const high = f32x4.splat(ln2High), low = f32x4.splat(ln2Low), c5 = f32x4.splat(exp5), c4 = f32x4.splat(exp4);
  const c3 = f32x4.splat(exp3), c2 = f32x4.splat(exp2), c1 = f32x4.splat(exp1), c0 = f32x4.splat(exp0);
  const one = f32x4.splat(expOne), bias = i32x4.splat(expBias);
  let sum = f32x4.splat(0), largestWeights = f32x4.splat(0);
  const end = scores + (<usize> ((count + 7) & -8) << 2);
  if (((count - 1) & 7) < 4) v128.store(end - 16, f32x4.splat(-Infinity));
  for (let at = scores, scale = vScales; at < end; at += 32, scale += 32) {
    const x = f32x4.sub(v128.load(at), top), y = f32x4.sub(v128.load(at, 16), top);
    const e = exponential(x, least, most, turns, high, low, c5, c4, c3, c2, c1, c0, one, bias);
    const f = exponential(y, least, most, turns, high, low, c5, c4, c3, c2, c1, c0, one, bias);
    sum = f32x4.add(f32x4.add(sum, e), f);
    const weight = size == 4 ? e : f32x4.mul(e, v128.load(scale));
    const weight2 = size == 4 ? f : f32x4.mul(f, v128.load(scale, 16));
    if (size != 4) largestWeights = f32x4.pmax(f32x4.pmax(largestWeights, weight), weight2);
    v128.store(at, weight);
    v128.store(at, weight2, 16);
  }
  const whole = (count + CHUNK - 1) & -CHUNK;
  for (let at = end, stop = scores + (<usize> whole << 2); at < stop; at += 16) v128.store(at, f32x4.splat(0));
  const inverse = <f32> 1 / across(sum);
  if (size == 4) return inverse;
  const m = largest(largestWeights);
  const levels = f32x4.splat(m >= TINY ? <f32> 32767 / m : 0);
  for (let from = scores, to = scores, end = scores + (<usize> whole << 2); from < end; from += 32, to += 16) {
    const first = toIntegers(v128.load(from), levels), second = toIntegers(v128.load(from, 16), levels);
    v128.store(to, i16x8.narrow_i32x4_s(first, second));
  }
  return m / 32767 * inverse;
}

/** Stores the sums of a chunk; sums of integers are converted to binary32 and added to the previous ones. */
@inline
function addSums(size: i32, to: usize, a: v128, b: v128, c: v128, d: v128): void {
  if (size != 4) {
    a = f32x4.add(v128.load(to), f32x4.convert_i32x4_s(a));
    b = f32x4.add(v128.load(to, 16), f32x4.convert_i32x4_s(b));
    c = f32x4.add(v128.load(to, 32), f32x4.convert_i32x4_s(c));
    d = f32x4.add(v128.load(to, 48), f32x4.convert_i32x4_s(d));
  }
  v128.store(to, a);
  v128.store(to, b, 16);
  v128.store(to, c, 32);
  v128.store(to, d, 48);
}

/** The initial value of a chunk's sum. In binary32 it is the previous sum, since positions are added one by one. */
@inline
function startOf(size: i32, at: usize): v128 {
  return size == 4 ? v128.load(at) : i32x4.splat(0);
}

/**
 * See {@link attend_f32_1}; `heads` (1 to 3) and `size` are compile-time constants. Keys and values are loaded once for
 * all heads.
 */
@inline
function attendHeads(size: i32, heads: i32, params: usize): void {
  const q = load<usize>(params, ATTEND_Q);
  const factors = load<usize>(params, ATTEND_FACTORS);
  const k = load<usize>(params, ATTEND_KEYS);
  let kScales = load<usize>(params, ATTEND_KEY_SCALES);
  const v = load<usize>(params, ATTEND_VALUES);
  const vScales = load<usize>(params, ATTEND_VALUE_SCALES);
  const count = load<i32>(params, ATTEND_COUNT);
  const length = load<i32>(params, ATTEND_LENGTH);
  const scores = load<usize>(params, ATTEND_SCORES);
  const scoreRow = load<usize>(params, ATTEND_SCORE_ROW);
  const sums = load<usize>(params, ATTEND_SUMS);
  const d = load<i32>(params, ATTEND_HEAD_DIM);
  let out = load<usize>(params, ATTEND_OUT);
  const row = <usize> (length * size);
  const qRow = <usize> (size == 4 ? d << 2 : length << 1);
  const factor0 = v128.load32_splat(factors);
  const factor1 = heads > 1 ? v128.load32_splat(factors, 4) : factor0;
  const factor2 = heads > 2 ? v128.load32_splat(factors, 8) : factor0;
  let top0 = f32x4.splat(-Infinity), top1 = top0, top2 = top0;
  // Prefetch the values while the scores are computed.
  let seen = 0;
  if (size == 4) {
    for (let p = 0, k0 = k, v0 = v, to = scores; p < count; p += 4, k0 += 4 * row, to += 16) {
      for (const end = v0 + 4 * row; v0 < end; v0 += LINE) seen |= load<i32>(v0);
      let a0 = i32x4.splat(0), b0 = a0, c0 = a0, d0 = a0;
      let a1 = a0, b1 = a0, c1 = a0, d1 = a0, a2 = a0, b2 = a0, c2 = a0, d2 = a0;
      for (let at = k0, from = q, end = k0 + qRow; at < end; at += 16, from += 16) {
        const x0 = v128.load(from);
        const x1 = heads > 1 ? v128.load(from + qRow) : x0;
        const x2 = heads > 2 ? v128.load(from + 2 * qRow) : x0;
        let y = v128.load(at);
        a0 = product(size, a0, x0, y);
        if (heads > 1) a1 = product(size, a1, x1, y);
        if (heads > 2) a2 = product(size, a2, x2, y);
        y = v128.load(at + row);
        b0 = product(size, b0, x0, y);
        if (heads > 1) b1 = product(size, b1, x1, y);
        if (heads > 2) b2 = product(size, b2, x2, y);
        y = v128.load(at + 2 * row);
        c0 = product(size, c0, x0, y);
        if (heads > 1) c1 = product(size, c1, x1, y);
        if (heads > 2) c2 = product(size, c2, x2, y);
        y = v128.load(at + 3 * row);
        d0 = product(size, d0, x0, y);
        if (heads > 1) d1 = product(size, d1, x1, y);
        if (heads > 2) d2 = product(size, d2, x2, y);
      }
      top0 = storeScores(transposedSum(a0, b0, c0, d0), factor0, p, count, to, top0);
      if (heads > 1) top1 = storeScores(transposedSum(a1, b1, c1, d1), factor1, p, count, to + scoreRow, top1);
      if (heads > 2) top2 = storeScores(transposedSum(a2, b2, c2, d2), factor2, p, count, to + 2 * scoreRow, top2);
    }
  } else {
    // The two halves of the positions are two streams of memory (see bench/RESULTS.md). Each lane is a position, so
    // that nothing is summed across lanes.
    const half = (count + 31) >> 5 << 4;
    const far = <usize> half * row, farScores = <usize> half << 2, block = KEY_POSITIONS * row;
    for (let p = 0, k0 = k, v0 = v, to = scores; p < half; p += 8, k0 += block, v0 += block, to += 32, kScales += 32) {
      let a0 = i32x4.splat(0), b0 = a0, c0 = a0, d0 = a0;
      let a1 = a0, b1 = a0, c1 = a0, d1 = a0, a2 = a0, b2 = a0, c2 = a0, d2 = a0;
      for (let at = k0, from = q, end = k0 + block, value = v0; at < end; at += 32 * size, from += 8, value += 32 * size) {
        seen |= load<i32>(value) | load<i32>(value + far);
        let x0 = v128.load32_splat(from);
        let x1 = heads > 1 ? v128.load32_splat(from + qRow) : x0;
        let x2 = heads > 2 ? v128.load32_splat(from + 2 * qRow) : x0;
        let u = some(size, at, 0), w = some(size, at, 1);
        a0 = product(size, a0, x0, u), b0 = product(size, b0, x0, w);
        if (heads > 1) a1 = product(size, a1, x1, u), b1 = product(size, b1, x1, w);
        if (heads > 2) a2 = product(size, a2, x2, u), b2 = product(size, b2, x2, w);
        const at2 = at + far;
        u = some(size, at2, 0), w = some(size, at2, 1);
        c0 = product(size, c0, x0, u), d0 = product(size, d0, x0, w);
        if (heads > 1) c1 = product(size, c1, x1, u), d1 = product(size, d1, x1, w);
        if (heads > 2) c2 = product(size, c2, x2, u), d2 = product(size, d2, x2, w);
        x0 = v128.load32_splat(from, 4);
        x1 = heads > 1 ? v128.load32_splat(from + qRow, 4) : x0;
        x2 = heads > 2 ? v128.load32_splat(from + 2 * qRow, 4) : x0;
        u = some(size, at + 16 * size, 0), w = some(size, at + 16 * size, 1);
        a0 = product(size, a0, x0, u), b0 = product(size, b0, x0, w);
        if (heads > 1) a1 = product(size, a1, x1, u), b1 = product(size, b1, x1, w);
        if (heads > 2) a2 = product(size, a2, x2, u), b2 = product(size, b2, x2, w);
        u = some(size, at2 + 16 * size, 0), w = some(size, at2 + 16 * size, 1);
        c0 = product(size, c0, x0, u), d0 = product(size, d0, x0, w);
        if (heads > 1) c1 = product(size, c1, x1, u), d1 = product(size, d1, x1, w);
        if (heads > 2) c2 = product(size, c2, x2, u), d2 = product(size, d2, x2, w);
      }
      const r = v128.load(kScales), s = v128.load(kScales, 16);
      const scales2 = kScales + farScores, t = v128.load(scales2), z = v128.load(scales2, 16);
      const to2 = to + farScores;
      storeSums(a0, b0, r, s, factor0, to);
      storeSums(c0, d0, t, z, factor0, to2);
      if (heads > 1) storeSums(a1, b1, r, s, factor1, to + scoreRow), storeSums(c1, d1, t, z, factor1, to2 + scoreRow);
      if (heads > 2) {
        storeSums(a2, b2, r, s, factor2, to + 2 * scoreRow);
        storeSums(c2, d2, t, z, factor2, to2 + 2 * scoreRow);
      }
    }
    top0 = largestOf(scores, count);
    if (heads > 1) top1 = largestOf(scores + scoreRow, count);
    if (heads > 2) top2 = largestOf(scores + 2 * scoreRow, count);
  }
  const last0 = weigh(size, scores, top0, count, vScales);
  const last1 = heads > 1 ? weigh(size, scores + scoreRow, top1, count, vScales) : 0;
  const last2 = heads > 2 ? weigh(size, scores + 2 * scoreRow, top2, count, vScales) : 0;
  const sumRow = <usize> length << 2;
  store<i32>(sums, seen);
  for (let n: usize = 0, end = sumRow * heads; n < end; n += 16) v128.store(sums + n, f32x4.splat(0));
  // Integer values of two positions are interleaved, and so are the weights.
  const together = size == 4 ? 1 : VALUE_POSITIONS;
  const weightBytes = size == 4 ? 4 : 2;
  for (let p = 0; p < count; p += CHUNK) {
    const chunk = v + <usize> p * row;
    const first = scores + <usize> (p * weightBytes);
    const end = first + <usize> (((min(count - p, CHUNK) + together - 1) / together) << 2);
    for (let at = chunk, to = sums, stop = chunk + together * row; at < stop; at += together * size * 16, to += 64) {
      let a0 = startOf(size, to), b0 = startOf(size, to + 16), c0 = startOf(size, to + 32), d0 = startOf(size, to + 48);
      let a1 = a0, b1 = a0, c1 = a0, d1 = a0, a2 = a0, b2 = a0, c2 = a0, d2 = a0;
      const to1 = to + sumRow, to2 = to1 + sumRow;
      if (heads > 1) {
        a1 = startOf(size, to1), b1 = startOf(size, to1 + 16), c1 = startOf(size, to1 + 32), d1 = startOf(size, to1 + 48);
      }
      if (heads > 2) {
        a2 = startOf(size, to2), b2 = startOf(size, to2 + 16), c2 = startOf(size, to2 + 32), d2 = startOf(size, to2 + 48);
      }
      for (let from = at, w = first; w < end; w += 4, from += together * row) {
        const x0 = v128.load32_splat(w);
        const x1 = heads > 1 ? v128.load32_splat(w + scoreRow) : x0;
        const x2 = heads > 2 ? v128.load32_splat(w + 2 * scoreRow) : x0;
        let y = some(size, from, 0);
        a0 = product(size, a0, x0, y);
        if (heads > 1) a1 = product(size, a1, x1, y);
        if (heads > 2) a2 = product(size, a2, x2, y);
        y = some(size, from, 1);
        b0 = product(size, b0, x0, y);
        if (heads > 1) b1 = product(size, b1, x1, y);
        if (heads > 2) b2 = product(size, b2, x2, y);
        y = some(size, from + 2 * step(size) * size, 0);
        c0 = product(size, c0, x0, y);
        if (heads > 1) c1 = product(size, c1, x1, y);
        if (heads > 2) c2 = product(size, c2, x2, y);
        y = some(size, from + 2 * step(size) * size, 1);
        d0 = product(size, d0, x0, y);
        if (heads > 1) d1 = product(size, d1, x1, y);
        if (heads > 2) d2 = product(size, d2, x2, y);
      }
      addSums(size, to, a0, b0, c0, d0);
      if (heads > 1) addSums(size, to1, a1, b1, c1, d1);
      if (heads > 2) addSums(size, to2, a2, b2, c2, d2);
    }
  }
  for (let h = 0; h < heads; h++, out += <usize> d << 2) {
    const scale = f32x4.splat(h == 0 ? last0 : h == 1 ? last1 : last2);
    const from = sums + <usize> h * sumRow;
    for (let n: usize = 0, end = <usize> d << 2; n < end; n += 16) {
      v128.store(out + n, f32x4.mul(v128.load(from + n), scale));
    }
  }
}

/**
 * Attention of one token, for 1 to 3 heads (the last part of the name) that share keys and values: for each head, out =
 * sum over positions of softmax(q k / sqrt(headDim)) v. Keys and values are binary32, or integers of at most 127 or
 * 2047. Integer keys are stored in pairs of values, interleaved over KEY_POSITIONS positions; integer values are
 * interleaved over VALUE_POSITIONS positions.
 *
 * @param params the address of the parameter block: see ATTEND_Q and the following constants in layout.ts
 */
export function attend_f32_1(params: usize): void {
  attendHeads(4, 1, params);
}
export function attend_f32_2(params: usize): void {
  attendHeads(4, 2, params);
}
export function attend_f32_3(params: usize): void {
  attendHeads(4, 3, params);
}
export function attend_i8_1(params: usize): void {
  attendHeads(1, 1, params);
}
export function attend_i8_2(params: usize): void {
  attendHeads(1, 2, params);
}
export function attend_i8_3(params: usize): void {
  attendHeads(1, 3, params);
}
export function attend_i16_1(params: usize): void {
  attendHeads(2, 1, params);
}
export function attend_i16_2(params: usize): void {
  attendHeads(2, 2, params);
}
export function attend_i16_3(params: usize): void {
  attendHeads(2, 3, params);
}
