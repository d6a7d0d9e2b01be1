// AssemblyScript: encodes float weights as blocks, and measures the error of blocks. lib/format/blocks.ts defines the
// results; tests/unit/kernels/codec_test.ts compares the results bit for bit.
//
// The source kind is a compile-time constant, so that each export is compiled for one kind of weight.

import { BF16, F16, F32, F64, Q4_BLOCK, Q8_BLOCK } from "./layout";

// The result of an encoder that encoded all blocks. Otherwise the result is the index of the first block that can't be
// encoded, and the caller finds the reason with the scalar code.
const DONE: i32 = -1;

// 1.5 * 2^23: adding it to a binary32 of less than 2^22 leaves the nearest integer in the low bits.
const MAGIC: f32 = 12582912.0;

/** Weights 4n to 4n + 3 of a block, as binary32. */
@inline
function load4(kind: i32, at: usize, n: i32): v128 {
  if (kind == BF16) return i32x4.shl(v128.load_ext<u16>(at + (<usize> n << 3)), 16);
  if (kind == F16) {
    // A product with 2^112 adjusts the exponent: exact for subnormals, but not valid for infinities and NaNs, which the
    // callers have refused before.
    const h = v128.load_ext<u16>(at + (<usize> n << 3));
    const magnitude = f32x4.mul(
      i32x4.shl(v128.and(h, i32x4.splat(0x7fff)), 13),
      f32x4.splat(5192296858534827628530496329220096.0),
    );
    return v128.or(magnitude, i32x4.shl(v128.and(h, i32x4.splat(0x8000)), 16));
  }
  if (kind == F32) return v128.load(at + (<usize> n << 4));
  const low = f32x4.demote_f64x2_zero(v128.load(at + (<usize> n << 5)));
  const high = f32x4.demote_f64x2_zero(v128.load(at + (<usize> n << 5), 16));
  return v128.shuffle<i64>(low, high, 0, 2);
}

/** The largest magnitudes of weights n, n + 8, n + 16 and n + 24 of a block of 16-bit floats, as bits, for n in 0..7. */
@inline
function peaks16(at: usize): v128 {
  const mask = i16x8.splat(0x7fff);
  const low = i16x8.max_s(v128.and(v128.load(at), mask), v128.and(v128.load(at, 16), mask));
  return i16x8.max_s(low, i16x8.max_s(v128.and(v128.load(at, 32), mask), v128.and(v128.load(at, 48), mask)));
}

/** The maxima of the two halves of a and of b, interleaved: 8 candidates of each become 4. */
@inline
function foldWords(a: v128, b: v128): v128 {
  return i16x8.max_s(
    v128.shuffle<i16>(a, b, 0, 8, 1, 9, 2, 10, 3, 11),
    v128.shuffle<i16>(a, b, 4, 12, 5, 13, 6, 14, 7, 15),
  );
}

/** The largest magnitude of a block of F32 or F64, as the bits of a binary32, in every lane. */
@inline
function peak32(kind: i32, at: usize): v128 {
  const mask = i32x4.splat(0x7fffffff);
  let m = v128.and(load4(kind, at, 0), mask);
  for (let n = 1; n < 8; n++) m = i32x4.max_s(m, v128.and(load4(kind, at, n), mask));
  m = i32x4.max_s(m, v128.shuffle<i64>(m, m, 1, 0));
  return i32x4.max_s(m, v128.shuffle<i32>(m, m, 1, 0, 3, 2));
}

/**
 * The largest magnitudes of four blocks, `step` bytes apart; NaN or an infinity if a weight is one. Magnitudes compare
 * as integers, and a NaN is larger than infinity, so one comparison detects both.
 */
