import { assertEquals, assertInstanceOf, assertThrows } from "@std/assert";
import {
  BF16,
  BlockRefusal,
  declarationOf,
  encodeBlock,
  F16,
  F32,
  F64,
  floatNamed,
  type Format,
  FORMATS,
  matrixBytes,
  Q4B32,
  Q8B32,
  widthNamed,
  WIDTHS,
} from "../../../lib/format/blocks.ts";
import { blockBytes, exactBytes, known, knownBlocks, singles, valuesOf } from "../../support/blocks.ts";

const blocks = knownBlocks();

function decode(format: Format, bytes: Uint8Array<ArrayBuffer>, offset: number, count: number): Float32Array {
  const out = new Float32Array(count * format.blockWeights);
  format.decode(new DataView(bytes.buffer), offset, count, out);
  return out;
}

Deno.test("FORMATS has every format once, by its dtype, with the bytes of its block", () => {
  const rows = [...FORMATS].map(([name, f]) => [name, f.name, f.kind, f.blockWeights, f.blockBytes]);
  assertEquals(rows, [
    ["F64", "F64", "float", 1, 8],
    ["F32", "F32", "float", 1, 4],
    ["F16", "F16", "float", 1, 2],
    ["BF16", "BF16", "float", 1, 2],
    ["Q8B32", "Q8B32", "block", 32, 34],
    ["Q4B32", "Q4B32", "block", 32, 18],
  ]);
});

Deno.test("WIDTHS declares its formats as the description of the file says", () => {
  assertEquals(WIDTHS.map((f) => [f.bits, f.levels, JSON.stringify(declarationOf(f))]), [
    [8, 127, '{"format":"rabbit-q8b32","block":"32","scale":"f16"}'],
    [4, 7, '{"format":"rabbit-q4b32","block":"32","scale":"f16"}'],
  ]);
});

Deno.test("matrixBytes of SmolLM2's embedding", () => {
  assertEquals(matrixBytes(Q4B32, 49152, 576), 15925248);
  assertEquals(matrixBytes(Q8B32, 49152, 576), 30081024);
  assertEquals(matrixBytes(BF16, 49152, 576), 56623104);
  assertEquals(matrixBytes(Q4B32, 0, 64), 0);
  assertEquals(matrixBytes(Q4B32, 64, 0), 0);
});

for (const format of WIDTHS) {
  for (const block of blocks) {
    const { scale, payload, refused } = known(block, format.bits);
    Deno.test(`encodeBlock to ${format.name}: ${block.name}`, () => {
      const out = new Uint8Array(format.blockBytes + 2).fill(0xaa);
      if (refused) {
        const refusal = assertThrows(() => encodeBlock(format, block.weights, out), BlockRefusal);
        const bad = block.weights.findIndex((w) => !Number.isFinite(w));
        assertEquals(refusal.column, bad);
        assertEquals(refused, bad < 0 ? "scale-overflow" : "not-finite");
        const peak = block.weights.reduce((m, w) => Math.max(m, Math.abs(w)), 0);
        assertEquals(refusal.value, bad < 0 ? Math.fround(peak / format.levels) : block.weights[bad]);
        return;
      }
      encodeBlock(format, block.weights, out);
      assertEquals([out[1], out[0]].map((b) => b.toString(16).padStart(2, "0")).join(""), scale);
      assertEquals(out.subarray(2, format.blockBytes).toHex(), payload);
      assertEquals([...out.subarray(format.blockBytes)], [0xaa, 0xaa], "bytes after the block are touched");
    });
  }

  Deno.test(`${format.name}.decode gives level * scale for every block that is known`, () => {
    for (const block of blocks.filter((block) => known(block, format.bits).refused === undefined)) {
      const bytes = blockBytes(known(block, format.bits));
      // Between other blocks, so that the offset counts.
      const three = new Uint8Array(3 * format.blockBytes).fill(0x11);
      three.set(bytes, format.blockBytes);
      const values = decode(format, three, format.blockBytes, 1);
      assertEquals([...values].map((v) => v + 0), valuesOf(format.bits, bytes).map((v) => v + 0), block.name);
      assertEquals(decode(format, three, 0, 3).slice(32, 64), values);
    }
  });
}

