// AssemblyScript: products of a matrix with activations, straight from the blocks. reference.ts defines the result of
// each, down to the order of the additions; tests/unit/kernels/pool_test.ts holds these functions to it bit for bit.
//
// A lane is a row, so nothing is ever summed across lanes. Matrices are packed when they are loaded (pack_*), in groups
// of 8 rows; a group is a sequence of blocks of 32 columns. A vector has the first 4 rows of a group, or the other 4, and
// the two stand side by side in memory:
//
//   q4   for c in 0..3, 4 bytes of each row: columns 4c..4c+3 in the low nibbles, 16+4c..16+4c+3 in the high ones, each
//        as level + 8
//   q8   for j in 0..15, 2 bytes of each row: column j, column 16+j
//   16   for j in 0..15, 4 bytes of each row: the same with 16-bit floats
//   f32  for j in 0..15, column j of each row, then column 16+j of each
//
// and for q4 and q8 a block ends with the binary16 scales of the 8 rows.
//
// What the engine (V8) and the compiler (Binaryen) make of this decides how it is written:
// - V8 makes one 256-bit operation of the same operation on both halves of a group (flags.ts), if they load and store
//   side by side and no store comes between the loads; side by side for V8 is one address at two literal offsets, a sum
//   like w + 16 is another address, so that two loads are put together, in three instructions;
// - V8 makes one of two loads that extend only where both have an offset, so a whole vector is loaded and extended;
// - Binaryen moves a computation to where its result is used, past others that share its operands, which then don't fit
//   the registers. It doesn't do so across the turns of a loop, so loops are short;
// - without the flags V8 checks the address of each load, so loads are wide, at few distinct offsets;
// - it builds a constant vector anew at each use, in three instructions. It can't know that an exported variable never
//   changes, so vectors made of those stay in registers.

import { peak, TINY, toIntegers } from "./integers.as";

const Q4: i32 = 0;
const Q8: i32 = 1;
const BF16: i32 = 2;
const F16: i32 = 3;
const F32: i32 = 4;

/** 15 in each byte. */
export let nibbles: i32 = 0x0f0f0f0f;
/** 1 in each 16-bit half. */
export let ones: i32 = 0x00010001;
/** The upper 16 bits. */
export let upper: i32 = 0xffff0000;
/** See {@link halves}. */
export let halfBits: i32 = 0x8fffe000;
export let halfPower: f32 = 5192296858534827628530496329220096.0;
/** See {@link lowOf}, {@link highOf}. */
export let lowNibble: i32 = 0x00000f00;
export let lowPower: f32 = 32768;
export let lowBias: f32 = 32776;
export let highNibble: i32 = 0x0000f000;
export let highPower: f32 = 2048;
export let highBias: f32 = 2056;

/** Bytes of the payload of 8 rows and 32 columns. */
@inline
function payloadBytes(kind: i32): usize {
  return kind == Q4 ? 128 : kind == Q8 ? 256 : kind == F32 ? 1024 : 512;
}

/** Bytes of 8 rows and 32 columns, with their scales. */
@inline
function blockBytes(kind: i32): usize {
  return payloadBytes(kind) + (kind <= Q8 ? 16 : 0);
}

@inline
function lane0(v: v128): v128 {
  return v128.shuffle<i32>(v, v, 0, 0, 0, 0);
}
@inline
function lane1(v: v128): v128 {
  return v128.shuffle<i32>(v, v, 1, 1, 1, 1);
}
@inline
function lane2(v: v128): v128 {
  return v128.shuffle<i32>(v, v, 2, 2, 2, 2);
}
@inline
function lane3(v: v128): v128 {
  return v128.shuffle<i32>(v, v, 3, 3, 3, 3);
}

@inline
function splat(at: usize): v128 {
  return v128.load32_splat(at);
}

/**
 * Four binary16 as binary32. `h` has their bits as signed integers, 13 bits to the left, where binary32 has its mantissa.
 * The exponent is moved by a product with 2^112, which is exact for subnormals too, but not for infinities and NaNs:
 * loading refuses them.
 *
 * @param bits,power halfBits and halfPower in each lane
 */
@inline
function halves(h: v128, bits: v128, power: v128): v128 {
  return f32x4.mul(v128.and(h, bits), power);
}

/** The scales of 4 rows: of the first half of a group or of the other. `packed` are those of the block. */
@inline
function scalesOf(half: i32, packed: v128, bits: v128, power: v128): v128 {
  const own = half == 0 ? i32x4.extend_low_i16x8_s(packed) : i32x4.extend_high_i16x8_s(packed);
  return halves(i32x4.shl(own, 13), bits, power);
}

// ---------------------------------------------------------------- exact activations

/** The first constant that {@link lowOf} and {@link highOf} take. */
@inline
function maskOf(kind: i32): v128 {
  return i32x4.splat(kind == Q4 ? lowNibble : kind == BF16 ? upper : halfBits);
}

/**
 * Columns 4c+k and 16+4c+k of the 4 rows of a half, as a pair; `at` is the first byte of column 4c, k and half are
 * constants of the call. For q4 one load serves four columns: `word` is it, and the pair is in bits 8 to 15.
 */