@inline
function peaks(kind: i32, at: usize, step: usize): v128 {
  if (kind > F16) {
    const ab = v128.shuffle<i32>(peak32(kind, at), peak32(kind, at + step), 0, 4, 1, 5);
    const cd = v128.shuffle<i32>(peak32(kind, at + 2 * step), peak32(kind, at + 3 * step), 0, 4, 1, 5);
    return v128.shuffle<i64>(ab, cd, 0, 2);
  }
  const ab = foldWords(peaks16(at), peaks16(at + step));
  const cd = foldWords(peaks16(at + 2 * step), peaks16(at + 3 * step));
  const m = i16x8.max_s(v128.shuffle<i32>(ab, cd, 0, 4, 1, 5), v128.shuffle<i32>(ab, cd, 2, 6, 3, 7));
  const words = i16x8.max_s(m, v128.shuffle<i64>(m, m, 1, 0));
  const zero = i32x4.splat(0);
  if (kind == BF16) return v128.shuffle<i16>(zero, words, 0, 8, 1, 9, 2, 10, 3, 11);
  const bits = i32x4.extend_low_i16x8_u(words);
  const finite = f32x4.mul(i32x4.shl(bits, 13), f32x4.splat(5192296858534827628530496329220096.0));
  return v128.bitselect(f32x4.splat(Infinity), finite, i32x4.ge_s(bits, i32x4.splat(0x7c00)));
}

/** A positive finite binary16 as binary32. */
@inline
function halfToSingle(bits: u32): f32 {
  return reinterpret<f32>(bits << 13) * 5192296858534827628530496329220096.0;
}

/** The binary16 nearest to a positive finite binary32, ties to even. */
@inline
function singleToHalf(x: f32): u32 {
  if (x >= 65520.0) return 0x7c00;
  // Below 2^-14, the last place of the sum with 1/2 is 2^-24, that of the subnormals, so the addition rounds.
  if (x < 0.00006103515625) return reinterpret<u32>(x + 0.5) - 0x3f000000;
  const bits = reinterpret<u32>(x);
  return (bits - 0x38000000 + 0xfff + ((bits >> 13) & 1)) >> 13;
}

/**
 * Four levels, in the low 16 bits of each lane.
 *
 * BF16 and F16 need no division. The quotient of a weight of 8 or 11 bits and a scale of 11 bits is a tie, or at least
 * 2^-19 (relative) away from one; the error of a product with 1/scale is less than 2^-22. So the reciprocal is
 * increased by 2^-21: ties move above the tie, away from zero, no other quotient crosses a tie, and any rounding to
 * nearest gives the defined level. Quotients of F32 and F64 can be arbitrarily close to ties: they are divided and
 * rounded as in the definition.
 */
@inline
function levels4(kind: i32, w: v128, factor: v128): v128 {
  if (kind <= F16) {
    return i32x4.sub(f32x4.add(f32x4.mul(w, factor), f32x4.splat(MAGIC)), i32x4.splat(0x4b400000));
  }
  const x = f32x4.div(w, factor);
  const whole = f32x4.trunc(x);
  const up = f32x4.ge(f32x4.abs(f32x4.sub(x, whole)), f32x4.splat(0.5));
  const one = v128.or(v128.and(x, i32x4.splat(0x80000000)), f32x4.splat(1));
  return i32x4.trunc_sat_f32x4_s(f32x4.add(whole, v128.and(up, one)));
}

/** Eight levels, from weight 8n on, as 16-bit integers. */
@inline
function levels8(kind: i32, at: usize, n: i32, factor: v128): v128 {
  if (kind == BF16) {
    const zero = i32x4.splat(0), p = v128.load(at + (<usize> n << 4));
    return i16x8.narrow_i32x4_s(
      levels4(kind, v128.shuffle<i16>(zero, p, 0, 8, 1, 9, 2, 10, 3, 11), factor),
      levels4(kind, v128.shuffle<i16>(zero, p, 4, 12, 5, 13, 6, 14, 7, 15), factor),
    );
  }
  return i16x8.narrow_i32x4_s(
    levels4(kind, load4(kind, at, 2 * n), factor),
    levels4(kind, load4(kind, at, 2 * n + 1), factor),
  );
}

/** Sixteen levels as nibbles in the low bytes of eight lanes, even positions low; clamped to -8..7. */
@inline
function nibbles(levels: v128): v128 {
  const q = i8x16.min_s(i8x16.max_s(levels, i8x16.splat(-8)), i8x16.splat(7));
  return v128.or(v128.and(q, i16x8.splat(15)), v128.and(i16x8.shr_u(q, 4), i16x8.splat(0xf0)));
}

