/**
 * Metrics of logits and tokens. The doc comments define them.
 *
 * @module
 */

import { divergenceOf, logProbability, type Pair } from "./distribution.ts";

/** The maximum and the mean of |a - b| over all values that were added, with sums in binary64. */
export class Difference {
  // Fields, since getters are left out by JSON.stringify and console.log.
  /** max |a - b| */
  max = 0;
  /** (sum of |a - b|) / (number of values) */
  mean = 0;
  /** Number of values. */
  values = 0;
  #sum = 0;

  /** Adds the differences of two rows of equal length. */
  add(a: Float32Array, b: Float32Array): void {
    for (let n = 0; n < a.length; n++) {
      const d = Math.abs(a[n] - b[n]);
      this.#sum += d;
      if (d > this.max) this.max = d;
    }
    this.values += a.length;
    if (this.values > 0) this.mean = this.#sum / this.values;
  }
}

/** The difference between the largest value and the second largest; 0 if they are equal. */
export function margin(values: Float32Array): number {
  let [first, second] = [-Infinity, -Infinity];
  for (const value of values) {
    if (value > first) [first, second] = [value, first];
    else if (value > second) second = value;
  }
  return first - second;
}

/** A number for output, or a word if there is none: JSON has neither NaN nor infinities. */
export type Figure = number | "overflow" | "undefined";

/** Converts a number. An infinity is an overflow of binary64, as in exp of a large loss. */
export function figureOf(value: number): Figure {
  return Number.isFinite(value) ? value : Number.isNaN(value) ? "undefined" : "overflow";
}

/** A value and its standard error, which is NaN for a single observation. */
export interface Estimate {
  /** The value. */
  readonly value: number;
  /** Its standard error. */
  readonly error: number;
}

/**
 * The mean of observations and its standard error, sqrt(sum of (x - mean)^2 / (n - 1) / n). This assumes independent
 * observations. The tokens of a text are not, so the true error of a divergence is up to twice as large: see bounds.ts.
 */
export function mean(values: readonly number[]): Estimate {
  const n = values.length;
  const value = values.reduce((sum, x) => sum + x, 0) / n;
  const squares = values.reduce((sum, x) => sum + (x - value) ** 2, 0);
  return { value, error: Math.sqrt(squares / (n - 1) / n) };
}

/** exp of an estimate. The error is propagated to first order: exp(value) * error. */
export function exponential({ value, error }: Estimate): Estimate {
  return { value: Math.exp(value), error: Math.exp(value) * error };
}

/**
 * The q-quantile of values, 0 <= q <= 1: linear interpolation of the sorted values at rank q (n - 1), as in numpy's
 * default and llama.cpp's perplexity tool. NaN if there are no values.
 */
export function quantile(values: readonly number[], q: number): number {
  const sorted = Float64Array.from(values).sort();
  const rank = q * (sorted.length - 1);
  const below = Math.floor(rank);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (rank - below);
}

/** The observations of a {@link Divergence}: one number for each scored token, in order. */
export interface Observations {
  /** -log p(token). */
  readonly float: readonly number[];
  /** -log q(token). */
  readonly quant: readonly number[];
  /** The Kullback-Leibler divergence of q from p. */
  readonly kl: readonly number[];
  /** q(token) - p(token). */
  readonly shift: readonly number[];
  /** 1 where both models have the same most probable token, otherwise 0. */
  readonly same: readonly number[];
}

/**
 * Compares the predictions of a float model and a quantized one on a text, with one observation per scored token. The
 * figures and their definitions are those of llama.cpp's perplexity tool with --kl-divergence
 * (https://github.com/ggml-org/llama.cpp/blob/master/tools/perplexity/README.md). Logarithms are natural.
 */
export class Divergence {
  readonly #float: number[] = [];
  readonly #quant: number[] = [];
  readonly #kl: number[] = [];
  readonly #shift: number[] = [];
  readonly #same: number[] = [];

  /** Adds a place of the text: `token` is the one that follows. */
  add(pair: Pair, token: number): void {
    const p = logProbability(pair.p, pair.topP, pair.sumP, token);
    const q = logProbability(pair.q, pair.topQ, pair.sumQ, token);
    this.#float.push(-p);
    this.#quant.push(-q);
    this.#kl.push(divergenceOf(pair));
    this.#shift.push(Math.exp(q) - Math.exp(p));
    this.#same.push(pair.topP === pair.topQ ? 1 : 0);
  }

