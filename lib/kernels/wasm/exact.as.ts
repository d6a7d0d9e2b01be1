// AssemblyScript: products of a matrix with the binary32 activations of several tokens, computed from the blocks.
// reference.ts defines each result, down to the order of the additions; tests/unit/kernels/pool_test.ts compares the results
// bit for bit.

import {
  highBias, highNibble, highOf, highPower, lowBias, lowOf, lowPower, maskOf, pairOf, twoColumns, wordOf,
} from "./decode.as";
import { far, finish } from "./far.as";
import { madd } from "./fused.as";
import { blockBytes, halfBits, halfPower, hasScales, payloadBytes, scalesOf } from "./lanes.as";
import { BF16, F16, F32, GROUP_RESULT, Q4, Q8, UNPACKED, UNPACKED_SUMS } from "./layout";

/**
 * Unpacks a block of two groups, the second at w2, to binary32: for each of the 32 columns, the 16 rows. Weights of q4
 * and q8 are not scaled.
 */
@inline
function unpackBlocks(
  kind: i32,
  w: usize,
  w2: usize,
  room: usize,
  mask: v128,
  mask2: v128,
  power: v128,
  power2: v128,
  bias: v128,
  bias2: v128,
): void {
  for (let j = 0; j < 8; j++, room += 128) {
    const at = w + twoColumns(kind, j), at2 = w2 + twoColumns(kind, j);
    let p = pairOf(kind, at, 0, 0, wordOf(kind, at, 0));
    let q = pairOf(kind, at, 0, 1, wordOf(kind, at, 1));
    let r = pairOf(kind, at2, 0, 0, wordOf(kind, at2, 0));
    let s = pairOf(kind, at2, 0, 1, wordOf(kind, at2, 1));
    v128.store(room, lowOf(kind, at, 0, 0, p, mask, power, bias));
    v128.store(room, lowOf(kind, at, 0, 1, q, mask, power, bias), 16);
    v128.store(room, lowOf(kind, at2, 0, 0, r, mask, power, bias), 32);
    v128.store(room, lowOf(kind, at2, 0, 1, s, mask, power, bias), 48);
    v128.store(room, highOf(kind, at, 0, 0, p, mask2, power2, bias2), 1024);
    v128.store(room, highOf(kind, at, 0, 1, q, mask2, power2, bias2), 1040);
    v128.store(room, highOf(kind, at2, 0, 0, r, mask2, power2, bias2), 1056);
    v128.store(room, highOf(kind, at2, 0, 1, s, mask2, power2, bias2), 1072);
    p = pairOf(kind, at, 1, 0, wordOf(kind, at, 0));
    q = pairOf(kind, at, 1, 1, wordOf(kind, at, 1));
    r = pairOf(kind, at2, 1, 0, wordOf(kind, at2, 0));
    s = pairOf(kind, at2, 1, 1, wordOf(kind, at2, 1));
    v128.store(room, lowOf(kind, at, 1, 0, p, mask, power, bias), 64);
    v128.store(room, lowOf(kind, at, 1, 1, q, mask, power, bias), 80);
    v128.store(room, lowOf(kind, at2, 1, 0, r, mask, power, bias), 96);
    v128.store(room, lowOf(kind, at2, 1, 1, s, mask, power, bias), 112);
    v128.store(room, highOf(kind, at, 1, 0, p, mask2, power2, bias2), 1088);
    v128.store(room, highOf(kind, at, 1, 1, q, mask2, power2, bias2), 1104);
    v128.store(room, highOf(kind, at2, 1, 0, r, mask2, power2, bias2), 1120);
    v128.store(room, highOf(kind, at2, 1, 1, s, mask2, power2, bias2), 1136);
  }
}

/**
 * Adds the sums of a block to those of a token's 16 rows: p to s over its first 16 columns, i to l over the last 16.
 */
@inline
function addBlock(
  kind: i32,
  sums: usize,
  p: v128,
  i: v128,
  q: v128,
  j: v128,
  r: v128,
  k: v128,
  s: v128,
  l: v128,
  c: v128,
  d: v128,
  e: v128,
  f: v128,
): void {
  const a = finish(kind, v128.load(sums), p, i, c), b = finish(kind, v128.load(sums, 16), q, j, d);
  const g = finish(kind, v128.load(sums, 32), r, k, e), h = finish(kind, v128.load(sums, 48), s, l, f);
  v128.store(sums, a);
  v128.store(sums, b, 16);
  v128.store(sums, g, 32);
  v128.store(sums, h, 48);
}

/**
 * Adds the products of a block of two groups with four tokens to their sums. Columns 0 to 15 and columns 16 to 31 have
 * separate loops: one loop for both, which keeps the first sums, took 1 to 9 % longer, and a function that is called
 * twice 10 to 15 %.
 *
 * @param at the result of {@link unpackBlocks}
 * @param sums of each token, those of the 16 rows
 * @param c,d,e,f the scales of the 16 rows, used for q4 and q8 only
 */
