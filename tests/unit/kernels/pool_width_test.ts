// A width without kernels: the definition encodes it, and a pool holds it as a wider one. What is expected comes from
// fixtures/make_width.py.

import { assert, assertEquals, assertThrows } from "@std/assert";
import {
  ACTIVATIONS,
  blockFormat,
  BlockRefusal,
  encodeBlock,
  F32,
  type FloatFormat,
  FORMATS,
} from "../../../lib/format/blocks.ts";
import { allocate, FIRST_ADDRESS, wasmKernels } from "../../../lib/kernels/codec_wasm.ts";
import { BadScale, type Operations } from "../../../lib/kernels/operations.ts";
import { Pool } from "../../../lib/kernels/pool.ts";
import { Reference } from "../../../lib/kernels/reference.ts";
import { exactBytes, half, knownBlocks } from "../../support/blocks.ts";
import { ROW } from "../../support/five_bits.ts";
import { fixture } from "../../support/fixtures.ts";
import { using } from "../../support/models.ts";
import { assertSameBits } from "../../support/numbers.ts";
import { Random } from "../../support/random.ts";

const FIVE = blockFormat(ROW);
const { blocks: expected } = fixture<{ blocks: Record<string, string> }>("width.json");
const known = knownBlocks().map((block) => ({ ...block, expected: expected[block.name] }));

/** Level n of a block, from the description of the format. */
function levelOf(block: Uint8Array, n: number): number {
  const low = Math.floor(block[2 + Math.floor(n / 2)] / (n % 2 ? 16 : 1)) % 16;
  const fifth = Math.floor(block[18 + Math.floor(n / 8)] / 2 ** (n % 8)) % 2;
  return low + 16 * fifth - 32 * fifth;
}

Deno.test("encodeBlock to a new width gives the blocks that were computed elsewhere, and decode their values", () => {
  assertEquals([FIVE.name, FIVE.declaration, FIVE.blockBytes, FIVE.levels], ["Q5B32", "rabbit-q5b32", 22, 15]);
  assert(known.filter(({ expected }) => expected.length === 44).length > 50);
  for (const { name, weights, expected } of known) {
    const out = new Uint8Array(22);
    if (expected.length !== 44) {
      const { column } = assertThrows(() => encodeBlock(FIVE, weights, out), BlockRefusal);
      assertEquals(column < 0 ? "scale-overflow" : "not-finite", expected, name);
      continue;
    }
    encodeBlock(FIVE, weights, out);
    assertEquals(out.toHex(), expected, name);
    const values = new Float32Array(32);
    FIVE.decode(new DataView(out.buffer), 0, 1, values);
    const scale = half(out[0] + 256 * out[1]);
    assertEquals(values, Float32Array.from({ length: 32 }, (_, n) => levelOf(out, n) * scale), name);
  }
});

Deno.test("wasmKernels encode and measure a width without kernels, from every float format", () => {
  const memory = allocate(1 << 16);
  const bytes = new Uint8Array(memory.buffer);
  const kernels = wasmKernels(memory, FIRST_ADDRESS);
  const [src, dst] = [FIRST_ADDRESS + 64, FIRST_ADDRESS + 4096];
  for (const from of FORMATS.values()) {
    if (from.kind !== "float") continue;
    let tried = 0;
    for (const { name, weights, expected } of known) {
      const source = exactBytes(from.name, weights);
      if (source === undefined) continue;
      tried++;
      bytes.set(source, src);
      const refused = kernels.encode(from, FIVE, src, dst, 1);
      if (expected.length !== 44) {
        assertEquals(refused, 0, name);
        continue;
      }
      assertEquals(refused, -1, name);
      const block = bytes.slice(dst, dst + 22);
      assertEquals(block.toHex(), expected, name);
      assertEquals(kernels.checkScales(FIVE, dst, 1), -1);
      const sums = { errors: 0, squares: 0 };
      weights.forEach((w, n) => {
        sums.errors += (w - levelOf(block, n) * half(block[0] + 256 * block[1])) ** 2;
        sums.squares += w ** 2;
      });
      assertEquals(kernels.error(from, FIVE, src, dst, 1), sums, name);
    }
    assert(tried > 10, from.name);
  }
});

/** Rows of random blocks; `odd` scales are negative, zero and subnormal. */
function matrix(rows: number, columns: number): Uint8Array {
  const random = new Random(5);
  const bytes = new Uint8Array(rows * columns / 32 * 22);
  const view = new DataView(bytes.buffer);
  for (let n = 0; n < bytes.length; n++) bytes[n] = random.below(256);
  for (let at = 0; at < bytes.length; at += 22) {
    view.setFloat16(at, random.pick([0.01, 0.02, -0.013, 0, 2 ** -24, 3 * 2 ** -20]), true);
  }
  return bytes;
}

Deno.test("Pool multiplies with a width without kernels as Reference does, with any activations", () => {
  const [rows, columns] = [43, 96];
  const bytes = matrix(rows, columns);
  for (const activations of ACTIVATIONS) {
    const run = (ops: Operations) => {
      const load = () => ops.matrix(FIVE, rows, columns, (at, into) => into.set(bytes.subarray(at, at + into.length)));
      const [a, b] = [load(), load()];
      assertEquals([a.format, a.rows, a.columns], [FIVE, rows, columns]);
      const [from, out, gated, all] = [columns, rows, rows, columns].map((width) => ops.buffer(70, width));
      const found: Float32Array[] = [];
      for (const tokens of [1, 5, 70]) {
        const random = new Random(tokens);
        for (let t = 0; t < tokens; t++) ops.row(from, t).forEach((_, n, row) => row[n] = random.gaussian());
        ops.project({ from }, tokens, [{ matrix: a, out }]);
        ops.projectGated({ from }, tokens, a, b, gated);
        ops.embed(a, Array.from({ length: tokens }, (_, t) => t % rows), all);
        ops.run();
        for (const buffer of [out, gated, all]) for (let t = 0; t < tokens; t++) found.push(ops.row(buffer, t).slice());
      }
      return found;
    };
    const defined = using(new Reference(activations), run);
    assert(defined[0].some((y) => y !== 0));
    for (const threads of [1, 2]) {
      using(new Pool({ threads, activations }), run)
        .forEach((row, n) => assertSameBits(row, defined[n], `${activations}, ${threads} threads, row ${n}`));
    }
  }
});

Deno.test("a scale of a width without kernels that is not finite is refused, with the number of its block", () => {
  const bytes = matrix(20, 96);
  bytes.set([0x00, 0x7c], 41 * 22);
  for (const ops of [new Reference(), new Pool({ threads: 1 })]) {
    using(ops, (ops) => {
      const load = () => ops.matrix(FIVE, 20, 96, (at, into) => into.set(bytes.subarray(at, at + into.length)));
      assertEquals(assertThrows(load, BadScale).block, 41);
    });
  }
});

Deno.test("Pool throws for a format whose kind there is not", () => {
  const strange = { ...F32, kind: "ternary" } as unknown as FloatFormat;
  using(
    new Pool({ threads: 1 }),
    (ops) => assertThrows(() => ops.matrix(strange, 8, 32, () => {}), RangeError, "kind"),
  );
});
