// GGUF files where checkpoints are read. fixtures/gguf/make_gguf.py decoded the tensors of the split file with llama.cpp's
// Python package.

import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { createHash } from "node:crypto";
import { join } from "@std/path/join";
import { CheckpointError } from "../../../lib/errors.ts";
import { FORMATS } from "../../../lib/format/blocks.ts";
import { bytesOf, storedBytes, TensorReader } from "../../../lib/format/checkpoint.ts";
import { openAny } from "../../../lib/gguf/open.ts";
import { openModel, openQuantized } from "../../../lib/model/load.ts";
import { fingerprint } from "../../../lib/quantize/part_record.ts";
import { planQuantize } from "../../../lib/quantize/quantize.ts";
import { verify, verifyAgainst } from "../../../lib/quantize/verify.ts";
import { inTemporary } from "../../support/files.ts";
import { fixture, json, MIXED, ROOT, TINY } from "../../support/fixtures.ts";
import { readGguf } from "../../support/gguf.ts";
import { Random } from "../../support/random.ts";

const SPLIT = `${ROOT}fixtures/gguf/superblocks-00001-of-00003.gguf`;
const DERIVED = `${ROOT}fixtures/gguf/derived.gguf`;

Deno.test("the tensors of a split GGUF file are those that gguf decodes, in whatever pieces they are read", () => {
  const { f32 } = fixture<{ f32: Record<string, string> }>("gguf/superblocks.json");
  const checkpoint = openAny(SPLIT);
  const random = new Random(18);
  using reader = new TensorReader(checkpoint);
  assertEquals([checkpoint.files.length, checkpoint.width, checkpoint.foreign!.quantized], [3, undefined, true]);
  assertEquals(checkpoint.tensors.map(({ name }) => name).sort(), Object.keys(f32).sort());
  for (const { name, dtype, shape, bytes } of checkpoint.tensors) {
    const data = new Uint8Array(bytes);
    for (let at = 0; at < bytes;) {
      const end = Math.min(bytes, at + 1 + random.below(5000));
      reader.read(name, at, data.subarray(at, end));
      at = end;
    }
    const count = shape.reduce((a, b) => a * b);
    const values = new Float32Array(count);
    const format = FORMATS.get(dtype)!;
    const units = format.kind === "block" ? count / format.blockWeights : count;
    format.decode(new DataView(data.buffer), 0, units, values);
    assertEquals(createHash("sha256").update(new Uint8Array(values.buffer)).digest("hex"), f32[name], name);
  }
});

Deno.test("a GGUF file has the sizes and the types of its tensors, and blocks where Q8_0 and Q4_0 are", () => {
  const { tensors } = readGguf(DERIVED);
  const checkpoint = openAny(DERIVED);
  assertEquals(bytesOf(checkpoint), Deno.statSync(DERIVED).size);
  const sizes = (list: readonly { type: string; bytes: number }[]) => list.map(({ type, bytes }) => `${type} ${bytes}`);
  assertEquals(
    sizes(checkpoint.tensors.map((tensor) => ({ type: tensor.stored!.type, bytes: storedBytes(tensor) }))).sort(),
    sizes(tensors.map(({ type, bytes }) => ({ type: type.name, bytes }))).sort(),
  );
  const dtypes = new Map(checkpoint.tensors.map(({ dtype, stored }) => [stored!.type, dtype]));
  assertEquals([dtypes.get("Q8_0"), dtypes.get("Q4_0"), dtypes.get("BF16")], ["Q8B32", "Q4B32", "BF16"]);
});

Deno.test("a GGUF file has a configuration, and the fingerprint follows its bytes", () =>
  inTemporary(async (temporary) => {
    const float = openModel(TINY);
    const quant = openQuantized(openAny(DERIVED), float);
    assertEquals(quant.config.hidden, json(join(TINY, "config.json")).hidden_size);
    const path = join(temporary, "m.gguf");
    const file = Deno.readFileSync(DERIVED);
    file[file.length - 1] ^= 1;
    Deno.writeFileSync(path, file);
    const [a, b] = await Promise.all([DERIVED, path].map((path) => fingerprint(openAny(path))));
    assert(a !== b);
  }));

Deno.test("an opened GGUF file is refused where bytes of safetensors files are needed, and as the float model", async () => {
  const checkpoint = openAny(MIXED);
  const says = `${MIXED}: a GGUF file; convert it to a checkpoint with rabbit import`;
  assertThrows(() => planQuantize(checkpoint), CheckpointError, says);
  await assertRejects(() => verify(checkpoint), CheckpointError, says);
  await assertRejects(() => verifyAgainst(checkpoint, TINY), CheckpointError, says);
  assertThrows(
    () => openQuantized(TINY, openModel(checkpoint)),
    CheckpointError,
    `${MIXED}: type: quantized to `,
  );
});