  /** Adds the observations of another measurement after those of this one. */
  append({ float, quant, kl, shift, same }: Observations): void {
    for (
      const [to, from] of [
        [this.#float, float],
        [this.#quant, quant],
        [this.#kl, kl],
        [this.#shift, shift],
        [this.#same, same],
      ] as const
    ) {
      for (const value of from) to.push(value);
    }
  }

  /** What was added. */
  get observations(): Observations {
    return { float: this.#float, quant: this.#quant, kl: this.#kl, shift: this.#shift, same: this.#same };
  }

  /** Number of scored tokens. */
  get scored(): number {
    return this.#kl.length;
  }

  /** Perplexity of the float model: exp of the mean of -log p(token). */
  get float(): Estimate {
    return exponential(mean(this.#float));
  }

  /** Perplexity of the quantized model. */
  get quant(): Estimate {
    return exponential(mean(this.#quant));
  }

  /**
   * The quantized model's perplexity divided by the float model's: exp of the mean difference of -log p. Its error is
   * far smaller than those of the perplexities, since both are measured on the same tokens.
   */
  get ratio(): Estimate {
    return exponential(mean(this.losses));
  }

  /** The loss of each token by the quantized model minus that by the float model. */
  get losses(): number[] {
    return this.#quant.map((loss, n) => loss - this.#float[n]);
  }

  /** Mean Kullback-Leibler divergence of the quantized model from the float model, in nats. */
  get kl(): Estimate {
    return mean(this.#kl);
  }

  /** The q-quantile of the Kullback-Leibler divergences; 1 is the maximum. */
  klQuantile(q: number): number {
    return quantile(this.#kl, q);
  }

  /** The fraction of tokens where both models have the same most probable token. The error is that of a binomial. */
  get sameTop(): Estimate {
    const { value } = mean(this.#same);
    return { value, error: Math.sqrt(value * (1 - value) / (this.scored - 1)) };
  }

  /** Mean of q(token) - p(token), where q is the quantized model and p the float model. */
  get meanShift(): number {
    return mean(this.#shift).value;
  }

  /** Root mean square of q(token) - p(token). */
  get rmsShift(): number {
    return Math.sqrt(mean(this.#shift.map((d) => d * d)).value);
  }
}

/** The figures of a {@link Divergence} under the names used in JSON. A single token has no standard errors. */
export interface PredictionFigures {
  readonly perplexity: {
    readonly float: Figure;
    readonly float_error?: Figure;
    readonly quant: Figure;
    readonly quant_error?: Figure;
    readonly ratio: Figure;
    readonly ratio_error?: Figure;
  };
  /** In nats per token. */
  readonly kl: {
    readonly mean: Figure;
    readonly error?: Figure;
    readonly median: Figure;
    /** The 99.9% quantile. */
    readonly p999: Figure;
    readonly max: Figure;
  };
  readonly same_top: { readonly rate: Figure; readonly error?: Figure };
  /** The change of the probability of the text's token. */
  readonly prob: { readonly rms: Figure; readonly mean: Figure };
}

/** Collects the figures of a {@link Divergence}. */
export function predictionFigures(measured: Divergence): PredictionFigures {
  const { float, quant, ratio, kl, sameTop } = measured;
  const errorOf = ({ error }: Estimate) => Number.isNaN(error) ? undefined : figureOf(error);
  return {
    perplexity: {
      float: figureOf(float.value),
      float_error: errorOf(float),
      quant: figureOf(quant.value),
      quant_error: errorOf(quant),
      ratio: figureOf(ratio.value),
      ratio_error: errorOf(ratio),
    },
    kl: {
      mean: figureOf(kl.value),
      error: errorOf(kl),
      median: figureOf(measured.klQuantile(0.5)),
      p999: figureOf(measured.klQuantile(0.999)),
      max: figureOf(measured.klQuantile(1)),
    },
    same_top: { rate: figureOf(sameTop.value), error: errorOf(sameTop) },
    prob: { rms: figureOf(measured.rmsShift), mean: figureOf(measured.meanShift) },
  };
}

/** Counts of values in bins of equal width: bin n begins at (first + n) * width. */
export interface Bins {
  readonly width: number;
  readonly first: number;
  readonly counts: readonly number[];
}

/** Bins on each side of zero. */
const SIDE = 128;

/** The initial width of the bins: far below the effect of a changed weight on binary32 logits. */
const FINEST = 2 ** -24;

/** A histogram that doubles the width of its bins when a value is out of range, so that two of them can be aligned. */
export class Histogram {
  #width = FINEST;
  #counts: number[] = new Array(2 * SIDE).fill(0);

  /** Adds a finite value. */
  add(value: number): void {
    let bin = Math.floor(value / this.#width);
    while (bin < -SIDE || bin >= SIDE) {
      this.#double();
      bin = Math.floor(value / this.#width);
    }
    this.#counts[bin + SIDE]++;
  }

  /** The bins from the first to the last that is not empty, at least `width` (a power of two) wide. */
  bins(width = 0): Bins {
    while (this.#width < width) this.#double();
    const first = this.#counts.findIndex((count) => count > 0);
    if (first < 0) return { width: this.#width, first: 0, counts: [] };
    const last = this.#counts.findLastIndex((count) => count > 0);
    return { width: this.#width, first: first - SIDE, counts: this.#counts.slice(first, last + 1) };
  }

  #double(): void {
    this.#width *= 2;
    this.#counts = this.#counts.map((_, bin) => {
      const low = 2 * (bin - SIDE) + SIDE;
      return (this.#counts[low] ?? 0) + (this.#counts[low + 1] ?? 0);
    });
  }
}
