// The two kernels of four-bit weights with one token: they give the same bits, and which of them is chosen. pool_test.ts
// compares the chosen one with the definition.

import { assert, assertEquals } from "@std/assert";
import { addsFours, allocate, instantiate } from "../../../lib/kernels/codec_wasm.ts";
import { GROUP_Q4, GROUP_RESULT, Q4_PAYLOAD, STREAMS } from "../../../lib/kernels/wasm/layout.ts";
import { EMULATED_BASE64, WASM_BASE64 } from "../../../lib/kernels/wasm/kernels_wasm.ts";
import { Random } from "../../support/random.ts";

const [W, X, Y] = [1 << 16, 1 << 18, 1 << 19];

/** Fills the matrix and the token: random bytes, with finite scales, or the extremes. */
function fill(memory: WebAssembly.Memory, random: Random, blocks: number, groups: number): void {
  const bytes = new Uint8Array(memory.buffer);
  const extreme = random.below(3) === 0;
  const any = () => extreme ? [0, 0x0f, 0xf0, 0xff][random.below(4)] : random.below(256);
  for (let n = 0; n < groups * blocks * GROUP_Q4; n++) {
    bytes[W + n] = n % GROUP_Q4 < Q4_PAYLOAD ? any() : random.below(0x7b);
  }
  const view = new DataView(memory.buffer, X);
  for (let n = 0; n < blocks * 32; n++) view.setInt8(n, extreme ? 127 : random.below(255) - 127);
  for (let n = 0; n < blocks; n++) {
    view.setFloat32(blocks * 32 + n * 4, (1 + random.below(1000)) / 1000, true);
    view.setInt32(blocks * 36 + n * 4, random.below(2 ** 16) - 2 ** 15, true);
  }
}

Deno.test("The kernels that add products by twos and by fours give the same bits", () => {
  const random = new Random(15);
  for (const base64 of [WASM_BASE64, EMULATED_BASE64]) {
    const memory = allocate(Y + (1 << 18));
    const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
    const env = { memory, abort: () => assert(false) };
    const { exports } = new WebAssembly.Instance(new WebAssembly.Module(bytes), { env });
    const kernels = exports as Record<string, (...args: number[]) => void>;
    const results = (name: string, args: readonly number[]) => {
      const out = new Uint8Array(memory.buffer, Y, 1 << 16);
      out.fill(0);
      kernels[name](...args);
      return out.slice();
    };
    for (let n = 0; n < 100; n++) {
      const [blocks, groups] = [1 + random.below(6), 1 + random.below(6)];
      fill(memory, random, blocks, groups * STREAMS);
      const args = [W, groups * blocks * GROUP_Q4, X, blocks, Y, groups * GROUP_RESULT, groups];
      const expected = results("i8_q4_far", args);
      assert(expected.some((byte) => byte !== 0));
      assertEquals(results("i8_q4_far_fours", args), expected, `${args}`);
    }
  }
});

Deno.test("addsFours tells sums of four products from saturated sums of two", () => {
  const bytesOf = (word: number, signed: boolean) => {
    const bytes = new Uint8Array(Int32Array.of(word).buffer);
    return [...signed ? new Int8Array(bytes.buffer) : bytes];
  };
  /** What a processor gives that takes the second factor as signed or not, and adds in so many steps. */
  const model = (signed: boolean, saturates: boolean) => (x: number, q: number) => {
    const [xs, qs] = [bytesOf(x, true), bytesOf(q, signed)];
    const [a, b, c, d] = xs.map((value, n) => value * qs[n]);
    const limit = (sum: number) => saturates ? Math.max(-32768, Math.min(32767, sum)) : sum;
    return limit(a + b) + limit(c + d);
  };
  assert(addsFours(model(false, false)));
  assert(addsFours(model(true, false)));
  assert(!addsFours(model(false, true)));
  const wasm = instantiate(allocate(1));
  assertEquals(wasm.i8_q4_far === wasm.i8_q4_far_fours, addsFours(wasm.four_products));
  // Within the range of four-bit weights all processors agree.
  assertEquals(wasm.four_products(0x7f7f7f7f, 0x0f0f0f0f), 4 * 127 * 15);
});
