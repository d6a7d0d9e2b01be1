// AssemblyScript: products of a four-bit matrix with integer activations. reference.ts defines each result, down to the
// order of the additions; tests/unit/kernels/pool_test.ts compares the results bit for bit.
//
// Payloads are level + 8, and dot(level, x) = dot(level + 8, x) - 8 * sum(x). A 16-bit sum can hold a whole block of
// int8 (8 * 2 * 15 * 127 = 30480).

import { halfBits, halfPower, lane0, lane1, lane2, lane3, nibbles, ones, scaled, scalesOf, splat } from "./lanes.as";
import { BLOCK_I16, BLOCK_I8, GROUP_Q4, GROUP_RESULT, Q4_PAYLOAD, STREAMS } from "./layout";

/**
 * Sixteen products of int8 and 0..15 in eight 16-bit sums. The same on every machine, since the second factor is below
 * 128.
 */
@inline
function dot8(x: v128, q: v128): v128 {
  return i16x8.relaxed_dot_i8x16_i7x16_s(x, q);
}

/**
 * The same products, added to four 32-bit sums. It is one instruction on some processors, and slower than {@link dot8} on
 * others.
 */
@inline
function dot4(x: v128, q: v128, sum: v128): v128 {
  return i32x4.relaxed_dot_i8x16_i7x16_add_s(x, q, sum);
}

/** A sum of four products of bytes of two words, to test how the processor adds them: see codec_wasm.ts. */
export function four_products(x: i32, q: i32): i32 {
  return i32x4.extract_lane(dot4(i32x4.splat(x), i32x4.splat(q), i32x4.splat(0)), 0);
}

/**
 * The integer dot products of a block of 4 rows with one token.
 *
 * @param fours whether to use {@link dot4}, a compile-time constant
 * @param v0,v1,v2,v3,v4,v5,v6,v7 the words of the token's block, each in all lanes
 * @param half a compile-time constant
 * @param bias what is subtracted from the dot products; by fours, its negative
 */
@inline
function q4i8half(
  fours: i32,
  half: i32,
  w: usize,
  v0: v128,
  v1: v128,
  v2: v128,
  v3: v128,
  v4: v128,
  v5: v128,
  v6: v128,
  v7: v128,
  mask: v128,
  one: v128,
  bias: v128,
): v128 {
  const p0 = half ? v128.load(w, 16) : v128.load(w), p1 = half ? v128.load(w, 48) : v128.load(w, 32);
  const p2 = half ? v128.load(w, 80) : v128.load(w, 64), p3 = half ? v128.load(w, 112) : v128.load(w, 96);
  if (fours) {
    // Chains of two: Binaryen computes all factors of a chain before its first product, and they need registers.
    const zero = i32x4.splat(0);
    const t0 = dot4(v4, v128.and(i16x8.shr_u(p0, 4), mask), dot4(v0, v128.and(p0, mask), bias));
    const t1 = dot4(v5, v128.and(i16x8.shr_u(p1, 4), mask), dot4(v1, v128.and(p1, mask), zero));
    const t2 = dot4(v6, v128.and(i16x8.shr_u(p2, 4), mask), dot4(v2, v128.and(p2, mask), zero));
    const t3 = dot4(v7, v128.and(i16x8.shr_u(p3, 4), mask), dot4(v3, v128.and(p3, mask), zero));
    return i32x4.add(i32x4.add(i32x4.add(t0, t1), t2), t3);
  }
  let t = dot8(v0, v128.and(p0, mask));
  t = i16x8.add(t, dot8(v1, v128.and(p1, mask)));
  t = i16x8.add(t, dot8(v2, v128.and(p2, mask)));
  t = i16x8.add(t, dot8(v3, v128.and(p3, mask)));
  t = i16x8.add(t, dot8(v4, v128.and(i16x8.shr_u(p0, 4), mask)));
  t = i16x8.add(t, dot8(v5, v128.and(i16x8.shr_u(p1, 4), mask)));
  t = i16x8.add(t, dot8(v6, v128.and(i16x8.shr_u(p2, 4), mask)));
  t = i16x8.add(t, dot8(v7, v128.and(i16x8.shr_u(p3, 4), mask)));
  return i32x4.sub(i32x4.dot_i16x8_s(t, one), bias);
}

