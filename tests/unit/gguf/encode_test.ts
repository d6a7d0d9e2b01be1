// ggml's own rules. The digests are of what llama.cpp's Python package makes of the same weights (fixtures/gguf).

import { assertEquals } from "@std/assert";
import { createHash } from "node:crypto";
import { ENCODE } from "../../../lib/gguf/encode.ts";
import { READABLE } from "../../../lib/gguf/types.ts";
import { fixture } from "../../support/fixtures.ts";
import { congruential } from "../../support/random.ts";

/** The weights of make_gguf.py: blocks of many magnitudes, half of them with ties. */
function weightsOf(seed: number, blocks: number): Float32Array<ArrayBuffer> {
  const raw = congruential(seed, blocks * 128);
  const out = new Float32Array(blocks * 32);
  for (let n = 32; n < out.length; n++) {
    const kind = raw[4 * (n - n % 32) + 3];
    const [low, middle, high] = raw.subarray(4 * n, 4 * n + 3);
    const whole = kind & 1 ? (high - 128) * 65536 : (low | middle << 8 | high << 16) - 2 ** 23;
    out[n] = whole * 2 ** -(8 + (kind >> 2));
  }
  return out;
}

Deno.test("Q8_0 and Q4_0 are encoded as gguf.quants does", () => {
  for (const [name, expected] of Object.entries(fixture<Record<string, string>>("gguf/encoded.json"))) {
    const { id } = READABLE.find((type) => type.name === name)!;
    const found = ENCODE.get(name)!(weightsOf(id, 4000));
    assertEquals(createHash("sha256").update(found).digest("hex"), expected, name);
  }
});

Deno.test("blocks of zeros and of the smallest numbers are encoded as ggml's C code does", () => {
  // By quantize_row_q4_0_ref: the peak starts as +0 and no zero is larger, so that the scale is 0 / -8, which is -0.
  for (const zero of [0, -0]) {
    const weights = new Float32Array(32).fill(zero);
    assertEquals([...ENCODE.get("Q4_0")!(weights)], [0, 0x80, ...Array(16).fill(0x88)]);
    assertEquals([...ENCODE.get("Q8_0")!(weights)], Array(34).fill(0));
  }
  // The scales, 2^-142 and -2^-141, have no finite reciprocal: the integers are converted from infinities.
  const tiny = new Float32Array(32).fill(127 * 2 ** -142);
  assertEquals([...ENCODE.get("Q8_0")!(tiny)], Array(34).fill(0));
  const small = new Float32Array(32).fill(2 ** -138);
  assertEquals([...ENCODE.get("Q4_0")!(small)], [0, 0x80, ...Array(16).fill(0)]);
});
