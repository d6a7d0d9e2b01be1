/**
 * Conversions between binary16, bfloat16 and binary32, and the two rounding rules of the block format.
 *
 * @module
 */

const single = new Float32Array(1);
const singleBits = new Uint32Array(single.buffer);

/** The value of an IEEE 754 binary16 bit pattern; exact. (Node 22 has no Float16Array.) */
export function f16ToF32(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  if ((bits & 0x7c00) === 0x7c00) return bits & 0x3ff ? NaN : sign * Infinity;
  // The bits of binary32 with the same fields; its exponents are 112 greater, also for subnormals.
  singleBits[0] = (bits & 0x7fff) << 13;
  return sign * single[0] * 2 ** 112;
}

/**
 * The binary16 bit pattern nearest to `x` rounded to binary32, ties to even. Magnitudes of 65520 and more give an
 * infinity, those of 2^-25 and less a zero.
 */
export function f32ToF16(x: number): number {
  single[0] = x;
  const sign = singleBits[0] >>> 16 & 0x8000;
  const magnitude = Math.abs(single[0]);
  if (Number.isNaN(magnitude)) return sign | 0x7e00;
  if (magnitude >= 65520) return sign | 0x7c00;
  if (magnitude < 2 ** -14) {
    // From 0.5 on, the spacing of binary32 is 2^-24, that of binary16's subnormals, so the sum is rounded as they are.
    single[0] = magnitude + 0.5;
    return sign | singleBits[0] - 0x3f000000;
  }
  const bits = singleBits[0] & 0x7fffffff;
  return sign | (bits + 0xfff + (bits >>> 13 & 1) - (112 << 23)) >>> 13;
}

/** The value of a bfloat16 bit pattern; exact. */
export function bf16ToF32(bits: number): number {
  singleBits[0] = bits << 16;
  return single[0];
}

/** The bfloat16 bit pattern nearest to `x` rounded to binary32, ties to even. `x` must not be NaN. */
export function f32ToBf16(x: number): number {
  single[0] = x;
  const bits = singleBits[0];
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

/**
 * Rounds to the nearest integer, halves away from zero, as C's `round`.
 *
 * `Math.round` rounds -0.5 to 0, and `trunc(x + 0.5)` rounds 0.49999997 to 1 in binary32; `x - trunc(x)` is exact, so
 * that nothing is rounded twice.
 */
export function roundHalfAway(x: number): number {
  const whole = Math.trunc(x);
  return Math.abs(x - whole) >= 0.5 ? whole + Math.sign(x) : whole;
}

/** Whether a binary16 bit pattern is neither an infinity nor a NaN. */
export function f16IsFinite(bits: number): boolean {
  return (bits & 0x7c00) !== 0x7c00;
}