/** Multiplies `groups` groups of each of `streams` streams, 1 or 4, with one token. See {@link f32_q4_far}. */
@inline
function q4i8far(
  fours: i32,
  streams: i32,
  w: usize,
  step: usize,
  x0: usize,
  blocks: i32,
  y: usize,
  yStep: usize,
  groups: i32,
): void {
  const mask = i32x4.splat(nibbles), one = i32x4.splat(ones);
  const bits = i32x4.splat(halfBits), power = f32x4.splat(halfPower);
  for (let g = 0; g < groups; g++, y += GROUP_RESULT) {
    let a = f32x4.splat(0), b = a, c = a, d = a, e = a, f = a, h = a, i = a;
    let x = x0, xs = x + (<usize> blocks << 5), sums = xs + (<usize> blocks << 2);
    let w1 = w + step, w2 = w1 + step, w3 = w2 + step;
    for (let n = 0; n < blocks; n++, w += GROUP_Q4, x += 32, xs += 4, sums += 4) {
      const lows = v128.load(x), highs = v128.load(x, 16);
      const v0 = lane0(lows), v1 = lane1(lows), v2 = lane2(lows), v3 = lane3(lows);
      const v4 = lane0(highs), v5 = lane1(highs), v6 = lane2(highs), v7 = lane3(highs);
      const bias = fours ? i32x4.neg(splat(sums)) : splat(sums), scale = splat(xs);
      const packed = v128.load(w, Q4_PAYLOAD);
      const t00 = q4i8half(fours, 0, w, v0, v1, v2, v3, v4, v5, v6, v7, mask, one, bias);
      a = scaled(a, t00, scale, scalesOf(0, packed, bits, power));
      const t01 = q4i8half(fours, 1, w, v0, v1, v2, v3, v4, v5, v6, v7, mask, one, bias);
      b = scaled(b, t01, scale, scalesOf(1, packed, bits, power));
      if (streams == STREAMS) {
        const packed1 = v128.load(w1, Q4_PAYLOAD);
        const t10 = q4i8half(fours, 0, w1, v0, v1, v2, v3, v4, v5, v6, v7, mask, one, bias);
        c = scaled(c, t10, scale, scalesOf(0, packed1, bits, power));
        const t11 = q4i8half(fours, 1, w1, v0, v1, v2, v3, v4, v5, v6, v7, mask, one, bias);
        d = scaled(d, t11, scale, scalesOf(1, packed1, bits, power));
        const packed2 = v128.load(w2, Q4_PAYLOAD);
        const t20 = q4i8half(fours, 0, w2, v0, v1, v2, v3, v4, v5, v6, v7, mask, one, bias);
        e = scaled(e, t20, scale, scalesOf(0, packed2, bits, power));
        const t21 = q4i8half(fours, 1, w2, v0, v1, v2, v3, v4, v5, v6, v7, mask, one, bias);
        f = scaled(f, t21, scale, scalesOf(1, packed2, bits, power));
        const packed3 = v128.load(w3, Q4_PAYLOAD);
        const t30 = q4i8half(fours, 0, w3, v0, v1, v2, v3, v4, v5, v6, v7, mask, one, bias);
        h = scaled(h, t30, scale, scalesOf(0, packed3, bits, power));
        const t31 = q4i8half(fours, 1, w3, v0, v1, v2, v3, v4, v5, v6, v7, mask, one, bias);
        i = scaled(i, t31, scale, scalesOf(1, packed3, bits, power));
        w1 += GROUP_Q4;
        w2 += GROUP_Q4;
        w3 += GROUP_Q4;
      }
    }
    v128.store(y, a);
    v128.store(y, b, 16);
    if (streams == STREAMS) {
      v128.store(y + yStep, c);
      v128.store(y + yStep, d, 16);
      v128.store(y + 2 * yStep, e);
      v128.store(y + 2 * yStep, f, 16);
      v128.store(y + 3 * yStep, h);
      v128.store(y + 3 * yStep, i, 16);
    }
  }
}

