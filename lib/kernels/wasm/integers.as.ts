// AssemblyScript: quantizes binary32 to integers with one scale, for activations, heads and softmax weights.

/**
 * 2^-100: if all magnitudes are smaller, the values count as zeros, since the reciprocal of the largest could overflow.
 */
export const TINY: f32 = 7.888609052210118e-31;

/** The largest lane. */
@inline
export function largest(v: v128): f32 {
  const m = f32x4.max(v, v128.shuffle<i64>(v, v, 1, 0));
  return max(f32x4.extract_lane(m, 0), f32x4.extract_lane(m, 1));
}

/** The largest magnitude of `length` binary32, a multiple of 4. */
@inline
export function peak(x: usize, length: i32): f32 {
  let m = f32x4.splat(0);
  for (const end = x + (<usize> length << 2); x < end; x += 16) m = f32x4.max(m, f32x4.abs(v128.load(x)));
  return largest(m);
}

/** x * inverse, rounded to the nearest integer, ties to even. */
@inline
export function toIntegers(x: v128, inverse: v128): v128 {
  return i32x4.trunc_sat_f32x4_s(f32x4.nearest(f32x4.mul(x, inverse)));
}