@inline
function pairOf(kind: i32, at: usize, k: i32, half: i32, word: v128): v128 {
  if (kind == Q4) return k == 0 ? i32x4.shl(word, 8) : k == 1 ? word : i32x4.shr_u(word, 8 * (k - 1));
  if (kind == Q8) {
    const both = v128.load(at + k * 16);
    return half ? i16x8.extend_high_i8x16_s(both) : i16x8.extend_low_i8x16_s(both);
  }
  if (kind == F32) return word;
  return v128.load(at + k * 32 + half * 16);
}

@inline
function wordOf(kind: i32, at: usize, half: i32): v128 {
  return kind == Q4 ? v128.load(at + half * 16) : i32x4.splat(0);
}

/** Bytes from column 4c to column 4c+4. */
@inline
function quadBytes(kind: i32): usize {
  return kind == Q4 ? 32 : kind == Q8 ? 64 : kind == F32 ? 256 : 128;
}

/**
 * Column 4c+k of 4 rows as binary32. For q4 the nibble becomes the last bits of 2^15 + level + 8, from which 2^15 + 8 is
 * subtracted: exact, and cheaper than two shifts and a conversion.
 */
@inline
function lowOf(kind: i32, at: usize, k: i32, half: i32, pair: v128, mask: v128, power: v128, bias: v128): v128 {
  if (kind == Q4) return f32x4.sub(v128.or(v128.and(pair, mask), power), bias);
  if (kind == Q8) return f32x4.convert_i32x4_s(i32x4.shr_s(i32x4.shl(pair, 16), 16));
  if (kind == BF16) return i32x4.shl(pair, 16);
  if (kind == F16) return halves(i32x4.shr_s(i32x4.shl(pair, 16), 3), mask, power);
  return v128.load(at + k * 64 + half * 16);
}

/** Column 16+4c+k of 4 rows as binary32; for q4 as {@link lowOf}, with 2^11. */
@inline
function highOf(kind: i32, at: usize, k: i32, half: i32, pair: v128, mask: v128, power: v128, bias: v128): v128 {
  if (kind == Q4) return f32x4.sub(v128.or(v128.and(pair, mask), power), bias);
  if (kind == Q8) return f32x4.convert_i32x4_s(i32x4.shr_s(pair, 16));
  if (kind == BF16) return v128.and(pair, mask);
  if (kind == F16) return halves(i32x4.shr_s(pair, 3), mask, power);
  return v128.load(at + k * 64 + half * 16 + 32);
}

/** Where columns 2j and 2j+1 of a block begin, as {@link pairOf} takes them. For q4 they are half a word. */
@inline
function twoColumns(kind: i32, j: i32): usize {
  return kind == Q4 ? ((j >> 1) << 5) + ((j & 1) << 1) : j * (quadBytes(kind) >> 1);
}

/** The sum of one block over one token, added to the row's sum; `scales` only count for q4 and q8. */
@inline
function finish(kind: i32, sum: v128, low: v128, high: v128, scales: v128): v128 {
  const block = f32x4.add(low, high);
  return f32x4.add(sum, kind <= Q8 ? f32x4.mul(block, scales) : block);
}

@inline
function madd(sum: v128, w: v128, x: v128): v128 {
  return f32x4.add(sum, f32x4.mul(w, x));
}

/** Adds to y the products of one block of a group (8 rows) with one token; exact binary32 activations. */
@inline
function block1(
  kind: i32,
  w: usize,
  x: usize,
  y: usize,
  mask: v128,
  mask2: v128,
  power: v128,
  power2: v128,
  bias: v128,
  bias2: v128,
  bits: v128,
  scale: v128,
): void {
  let aLow = f32x4.splat(0), aHigh = f32x4.splat(0), bLow = f32x4.splat(0), bHigh = f32x4.splat(0);
  for (const end = x + 64; x < end; x += 16, w += quadBytes(kind)) {
    const lows = v128.load(x), highs = v128.load(x, 64);
    const pWord = wordOf(kind, w, 0), qWord = wordOf(kind, w, 1);
    let v = lane0(lows);
    let u = lane0(highs);
    let p = pairOf(kind, w, 0, 0, pWord);
    let q = pairOf(kind, w, 0, 1, qWord);
    aLow = madd(aLow, lowOf(kind, w, 0, 0, p, mask, power, bias), v);
    aHigh = madd(aHigh, highOf(kind, w, 0, 0, p, mask2, power2, bias2), u);
    bLow = madd(bLow, lowOf(kind, w, 0, 1, q, mask, power, bias), v);
    bHigh = madd(bHigh, highOf(kind, w, 0, 1, q, mask2, power2, bias2), u);
    v = lane1(lows);
    u = lane1(highs);
    p = pairOf(kind, w, 1, 0, pWord);
    q = pairOf(kind, w, 1, 1, qWord);
    aLow = madd(aLow, lowOf(kind, w, 1, 0, p, mask, power, bias), v);
    aHigh = madd(aHigh, highOf(kind, w, 1, 0, p, mask2, power2, bias2), u);
    bLow = madd(bLow, lowOf(kind, w, 1, 1, q, mask, power, bias), v);
    bHigh = madd(bHigh, highOf(kind, w, 1, 1, q, mask2, power2, bias2), u);
    v = lane2(lows);
    u = lane2(highs);
    p = pairOf(kind, w, 2, 0, pWord);
    q = pairOf(kind, w, 2, 1, qWord);
    aLow = madd(aLow, lowOf(kind, w, 2, 0, p, mask, power, bias), v);
    aHigh = madd(aHigh, highOf(kind, w, 2, 0, p, mask2, power2, bias2), u);
    bLow = madd(bLow, lowOf(kind, w, 2, 1, q, mask, power, bias), v);
    bHigh = madd(bHigh, highOf(kind, w, 2, 1, q, mask2, power2, bias2), u);
    v = lane3(lows);
    u = lane3(highs);
    p = pairOf(kind, w, 3, 0, pWord);
    q = pairOf(kind, w, 3, 1, qWord);
    aLow = madd(aLow, lowOf(kind, w, 3, 0, p, mask, power, bias), v);
    aHigh = madd(aHigh, highOf(kind, w, 3, 0, p, mask2, power2, bias2), u);
    bLow = madd(bLow, lowOf(kind, w, 3, 1, q, mask, power, bias), v);
    bHigh = madd(bHigh, highOf(kind, w, 3, 1, q, mask2, power2, bias2), u);
  }
  const packed = kind <= Q8 ? v128.load(w) : mask;
  const a = finish(kind, v128.load(y), aLow, aHigh, scalesOf(0, packed, bits, scale));
  const b = finish(kind, v128.load(y, 16), bLow, bHigh, scalesOf(1, packed, bits, scale));
  v128.store(y, a);
  v128.store(y, b, 16);
}