/** Multiplies two groups, the second at w2 and y2, with four tokens. */
@inline
function q4i8tile(
  w: usize,
  w2: usize,
  x: usize,
  xStride: usize,
  blocks: i32,
  y: usize,
  y2: usize,
  yStride: usize,
): void {
  const mask = i32x4.splat(nibbles), one = i32x4.splat(ones);
  const bits = i32x4.splat(halfBits), power = f32x4.splat(halfPower);
  const stride2 = xStride << 1, stride3 = stride2 + xStride;
  const toSums = <usize> blocks << 2;
  let a0 = f32x4.splat(0), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  let c0 = a0, c1 = a0, c2 = a0, c3 = a0, d0 = a0, d1 = a0, d2 = a0, d3 = a0;
  for (let n = 0, xs = x + (<usize> blocks << 5); n < blocks; n++, w += 16, w2 += 16, x += 16, xs += 4) {
    let p0 = i16x8.splat(0), p1 = p0, p2 = p0, p3 = p0, q0 = p0, q1 = p0, q2 = p0, q3 = p0;
    let r0 = p0, r1 = p0, r2 = p0, r3 = p0, s0 = p0, s1 = p0, s2 = p0, s3 = p0;
    for (const end = x + 16; x < end; x += 4, w += 32, w2 += 32) {
      const e = v128.load(w), f = v128.load(w, 16), g = v128.load(w2), h = v128.load(w2, 16);
      let t = v128.and(e, mask), u = v128.and(f, mask), v = v128.and(g, mask), z = v128.and(h, mask);
      let o = v128.load32_splat(x);
      p0 = i16x8.add(p0, dot8(o, t)), q0 = i16x8.add(q0, dot8(o, u));
      r0 = i16x8.add(r0, dot8(o, v)), s0 = i16x8.add(s0, dot8(o, z));
      o = v128.load32_splat(x + xStride);
      p1 = i16x8.add(p1, dot8(o, t)), q1 = i16x8.add(q1, dot8(o, u));
      r1 = i16x8.add(r1, dot8(o, v)), s1 = i16x8.add(s1, dot8(o, z));
      o = v128.load32_splat(x + stride2);
      p2 = i16x8.add(p2, dot8(o, t)), q2 = i16x8.add(q2, dot8(o, u));
      r2 = i16x8.add(r2, dot8(o, v)), s2 = i16x8.add(s2, dot8(o, z));
      o = v128.load32_splat(x + stride3);
      p3 = i16x8.add(p3, dot8(o, t)), q3 = i16x8.add(q3, dot8(o, u));
      r3 = i16x8.add(r3, dot8(o, v)), s3 = i16x8.add(s3, dot8(o, z));
      t = v128.and(i16x8.shr_u(e, 4), mask), u = v128.and(i16x8.shr_u(f, 4), mask);
      v = v128.and(i16x8.shr_u(g, 4), mask), z = v128.and(i16x8.shr_u(h, 4), mask);
      o = v128.load32_splat(x, 16);
      p0 = i16x8.add(p0, dot8(o, t)), q0 = i16x8.add(q0, dot8(o, u));
      r0 = i16x8.add(r0, dot8(o, v)), s0 = i16x8.add(s0, dot8(o, z));
      o = v128.load32_splat(x + xStride, 16);
      p1 = i16x8.add(p1, dot8(o, t)), q1 = i16x8.add(q1, dot8(o, u));
      r1 = i16x8.add(r1, dot8(o, v)), s1 = i16x8.add(s1, dot8(o, z));
      o = v128.load32_splat(x + stride2, 16);
      p2 = i16x8.add(p2, dot8(o, t)), q2 = i16x8.add(q2, dot8(o, u));
      r2 = i16x8.add(r2, dot8(o, v)), s2 = i16x8.add(s2, dot8(o, z));
      o = v128.load32_splat(x + stride3, 16);
      p3 = i16x8.add(p3, dot8(o, t)), q3 = i16x8.add(q3, dot8(o, u));
      r3 = i16x8.add(r3, dot8(o, v)), s3 = i16x8.add(s3, dot8(o, z));
    }
    const packed = v128.load(w), packed2 = v128.load(w2);
    const e = scalesOf(0, packed, bits, power), f = scalesOf(1, packed, bits, power);
    const g = scalesOf(0, packed2, bits, power), h = scalesOf(1, packed2, bits, power);
    let scale = splat(xs);
    let bias = splat(xs + toSums);
    a0 = scaled(a0, i32x4.sub(i32x4.dot_i16x8_s(p0, one), bias), scale, e);
    b0 = scaled(b0, i32x4.sub(i32x4.dot_i16x8_s(q0, one), bias), scale, f);
    c0 = scaled(c0, i32x4.sub(i32x4.dot_i16x8_s(r0, one), bias), scale, g);
    d0 = scaled(d0, i32x4.sub(i32x4.dot_i16x8_s(s0, one), bias), scale, h);
    scale = splat(xs + xStride);
    bias = splat(xs + xStride + toSums);
    a1 = scaled(a1, i32x4.sub(i32x4.dot_i16x8_s(p1, one), bias), scale, e);
    b1 = scaled(b1, i32x4.sub(i32x4.dot_i16x8_s(q1, one), bias), scale, f);
    c1 = scaled(c1, i32x4.sub(i32x4.dot_i16x8_s(r1, one), bias), scale, g);
    d1 = scaled(d1, i32x4.sub(i32x4.dot_i16x8_s(s1, one), bias), scale, h);
    scale = splat(xs + stride2);
    bias = splat(xs + stride2 + toSums);
    a2 = scaled(a2, i32x4.sub(i32x4.dot_i16x8_s(p2, one), bias), scale, e);
    b2 = scaled(b2, i32x4.sub(i32x4.dot_i16x8_s(q2, one), bias), scale, f);
    c2 = scaled(c2, i32x4.sub(i32x4.dot_i16x8_s(r2, one), bias), scale, g);
    d2 = scaled(d2, i32x4.sub(i32x4.dot_i16x8_s(s2, one), bias), scale, h);
    scale = splat(xs + stride3);
    bias = splat(xs + stride3 + toSums);
    a3 = scaled(a3, i32x4.sub(i32x4.dot_i16x8_s(p3, one), bias), scale, e);
    b3 = scaled(b3, i32x4.sub(i32x4.dot_i16x8_s(q3, one), bias), scale, f);
    c3 = scaled(c3, i32x4.sub(i32x4.dot_i16x8_s(r3, one), bias), scale, g);
    d3 = scaled(d3, i32x4.sub(i32x4.dot_i16x8_s(s3, one), bias), scale, h);
  }
  v128.store(y, a0);
  v128.store(y, b0, 16);
  v128.store(y2, c0);
  v128.store(y2, d0, 16);
  y += yStride;
  y2 += yStride;
  v128.store(y, a1);
  v128.store(y, b1, 16);
  v128.store(y2, c1);
  v128.store(y2, d1, 16);
  y += yStride;
  y2 += yStride;
  v128.store(y, a2);
  v128.store(y, b2, 16);
  v128.store(y2, c2);
  v128.store(y2, d2, 16);
  y += yStride;
  y2 += yStride;
  v128.store(y, a3);
  v128.store(y, b3, 16);
  v128.store(y2, c3);
  v128.store(y2, d3, 16);
}