@inline
function tile(
  kind: i32,
  at: usize,
  x: usize,
  sums: usize,
  c: v128,
  d: v128,
  e: v128,
  f: v128,
): void {
  let p0 = f32x4.splat(0), p1 = p0, p2 = p0, p3 = p0, q0 = p0, q1 = p0, q2 = p0, q3 = p0;
  let r0 = p0, r1 = p0, r2 = p0, r3 = p0, s0 = p0, s1 = p0, s2 = p0, s3 = p0;
  for (const end = at + 1024; at < end; at += 128, x += 8) {
    let t = v128.load(at), u = v128.load(at, 16), v = v128.load(at, 32), z = v128.load(at, 48);
    let o = v128.load32_splat(x);
    p0 = madd(p0, t, o), q0 = madd(q0, u, o);
    r0 = madd(r0, v, o), s0 = madd(s0, z, o);
    o = v128.load32_splat(x, 128);
    p1 = madd(p1, t, o), q1 = madd(q1, u, o);
    r1 = madd(r1, v, o), s1 = madd(s1, z, o);
    o = v128.load32_splat(x, 256);
    p2 = madd(p2, t, o), q2 = madd(q2, u, o);
    r2 = madd(r2, v, o), s2 = madd(s2, z, o);
    o = v128.load32_splat(x, 384);
    p3 = madd(p3, t, o), q3 = madd(q3, u, o);
    r3 = madd(r3, v, o), s3 = madd(s3, z, o);
    t = v128.load(at, 64), u = v128.load(at, 80), v = v128.load(at, 96), z = v128.load(at, 112);
    o = v128.load32_splat(x, 4);
    p0 = madd(p0, t, o), q0 = madd(q0, u, o);
    r0 = madd(r0, v, o), s0 = madd(s0, z, o);
    o = v128.load32_splat(x, 132);
    p1 = madd(p1, t, o), q1 = madd(q1, u, o);
    r1 = madd(r1, v, o), s1 = madd(s1, z, o);
    o = v128.load32_splat(x, 260);
    p2 = madd(p2, t, o), q2 = madd(q2, u, o);
    r2 = madd(r2, v, o), s2 = madd(s2, z, o);
    o = v128.load32_splat(x, 388);
    p3 = madd(p3, t, o), q3 = madd(q3, u, o);
    r3 = madd(r3, v, o), s3 = madd(s3, z, o);
  }
  let i0 = f32x4.splat(0), i1 = i0, i2 = i0, i3 = i0, j0 = i0, j1 = i0, j2 = i0, j3 = i0;
  let k0 = i0, k1 = i0, k2 = i0, k3 = i0, l0 = i0, l1 = i0, l2 = i0, l3 = i0;
  for (const end = at + 1024; at < end; at += 128, x += 8) {
    let t = v128.load(at), u = v128.load(at, 16), v = v128.load(at, 32), z = v128.load(at, 48);
    let o = v128.load32_splat(x);
    i0 = madd(i0, t, o), j0 = madd(j0, u, o);
    k0 = madd(k0, v, o), l0 = madd(l0, z, o);
    o = v128.load32_splat(x, 128);
    i1 = madd(i1, t, o), j1 = madd(j1, u, o);
    k1 = madd(k1, v, o), l1 = madd(l1, z, o);
    o = v128.load32_splat(x, 256);
    i2 = madd(i2, t, o), j2 = madd(j2, u, o);
    k2 = madd(k2, v, o), l2 = madd(l2, z, o);
    o = v128.load32_splat(x, 384);
    i3 = madd(i3, t, o), j3 = madd(j3, u, o);
    k3 = madd(k3, v, o), l3 = madd(l3, z, o);
    t = v128.load(at, 64), u = v128.load(at, 80), v = v128.load(at, 96), z = v128.load(at, 112);
    o = v128.load32_splat(x, 4);
    i0 = madd(i0, t, o), j0 = madd(j0, u, o);
    k0 = madd(k0, v, o), l0 = madd(l0, z, o);
    o = v128.load32_splat(x, 132);
    i1 = madd(i1, t, o), j1 = madd(j1, u, o);
    k1 = madd(k1, v, o), l1 = madd(l1, z, o);
    o = v128.load32_splat(x, 260);
    i2 = madd(i2, t, o), j2 = madd(j2, u, o);
    k2 = madd(k2, v, o), l2 = madd(l2, z, o);
    o = v128.load32_splat(x, 388);
    i3 = madd(i3, t, o), j3 = madd(j3, u, o);
    k3 = madd(k3, v, o), l3 = madd(l3, z, o);
  }
  addBlock(kind, sums, p0, i0, q0, j0, r0, k0, s0, l0, c, d, e, f);
  addBlock(kind, sums + 64, p1, i1, q1, j1, r1, k1, s1, l1, c, d, e, f);
  addBlock(kind, sums + 128, p2, i2, q2, j2, r2, k2, s2, l2, c, d, e, f);
  addBlock(kind, sums + 192, p3, i3, q3, j3, r3, k3, s3, l3, c, d, e, f);
}