/**
 * `groups` groups of each of `streams` streams times one token; exact binary32 activations. See {@link f32_q4_far}.
 *
 * @param xStep bytes from one block of the token to the next one
 */
@inline
function far(
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
  for (let g = 0; g < groups; g++, y += 32) {
    for (let s = 0, out = y; s < streams; s++, out += yStep) {
      v128.store(out, f32x4.splat(0));
      v128.store(out, f32x4.splat(0), 16);
    }
    for (let n = 0, at = x; n < blocks; n++, at += xStep, w += blockBytes(kind)) {
      for (let s = 0, from = w, out = y; s < streams; s++, from += step, out += yStep) {
        block1(kind, from, at, out, mask, mask2, power, power2, bias, bias2, bits, scale);
      }
    }
  }
}

/** Bytes of a block of two groups as binary32. */
const UNPACKED: usize = 2048;

/**
 * A block of two groups, the second at w2, as binary32, for q4 and q8 without the scales: for each of the 32 columns the
 * 16 rows.
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

/** Adds the sums of a block, p to s over its first columns and i to l over the others, to those of a token's 16 rows. */
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
 * Adds the products of a block of two groups with four tokens to their sums. Columns 0 to 15 of the block come first, then
 * 16 to 31, in a loop of their own: one loop for both, which keeps the first sums, took 1 to 9 % longer, a function that
 * is called twice 10 to 15 %.
 *
 * @param at what {@link unpackBlocks} made
 * @param sums of each token those of the 16 rows
 * @param c,d,e,f the scales of the 16 rows, which only count for q4 and q8
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

/** Puts the blocks of a token, 32 binary32 each, `step` bytes apart: between them there is room for the other tokens'. */
export function arrange(x: usize, blocks: i32, out: usize, step: usize): void {
  for (const end = x + (<usize> blocks << 7); x < end; out += step) {
    for (let to = out; to < out + 128; to += 32, x += 32) {
      const a = v128.load(x), b = v128.load(x, 16);
      v128.store(to, a);
      v128.store(to, b, 16);
    }
  }
}

/** See {@link f32_q4}; `kind` is a constant of the call. */
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
  for (let g = 0; g < groups; g += 2, w += 2 * step, y += 64) {
    // The last of an odd number of groups is its own neighbour.
    const second = g + 1 < groups;
    const w2 = second ? w + step : w;
    // Close to each other, whatever the distance of the results: at some distances they would all have the same place in
    // the processor's cache.
    const sums = room + UNPACKED, end = sums + (<usize> fours << 6);
    for (let at = sums; at < end; at += 16) v128.store(at, f32x4.splat(0));
    if (fours > 0) {
      for (let n = 0, from = w, from2 = w2, at = x; n < blocks; n++, at += xStep) {
        unpackBlocks(kind, from, from2, room, mask, mask2, power, power2, bias, bias2);
        const packed = kind <= Q8 ? v128.load(from + payloadBytes(kind)) : mask;
        const packed2 = kind <= Q8 ? v128.load(from2 + payloadBytes(kind)) : mask;
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
      far(kind, 1, w, 0, x + (t << 7), xStep, blocks, y + t * yStride, 0, second ? 2 : 1);
    }
  }
}

/**
 * y = W x with exact binary32 activations.
 *
 * @param w the first group
 * @param x for each block of 32 columns, of each token 32 binary32: see {@link arrange}
 * @param y tokens rows, yStride bytes apart; 8 * groups binary32 of each are written
 * @param room 2048 bytes of scratch, and 64 for each token
 */
