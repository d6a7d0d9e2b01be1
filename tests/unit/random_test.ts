import { assert, assertEquals } from "@std/assert";
import { Congruential, SplitMix64, Xorshift32 } from "../../lib/random.ts";

Deno.test("SplitMix64 gives the published numbers of the seed 1234567", () => {
  const random = new SplitMix64(1234567);
  assertEquals(Array.from({ length: 5 }, () => random.next()), [
    6457827717110365317n,
    3203168211198807973n,
    9817491932198370423n,
    4593380528125082431n,
    16408922859458223821n,
  ]);
});

Deno.test("SplitMix64 gives numbers below one", () => {
  const random = new SplitMix64(0);
  // The first output of the seed 0 is e220a8397b1dcdaf.
  assertEquals(random.unit(), Number(0xe220a8397b1dcdafn >> 11n) / 2 ** 53);
  for (let n = 0; n < 1000; n++) assertEquals(Math.floor(random.unit()), 0);
});

Deno.test("Xorshift32 gives Marsaglia's sequence from its ninth number on", () => {
  // The seed for which the state begins as 1: 270369, 67634689, 2647435461, 307599695 … (computed in Python).
  const random = new Xorshift32(0x9e3779b8);
  assertEquals(Array.from({ length: 4 }, () => random.bits()), [2005365029, 2916098932, 2657092299, 1495045943]);
});

Deno.test("Xorshift32 gives numbers of every seed, with the mean and the deviation of a normal distribution", () => {
  for (const seed of [0, 1, 0x9e3779b9, 2 ** 32 + 5, 2 ** 53 - 1]) {
    const random = new Xorshift32(seed);
    const values = Array.from({ length: 10_000 }, () => random.normal());
    const mean = values.reduce((a, b) => a + b) / values.length;
    const deviation = Math.sqrt(values.reduce((sum, x) => sum + (x - mean) ** 2, 0) / values.length);
    assert(Math.abs(mean) < 0.05 && Math.abs(deviation - 1) < 0.05, `seed ${seed}: ${mean} ${deviation}`);
    for (let n = 0; n < 1000; n++) assert([0, 1, 2].includes(random.below(3)));
  }
});

Deno.test("Congruential gives the numbers of the recurrence", () => {
  // state * 1664525 + 1013904223 modulo 2^32, in Python's integers; in thousandths of 2^32.
  const random = new Congruential(1);
  assertEquals(Array.from({ length: 4 }, () => random.below(1000)), [236, 369, 504, 704]);
});