/** Stores the levels of a block as its payload, after its scale. `factor` is the factor or the divisor for levels4. */
@inline
function payload(kind: i32, bits: i32, src: usize, dst: usize, factor: v128): void {
  const low = i8x16.narrow_i16x8_s(levels8(kind, src, 0, factor), levels8(kind, src, 1, factor));
  const high = i8x16.narrow_i16x8_s(levels8(kind, src, 2, factor), levels8(kind, src, 3, factor));
  if (bits == 4) {
    v128.store(dst, i8x16.narrow_i16x8_u(nibbles(low), nibbles(high)), 2);
  } else {
    v128.store(dst, low, 2);
    v128.store(dst, high, 18);
  }
}

/**
 * Writes a block.
 *
 * @param peak the largest magnitude
 * @param scale the magnitude of the scale, a binary16
 * @param factor what levels4 takes for that scale, in every lane
 */
@inline
function finish(
  kind: i32, bits: i32, signed: bool, src: usize, dst: usize, peak: f32, scale: u32, factor: v128,
): void {
  const sign: u32 = signed && scale != 0 ? scaleSign(kind, src, peak) : 0;
  store<u16>(dst, <u16> (scale | (sign << 15)));
  payload(kind, bits, src, dst, signed ? v128.xor(factor, i32x4.splat(<i32> (sign << 31))) : factor);
}

/** What levels4 multiplies by (BF16 and F16) or divides by, for four scales; of a scale of zero it makes levels of zero. */
@inline
function factors(kind: i32, scales: v128): v128 {
  const empty = f32x4.eq(scales, f32x4.splat(0));
  if (kind <= F16) {
    const inverse = f32x4.mul(f32x4.div(f32x4.splat(1), scales), f32x4.splat(1.000000476837158203125));
    return v128.andnot(inverse, empty);
  }
  return v128.bitselect(f32x4.splat(Infinity), scales, empty);
}

/** What the largest magnitude is divided by. */
@inline
function divisor(bits: i32, signed: bool): f32 {
  if (bits == 4) return signed ? 8 : 7;
  return signed ? 128 : 127;
}

/** The sign bit of a scale by the signed rule: not that of the first weight whose magnitude is `peak`. */
@inline
function scaleSign(kind: i32, at: usize, peak: f32): u32 {
  const m = f32x4.splat(peak);
  for (let n = 0; n < 8; n++) {
    const w = load4(kind, at, n);
    const found = i32x4.bitmask(f32x4.eq(f32x4.abs(w), m));
    if (found) return <u32> ((i32x4.bitmask(w) >> ctz(found)) & 1) ^ 1;
  }
  return 0;
}

/** One block. @returns whether the format can hold it */
@inline
function encode1(kind: i32, bits: i32, signed: bool, src: usize, dst: usize): bool {
  const m = f32x4.extract_lane(peaks(kind, src, 0), 0);
  // False for NaN as well.
  if (!(m < Infinity)) return false;
  const scale = singleToHalf(m / divisor(bits, signed));
  if (scale == 0x7c00) return false;
  finish(kind, bits, signed, src, dst, m, scale, factors(kind, f32x4.splat(halfToSingle(scale))));
  return true;
}

/** Four positive finite binary32 below 65520 as the nearest binary16, ties to even (see singleToHalf). */
@inline
function singlesToHalves(x: v128): v128 {
  const odd = v128.and(i32x4.shr_u(x, 13), i32x4.splat(1));
  const normal = i32x4.shr_u(i32x4.add(i32x4.add(x, odd), i32x4.splat(0xfff - 0x38000000)), 13);
  const small = i32x4.sub(f32x4.add(x, f32x4.splat(0.5)), i32x4.splat(0x3f000000));
  return v128.bitselect(small, normal, f32x4.lt(x, f32x4.splat(0.00006103515625)));
}

