// AssemblyScript: products of an eight-bit matrix with int16 activations. reference.ts defines each result, down to the
// order of the additions; tests/unit/kernels/pool_test.ts compares the results bit for bit.

import { halfBits, halfPower, lane0, lane1, lane2, lane3, scaled, scalesOf, splat } from "./lanes.as";
import { BLOCK_I16, GROUP_Q8, GROUP_RESULT, STREAMS } from "./layout";

/** Adds the products of a pair of columns of 4 rows (four pairs of int16) with the token's pair. */
@inline
function pair(sum: v128, q: v128, x: v128): v128 {
  return i32x4.add(sum, i32x4.dot_i16x8_s(q, x));
}

@inline
function low8(p: v128): v128 {
  return i16x8.extend_low_i8x16_s(p);
}
@inline
function high8(p: v128): v128 {
  return i16x8.extend_high_i8x16_s(p);
}

/** Adds the products of one block of a group with one token to the two vectors of sums at y. */
@inline
function q8i16block(w: usize, x: usize, scale: v128, y: usize, bits: v128, power: v128): void {
  let t = i32x4.splat(0), u = i32x4.splat(0);
  for (const end = x + 64; x < end; x += 16, w += 64) {
    const v = v128.load(x), c = v128.load(w), d = v128.load(w, 16), e = v128.load(w, 32), f = v128.load(w, 48);
    let z = lane0(v);
    t = pair(t, low8(c), z), u = pair(u, high8(c), z);
    z = lane1(v);
    t = pair(t, low8(d), z), u = pair(u, high8(d), z);
    z = lane2(v);
    t = pair(t, low8(e), z), u = pair(u, high8(e), z);
    z = lane3(v);
    t = pair(t, low8(f), z), u = pair(u, high8(f), z);
  }
  const packed = v128.load(w);
  const a = scaled(v128.load(y), t, scale, scalesOf(0, packed, bits, power));
  const b = scaled(v128.load(y, 16), u, scale, scalesOf(1, packed, bits, power));
  v128.store(y, a);
  v128.store(y, b, 16);
}

/** Multiplies `groups` groups of each of `streams` streams with one token. See {@link f32_q4_far}. */
@inline
function q8i16far(
  streams: i32,
  w: usize,
  step: usize,
  x0: usize,
  blocks: i32,
  y: usize,
  yStep: usize,
  groups: i32,
): void {
  const bits = i32x4.splat(halfBits), power = f32x4.splat(halfPower);
  for (let g = 0; g < groups; g++, y += GROUP_RESULT) {
    for (let s = 0, out = y; s < streams; s++, out += yStep) {
      v128.store(out, f32x4.splat(0));
      v128.store(out, f32x4.splat(0), 16);
    }
    for (let n = 0, x = x0, xs = x + (<usize> blocks << 6); n < blocks; n++, w += GROUP_Q8, x += 64, xs += 4) {
      const scale = splat(xs);
      for (let s = 0, from = w, out = y; s < streams; s++, from += step, out += yStep) {
        q8i16block(from, x, scale, out, bits, power);
      }
    }
  }
}

