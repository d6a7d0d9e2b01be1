// The signed rule: the definition and the kernels give what fixtures/make_signed.py computed, and the same bits.

import { assert, assertEquals, assertThrows } from "@std/assert";
import {
  BF16,
  BLOCK,
  BlockRefusal,
  encodeBlock,
  F16,
  F32,
  F64,
  type FloatFormat,
  WIDTHS,
} from "../../../lib/format/blocks.ts";
import { type BlockKernels, scalarKernels } from "../../../lib/kernels/codec.ts";
import { allocate, FIRST_ADDRESS, wasmKernels } from "../../../lib/kernels/codec_wasm.ts";
import { exactBytes, knownBlocks, singles } from "../../support/blocks.ts";
import { fixture } from "../../support/fixtures.ts";
import { Random } from "../../support/random.ts";

/** What is expected of a block: hexadecimal bytes, or why there are none. */
interface Answer {
  q4: string;
  q8: string;
}

const { blocks, own } = fixture<{ blocks: Record<string, Answer>; own: (Answer & { name: string; f32: string[] })[] }>(
  "signed.json",
);
const cases = [
  ...knownBlocks().map(({ name, weights }) => ({ name, weights, answer: blocks[name] })),
  ...own.map(({ f32, ...answer }) => {
    return { name: answer.name, weights: singles(f32.map((hex) => parseInt(hex, 16))), answer };
  }),
];

for (const to of WIDTHS) {
  const answerOf = ({ q4, q8 }: Answer) => to.bits === 4 ? q4 : q8;

  Deno.test(`encodeBlock to ${to.name} by the signed rule gives the known blocks`, () => {
    assert(cases.length > 70);
    for (const { name, weights, answer } of cases) {
      const out = new Uint8Array(to.blockBytes);
      const wanted = answerOf(answer);
      if (wanted.length === 2 * to.blockBytes) {
        encodeBlock(to, weights, out, "signed");
        assertEquals(out.toHex(), wanted, name);
      } else {
        const { column } = assertThrows(() => encodeBlock(to, weights, out, "signed"), BlockRefusal);
        assertEquals(column < 0 ? "scale-overflow" : "not-finite", wanted, name);
      }
    }
  });

  for (const from of [BF16, F16, F32, F64]) {
    Deno.test(`wasmKernels.encode of ${from.name} to ${to.name} by the signed rule is the definition's, bit for bit`, () => {
      const known = cases.flatMap(({ weights, answer }) => {
        const good = answerOf(answer).length === 2 * to.blockBytes;
        return good ? [exactBytes(from.name, weights) ?? []].flat() : [];
      });
      assert(known.length >= 10);
      const source = [...known, ...randomBlocks(from, new Random(to.bits))];
      const results = [scalarKernels, undefined].map((scalar) => encodeAll(scalar, from, to, source));
      const [defined, fast] = results;
      const at = fast.findIndex((byte, n) => byte !== defined[n]);
      assertEquals(at, -1, `block ${Math.floor(at / to.blockBytes)}`);
      const negative = source.filter((_, b) => defined[b * to.blockBytes + 1] & 0x80).length;
      assert(negative > source.length / 4 && negative < source.length * 3 / 4, `${negative} of ${source.length}`);
    });
  }
}

/** Encodes blocks by the signed rule with the definition, or with the kernels. */
function encodeAll(
  scalar: ((buffer: ArrayBufferLike) => BlockKernels) | undefined,
  from: FloatFormat,
  to: (typeof WIDTHS)[number],
  source: readonly Uint8Array[],
): Uint8Array {
  const size = BLOCK * from.blockBytes;
  const target = FIRST_ADDRESS + source.length * size;
  const memory = allocate(target + source.length * to.blockBytes);
  const bytes = new Uint8Array(memory.buffer);
  source.forEach((block, n) => bytes.set(block, FIRST_ADDRESS + n * size));
  const kernels = scalar === undefined ? wasmKernels(memory, 0) : scalar(memory.buffer);
  assertEquals(kernels.encode(from, to, FIRST_ADDRESS, target, source.length, "signed"), -1);
  return bytes.slice(target, target + source.length * to.blockBytes);
}

/** Blocks of many magnitudes, in half of which weights lie on the ties of a scale, or the peak is there with both signs. */
function randomBlocks(from: FloatFormat, random: Random): Uint8Array[] {
  return Array.from({ length: 3000 }, () => {
    const unit = 2 ** (random.below(24) - 22);
    const kind = random.below(4);
    const weights = new Float32Array(BLOCK);
    for (let n = 0; n < BLOCK; n++) {
      weights[n] = kind < 2 ? random.gaussian() * unit : (random.below(33) - 16) / 2 * unit;
    }
    if (kind === 3) weights[random.below(BLOCK)] = random.pick([8, -8]) * unit;
    return rounded(from, weights);
  });
}

/** The bytes of weights in a format; what it does not have is cut. */
function rounded(from: FloatFormat, weights: Float32Array<ArrayBuffer>): Uint8Array {
  if (from === BF16) {
    return exactBytes("BF16", singles([...new Uint32Array(weights.buffer)].map((bits) => bits & 0xffff0000)))!;
  }
  return from === F16 ? new Uint8Array(Float16Array.from(weights).buffer) : exactBytes(from.name, weights)!;
}
