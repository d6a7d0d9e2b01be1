// AssemblyScript: the fused multiply-add of exact products, for processors without such an instruction. The method and the
// results are those of lib/kernels/fused.ts.

/** w x + sum in binary64, of two lanes, rounded to odd. */
@inline
function roundedToOdd(sum: v128, w: v128, x: v128): v128 {
  const product = f64x2.mul(w, x);
  const s = f64x2.add(product, sum);
  const added = f64x2.sub(s, product);
  const error = f64x2.add(f64x2.sub(product, f64x2.sub(s, added)), f64x2.sub(sum, added));
  const one = i64x2.splat(1);
  // The comparison is false for a NaN, which is the error of an infinity.
  const moves = v128.andnot(f64x2.gt(f64x2.abs(error), f64x2.splat(0)), i64x2.neg(v128.and(s, one)));
  const away = v128.or(i64x2.shr_s(v128.xor(s, error), 63), one);
  return i64x2.add(s, v128.and(moves, away));
}

/** The upper two lanes in place of the lower two. */
@inline
function upperOf(v: v128): v128 {
  return v128.shuffle<i64>(v, v, 1, 0);
}

/** w x + sum, rounded once. */
export function madd(sum: v128, w: v128, x: v128): v128 {
  const low = roundedToOdd(f64x2.promote_low_f32x4(sum), f64x2.promote_low_f32x4(w), f64x2.promote_low_f32x4(x));
  const sum2 = upperOf(sum), w2 = upperOf(w), x2 = upperOf(x);
  const high = roundedToOdd(f64x2.promote_low_f32x4(sum2), f64x2.promote_low_f32x4(w2), f64x2.promote_low_f32x4(x2));
  return v128.shuffle<i64>(f32x4.demote_f64x2_zero(low), f32x4.demote_f64x2_zero(high), 0, 2);
}

/** {@link madd} of one number. */
export function fused(w: f32, x: f32, sum: f32): f32 {
  return f32x4.extract_lane(madd(f32x4.splat(sum), f32x4.splat(w), f32x4.splat(x)), 0);
}
