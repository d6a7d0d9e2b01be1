import { assertEquals, assertNotEquals } from "@std/assert";
import { squaredNorms, tokenFactors } from "../../../../lib/quantize/calibrate/factors.ts";

Deno.test("squaredNorms and tokenFactors cap the tokens that are many times longer than the median", () => {
  assertEquals([...squaredNorms(Float32Array.of(3, 4, 0, 0, 1, 2), 3)], [25, 0, 5]);
  // The lower median of 1, 1, 2, 4096 is 1: of 4096 counts 512, an eighth.
  assertEquals([...tokenFactors(Float64Array.of(1, 4096, 2, 1))], [1, Math.fround(Math.sqrt(1 / 8)), 1, 1]);
  assertEquals([...tokenFactors(Float64Array.of(0, 5, 0))], [1, 1, 1]);
  assertNotEquals(tokenFactors(Float64Array.of(1, 1, 513))[2], 1);
});
