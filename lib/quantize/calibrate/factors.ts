/**
 * The weights of tokens. In some layers the first position has an input many times longer than any other (the attention
 * sink); it counts at most as {@link CAP} tokens of middling length, so that damping does not drown the others.
 *
 * @module
 */

/** The most that the square of a token's input counts, in medians over the tokens. */
export const CAP = 512;

/** The squares of the lengths of rows, [tokens]: binary64 sums in the order of columns. */
export function squaredNorms(x: Float32Array, tokens: number): Float64Array {
  const columns = x.length / tokens;
  const norms = new Float64Array(tokens);
  for (let t = 0, at = 0; t < tokens; t++) {
    let sum = 0;
    for (let j = 0; j < columns; j++, at++) sum += x[at] * x[at];
    norms[t] = sum;
  }
  return norms;
}

/**
 * What the values of each token are multiplied with: the square root of min(1, CAP * median / norm), rounded to binary32; 1 if
 * the median is 0.
 *
 * @param norms the squared lengths of all tokens' inputs; the median is the lower one of two
 */
export function tokenFactors(norms: Float64Array): Float32Array<ArrayBuffer> {
  const median = norms.toSorted()[(norms.length - 1) >> 1];
  return Float32Array.from(norms, (norm) => median > 0 && norm > CAP * median ? Math.sqrt(CAP * median / norm) : 1);
}
