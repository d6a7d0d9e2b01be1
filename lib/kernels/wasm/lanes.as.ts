// AssemblyScript: code that several files of kernels share: sizes by kind, lanes, scales, binary16.

import { BF16, F32, GROUP_16, GROUP_F32, GROUP_SCALES, Q4, Q4_PAYLOAD, Q8, Q8_PAYLOAD } from "./layout";

/** 15 in each byte. */
export let nibbles: i32 = 0x0f0f0f0f;
/** 1 in each 16-bit half. */
export let ones: i32 = 0x00010001;
/** See {@link halves}. */
export let halfBits: i32 = 0x8fffe000;
export let halfPower: f32 = 5192296858534827628530496329220096.0;

/** Whether weights of a kind have blocks with scales. */
@inline
export function hasScales(kind: i32): bool {
  return kind < BF16;
}

/** Bytes of the payload of 8 rows and 32 columns. */
@inline
export function payloadBytes(kind: i32): usize {
  return kind == Q4 ? Q4_PAYLOAD : kind == Q8 ? Q8_PAYLOAD : kind == F32 ? GROUP_F32 : GROUP_16;
}

/** Bytes of 8 rows and 32 columns, with their scales. */
@inline
export function blockBytes(kind: i32): usize {
  return payloadBytes(kind) + (hasScales(kind) ? GROUP_SCALES : 0);
}

@inline
export function lane0(v: v128): v128 {
  return v128.shuffle<i32>(v, v, 0, 0, 0, 0);
}
@inline
export function lane1(v: v128): v128 {
  return v128.shuffle<i32>(v, v, 1, 1, 1, 1);
}
@inline
export function lane2(v: v128): v128 {
  return v128.shuffle<i32>(v, v, 2, 2, 2, 2);
}
@inline
export function lane3(v: v128): v128 {
  return v128.shuffle<i32>(v, v, 3, 3, 3, 3);
}

@inline
export function splat(at: usize): v128 {
  return v128.load32_splat(at);
}

/**
 * Four binary16 as binary32. `h` has their bits, sign-extended and shifted left by 13, to where binary32 has its
 * mantissa. A product with 2^112 adjusts the exponent: exact for subnormals, but not valid for infinities and NaNs,
 * which are refused at load.
 *
 * @param bits,power halfBits and halfPower in each lane
 */
@inline
export function halves(h: v128, bits: v128, power: v128): v128 {
  return f32x4.mul(v128.and(h, bits), power);
}

/** The scales of 4 rows: of the first half of a group, or of the second. `packed` has the scales of the block. */
@inline
export function scalesOf(half: i32, packed: v128, bits: v128, power: v128): v128 {
  const own = half == 0 ? i32x4.extend_low_i16x8_s(packed) : i32x4.extend_high_i16x8_s(packed);
  return halves(i32x4.shl(own, 13), bits, power);
}

/** Adds the dot product of a block, times the activations' scale, times the block's, to the row's sum. */
@inline
export function scaled(sum: v128, dot: v128, xScale: v128, scales: v128): v128 {
  return f32x4.add(sum, f32x4.mul(f32x4.mul(f32x4.convert_i32x4_s(dot), xScale), scales));
}

/** (lane 0 + lane 2) + (lane 1 + lane 3) */
@inline
export function across(v: v128): f32 {
  const t = f32x4.add(v, v128.shuffle<i64>(v, v, 1, 0));
  return f32x4.extract_lane(t, 0) + f32x4.extract_lane(t, 1);
}