/** y = W x with four-bit weights and blocks of int8 activations, token after token. */
export function i8_q4(
  w: usize, x: usize, blocks: i32, y: usize, yStride: usize, groups: i32, tokens: i32,
): void {
  const step = <usize> GROUP_Q4 * blocks, xStride = <usize> BLOCK_I8 * blocks;
  for (let g = 0; g < groups; g += 2, w += 2 * step, y += 2 * GROUP_RESULT) {
    const second = g + 1 < groups;
    const w2 = second ? w + step : w, y2 = second ? y + GROUP_RESULT : y;
    let t = 0;
    for (; t + 4 <= tokens; t += 4) {
      q4i8tile(w, w2, x + t * xStride, xStride, blocks, y + t * yStride, y2 + t * yStride, yStride);
    }
    for (; t < tokens; t++) q4i8far(0, 1, w, 0, x + t * xStride, blocks, y + t * yStride, 0, second ? 2 : 1);
  }
}

/** As {@link f32_q4_far}, with blocks of int8 activations. */
export function i8_q4_far(
  w: usize, step: usize, x: usize, blocks: i32, y: usize, yStep: usize, groups: i32,
): void {
  q4i8far(0, STREAMS, w, step, x, blocks, y, yStep, groups);
}

/** As {@link i8_q4_far}, for processors that multiply and add by fours in one instruction. */
export function i8_q4_far_fours(
  w: usize, step: usize, x: usize, blocks: i32, y: usize, yStep: usize, groups: i32,
): void {
  q4i8far(1, STREAMS, w, step, x, blocks, y, yStep, groups);
}