/** Multiplies two groups, the second at w2 and y2, with four tokens. */
@inline
function q8i16tile(
  w: usize,
  w2: usize,
  x: usize,
  xStride: usize,
  blocks: i32,
  y: usize,
  y2: usize,
  yStride: usize,
): void {
  const bits = i32x4.splat(halfBits), power = f32x4.splat(halfPower);
  const stride2 = xStride << 1, stride3 = stride2 + xStride;
  let a0 = f32x4.splat(0), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0, b2 = a0, b3 = a0;
  let c0 = a0, c1 = a0, c2 = a0, c3 = a0, d0 = a0, d1 = a0, d2 = a0, d3 = a0;
  for (let n = 0, xs = x + (<usize> blocks << 6); n < blocks; n++, w += 16, w2 += 16, xs += 4) {
    let p0 = i32x4.splat(0), p1 = p0, p2 = p0, p3 = p0, q0 = p0, q1 = p0, q2 = p0, q3 = p0;
    let r0 = p0, r1 = p0, r2 = p0, r3 = p0, s0 = p0, s1 = p0, s2 = p0, s3 = p0;
    for (const end = x + 64; x < end; x += 8, w += 32, w2 += 32) {
      let e = v128.load(w), f = v128.load(w2);
      let t = low8(e), u = high8(e), v = low8(f), z = high8(f);
      let o = v128.load32_splat(x);
      p0 = pair(p0, t, o), q0 = pair(q0, u, o), r0 = pair(r0, v, o), s0 = pair(s0, z, o);
      o = v128.load32_splat(x + xStride);
      p1 = pair(p1, t, o), q1 = pair(q1, u, o), r1 = pair(r1, v, o), s1 = pair(s1, z, o);
      o = v128.load32_splat(x + stride2);
      p2 = pair(p2, t, o), q2 = pair(q2, u, o), r2 = pair(r2, v, o), s2 = pair(s2, z, o);
      o = v128.load32_splat(x + stride3);
      p3 = pair(p3, t, o), q3 = pair(q3, u, o), r3 = pair(r3, v, o), s3 = pair(s3, z, o);
      e = v128.load(w, 16), f = v128.load(w2, 16);
      t = low8(e), u = high8(e), v = low8(f), z = high8(f);
      o = v128.load32_splat(x, 4);
      p0 = pair(p0, t, o), q0 = pair(q0, u, o), r0 = pair(r0, v, o), s0 = pair(s0, z, o);
      o = v128.load32_splat(x + xStride, 4);
      p1 = pair(p1, t, o), q1 = pair(q1, u, o), r1 = pair(r1, v, o), s1 = pair(s1, z, o);
      o = v128.load32_splat(x + stride2, 4);
      p2 = pair(p2, t, o), q2 = pair(q2, u, o), r2 = pair(r2, v, o), s2 = pair(s2, z, o);
      o = v128.load32_splat(x + stride3, 4);
      p3 = pair(p3, t, o), q3 = pair(q3, u, o), r3 = pair(r3, v, o), s3 = pair(s3, z, o);
    }
    const packed = v128.load(w), packed2 = v128.load(w2);
    const e = scalesOf(0, packed, bits, power), f = scalesOf(1, packed, bits, power);
    const g = scalesOf(0, packed2, bits, power), h = scalesOf(1, packed2, bits, power);
    let scale = splat(xs);
    a0 = scaled(a0, p0, scale, e), b0 = scaled(b0, q0, scale, f);
    c0 = scaled(c0, r0, scale, g), d0 = scaled(d0, s0, scale, h);
    scale = splat(xs + xStride);
    a1 = scaled(a1, p1, scale, e), b1 = scaled(b1, q1, scale, f);
    c1 = scaled(c1, r1, scale, g), d1 = scaled(d1, s1, scale, h);
    scale = splat(xs + stride2);
    a2 = scaled(a2, p2, scale, e), b2 = scaled(b2, q2, scale, f);
    c2 = scaled(c2, r2, scale, g), d2 = scaled(d2, s2, scale, h);
    scale = splat(xs + stride3);
    a3 = scaled(a3, p3, scale, e), b3 = scaled(b3, q3, scale, f);
    c3 = scaled(c3, r3, scale, g), d3 = scaled(d3, s3, scale, h);
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

/** y = W x with eight-bit weights and blocks of int16 activations (in pairs of columns j and 16+j), token after token. */
export function i16_q8(
  w: usize, x: usize, blocks: i32, y: usize, yStride: usize, groups: i32, tokens: i32,
): void {
  const step = <usize> GROUP_Q8 * blocks, xStride = <usize> BLOCK_I16 * blocks;
  for (let g = 0; g < groups; g += 2, w += 2 * step, y += 2 * GROUP_RESULT) {
    const second = g + 1 < groups;
    const w2 = second ? w + step : w, y2 = second ? y + GROUP_RESULT : y;
    let t = 0;
    for (; t + 4 <= tokens; t += 4) {
      q8i16tile(w, w2, x + t * xStride, xStride, blocks, y + t * yStride, y2 + t * yStride, yStride);
    }
    for (; t < tokens; t++) q8i16far(1, w, 0, x + t * xStride, blocks, y + t * yStride, 0, second ? 2 : 1);
  }
}

/** As {@link f32_q4_far}, with blocks of int16 activations. */
export function i16_q8_far(
  w: usize, step: usize, x: usize, blocks: i32, y: usize, yStep: usize, groups: i32,
): void {
  q8i16far(STREAMS, w, step, x, blocks, y, yStep, groups);
}