export function f32_q4(
  w: usize,
  x: usize,
  blocks: i32,
  y: usize,
  yStride: usize,
  groups: i32,
  tokens: i32,
  room: usize,
): void {
  exact(Q4, w, x, blocks, y, yStride, groups, tokens, room);
}
export function f32_q8(
  w: usize,
  x: usize,
  blocks: i32,
  y: usize,
  yStride: usize,
  groups: i32,
  tokens: i32,
  room: usize,
): void {
  exact(Q8, w, x, blocks, y, yStride, groups, tokens, room);
}
export function f32_bf16(
  w: usize,
  x: usize,
  blocks: i32,
  y: usize,
  yStride: usize,
  groups: i32,
  tokens: i32,
  room: usize,
): void {
  exact(BF16, w, x, blocks, y, yStride, groups, tokens, room);
}
export function f32_f16(
  w: usize,
  x: usize,
  blocks: i32,
  y: usize,
  yStride: usize,
  groups: i32,
  tokens: i32,
  room: usize,
): void {
  exact(F16, w, x, blocks, y, yStride, groups, tokens, room);
}
export function f32_f32(
  w: usize,
  x: usize,
  blocks: i32,
  y: usize,
  yStride: usize,
  groups: i32,
  tokens: i32,
  room: usize,
): void {
  exact(F32, w, x, blocks, y, yStride, groups, tokens, room);
}

/**
 * y = W x for one token and four streams of groups. A processor reads one stream of memory at two thirds of the speed at
 * which it reads four that are far from each other (bench/RESULTS.md).
 *
 * @param w the first group of the first stream; the next stream begins `step` bytes later
 * @param x 32 * blocks binary32
 * @param y 8 * groups binary32 of each stream, yStep bytes apart
 * @param groups groups of each stream
 */
export function f32_q4_far(
  w: usize,
  step: usize,
  x: usize,
  blocks: i32,
  y: usize,
  yStep: usize,
  groups: i32,
): void {
  far(Q4, 4, w, step, x, 128, blocks, y, yStep, groups);
}
export function f32_q8_far(
  w: usize,
  step: usize,
  x: usize,
  blocks: i32,
  y: usize,
  yStep: usize,
  groups: i32,
): void {
  far(Q8, 4, w, step, x, 128, blocks, y, yStep, groups);
}
export function f32_bf16_far(
  w: usize,
  step: usize,
  x: usize,
  blocks: i32,
  y: usize,
  yStep: usize,
  groups: i32,
): void {
  far(BF16, 4, w, step, x, 128, blocks, y, yStep, groups);
}
export function f32_f16_far(
  w: usize,
  step: usize,
  x: usize,
  blocks: i32,
  y: usize,
  yStep: usize,
  groups: i32,
): void {
  far(F16, 4, w, step, x, 128, blocks, y, yStep, groups);
}
export function f32_f32_far(
  w: usize,
  step: usize,
  x: usize,
  blocks: i32,
  y: usize,
  yStep: usize,
  groups: i32,
): void {
  far(F32, 4, w, step, x, 128, blocks, y, yStep, groups);
}

// ---------------------------------------------------------------- integer activations
//
// A token's activations are blocks of 32 integers with one binary32 scale. They are stored as
//
//   blocks * 32 integers | blocks scales | blocks times 8 * sum of the integers (int32)
//
// one after the other (see quantize_i8, quantize_i16). Since four-bit payloads are level + 8,
// dot(level + 8, x) - 8 * sum(x) = dot(level, x), and a 16-bit sum holds a whole block of int8 (8 * 2 * 15 * 127 = 30480).

/** Adds to the row's sum: the integer dot of a block times the activations' scale times the block's. */
@inline
function scaled(sum: v128, dot: v128, xScale: v128, scales: v128): v128 {
  return f32x4.add(sum, f32x4.mul(f32x4.mul(f32x4.convert_i32x4_s(dot), xScale), scales));
}

/** Sixteen products of int8 and 0..15 into eight 16-bit sums. Certain, whatever the machine: the second is below 128. */
@inline
function dot8(x: v128, q: v128): v128 {
  return i16x8.relaxed_dot_i8x16_i7x16_s(x, q);
}

/**
 * The integer dots of a block of 4 rows with one token.
 *
 * @param v0,v1,v2,v3,v4,v5,v6,v7 the words of the token's block, each in all lanes
 * @param half a constant of the call
 */
@inline
function q4i8half(
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
): v128 {
  const p0 = half ? v128.load(w, 16) : v128.load(w), p1 = half ? v128.load(w, 48) : v128.load(w, 32);
  const p2 = half ? v128.load(w, 80) : v128.load(w, 64), p3 = half ? v128.load(w, 112) : v128.load(w, 96);
  let t = dot8(v0, v128.and(p0, mask));
  t = i16x8.add(t, dot8(v1, v128.and(p1, mask)));
  t = i16x8.add(t, dot8(v2, v128.and(p2, mask)));
  t = i16x8.add(t, dot8(v3, v128.and(p3, mask)));
  t = i16x8.add(t, dot8(v4, v128.and(i16x8.shr_u(p0, 4), mask)));
  t = i16x8.add(t, dot8(v5, v128.and(i16x8.shr_u(p1, 4), mask)));
  t = i16x8.add(t, dot8(v6, v128.and(i16x8.shr_u(p2, 4), mask)));
  t = i16x8.add(t, dot8(v7, v128.and(i16x8.shr_u(p3, 4), mask)));
  return i32x4.dot_i16x8_s(t, one);
}

