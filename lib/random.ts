/**
 * Random numbers from a seed, the same on every machine.
 *
 * There are three generators, since results depend on each. {@link SplitMix64} defines what a seed samples.
 * {@link Xorshift32} defines the weights of generated models, whose digests are published; it needs no 64-bit integers, so
 * that millions of weights take no time: use it for all that is new. {@link Congruential} defines the prompts that `advise`
 * gives to a model without a tokenizer, on which its advice depends.
 *
 * @module
 */

/**
 * SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"; the constants are those of
 * Java's SplittableRandom): the state grows by 0x9e3779b97f4a7c15, and is mixed by two xor-shift-multiplies.
 */
export class SplitMix64 {
  #state: bigint;

  /** @param seed 0 to 2^53 - 1: the state that the generator begins with */
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

  /** The upper 53 of the next bits over 2^53: 0 to 1, exclusive. */
  unit(): number {
    return Number(this.next() >> 11n) / 2 ** 53;
  }
}

/** xorshift32 (Marsaglia 2003, "Xorshift RNGs"), with the shifts 13, 17 and 5. */
export class Xorshift32 {
  #state: number;

  /** @param seed its lower 32 bits count */
  constructor(seed: number) {
    // Zero is the one state that the generator never leaves.
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

  /** A whole number of 0 to n - 1. */
  below(n: number): number {
    return Math.floor(this.bits() / 2 ** 32 * n);
  }

  /** Nearly normal, deviation 1: a sum of twelve uniforms, which are exact in binary64. */
  normal(): number {
    let sum = -6;
    for (let n = 0; n < 12; n++) sum += this.bits() / 2 ** 32;
    return sum;
  }
}

/** A linear congruential generator with the constants of Numerical Recipes: of its numbers the upper bits are of use. */
export class Congruential {
  #state: number;

  /** @param seed 0 to 2^32 - 1: the state that the generator begins with */
  constructor(seed: number) {
    this.#state = seed;
  }

  /** A whole number of 0 to n - 1. */
  below(n: number): number {
    this.#state = (Math.imul(this.#state, 1664525) + 1013904223) >>> 0;
    return Math.floor(this.#state / 2 ** 32 * n);
  }
}
