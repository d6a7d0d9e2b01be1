/**
 * The softmax of rows of logits, and the sums over two rows that perplexity and divergence are computed from. This is the
 * definition, down to the order of the additions; a pool (lib/kernels) computes the same bits on all threads.
 *
 * @module
 */

/** The index of the largest value, the lowest index of equal values; -1 if a value is NaN or infinite. */
export function argmax(values: Float32Array): number {
  let best = 0;
  for (let n = 0; n < values.length; n++) {
    if (!Number.isFinite(values[n])) return -1;
    if (values[n] > values[best]) best = n;
  }
  return best;
}

/** exp of a smaller number counts as exp(-708), which is negligible beside the 1 of the largest logit. */
const LEAST = -708;

/** Adding and subtracting it rounds to the nearest integer, ties to even. */
const SHIFT = 1.5 * 2 ** 52;

/** 2^-n for each n, by exact divisions: Math.pow may round. */
const HALVES = new Float64Array(1024).fill(1);
for (let n = 1; n < HALVES.length; n++) HALVES[n] = HALVES[n - 1] / 2;

/**
 * exp(x) for x of at most 0, by the method of Cephes' exp: within 1 unit in the last place. It consists of additions,
 * products and one division, so every machine computes the same bits, which Math.exp does not guarantee.
 */
export function exp(x: number): number {
  const bounded = Math.max(x, LEAST);
  const n = bounded * 1.4426950408889634073599 + SHIFT - SHIFT;
  const r = bounded - n * 6.93145751953125e-1 - n * 1.42860682030941723212e-6;
  const s = r * r;
  const p = r * ((1.26177193074810590878e-4 * s + 3.02994407707441961300e-2) * s + 9.99999999999999999910e-1);
  const q = ((3.00198505138664455042e-6 * s + 2.52448340349684104192e-3) * s + 2.27265548208155028766e-1) * s +
    2.00000000000000000009;
  const e = p / (q - p);
  return (e + e + 1) * HALVES[-n];
}

/** The sum of `length` values: value n is added to partial sum n % 4, and the result is (0 + 1) + (2 + 3). */
function sumOf(length: number, value: (n: number) => number): number {
  const sums = [0, 0, 0, 0];
  for (let n = 0; n < length; n++) sums[n % 4] += value(n);
  return sums[0] + sums[1] + (sums[2] + sums[3]);
}

/**
 * The softmax of a row of logits: p(i) = exp(logits[i]) / sum of exp(logits[j]), computed in binary64. The largest
 * logit is subtracted before {@link exp} to avoid overflow.
 */
export class Distribution {
  /** exp(logits[i] - largest) */
  readonly weights: Float64Array;
  #logits: Float32Array = new Float32Array(0);
  #top = -1;
  #sum = 0;

  /**
   * Allocates memory for one row.
   *
   * @param vocabulary the number of logits
   */
  constructor(vocabulary: number) {
    this.weights = new Float64Array(vocabulary);
  }

  /** Sets the logits, which must not change while they are in use. @returns false if a logit is NaN or infinite */
  set(logits: Float32Array): boolean {
    const { weights } = this;
    const top = argmax(logits);
    this.#logits = logits;
    this.#top = top;
    this.#sum = top < 0 ? 0 : sumOf(logits.length, (n) => weights[n] = exp(logits[n] - logits[top]));
    return top >= 0;
  }

  /** The most probable token, the lowest id of equal ones; -1 if a logit is NaN or infinite. */
  get top(): number {
    return this.#top;
  }

  /** The natural logarithm of p(token). */
  logProbability(token: number): number {
    return logProbability(this.#logits, this.#top, this.#sum, token);
  }

  /** The Kullback-Leibler divergence of `other` from this distribution, in nats: see {@link divergenceOf}. */
  divergence(other: Distribution): number {
    return divergenceOf(this.with(other));
  }

  /** This distribution (p) and another (q). */
  with(other: Distribution): Pair {
    const [p, q] = [this.#logits, other.#logits];
    const finite = this.#top >= 0 && other.#top >= 0;
    return {
      p,
      q,
      topP: this.#top,
      topQ: other.#top,
      sumP: finite ? this.#sum : 0,
      sumQ: finite ? other.#sum : 0,
      cross: finite ? sumOf(p.length, (n) => this.weights[n] * (p[n] - q[n])) : 0,
    };
  }
}

/** Two rows of logits, p and q, and the sums that the figures are computed from, in binary64. */
export interface Pair {
  /** The logits of the float model. */
  readonly p: Float32Array;
  /** The logits of the quantized model. */
  readonly q: Float32Array;
  /** The index of the largest logit of p, the lowest of equal ones; -1 if one is NaN or infinite. */
  readonly topP: number;
  /** The same of q. */
  readonly topQ: number;
  /** The sum of exp(p[i] - largest); 0 if a logit of p or q is not finite, and so are the other sums. */
  readonly sumP: number;
  /** The sum of exp(q[i] - largest). */
  readonly sumQ: number;
  /** The sum of exp(p[i] - largest) (p[i] - q[i]). */
  readonly cross: number;
}

/** The natural logarithm of the sum of exp(logits[i]). */
function logSumOf(logits: Float32Array, top: number, sum: number): number {
  return logits[top] + Math.log(sum);
}

/** The natural logarithm of the probability of a token; `top` and `sum` are those of a {@link Pair}. */
export function logProbability(logits: Float32Array, top: number, sum: number, token: number): number {
  return logits[token] - logSumOf(logits, top, sum);
}

/**
 * The Kullback-Leibler divergence of q from p, in nats: sum of p(i) (log p(i) - log q(i)). It is 0 for equal
 * distributions and never negative (Kullback and Leibler 1951); a negative rounding error is replaced by 0.
 */
export function divergenceOf({ p, q, topP, topQ, sumP, sumQ, cross }: Pair): number {
  return Math.max(0, cross / sumP - logSumOf(p, topP, sumP) + logSumOf(q, topQ, sumQ));
}