/**
 * Adds the products of four columns of two rows (16-bit integers in the lanes of `q`) with the same columns of the
 * activations.
 */
@inline
function addFour(sum: v128, q: v128, x: v128): v128 {
  return i32x4.add(sum, i32x4.dot_i16x8_s(q, x));
}

@inline
function q4i16half(half: i32, w: usize, x: usize, blocks: i32, y: usize): void {
  const mask = i32x4.splat(nibbles), bits = i32x4.splat(halfBits), power = f32x4.splat(halfPower);
  let a = f32x4.splat(0);
  let xs = x + (<usize> blocks << 6), sums = xs + (<usize> blocks << 2);
  for (let n = 0; n < blocks; n++) {
    let t = i32x4.splat(0), u = i32x4.splat(0);
    for (let c: usize = 0; c < 4; c++) {
      const p = v128.load(w + (c << 5) + half * 16);
      const low = v128.and(p, mask), high = v128.and(i16x8.shr_u(p, 4), mask);
      const v = v128.load64_splat(x + (c << 3)), v2 = v128.load64_splat(x + (c << 3), 32);
      t = addFour(addFour(t, i16x8.extend_low_i8x16_u(low), v), i16x8.extend_low_i8x16_u(high), v2);
      u = addFour(addFour(u, i16x8.extend_high_i8x16_u(low), v), i16x8.extend_high_i8x16_u(high), v2);
    }
    const dot = i32x4.add(v128.shuffle<i32>(t, u, 0, 2, 4, 6), v128.shuffle<i32>(t, u, 1, 3, 5, 7));
    a = scaled(a, i32x4.sub(dot, splat(sums)), splat(xs), scalesOf(half, v128.load(w, Q4_PAYLOAD), bits, power));
    w += GROUP_Q4;
    x += 64;
    xs += 4;
    sums += 4;
  }
  v128.store(y, a);
}

/** y = W x with four-bit weights and blocks of int16 activations (in the order of the columns), token after token. */
export function i16_q4(
  w: usize, x: usize, blocks: i32, y: usize, yStride: usize, groups: i32, tokens: i32,
): void {
  const xStride = <usize> BLOCK_I16 * blocks;
  for (let g = 0; g < groups; g++) {
    for (let t = 0; t < tokens; t++) {
      q4i16half(0, w, x + t * xStride, blocks, y + t * yStride);
      q4i16half(1, w, x + t * xStride, blocks, y + t * yStride + 16);
    }
    w += GROUP_Q4 * blocks;
    y += GROUP_RESULT;
  }
}

/** As {@link f32_q4_far}, with blocks of int16 activations. */
export function i16_q4_far(
  w: usize, step: usize, x: usize, blocks: i32, y: usize, yStep: usize, groups: i32,
): void {
  for (let s = 0; s < STREAMS; s++) i16_q4(w + s * step, x, blocks, y + s * yStep, 0, groups, 1);
}
