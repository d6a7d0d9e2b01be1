// AssemblyScript: converts packed weights to binary32, column by column, for exact products.

import { BF16, F16, F32, Q4, Q8 } from "./layout";
import { halfBits, halves } from "./lanes.as";

/** The upper 16 bits. */
export let upper: i32 = 0xffff0000;
/** See {@link lowOf}, {@link highOf}. */
export let lowNibble: i32 = 0x0000000f;
export let lowPower: f32 = 8388608;
export let lowBias: f32 = 8388616;
export let highNibble: i32 = 0x000000f0;
export let highPower: f32 = 524288;
export let highBias: f32 = 524296;

/** The mask for {@link lowOf}, and for {@link highOf} of all kinds but q4. */
@inline
export function maskOf(kind: i32): v128 {
  return i32x4.splat(kind == Q4 ? lowNibble : kind == BF16 ? upper : halfBits);
}

/**
 * Columns 4c+k and 16+4c+k of the 4 rows of a half group, as a pair. `at` is the first byte of column 4c; k and half
 * are compile-time constants. For q4 one load, `word`, serves four columns, and the pair is in its lowest byte.
 */
@inline
export function pairOf(kind: i32, at: usize, k: i32, half: i32, word: v128): v128 {
  if (kind == Q4) return k == 0 ? word : i32x4.shr_u(word, 8 * k);
  if (kind == Q8) {
    const both = v128.load(at + k * 16);
    return half ? i16x8.extend_high_i8x16_s(both) : i16x8.extend_low_i8x16_s(both);
  }
  if (kind == F32) return word;
  return v128.load(at + k * 32 + half * 16);
}

@inline
export function wordOf(kind: i32, at: usize, half: i32): v128 {
  return kind == Q4 ? v128.load(at + half * 16) : i32x4.splat(0);
}

/** Bytes from column 4c to column 4c+4. */
@inline
export function quadBytes(kind: i32): usize {
  return kind == Q4 ? 32 : kind == Q8 ? 64 : kind == F32 ? 256 : 128;
}

/**
 * Column 4c+k of 4 rows as binary32. For q4 the nibble is set in the last bits of 2^23, which gives 2^23 + level + 8;
 * subtracting 2^23 + 8 is exact, and cheaper than two shifts and a conversion.
 */
@inline
export function lowOf(kind: i32, at: usize, k: i32, half: i32, pair: v128, mask: v128, power: v128, bias: v128): v128 {
  if (kind == Q4) return f32x4.sub(v128.or(v128.and(pair, mask), power), bias);
  if (kind == Q8) return f32x4.convert_i32x4_s(i32x4.shr_s(i32x4.shl(pair, 16), 16));
  if (kind == BF16) return i32x4.shl(pair, 16);
  if (kind == F16) return halves(i32x4.shr_s(i32x4.shl(pair, 16), 3), mask, power);
  return v128.load(at + k * 64 + half * 16);
}

/** Column 16+4c+k of 4 rows as binary32; for q4 as {@link lowOf}, with 2^19. */
@inline
export function highOf(kind: i32, at: usize, k: i32, half: i32, pair: v128, mask: v128, power: v128, bias: v128): v128 {
  if (kind == Q4) return f32x4.sub(v128.or(v128.and(pair, mask), power), bias);
  if (kind == Q8) return f32x4.convert_i32x4_s(i32x4.shr_s(pair, 16));
  if (kind == BF16) return v128.and(pair, mask);
  if (kind == F16) return halves(i32x4.shr_s(pair, 3), mask, power);
  return v128.load(at + k * 64 + half * 16 + 32);
}

/** Bytes from one column to the next; not for q4, which has four columns in a word. */
@inline
export function columnBytes(kind: i32): usize {
  return quadBytes(kind) >> 2;
}

/** The offset of columns 2j and 2j+1 of a block, for {@link pairOf}. For q4 they are half a word. */
@inline
export function twoColumns(kind: i32, j: i32): usize {
  return kind == Q4 ? ((j >> 1) << 5) + ((j & 1) << 1) : j * (quadBytes(kind) >> 1);
}
