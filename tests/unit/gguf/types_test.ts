// The blocks of ggml. The decoded weights are those of llama.cpp's Python package (fixtures/gguf).

import { assert, assertEquals } from "@std/assert";
import { createHash } from "node:crypto";
import { f16IsFinite } from "../../../lib/format/floats.ts";
import { parseGguf } from "../../../lib/gguf/container.ts";
import { fromQ4B32, READABLE, toQ4B32 } from "../../../lib/gguf/types.ts";
import { blockBytes, knownBlocks, valuesOf } from "../../support/blocks.ts";
import { concat } from "../../support/bytes.ts";
import { fixture, ROOT } from "../../support/fixtures.ts";
import { byteSource } from "../../support/gguf.ts";
import { congruential, Random } from "../../support/random.ts";

const TYPES = Deno.readFileSync(`${ROOT}fixtures/gguf/types.gguf`);
const expected = fixture<{ decoded: Record<string, string[]>; stream: Record<string, string> }>("gguf/types.json");

for (const { name } of READABLE) {
  Deno.test(`${name} decodes as gguf.quants does`, () => {
    const { tensors } = parseGguf(byteSource(TYPES));
    const tensor = tensors.find((tensor) => tensor.name === `${name}.weight`)!;
    const { type, offset, shape } = tensor;
    assertEquals([type.name, shape], [name, [2, Math.max(64, type.blockWeights)]]);
    const values = new Float32Array(2 * shape[1]);
    type.decode!(new DataView(TYPES.buffer), offset, values.length / type.blockWeights, values);
    assertEquals([...new Uint32Array(values.buffer)], expected.decoded[name].map((hex) => parseInt(hex, 16)));
  });
}

Deno.test("every quantized type decodes random bytes as gguf.quants does", () => {
  const quantized = READABLE.filter(({ blockWeights }) => blockWeights > 1);
  assertEquals(quantized.map(({ name }) => name).sort(), Object.keys(expected.stream).sort());
  for (const { id, name, blockWeights, blockBytes, decode } of quantized) {
    const values = new Float32Array(2000 * blockWeights);
    decode(new DataView(congruential(id, 2000 * blockBytes).buffer), 0, 2000, values);
    const bits = new Uint32Array(values.buffer);
    for (let n = 0; n < bits.length; n++) if (Number.isNaN(values[n])) bits[n] = 0x7fc00000;
    assertEquals(
      createHash("sha256").update(new Uint8Array(bits.buffer, bits.byteOffset, bits.byteLength)).digest("hex"),
      expected.stream[name],
      name,
    );
  }
});

Deno.test("fromQ4B32 keeps every value of the known blocks, and toQ4B32 undoes it", () => {
  const q4 = READABLE.find(({ name }) => name === "Q4_0")!;
  const blocks = knownBlocks().filter(({ q4 }) => q4.payload !== undefined).map(({ q4 }) => blockBytes(q4));
  assert(blocks.length > 50);
  const bytes = concat(...blocks);
  fromQ4B32(bytes);
  const values = new Float32Array(32 * blocks.length);
  q4.decode!(new DataView(bytes.buffer), 0, blocks.length, values);
  assertEquals([...values].map((x) => x + 0), blocks.flatMap((block) => valuesOf(4, block)).map((x) => x + 0));
  toQ4B32(bytes);
  assertEquals(bytes, concat(...blocks));
});

Deno.test("toQ4B32 keeps every value of random blocks", () => {
  const random = new Random(5);
  const bytes = Uint8Array.from({ length: 18 * 200 }, () => random.bits());
  for (let at = 0; at < bytes.length; at += 18) {
    if (!f16IsFinite(bytes[at] | bytes[at + 1] << 8)) bytes[at + 1] = 0;
  }
  const values = new Float32Array(32 * 200);
  READABLE.find(({ name }) => name === "Q4_0")!.decode!(new DataView(bytes.buffer), 0, 200, values);
  const before = bytes.slice();
  toQ4B32(bytes);
  const blocks = Array.from({ length: 200 }, (_, n) => bytes.subarray(18 * n, 18 * n + 18));
  assertEquals([...values].map((x) => x + 0), blocks.flatMap((block) => valuesOf(4, block)).map((x) => x + 0));
  fromQ4B32(bytes);
  assertEquals(bytes, before);
});
