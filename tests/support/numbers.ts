/**
 * Comparing numbers, bit for bit or within a tolerance.
 *
 * @module
 */

/** Binary32 values. */
export function row(...values: number[]): Float32Array {
  return Float32Array.from(values);
}

/** @throws {Error} if a number is farther off than `tolerance`, relative to numbers above 1 */
export function near(actual: number, expected: number, what: string, tolerance = 1e-12): void {
  const off = Math.abs(actual - expected);
  if (!(off <= tolerance * Math.max(1, Math.abs(expected)))) throw new Error(`${what}: ${actual}, not ${expected}`);
}

/** The bits of binary32 values; every NaN is one and the same. */
export function bitsOf(values: Float32Array): Uint32Array {
  return new Uint32Array(values.slice().buffer).map((bits) => (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : bits);
}

/** @throws {Error} naming the first value that differs in a bit */
export function assertSameBits(actual: Float32Array, expected: Float32Array, what: string): void {
  if (actual.length !== expected.length) throw new Error(`${what}: ${actual.length} values, not ${expected.length}`);
  const [a, b] = [bitsOf(actual), bitsOf(expected)];
  const at = a.findIndex((bits, n) => bits !== b[n]);
  if (at >= 0) throw new Error(`${what}: value ${at} of ${a.length} is ${actual[at]}, not ${expected[at]}`);
}

/** @throws {Error} naming the value that is farthest off */
export function assertNear(
  actual: ArrayLike<number>,
  expected: readonly number[],
  tolerance: number,
  what: string,
): void {
  if (actual.length !== expected.length) throw new Error(`${what}: ${actual.length} values, not ${expected.length}`);
  const off = expected.map((x, n) => Math.abs(x - actual[n]));
  const worst = off.reduce((worst, d, n) => d <= off[worst] ? worst : n, 0);
  if (!(off[worst] <= tolerance)) {
    throw new Error(`${what}: value ${worst} is ${actual[worst]}, not ${expected[worst]}: off by ${off[worst]}`);
  }
}