Deno.test("Q4B32.decode and Q8B32.decode take negative and subnormal scales as they are", () => {
  const q4 = new Uint8Array(18);
  q4.set([0x00, 0xbc, 0x87]); // -1; the levels 7 and -8
  assertEquals([...decode(Q4B32, q4, 0, 1).subarray(0, 3)], [-7, 8, -0]);
  const q8 = new Uint8Array(34);
  q8.set([0x03, 0x00, 0x7f, 0x80]); // 3 * 2^-24; the levels 127 and -128
  assertEquals([...decode(Q8B32, q8, 0, 1).subarray(0, 3)], [381 * 2 ** -24, -384 * 2 ** -24, 0]);
});

Deno.test("encodeBlock refuses the first weight that is not finite, before the scale", () => {
  const weights = new Float32Array(32).fill(3e38);
  weights[7] = -Infinity;
  weights[9] = NaN;
  for (const format of WIDTHS) {
    const refusal = assertThrows(() => encodeBlock(format, weights, new Uint8Array(34)), BlockRefusal);
    assertEquals([refusal.column, refusal.value, refusal.message], [7, -Infinity, "weight 7 is -Infinity"]);
  }
});

Deno.test("encodeBlock refuses a scale that rounds to infinity, with its value", () => {
  const weights = new Float32Array(32);
  weights[31] = -458640; // 65520 * 7
  const refusal = assertThrows(() => encodeBlock(Q4B32, weights, new Uint8Array(18)), BlockRefusal);
  assertInstanceOf(refusal, Error);
  assertEquals([refusal.column, refusal.value, refusal.message], [-1, 65520, "the scale 65520 rounds to infinity"]);
  weights[31] = -458639.97; // the binary32 before it
  const out = new Uint8Array(18);
  encodeBlock(Q4B32, weights, out);
  assertEquals(out.toHex(), "ff7b" + "00".repeat(15) + "90");
});

Deno.test("F64.decode, F32.decode, F16.decode and BF16.decode read little endian, from any offset", () => {
  const bytes = (hex: string) => Uint8Array.fromHex("ff" + hex);
  assertEquals([...decode(F64, bytes("000000000000f83f" + "00000000000004c0"), 1, 2)], [1.5, -2.5]);
  assertEquals([...decode(F32, bytes("0000c03f" + "000020c0"), 1, 2)], [1.5, -2.5]);
  assertEquals([...decode(F16, bytes("003e" + "00c1" + "0100"), 1, 3)], [1.5, -2.5, 2 ** -24]);
  assertEquals([...decode(BF16, bytes("c03f" + "20c0" + "0100"), 1, 3)], [1.5, -2.5, 2 ** -133]);
});

Deno.test("F64.decode rounds to binary32, ties to even, and to infinity", () => {
  const values = [1 + 2 ** -24, 1 + 3 * 2 ** -24, 1 + 2 ** -24 + 2 ** -50, 3.4028235677973366e38, -1e300, 2 ** -150];
  const bytes = new Uint8Array(Float64Array.from(values).buffer);
  assertEquals([...decode(F64, bytes, 0, 6)], [1, 1 + 2 ** -22, 1 + 2 ** -23, Infinity, -Infinity, 0]);
});

Deno.test("FORMATS decodes the float formats to the very values, for the known blocks that are exact in them", () => {
  let compared = 0;
  for (const format of [F64, F32, F16, BF16]) {
    for (const { name, weights } of blocks) {
      const bytes = exactBytes(format.name, weights);
      if (bytes === undefined) continue;
      assertEquals(decode(format, bytes, 0, 32), weights, `${format.name}: ${name}`);
      compared++;
    }
  }
  // All 68 are binary32; a tenth of them at the least is exact in the halves.
  assertEquals(compared > 2 * 68 + 14, true);
});

Deno.test("encodeBlock stores zeros of no sign for negative zeros and for a scale that underflows", () => {
  for (const format of WIDTHS) {
    for (const bits of [0x80000000, 0x00000001, 0x80000001]) {
      const out = new Uint8Array(format.blockBytes).fill(0xff);
      encodeBlock(format, singles(new Array(32).fill(bits)), out);
      assertEquals(out, new Uint8Array(format.blockBytes), bits.toString(16));
    }
  }
});

Deno.test("widthNamed and floatNamed throw for what they don't name", () => {
  assertEquals([floatNamed("F64"), floatNamed("BF16"), widthNamed("Q4B32").bits], [F64, BF16, 4]);
  for (const name of ["Q5B32", "F32", "I8", ""]) assertThrows(() => widthNamed(name), RangeError, name);
  for (const name of ["Q4B32", "I8", ""]) assertThrows(() => floatNamed(name), RangeError, name);
});
