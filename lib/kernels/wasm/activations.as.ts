// AssemblyScript: converts activations and heads to the layouts that products and attention read.

import { peak, TINY, toIntegers } from "./integers.as";
import { ones } from "./lanes.as";
import { COLUMNS, BLOCK_F32, KEY_POSITIONS, VALUE_POSITIONS } from "./layout";

/**
 * Copies the blocks of a token, 32 binary32 each, to places that are `step` bytes apart, with room for the blocks of
 * other tokens between them.
 */
export function arrange(x: usize, blocks: i32, out: usize, step: usize): void {
  for (const end = x + (<usize> blocks << 7); x < end; out += step) {
    for (let to = out; to < out + BLOCK_F32; to += 32, x += 32) {
      const a = v128.load(x), b = v128.load(x, 16);
      v128.store(to, a);
      v128.store(to, b, 16);
    }
  }
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

/** Quantizes blocks of 32 binary32 at x to int8; stores them, their scales, and 8 times their sums at out. */
export function quantize_i8(x: usize, blocks: i32, out: usize): void {
  let scales = out + (<usize> blocks << 5), sums = scales + (<usize> blocks << 2);
  for (let n = 0; n < blocks; n++, x += BLOCK_F32, out += COLUMNS, scales += 4, sums += 4) {
    const m = peak(x, COLUMNS);
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
 * Quantizes blocks of 32 binary32 at x to int16 of at most `top`; stores them, their scales, and 8 times their sums at
 * out.
 *
 * @param paired whether columns j and 16+j are adjacent (for q8), or all are in order (for q4)
 */
export function quantize_i16(x: usize, blocks: i32, out: usize, top: f32, paired: i32): void {
  let scales = out + (<usize> blocks << 6), sums = scales + (<usize> blocks << 2);
  for (let n = 0; n < blocks; n++, x += BLOCK_F32, out += 2 * COLUMNS, scales += 4, sums += 4) {
    const m = peak(x, COLUMNS);
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

/**
 * Quantizes a head to int16 of at most `top`. @returns the scale
 *
 * @param x d binary32, d a multiple of 4
 */
export function quantize_head(x: usize, d: i32, top: f32, out: usize): f32 {
  const m = peak(x, d);
  const inverse = f32x4.splat(m >= TINY ? top / m : 0);
  for (const end = x + (<usize> d << 2); x < end; x += 16, out += 8) {
    const words = toIntegers(v128.load(x), inverse);
    v128.store64_lane(out, i16x8.narrow_i32x4_s(words, words), 0);
  }
  return m / top;
}

/**
 * Quantizes a head as {@link quantize_head}, to integers of `size` bytes. Runs of `run` integers are `step` bytes
 * apart.
 */
@inline
function spread(size: i32, x: usize, d: i32, top: f32, out: usize, run: i32, step: usize): f32 {
  const m = peak(x, d);
  const inverse: f32 = m >= TINY ? top / m : 0;
  for (const end = x + (<usize> d << 2); x < end; out += step) {
    for (let at = out, stop = out + run * size; at < stop; at += size, x += 4) {
      const level = <i32> nearest<f32>(load<f32>(x) * inverse);
      if (size == 1) store<i8>(at, <i8> level);
      else store<i16>(at, <i16> level);
    }
  }
  return m / top;
}

/**
 * Quantizes a key as {@link quantize_head}, in pairs of values, with room for the pairs of the block's other positions.
 *
 * @param out the place of the position's first pair
 */
export function quantize_key(size: i32, x: usize, d: i32, top: f32, out: usize): f32 {
  return size == 1 ? spread(1, x, d, top, out, 2, 2 * KEY_POSITIONS) : spread(2, x, d, top, out, 2, 4 * KEY_POSITIONS);
}

/**
 * Quantizes a value as {@link quantize_head}; the integers of two positions are interleaved.
 *
 * @param out the place of the position's first integer
 */
export function quantize_value(size: i32, x: usize, d: i32, top: f32, out: usize): f32 {
  return size == 1 ? spread(1, x, d, top, out, 1, VALUE_POSITIONS) : spread(2, x, d, top, out, 1, 2 * VALUE_POSITIONS);
}