/** `groups` groups of each of `streams` streams, 1 or 4, times one token. See {@link f32_q4_far}. */
@inline
function q4i8far(
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
  for (let g = 0; g < groups; g++, y += 32) {
    let a = f32x4.splat(0), b = a, c = a, d = a, e = a, f = a, h = a, i = a;
    let x = x0, xs = x + (<usize> blocks << 5), sums = xs + (<usize> blocks << 2);
    let w1 = w + step, w2 = w1 + step, w3 = w2 + step;
    for (let n = 0; n < blocks; n++, w += 144, x += 32, xs += 4, sums += 4) {
      const lows = v128.load(x), highs = v128.load(x, 16);
      const v0 = lane0(lows), v1 = lane1(lows), v2 = lane2(lows), v3 = lane3(lows);
      const v4 = lane0(highs), v5 = lane1(highs), v6 = lane2(highs), v7 = lane3(highs);
      const bias = splat(sums), scale = splat(xs);
      const packed = v128.load(w, 128);
      const t00 = i32x4.sub(q4i8half(0, w, v0, v1, v2, v3, v4, v5, v6, v7, mask, one), bias);
      a = scaled(a, t00, scale, scalesOf(0, packed, bits, power));
      const t01 = i32x4.sub(q4i8half(1, w, v0, v1, v2, v3, v4, v5, v6, v7, mask, one), bias);
      b = scaled(b, t01, scale, scalesOf(1, packed, bits, power));
      if (streams == 4) {
        const packed1 = v128.load(w1, 128);
        const t10 = i32x4.sub(q4i8half(0, w1, v0, v1, v2, v3, v4, v5, v6, v7, mask, one), bias);
        c = scaled(c, t10, scale, scalesOf(0, packed1, bits, power));
        const t11 = i32x4.sub(q4i8half(1, w1, v0, v1, v2, v3, v4, v5, v6, v7, mask, one), bias);
        d = scaled(d, t11, scale, scalesOf(1, packed1, bits, power));
        const packed2 = v128.load(w2, 128);
        const t20 = i32x4.sub(q4i8half(0, w2, v0, v1, v2, v3, v4, v5, v6, v7, mask, one), bias);
        e = scaled(e, t20, scale, scalesOf(0, packed2, bits, power));
        const t21 = i32x4.sub(q4i8half(1, w2, v0, v1, v2, v3, v4, v5, v6, v7, mask, one), bias);
        f = scaled(f, t21, scale, scalesOf(1, packed2, bits, power));
        const packed3 = v128.load(w3, 128);
        const t30 = i32x4.sub(q4i8half(0, w3, v0, v1, v2, v3, v4, v5, v6, v7, mask, one), bias);
        h = scaled(h, t30, scale, scalesOf(0, packed3, bits, power));
        const t31 = i32x4.sub(q4i8half(1, w3, v0, v1, v2, v3, v4, v5, v6, v7, mask, one), bias);
        i = scaled(i, t31, scale, scalesOf(1, packed3, bits, power));
        w1 += 144;
        w2 += 144;
        w3 += 144;
      }
    }
    v128.store(y, a);
    v128.store(y, b, 16);
    if (streams == 4) {
      v128.store(y + yStep, c);
      v128.store(y + yStep, d, 16);
      v128.store(y + 2 * yStep, e);
      v128.store(y + 2 * yStep, f, 16);
      v128.store(y + 3 * yStep, h);
      v128.store(y + 3 * yStep, i, 16);
    }
  }
}

/** Two groups, the second at w2 and y2, times four tokens. */
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
  w: usize,
  x: usize,
  blocks: i32,
  y: usize,
  yStride: usize,
  groups: i32,
  tokens: i32,
): void {
  const step = <usize> 144 * blocks, xStride = <usize> 40 * blocks;
  for (let g = 0; g < groups; g += 2, w += 2 * step, y += 64) {
    const second = g + 1 < groups;
    const w2 = second ? w + step : w, y2 = second ? y + 32 : y;
    let t = 0;
    for (; t + 4 <= tokens; t += 4) {
      q4i8tile(w, w2, x + t * xStride, xStride, blocks, y + t * yStride, y2 + t * yStride, yStride);
    }
    for (; t < tokens; t++) q4i8far(1, w, 0, x + t * xStride, blocks, y + t * yStride, 0, second ? 2 : 1);
  }
}

/** As {@link f32_q4_far}, with blocks of int8 activations. */
export function i8_q4_far(
  w: usize,
  step: usize,
  x: usize,
  blocks: i32,
  y: usize,
  yStep: usize,
  groups: i32,
): void {
  q4i8far(4, w, step, x, blocks, y, yStep, groups);
}

/** Four columns of two rows in the lanes of `q`, as 16-bit integers, times the same four columns of the activations. */
@inline
function dot4(sum: v128, q: v128, x: v128): v128 {
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
      t = dot4(dot4(t, i16x8.extend_low_i8x16_u(low), v), i16x8.extend_low_i8x16_u(high), v2);
      u = dot4(dot4(u, i16x8.extend_high_i8x16_u(low), v), i16x8.extend_high_i8x16_u(high), v2);
    }
    const dot = i32x4.add(v128.shuffle<i32>(t, u, 0, 2, 4, 6), v128.shuffle<i32>(t, u, 1, 3, 5, 7));
    a = scaled(a, i32x4.sub(dot, splat(sums)), splat(xs), scalesOf(half, v128.load(w, 128), bits, power));
    w += 144;
    x += 64;
    xs += 4;
    sums += 4;
  }
  v128.store(y, a);
}

