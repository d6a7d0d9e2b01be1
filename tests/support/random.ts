/**
 * Random numbers of a seed.
 *
 * @module
 */

/** Seeded random numbers (the generator is splitmix32). */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** 32 random bits, as an unsigned number. */
  bits(): number {
    let z = this.#state = (this.#state + 0x9e3779b9) >>> 0;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return (z ^ (z >>> 15)) >>> 0;
  }

  /** A whole number of 0 to `limit` - 1. */
  below(limit: number): number {
    return Math.floor(this.bits() / 2 ** 32 * limit);
  }

  /** A number of 0 to 1. */
  unit(): number {
    return this.bits() / 2 ** 32;
  }

  /** A number of the standard normal distribution. */
  gaussian(): number {
    return Math.sqrt(-2 * Math.log(this.unit() + 2 ** -33)) * Math.cos(2 * Math.PI * this.unit());
  }

  /** One of `items`. */
  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)];
  }
}

/** Bytes of a linear congruential generator that scripts in fixtures have too. */
export function congruential(seed: number, count: number): Uint8Array<ArrayBuffer> {
  let state = seed;
  return Uint8Array.from({ length: count }, () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) >>> 24);
}
