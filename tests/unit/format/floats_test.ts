import { assertEquals } from "@std/assert";
import { bf16ToF32, f16IsFinite, f16ToF32, f32ToBf16, f32ToF16, roundHalfAway } from "../../../lib/format/floats.ts";
import { half, singles } from "../../support/blocks.ts";
import { fixture } from "../../support/fixtures.ts";

interface Halves {
  f32_to_f16: [string, string][];
  f16_to_f32: { sha256: string };
}

const halves = fixture<Halves>("halves.json");

function single(bits: number): number {
  return singles([bits])[0];
}

Deno.test("f32ToF16 gives the known halves: ties to even, subnormals, overflow, underflow", () => {
  const wrong = halves.f32_to_f16.filter(([from, to]) => f32ToF16(single(parseInt(from, 16))) !== parseInt(to, 16));
  assertEquals(wrong, []);
  assertEquals(halves.f32_to_f16.length, 228);
});

Deno.test("f32ToF16 rounds to binary32 before it rounds to binary16", () => {
  // Above the tie of 1 and the next half in binary64, on it in binary32.
  assertEquals(f32ToF16(1 + 2 ** -11 + 2 ** -40), 0x3c00);
  assertEquals(f32ToF16(1 + 2 ** -11 + 2 ** -22), 0x3c01);
});

Deno.test("f32ToF16 borders: 65520 is infinite, 2^-25 is zero", () => {
  assertEquals(f32ToF16(65520), 0x7c00);
  assertEquals(f32ToF16(-65519.996), 0xfbff);
  assertEquals(f32ToF16(2 ** -25), 0);
  assertEquals(f32ToF16(-(2 ** -25)), 0x8000);
  assertEquals(f32ToF16(2 ** -25 * (1 + 2 ** -23)), 1);
});

Deno.test("f16ToF32 gives the known digest over all 65536 codes", async () => {
  const values = Float32Array.from({ length: 65536 }, (_, code) => f16ToF32(code));
  const bits = new Uint32Array(values.buffer).map((b, n) => Number.isNaN(values[n]) ? 0x7fc00000 : b);
  const digest = await crypto.subtle.digest("SHA-256", bits);
  assertEquals(new Uint8Array(digest).toHex(), halves.f16_to_f32.sha256);
});

Deno.test("f16ToF32 and f32ToF16 are inverse, and f16IsFinite is the exponent's word, for every code", () => {
  const wrong: number[] = [];
  for (let code = 0; code < 65536; code++) {
    const finite = (code & 0x7fff) < 0x7c00;
    if (f16IsFinite(code) !== finite) wrong.push(code);
    if (!finite) continue;
    if (!Object.is(f16ToF32(code), half(code)) || f32ToF16(half(code)) !== code) wrong.push(code);
  }
  assertEquals(wrong, []);
});

Deno.test("f16ToF32 and f32ToF16 are the engine's binary16: every code, and every binary32 near the border of two codes", () => {
  const [halves, codes] = [new Float16Array(1), new Uint16Array(1)];
  const wrong: number[] = [];
  for (let code = 0; code < 65536; code++) {
    new Uint16Array(halves.buffer)[0] = code;
    if (!Object.is(f16ToF32(code), halves[0])) wrong.push(code);
    if (!f16IsFinite(code)) continue;
    // Half way to the next code: exact in binary32. Its neighbours are the nearest values that are no ties.
    const tie = halves[0] +
      (code < 0x8000 ? 1 : -1) * 2 ** Math.max(-25, Math.floor(Math.log2(Math.abs(halves[0]) || 2 ** -24)) - 11);
    const near = new Uint32Array(new Float32Array([tie, tie, tie, halves[0] * (1 + 2 ** -20)]).buffer);
    near[1]--;
    near[2]++;
    for (const x of new Float32Array(near.buffer)) {
      halves[0] = x;
      codes.set(new Uint16Array(halves.buffer));
      if (f32ToF16(x) !== codes[0]) wrong.push(x);
    }
  }
  for (const x of [NaN, Infinity, -Infinity, 0, -0, 1e-45, 3.4e38]) {
    halves[0] = x;
    if (f32ToF16(x) !== new Uint16Array(halves.buffer)[0]) wrong.push(x);
  }
  assertEquals(wrong, []);
});

Deno.test("bf16ToF32 gives the upper half of a binary32, for every code", () => {
  const wrong: number[] = [];
  for (let code = 0; code < 65536; code++) if (!Object.is(bf16ToF32(code), single(code * 65536))) wrong.push(code);
  assertEquals(wrong, []);
});

Deno.test("f32ToBf16 rounds to nearest, ties to even", () => {
  const cases: [number, number][] = [
    [0x3f800000, 0x3f80],
    [0x3f807fff, 0x3f80],
    [0x3f808000, 0x3f80], // a tie, down to even
    [0x3f808001, 0x3f81],
    [0x3f818000, 0x3f82], // a tie, up to even
    [0xbf818000, 0xbf82],
    [0x3fffffff, 0x4000], // carries into the exponent
    [0x7f7fffff, 0x7f80], // overflows
    [0x7f800000, 0x7f80],
    [0xff800000, 0xff80],
    [0x80000000, 0x8000],
    [0x00008000, 0x0000],
    [0x00008001, 0x0001],
  ];
  for (const [from, to] of cases) assertEquals(f32ToBf16(single(from)), to, from.toString(16));
});

Deno.test("roundHalfAway rounds halves away from zero, and nothing else up", () => {
  const cases: [number, number][] = [
    [0.5, 1],
    [-0.5, -1],
    [1.5, 2],
    [2.5, 3],
    [-1.5, -2],
    [-2.5, -3],
    [single(0x3effffff), 0], // 0.49999997: + 0.5 is 1 in binary32
    [single(0xbeffffff), 0],
    [0.49999999999999994, 0], // + 0.5 is 1 in binary64
    [single(0x3f000001), 1],
    [single(0x40cfffff), 6], // 6.4999995
    [single(0x40d00000), 7], // 6.5
    [single(0x40dfffff), 7], // 6.9999995
    [126.5, 127],
    [-127.5, -128],
    [8388607.5, 8388608],
    [8388609, 8388609], // + 0.5 is 8388610 in binary32
    [-8388609, -8388609],
    [0, 0],
    [2 ** 60, 2 ** 60],
    [Infinity, Infinity],
    [-Infinity, -Infinity],
  ];
  for (const [from, to] of cases) assertEquals(roundHalfAway(from) + 0, to, String(from));
});
