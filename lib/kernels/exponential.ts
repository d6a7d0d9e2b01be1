/**
 * exp in binary32: part of the definition of the operations.
 *
 * @module
 */

const { fround } = Math;

const LOG2E = fround(1.44269504088896341);
const LN2_HIGH = fround(0.693359375);
const LN2_LOW = fround(-2.12194440e-4);
const POLYNOMIAL = [
  1.9875691500e-4,
  1.3981999507e-3,
  8.3334519073e-3,
  4.1665795894e-2,
  1.6666665459e-1,
  5.0000001201e-1,
]
  .map(fround);
const EXP_MIN = fround(-87.3);

/** exp(x) in binary32 for x of at most 88: Cephes' expf, within 2 units in the last place; 0 below -87.3. */
export function exp(x: number): number {
  if (x < EXP_MIN) return 0;
  const bounded = Math.min(x, 88);
  const n = roundHalfEven(fround(bounded * LOG2E));
  let r = fround(bounded - fround(n * LN2_HIGH));
  r = fround(r - fround(n * LN2_LOW));
  let p = POLYNOMIAL[0];
  for (const coefficient of POLYNOMIAL.slice(1)) p = fround(fround(p * r) + coefficient);
  p = fround(fround(fround(fround(r * r) * p) + r) + 1);
  return fround(p * 2 ** n);
}

/** The nearest integer, ties to even. */
export function roundHalfEven(x: number): number {
  const down = Math.floor(x);
  const part = x - down;
  return part > 0.5 || (part === 0.5 && down % 2 !== 0) ? down + 1 : down;
}