/** Encodes four blocks. @returns whether the format can hold them; if not, nothing is written */
@inline
function encode4(kind: i32, bits: i32, signed: bool, src: usize, step: usize, dst: usize, size: usize): bool {
  const m = peaks(kind, src, step);
  const quotients = f32x4.div(m, f32x4.splat(divisor(bits, signed)));
  // Also false for NaN, and for an infinity.
  if (!i32x4.all_true(f32x4.lt(quotients, f32x4.splat(65520)))) return false;
  const scales = singlesToHalves(quotients);
  const f = factors(kind, f32x4.mul(i32x4.shl(scales, 13), f32x4.splat(5192296858534827628530496329220096.0)));
  finish(
    kind, bits, signed, src, dst, f32x4.extract_lane(m, 0), i32x4.extract_lane(scales, 0),
    v128.shuffle<i32>(f, f, 0, 0, 0, 0),
  );
  finish(
    kind, bits, signed, src + step, dst + size, f32x4.extract_lane(m, 1), i32x4.extract_lane(scales, 1),
    v128.shuffle<i32>(f, f, 1, 1, 1, 1),
  );
  finish(
    kind, bits, signed, src + 2 * step, dst + 2 * size, f32x4.extract_lane(m, 2), i32x4.extract_lane(scales, 2),
    v128.shuffle<i32>(f, f, 2, 2, 2, 2),
  );
  finish(
    kind, bits, signed, src + 3 * step, dst + 3 * size, f32x4.extract_lane(m, 3), i32x4.extract_lane(scales, 3),
    v128.shuffle<i32>(f, f, 3, 3, 3, 3),
  );
  return true;
}

@inline
function encode(kind: i32, bits: i32, signed: bool, src: usize, dst: usize, blocks: i32): i32 {
  const step: usize = kind == F64 ? 256 : kind == F32 ? 128 : 64;
  const size: usize = bits == 4 ? Q4_BLOCK : Q8_BLOCK;
  let b = 0;
  for (; b + 4 <= blocks; b += 4, src += 4 * step, dst += 4 * size) {
    if (!encode4(kind, bits, signed, src, step, dst, size)) break;
  }
  for (; b < blocks; b++, src += step, dst += size) {
    if (!encode1(kind, bits, signed, src, dst)) return b;
  }
  return DONE;
}

/**
 * Encodes `blocks` blocks of 32 weights at `src` into blocks at `dst`, by the format's rule or by the signed one.
 *
 * @returns the index of the first block that the format can't hold, or -1
 */
export function encode_bf16_q4(src: usize, dst: usize, blocks: i32, signed: bool): i32 {
  return signed ? encode(BF16, 4, true, src, dst, blocks) : encode(BF16, 4, false, src, dst, blocks);
}
export function encode_bf16_q8(src: usize, dst: usize, blocks: i32, signed: bool): i32 {
  return signed ? encode(BF16, 8, true, src, dst, blocks) : encode(BF16, 8, false, src, dst, blocks);
}
export function encode_f16_q4(src: usize, dst: usize, blocks: i32, signed: bool): i32 {
  return signed ? encode(F16, 4, true, src, dst, blocks) : encode(F16, 4, false, src, dst, blocks);
}
export function encode_f16_q8(src: usize, dst: usize, blocks: i32, signed: bool): i32 {
  return signed ? encode(F16, 8, true, src, dst, blocks) : encode(F16, 8, false, src, dst, blocks);
}
export function encode_f32_q4(src: usize, dst: usize, blocks: i32, signed: bool): i32 {
  return signed ? encode(F32, 4, true, src, dst, blocks) : encode(F32, 4, false, src, dst, blocks);
}
export function encode_f32_q8(src: usize, dst: usize, blocks: i32, signed: bool): i32 {
  return signed ? encode(F32, 8, true, src, dst, blocks) : encode(F32, 8, false, src, dst, blocks);
}
export function encode_f64_q4(src: usize, dst: usize, blocks: i32, signed: bool): i32 {
  return signed ? encode(F64, 4, true, src, dst, blocks) : encode(F64, 4, false, src, dst, blocks);
}
export function encode_f64_q8(src: usize, dst: usize, blocks: i32, signed: bool): i32 {
  return signed ? encode(F64, 8, true, src, dst, blocks) : encode(F64, 8, false, src, dst, blocks);
}

/** The index of the first of `blocks` blocks of `size` bytes whose scale is not finite, or -1. */
export function check_scales(src: usize, size: i32, blocks: i32): i32 {
  for (let b = 0; b < blocks; b++, src += size) {
    if ((load<u16>(src) & 0x7c00) == 0x7c00) return b;
  }
  return DONE;
}

