/**
 * Pseudorandom numbers, the same on every machine for the same seed.
 *
 * There are three generators, because published results depend on each: sampling on {@link SplitMix64}, the digests of
 * generated models on {@link Xorshift32}, and the prompts of `advise` for a model without a tokenizer on
 * {@link Congruential}. Use Xorshift32 in new code: it needs no 64-bit integers, which are slow.
 *
 * @module
 */

/**
 * SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"; the constants are those of
 * Java's SplittableRandom): the state is a counter with the increment 0x9e3779b97f4a7c15, mixed by two
 * xor-shift-multiplies.
 */
export class SplitMix64 {
  #state: bigint;

  /** @param seed 0 to 2^53 - 1: the initial state */
  constructor(seed: number) {
    this.#state = BigInt(seed);
  }

  /** The next 64 bits. */
  next(): bigint {
    this.#state = BigInt.asUintN(64, this.#state + 0x9e3779b97f4a7c15n);
    let z = this.#state;
    z = BigInt.asUintN(64, (z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n);
    z = BigInt.asUintN(64, (z ^ (z >> 27n)) * 0x94d049bb133111ebn);
    return z ^ (z >> 31n);
  }

  /** The upper 53 of the next 64 bits, divided by 2^53: from 0 up to 1, exclusive. */
  unit(): number {
    return Number(this.next() >> 11n) / 2 ** 53;
  }
}

/** xorshift32 (Marsaglia 2003, "Xorshift RNGs"), with the shifts 13, 17 and 5. */
export class Xorshift32 {
  #state: number;

  /** @param seed only its lower 32 bits are used */
  constructor(seed: number) {
    // The generator never leaves the state 0.
    this.#state = (seed ^ 0x9e3779b9) || 1;
    for (let n = 0; n < 8; n++) this.bits();
  }

  /** The next 32 bits, as an unsigned number. */
  bits(): number {
    let x = this.#state;
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.#state = x;
    return x >>> 0;
  }

  /** A whole number from 0 to n - 1. */
  below(n: number): number {
    return Math.floor(this.bits() / 2 ** 32 * n);
  }

  /** Approximately normal with standard deviation 1: a sum of twelve uniform numbers, which is exact in binary64. */
  normal(): number {
    let sum = -6;
    for (let n = 0; n < 12; n++) sum += this.bits() / 2 ** 32;
    return sum;
  }
}

/** A linear congruential generator with the constants of Numerical Recipes. Only its upper bits are of good quality. */
export class Congruential {
  #state: number;

  /** @param seed 0 to 2^32 - 1: the initial state */
  constructor(seed: number) {
    this.#state = seed;
  }

  /** A whole number from 0 to n - 1. */
  below(n: number): number {
    this.#state = (Math.imul(this.#state, 1664525) + 1013904223) >>> 0;
    return Math.floor(this.#state / 2 ** 32 * n);
  }
}