/** y = W x with four-bit weights and blocks of int16 activations (in the order of the columns), token after token. */
export function i16_q4(
  w: usize,
  x: usize,
  blocks: i32,
  y: usize,
  yStride: usize,
  groups: i32,
  tokens: i32,
): void {
  const xStride = <usize> 72 * blocks;
  for (let g = 0; g < groups; g++) {
    for (let t = 0; t < tokens; t++) {
      q4i16half(0, w, x + t * xStride, blocks, y + t * yStride);
      q4i16half(1, w, x + t * xStride, blocks, y + t * yStride + 16);
    }
    w += 144 * blocks;
    y += 32;
  }
}

/** As {@link f32_q4_far}, with blocks of int16 activations. */
export function i16_q4_far(
  w: usize,
  step: usize,
  x: usize,
  blocks: i32,
  y: usize,
  yStep: usize,
  groups: i32,
): void {
  for (let s = 0; s < 4; s++) i16_q4(w + s * step, x, blocks, y + s * yStep, 0, groups, 1);
}

/** Adds the products of a pair of columns of 4 rows (two times four int16) with the token's pair. */
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

/** Adds to the pair of sums at y the products of one block of a group with one token. */
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

/** `groups` groups of each of `streams` streams times one token. See {@link f32_q4_far}. */
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
  for (let g = 0; g < groups; g++, y += 32) {
    for (let s = 0, out = y; s < streams; s++, out += yStep) {
      v128.store(out, f32x4.splat(0));
      v128.store(out, f32x4.splat(0), 16);
    }
    for (let n = 0, x = x0, xs = x + (<usize> blocks << 6); n < blocks; n++, w += 272, x += 64, xs += 4) {
      const scale = splat(xs);
      for (let s = 0, from = w, out = y; s < streams; s++, from += step, out += yStep) {
        q8i16block(from, x, scale, out, bits, power);
      }
    }
  }
}

/** Two groups, the second at w2 and y2, times four tokens. */
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
  w: usize,
  x: usize,
  blocks: i32,
  y: usize,
  yStride: usize,
  groups: i32,
  tokens: i32,
): void {
  const step = <usize> 272 * blocks, xStride = <usize> 72 * blocks;
  for (let g = 0; g < groups; g += 2, w += 2 * step, y += 64) {
    const second = g + 1 < groups;
    const w2 = second ? w + step : w, y2 = second ? y + 32 : y;
    let t = 0;
    for (; t + 4 <= tokens; t += 4) {
      q8i16tile(w, w2, x + t * xStride, xStride, blocks, y + t * yStride, y2 + t * yStride, yStride);
    }
    for (; t < tokens; t++) q8i16far(1, w, 0, x + t * xStride, blocks, y + t * yStride, 0, second ? 2 : 1);
  }
}

/** As {@link f32_q4_far}, with blocks of int16 activations. */
export function i16_q8_far(
  w: usize,
  step: usize,
  x: usize,
  blocks: i32,
  y: usize,
  yStep: usize,
  groups: i32,
): void {
  q8i16far(4, w, step, x, blocks, y, yStep, groups);
}

/** The sums of pairs of 16-bit integers. */
@inline
function widen(t: v128): v128 {
  return i32x4.dot_i16x8_s(t, i32x4.splat(ones));
}

@inline
function rounded8(x: usize, inverse: v128): v128 {
  return i16x8.narrow_i32x4_s(toIntegers(v128.load(x), inverse), toIntegers(v128.load(x, 16), inverse));
}

@inline
function sum32(a: v128, b: v128, c: v128, d: v128): i32 {
  const s = widen(i16x8.add(i16x8.add(a, b), i16x8.add(c, d)));
  const t = i32x4.add(s, v128.shuffle<i64>(s, s, 1, 0));
  return i32x4.extract_lane(t, 0) + i32x4.extract_lane(t, 1);
}

/** Blocks of 32 binary32 at x to int8, their scales and 8 times their sums, at out. */
export function quantize_i8(x: usize, blocks: i32, out: usize): void {
  let scales = out + (<usize> blocks << 5), sums = scales + (<usize> blocks << 2);
  for (let n = 0; n < blocks; n++, x += 128, out += 32, scales += 4, sums += 4) {
    const m = peak(x, 32);
    const inverse = f32x4.splat(m >= TINY ? <f32> 127 / m : 0);
    const a = rounded8(x, inverse), b = rounded8(x + 32, inverse);
    const c = rounded8(x + 64, inverse), d = rounded8(x + 96, inverse);
    v128.store(out, i8x16.narrow_i16x8_s(a, b));
    v128.store(out, i8x16.narrow_i16x8_s(c, d), 16);
    store<f32>(scales, m / 127);
    store<i32>(sums, 8 * sum32(a, b, c, d));
  }
}

/**
 * Blocks of 32 binary32 at x to int16 of at most `top`, their scales and 8 times their sums, at out.
 *
 * @param paired whether columns j and 16+j are to stand side by side (for q8), or in order (for q4)
 */
