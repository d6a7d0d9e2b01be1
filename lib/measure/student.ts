/**
 * Quantiles of Student's t distribution with whole degrees of freedom.
 *
 * The finite sums are 26.7.3 and 26.7.4 of Abramowitz and Stegun, "Handbook of Mathematical Functions". Packages on npm
 * that have the quantile also have hundreds of dependencies (@stdlib), or no types and an inexact inverse (jstat).
 *
 * @module
 */

/** P(|T| < t) for t = sqrt(freedom) tan(angle), 0 <= angle <= pi / 2. */
function central(angle: number, freedom: number): number {
  const [sin, cos] = [Math.sin(angle), Math.cos(angle)];
  const odd = freedom % 2;
  // The terms are powers of the cosine, with products of odd over even numbers or the other way round.
  let [term, sum] = [odd ? cos : 1, 0];
  for (let power = odd; power <= freedom - 2; power += 2) {
    sum += term;
    term *= cos * cos * (power + 1) / (power + 2);
  }
  return odd ? 2 / Math.PI * (angle + sin * sum) : sin * sum;
}

/**
 * The t with P(T <= t) = p, for T with Student's distribution.
 *
 * @param p between 0 and 1, exclusive
 * @param freedom the degrees of freedom: a whole number of at least 1
 */
export function studentQuantile(p: number, freedom: number): number {
  let [low, high] = [0, Math.PI / 2];
  // Halved until no number lies between.
  for (let middle = high / 2; middle > low && middle < high; middle = (low + high) / 2) {
    if (central(middle, freedom) < Math.abs(2 * p - 1)) low = middle;
    else high = middle;
  }
  return Math.sign(p - 0.5) * Math.sqrt(freedom) * Math.tan(low);
}
