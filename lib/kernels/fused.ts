/**
 * The fused multiply-add of binary32, which exact products consist of: w * x + sum, rounded once.
 *
 * @module
 */

const number = new Float64Array(1);
const words = new Uint32Array(number.buffer);

/** The index of the lower half of a binary64. */
const LOW = new Uint8Array(Uint32Array.of(1).buffer)[0] === 1 ? 0 : 1;

/**
 * w * x + sum of three binary32, rounded once to binary32, to nearest, ties to even.
 *
 * The product is exact in binary64. The sum is rounded to binary64 to odd: if it is inexact, the neighbour whose last bit
 * is 1 is taken. That bit is far below the last one of binary32, so rounding again gives what rounding once would
 * (S. Boldo and G. Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd",
 * IEEE Transactions on Computers 57, 2008). The error of the sum is Knuth's, and exact.
 */
export function fma(w: number, x: number, sum: number): number {
  const product = w * x;
  const s = product + sum;
  const added = s - product;
  const error = (product - (s - added)) + (sum - added);
  // The error of an infinity or a NaN is a NaN.
  if (!(Math.abs(error) > 0)) return Math.fround(s);
  number[0] = s;
  if (words[LOW] % 2 === 0) {
    if (error > 0 === s > 0) words[LOW]++;
    else {
      if (words[LOW] === 0) words[1 - LOW]--;
      words[LOW]--;
    }
  }
  return Math.fround(number[0]);
}

/**
 * Triples that a multiplication and an addition, each rounded, get wrong: a product below half a unit in the last place, a
 * product above the largest binary32, and one that is subnormal.
 */
const TRIPLES = [
  [1 + 2 ** -12, 1 + 2 ** -12, -1 - 2 ** -11],
  [2 ** 127, 2, -(2 ** 127)],
  [2 ** -75, 2 ** -75 * (1 + 2 ** -23), -(2 ** -149)],
  [-1 - 2 ** -23, 1 + 2 ** -22, 1 + 3 * 2 ** -23],
];

/** Whether `fused`, which computes w * x + sum, gives what {@link fma} gives. */
export function isFused(fused: (w: number, x: number, sum: number) => number): boolean {
  return TRIPLES.every(([w, x, sum]) => Object.is(fused(w, x, sum), fma(w, x, sum)));
}
