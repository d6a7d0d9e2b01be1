// GGUF files where checkpoints are read. fixtures/gguf/make_gguf.py decoded the tensors of the split file with llama.cpp's
// Python package.

import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { createHash } from "node:crypto";
import { join } from "@std/path/join";
import { CheckpointError } from "../../../lib/errors.ts";
import { FORMATS } from "../../../lib/format/blocks.ts";
import { bytesOf, type Checkpoint, openCheckpoint, TensorReader } from "../../../lib/format/checkpoint.ts";
import { storedBytes } from "../../../lib/format/foreign.ts";
import { exportGguf } from "../../../lib/gguf/export.ts";
import { importGguf } from "../../../lib/gguf/import.ts";
import { openAny } from "../../../lib/gguf/open.ts";
import type { Operations } from "../../../lib/kernels/operations.ts";
import { Pool } from "../../../lib/kernels/pool.ts";
import { Reference } from "../../../lib/kernels/reference.ts";
import { loadModel, openModel, openQuantized } from "../../../lib/model/load.ts";
import { fingerprint } from "../../../lib/quantize/part_record.ts";
import { planQuantize } from "../../../lib/quantize/quantize.ts";
import { verify, verifyAgainst } from "../../../lib/quantize/verify.ts";
import { inTemporary } from "../../support/files.ts";
import { fixture, json, MIXED, ROOT, TINY } from "../../support/fixtures.ts";
import { readGguf } from "../../support/gguf.ts";
import { IMPLEMENTATIONS, quantizeTo, using } from "../../support/models.ts";
import { Random } from "../../support/random.ts";

const SPLIT = `${ROOT}fixtures/gguf/superblocks-00001-of-00003.gguf`;
const DERIVED = `${ROOT}fixtures/gguf/derived.gguf`;

Deno.test("the tensors of a split GGUF file are those that gguf decodes, in whatever pieces they are read", () => {
  const { f32 } = fixture<{ f32: Record<string, string> }>("gguf/superblocks.json");
  const checkpoint = openAny(SPLIT);
  const random = new Random(18);
  using reader = new TensorReader(checkpoint);
  assertEquals([checkpoint.files.length, checkpoint.width, checkpoint.foreign!.missing], [
    3,
    undefined,
    `its tokenizer ("none") is not a BPE`,
  ]);
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

Deno.test("a GGUF file has the sizes and the types of its tensors", () => {
  const { tensors } = readGguf(DERIVED);
  const checkpoint = openAny(DERIVED);
  assertEquals(bytesOf(checkpoint), Deno.statSync(DERIVED).size);
  const sizes = (list: readonly { type: string; bytes: number }[]) => list.map(({ type, bytes }) => `${type} ${bytes}`);
  assertEquals(
    sizes(checkpoint.tensors.map((tensor) => ({ type: tensor.stored!.type, bytes: storedBytes(tensor) }))).sort(),
    sizes(tensors.map(({ type, bytes }) => ({ type: type.name, bytes }))).sort(),
  );
  const dtypes = new Map(checkpoint.tensors.map(({ dtype, stored }) => [stored!.type, dtype]));
  assertEquals([dtypes.get("Q8_0"), dtypes.get("Q4_0"), dtypes.get("BF16")], ["F32", "F32", "BF16"]);
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

/** The logits of a model after some tokens. */
function logitsOf(checkpoint: Checkpoint, ops: Operations): Float32Array {
  return using(ops, () => loadModel(ops, openModel(checkpoint), 4).feed([3, 1, 4, 1]).slice());
}

Deno.test("a model from a GGUF file gives the logits of its import, to the bit", () =>
  inTemporary(async (temporary) => {
    for (const [n, path] of [SPLIT, DERIVED, MIXED].entries()) {
      const out = join(temporary, `${n}`);
      await importGguf(path, out, { dtype: "f32" });
      const wanted = logitsOf(openCheckpoint(out), new Reference("f32"));
      assert(wanted.some((logit) => logit !== 0));
      for (const { name, make } of IMPLEMENTATIONS) {
        assertEquals(logitsOf(openAny(path), make("f32")), wanted, `${path}, ${name}`);
      }
    }
  }));

Deno.test("a GGUF file of one kind of blocks has their width, and with its activations the logits of the checkpoint", () =>
  inTemporary(async (temporary) => {
    for (const bits of [4, 8]) {
      const quant = openCheckpoint(await quantizeTo(join(temporary, `${bits}`), TINY, bits));
      const path = join(temporary, `${bits}.gguf`);
      await exportGguf(quant.directory, path);
      const checkpoint = openAny(path);
      assertEquals(checkpoint.width, quant.width);
      const { activations } = quant.width!;
      assertEquals(
        logitsOf(checkpoint, new Pool({ threads: 2, activations })),
        logitsOf(quant, new Pool({ threads: 1, activations })),
      );
    }
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
