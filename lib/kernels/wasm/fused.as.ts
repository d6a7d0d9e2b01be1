// AssemblyScript: the fused multiply-add of exact products, as an instruction. build.ts compiles the kernels twice, the
// second time with emulated.as.ts in place of this file.

/** w x + sum. The processor rounds it once if it has the instruction, else twice: see {@link fused}. */
@inline
export function madd(sum: v128, w: v128, x: v128): v128 {
  return f32x4.relaxed_madd(w, x, sum);
}

/** {@link madd} of one number, to test whether it is rounded once. */
export function fused(w: f32, x: f32, sum: f32): f32 {
  return f32x4.extract_lane(madd(f32x4.splat(sum), f32x4.splat(w), f32x4.splat(x)), 0);
}