export function quantize_i16(x: usize, blocks: i32, out: usize, top: f32, paired: i32): void {
  let scales = out + (<usize> blocks << 6), sums = scales + (<usize> blocks << 2);
  for (let n = 0; n < blocks; n++, x += 128, out += 64, scales += 4, sums += 4) {
    const m = peak(x, 32);
    const inverse = f32x4.splat(m >= TINY ? top / m : 0);
    const a = rounded8(x, inverse), b = rounded8(x + 32, inverse);
    const c = rounded8(x + 64, inverse), d = rounded8(x + 96, inverse);
    if (paired) {
      v128.store(out, v128.shuffle<i16>(a, c, 0, 8, 1, 9, 2, 10, 3, 11));
      v128.store(out, v128.shuffle<i16>(a, c, 4, 12, 5, 13, 6, 14, 7, 15), 16);
      v128.store(out, v128.shuffle<i16>(b, d, 0, 8, 1, 9, 2, 10, 3, 11), 32);
      v128.store(out, v128.shuffle<i16>(b, d, 4, 12, 5, 13, 6, 14, 7, 15), 48);
    } else {
      v128.store(out, a);
      v128.store(out, b, 16);
      v128.store(out, c, 32);
      v128.store(out, d, 48);
    }
    store<f32>(scales, m / top);
    const s = i32x4.add(i32x4.add(widen(a), widen(b)), i32x4.add(widen(c), widen(d)));
    const t = i32x4.add(s, v128.shuffle<i64>(s, s, 1, 0));
    store<i32>(sums, 8 * (i32x4.extract_lane(t, 0) + i32x4.extract_lane(t, 1)));
  }
}

/** Reads two lines of the processor's cache of each of four streams, `step` bytes apart, so that they are at hand. */
export function touch(at: usize, step: usize): i32 {
  let seen = load<i32>(at) | load<i32>(at, 64);
  at += step;
  seen |= load<i32>(at) | load<i32>(at, 64);
  at += step;
  seen |= load<i32>(at) | load<i32>(at, 64);
  at += step;
  return seen | load<i32>(at) | load<i32>(at, 64);
}

// ---------------------------------------------------------------- packing

/** The scales of 8 rows, the first at `src`, side by side. */
@inline
function packScales(src: usize, rowBytes: usize, out: usize): void {
  for (const end = out + 16; out < end; out += 2, src += rowBytes) store<u16>(out, load<u16>(src));
}

/** Stores word k of a, b, c, d as the lanes of vector k, `step` bytes apart. */
@inline
function transpose(a: v128, b: v128, c: v128, d: v128, out: usize, step: usize): void {
  const ab0 = v128.shuffle<i32>(a, b, 0, 4, 1, 5), ab1 = v128.shuffle<i32>(a, b, 2, 6, 3, 7);
  const cd0 = v128.shuffle<i32>(c, d, 0, 4, 1, 5), cd1 = v128.shuffle<i32>(c, d, 2, 6, 3, 7);
  v128.store(out, v128.shuffle<i64>(ab0, cd0, 0, 2));
  v128.store(out + step, v128.shuffle<i64>(ab0, cd0, 1, 3));
  v128.store(out + 2 * step, v128.shuffle<i64>(ab1, cd1, 0, 2));
  v128.store(out + 3 * step, v128.shuffle<i64>(ab1, cd1, 1, 3));
}