/** See {@link f32_q4}; `kind` is a compile-time constant. */
@inline
function exact(
  kind: i32,
  w: usize,
  x: usize,
  blocks: i32,
  y: usize,
  yStride: usize,
  groups: i32,
  tokens: i32,
  room: usize,
): void {
  const mask = maskOf(kind), mask2 = kind == Q4 ? i32x4.splat(highNibble) : mask;
  const power = f32x4.splat(kind == Q4 ? lowPower : halfPower), power2 = kind == Q4 ? f32x4.splat(highPower) : power;
  const bias = f32x4.splat(lowBias), bias2 = f32x4.splat(highBias);
  const bits = i32x4.splat(halfBits), scale = f32x4.splat(halfPower);
  const step = blockBytes(kind) * blocks;
  const fours = tokens & -4, xStep = <usize> tokens << 7;
  for (let g = 0; g < groups; g += 2, w += 2 * step, y += UNPACKED_SUMS) {
    // The last of an odd number of groups is paired with itself.
    const second = g + 1 < groups;
    const w2 = second ? w + step : w;
    // Adjacent, unlike the results: with some strides all results would map to the same set of the processor's cache.
    const sums = room + UNPACKED, end = sums + (<usize> fours << 6);
    for (let at = sums; at < end; at += 16) v128.store(at, f32x4.splat(0));
    if (fours > 0) {
      for (let n = 0, from = w, from2 = w2, at = x; n < blocks; n++, at += xStep) {
        unpackBlocks(kind, from, from2, room, mask, mask2, power, power2, bias, bias2);
        const packed = hasScales(kind) ? v128.load(from + payloadBytes(kind)) : mask;
        const packed2 = hasScales(kind) ? v128.load(from2 + payloadBytes(kind)) : mask;
        const c = scalesOf(0, packed, bits, scale), d = scalesOf(1, packed, bits, scale);
        const e = scalesOf(0, packed2, bits, scale), f = scalesOf(1, packed2, bits, scale);
        for (let own = at, to = sums; to < end; to += 256, own += 512) {
          tile(kind, room, own, to, c, d, e, f);
        }
        from += blockBytes(kind);
        from2 += blockBytes(kind);
      }
    }
    for (let at = sums, to = y; at < end; at += 64, to += yStride) {
      const a = v128.load(at), b = v128.load(at, 16), c = v128.load(at, 32), d = v128.load(at, 48);
      v128.store(to, a);
      v128.store(to, b, 16);
      if (second) {
        v128.store(to, c, 32);
        v128.store(to, d, 48);
      }
    }
    for (let t = fours; t < tokens; t++) {
      const to = y + t * yStride;
      // Without a second group the first is computed twice, the second time into scratch.
      far(kind, 2, w, w2 - w, x + (t << 7), xStep, blocks, to, second ? GROUP_RESULT : room - to, 1);
    }
  }
}

/**
 * y = W x with exact binary32 activations, by the kind of the weights.
 *
 * @param w the first group
 * @param x for each block of 32 columns, 32 binary32 of each token: see {@link arrange}
 * @param y `tokens` rows, yStride bytes apart; 8 * groups binary32 of each are written
 * @param room scratch: UNPACKED bytes, and UNPACKED_SUMS per token
 */
export function f32_q4(
  w: usize, x: usize, blocks: i32, y: usize, yStride: usize, groups: i32, tokens: i32, room: usize,
): void {
  exact(Q4, w, x, blocks, y, yStride, groups, tokens, room);
}
export function f32_q8(
  w: usize, x: usize, blocks: i32, y: usize, yStride: usize, groups: i32, tokens: i32, room: usize,
): void {
  exact(Q8, w, x, blocks, y, yStride, groups, tokens, room);
}
export function f32_bf16(
  w: usize, x: usize, blocks: i32, y: usize, yStride: usize, groups: i32, tokens: i32, room: usize,
): void {
  exact(BF16, w, x, blocks, y, yStride, groups, tokens, room);
}
export function f32_f16(
  w: usize, x: usize, blocks: i32, y: usize, yStride: usize, groups: i32, tokens: i32, room: usize,
): void {
  exact(F16, w, x, blocks, y, yStride, groups, tokens, room);
}
export function f32_f32(
  w: usize, x: usize, blocks: i32, y: usize, yStride: usize, groups: i32, tokens: i32, room: usize,
): void {
  exact(F32, w, x, blocks, y, yStride, groups, tokens, room);
}