/** The index of the first byte that differs between two areas of `bytes` bytes, or -1. */
export function first_difference(a: usize, b: usize, bytes: i32): i32 {
  let n = 0;
  for (; n + 16 <= bytes; n += 16) {
    if (v128.any_true(v128.xor(v128.load(a + n), v128.load(b + n)))) break;
  }
  for (; n < bytes; n++) {
    if (load<u8>(a + n) != load<u8>(b + n)) return n;
  }
  return DONE;
}

/**
 * Stores at `out` the sums, in binary64, of (w - v)^2 and of w^2 over `blocks` blocks of 32: w the source weights
 * and v the values of the blocks. Each pair of lanes is added in the order of the weights.
 */
@inline
function error(kind: i32, bits: i32, src: usize, quant: usize, blocks: i32, out: usize): void {
  const step: usize = kind == F64 ? 256 : kind == F32 ? 128 : 64;
  const size: usize = bits == 4 ? Q4_BLOCK : Q8_BLOCK;
  let errors = f64x2.splat(0), squares = f64x2.splat(0);
  for (let b = 0; b < blocks; b++, src += step, quant += size) {
    const bits16 = <u32> load<u16>(quant);
    const magnitude = halfToSingle(bits16 & 0x7fff);
    const scale = f32x4.splat(bits16 & 0x8000 ? -magnitude : magnitude);
    for (let n = 0; n < 8; n++) {
      let q: v128;
      if (bits == 8) {
        q = i32x4.extend_low_i16x8_s(i16x8.extend_low_i8x16_s(v128.load32_zero(quant + 2 + (n << 2))));
      } else {
        const pair = <i32> load<u16>(quant + 2 + (n << 1));
        q = i32x4.shr_s(
          i32x4.replace_lane(
            i32x4.replace_lane(
              i32x4.replace_lane(i32x4.splat(pair << 28), 1, pair << 24),
              2,
              pair << 20,
            ),
            3,
            pair << 16,
          ),
          28,
        );
      }
      const w = load4(kind, src, n);
      const v = f32x4.mul(f32x4.convert_i32x4_s(q), scale);
      const lowW = f64x2.promote_low_f32x4(w);
      const lowD = f64x2.sub(lowW, f64x2.promote_low_f32x4(v));
      const highW = f64x2.promote_low_f32x4(v128.shuffle<i64>(w, w, 1, 0));
      const highD = f64x2.sub(highW, f64x2.promote_low_f32x4(v128.shuffle<i64>(v, v, 1, 0)));
      errors = f64x2.add(f64x2.add(errors, f64x2.mul(lowD, lowD)), f64x2.mul(highD, highD));
      squares = f64x2.add(f64x2.add(squares, f64x2.mul(lowW, lowW)), f64x2.mul(highW, highW));
    }
  }
  store<f64>(out, f64x2.extract_lane(errors, 0) + f64x2.extract_lane(errors, 1));
  store<f64>(out, f64x2.extract_lane(squares, 0) + f64x2.extract_lane(squares, 1), 8);
}

export function error_bf16_q4(src: usize, quant: usize, blocks: i32, out: usize): void {
  error(BF16, 4, src, quant, blocks, out);
}
export function error_bf16_q8(src: usize, quant: usize, blocks: i32, out: usize): void {
  error(BF16, 8, src, quant, blocks, out);
}
export function error_f16_q4(src: usize, quant: usize, blocks: i32, out: usize): void {
  error(F16, 4, src, quant, blocks, out);
}
export function error_f16_q8(src: usize, quant: usize, blocks: i32, out: usize): void {
  error(F16, 8, src, quant, blocks, out);
}
export function error_f32_q4(src: usize, quant: usize, blocks: i32, out: usize): void {
  error(F32, 4, src, quant, blocks, out);
}
export function error_f32_q8(src: usize, quant: usize, blocks: i32, out: usize): void {
  error(F32, 8, src, quant, blocks, out);
}
export function error_f64_q4(src: usize, quant: usize, blocks: i32, out: usize): void {
  error(F64, 4, src, quant, blocks, out);
}
export function error_f64_q8(src: usize, quant: usize, blocks: i32, out: usize): void {
  error(F64, 8, src, quant, blocks, out);
}