/** The 16 bytes of a q4 row in the packed order of nibbles, as level + 8. */
@inline
function nibbles16(payload: usize): v128 {
  const p = v128.load(payload);
  const even = v128.and(p, i8x16.splat(15)), odd = v128.and(i16x8.shr_u(p, 4), i8x16.splat(15));
  const low = v128.shuffle<i8>(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const high = v128.shuffle<i8>(even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  return v128.xor(v128.or(low, i16x8.shl(high, 4)), i8x16.splat(<i8> 0x88));
}

/**
 * Packs groups of 8 rows of q4 blocks.
 *
 * @param src the rows in the order of the file, rowBytes apart
 */
export function pack_q4(src: usize, rowBytes: usize, blocks: i32, groups: i32, w: usize): void {
  for (let g = 0; g < groups; g++, src += 8 * rowBytes) {
    for (let n = 0; n < blocks; n++, w += 144) {
      const first = src + n * 18;
      for (let h: usize = 0; h < 2; h++) {
        const a = first + (h << 2) * rowBytes + 2, b = a + rowBytes, c = b + rowBytes, d = c + rowBytes;
        transpose(nibbles16(a), nibbles16(b), nibbles16(c), nibbles16(d), w + (h << 4), 32);
      }
      packScales(first, rowBytes, w + 128);
    }
  }
}

/** Stores the 16-bit a[k], b[k], c[k], d[k] side by side, for k in 0..7: 8 bytes each, 16 bytes apart. */
@inline
function transpose16(a: v128, b: v128, c: v128, d: v128, out: usize): void {
  const ab0 = v128.shuffle<i16>(a, b, 0, 8, 1, 9, 2, 10, 3, 11),
    ab1 = v128.shuffle<i16>(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  const cd0 = v128.shuffle<i16>(c, d, 0, 8, 1, 9, 2, 10, 3, 11),
    cd1 = v128.shuffle<i16>(c, d, 4, 12, 5, 13, 6, 14, 7, 15);
  const k0 = v128.shuffle<i32>(ab0, cd0, 0, 4, 1, 5), k2 = v128.shuffle<i32>(ab0, cd0, 2, 6, 3, 7);
  const k4 = v128.shuffle<i32>(ab1, cd1, 0, 4, 1, 5), k6 = v128.shuffle<i32>(ab1, cd1, 2, 6, 3, 7);
  v128.store64_lane(out, k0, 0);
  v128.store64_lane(out, k0, 1, 16);
  v128.store64_lane(out, k2, 0, 32);
  v128.store64_lane(out, k2, 1, 48);
  v128.store64_lane(out, k4, 0, 64);
  v128.store64_lane(out, k4, 1, 80);
  v128.store64_lane(out, k6, 0, 96);
  v128.store64_lane(out, k6, 1, 112);
}

/** Eight pairs of bytes (j, 16+j) of a q8 row, j from 8 * part. */
@inline
function pairs(payload: usize, part: i32): v128 {
  const a = v128.load(payload), b = v128.load(payload, 16);
  return part
    ? v128.shuffle<i8>(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
    : v128.shuffle<i8>(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

/** Packs groups of 8 rows of q8 blocks. */
export function pack_q8(src: usize, rowBytes: usize, blocks: i32, groups: i32, w: usize): void {
  for (let g = 0; g < groups; g++, src += 8 * rowBytes) {
    for (let n = 0; n < blocks; n++, w += 272) {
      const first = src + n * 34;
      for (let h: usize = 0; h < 2; h++) {
        const a = first + (h << 2) * rowBytes + 2, b = a + rowBytes, c = b + rowBytes, d = c + rowBytes;
        const out = w + (h << 3);
        transpose16(pairs(a, 0), pairs(b, 0), pairs(c, 0), pairs(d, 0), out);
        transpose16(pairs(a, 1), pairs(b, 1), pairs(c, 1), pairs(d, 1), out + 128);
      }
      packScales(first, rowBytes, w + 256);
    }
  }
}

/** Four pairs of 16-bit floats (j, 16+j) of a row, j from 4 * part. */
@inline
function pairs16(row: usize, part: i32): v128 {
  const at = row + (<usize> part << 3);
  return v128.shuffle<i16>(v128.load64_zero(at), v128.load64_zero(at, 32), 0, 8, 1, 9, 2, 10, 3, 11);
}

/** Packs groups of 8 rows of 16-bit floats; the rows have 32 * blocks columns. */
export function pack_16(src: usize, rowBytes: usize, blocks: i32, groups: i32, w: usize): void {
  for (let g = 0; g < groups; g++, src += 8 * rowBytes) {
    for (let n = 0; n < blocks; n++, w += 512) {
      for (let h: usize = 0; h < 2; h++) {
        const a = src + (h << 2) * rowBytes + (n << 6), b = a + rowBytes, c = b + rowBytes, d = c + rowBytes;
        for (let part = 0, out = w + (h << 4); part < 4; part++, out += 128) {
          transpose(pairs16(a, part), pairs16(b, part), pairs16(c, part), pairs16(d, part), out, 32);
        }
      }
    }
  }
}

/** Packs groups of 8 rows of binary32. */
export function pack_f32(src: usize, rowBytes: usize, blocks: i32, groups: i32, w: usize): void {
  for (let g = 0; g < groups; g++, src += 8 * rowBytes) {
    for (let n = 0; n < blocks; n++, w += 1024) {
      for (let h: usize = 0; h < 2; h++) {
        const a = src + (h << 2) * rowBytes + (n << 7), b = a + rowBytes, c = b + rowBytes, d = c + rowBytes;
        for (let j: usize = 0; j < 16; j += 4) {
          const low = j << 2, high = low + 64, out = w + (j << 6) + (h << 4);
          transpose(v128.load(a + low), v128.load(b + low), v128.load(c + low), v128.load(d + low), out, 64);
          transpose(v128.load(a + high), v128.load(b + high), v128.load(c + high), v128.load(d + high), out + 32, 64);
        }
      }
    }
  }
}

/** Level n of a packed q4 payload, the row's first byte of word 0 at `at`. */
@inline
function levelOf(at: usize, n: i32): i32 {
  const byte = <i32> load<u8>(at + (<usize> ((n & 15) >> 2) << 5) + (n & 3));
  return (n < 16 ? byte & 15 : byte >> 4) - 8;
}

/** A finite binary16 as binary32. */
@inline
function half(bits: u32): f32 {
  return f32x4.extract_lane(halves(i32x4.splat((<i32> <i16> bits) << 13), i32x4.splat(halfBits), f32x4.splat(halfPower)), 0);
}

/**
 * Row `row` (0 to 7) of one packed group as binary32: what pack_* took apart, decoded.
 *
 * @param kind 0 q4, 1 q8, 2 bf16, 3 f16, 4 f32
 */
export function unpack_row(kind: i32, w: usize, row: i32, blocks: i32, out: usize): void {
  const lane = <usize> row;
  for (let b = 0; b < blocks; b++, w += blockBytes(kind)) {
    const scale = kind <= Q8 ? half(load<u16>(w + payloadBytes(kind) + (lane << 1))) : 1;
    for (let n = 0; n < 32; n++, out += 4) {
      const j = <usize> (n & 15), second = <usize> (n >> 4);
      let value: f32;
      if (kind == Q4) value = <f32> levelOf(w + (lane << 2), n) * scale;
      else if (kind == Q8) value = <f32> load<i8>(w + (j << 4) + (lane << 1) + second) * scale;
      else if (kind == F32) value = load<f32>(w + (j << 6) + (second << 5) + (lane << 2));
      else {
        const bits = <u32> load<u16>(w + (j << 5) + (lane << 2) + (second << 1));
        value = kind == BF16 ? reinterpret<f32>(bits << 16) : half(bits);
      }
      store<f32>(out, value);
    }
  }
}
