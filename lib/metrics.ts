/**
 * Pure functions on logits and tokens; each comment is the definition.
 *
 * @module
 */

/** The largest and the mean of |a - b| over all values that were added; sums are in binary64. */
export class Difference {
  #max = 0;
  #sum = 0;
  #count = 0;

  /** Adds the differences of two rows of equal length. */
  add(a: Float32Array, b: Float32Array): void {
    for (let n = 0; n < a.length; n++) {
      const d = Math.abs(a[n] - b[n]);
      this.#sum += d;
      if (d > this.#max) this.#max = d;
    }
    this.#count += a.length;
  }

  /** max |a - b| */
  get max(): number {
    return this.#max;
  }

  /** (sum of |a - b|) / (number of values) */
  get mean(): number {
    return this.#count === 0 ? 0 : this.#sum / this.#count;
  }

  /** Values that were compared. */
  get values(): number {
    return this.#count;
  }
}

/** The index of the largest value, the lowest of equal ones; -1 if a value is NaN or an infinity. */
export function argmax(values: Float32Array): number {
  let best = 0;
  for (let n = 0; n < values.length; n++) {
    if (!Number.isFinite(values[n])) return -1;
    if (values[n] > values[best]) best = n;
  }
  return best;
}
