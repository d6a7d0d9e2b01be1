// The errors of a GGUF file's weights: against those that the comparison of a checkpoint with its source finds, and
// against a change of one weight.

import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import { join } from "@std/path/join";
import { openCheckpoint } from "../../../lib/format/checkpoint.ts";
import { exportGguf } from "../../../lib/gguf/export.ts";
import { openAny } from "../../../lib/gguf/open.ts";
import { weightErrors } from "../../../lib/gguf/weight_errors.ts";
import { verifyAgainst } from "../../../lib/quantize/verify.ts";
import { inTemporary } from "../../support/files.ts";
import { ROOT, TINY, WEIGHTS } from "../../support/fixtures.ts";
import { readGguf } from "../../support/gguf.ts";
import { quantizeTo } from "../../support/models.ts";
import { entriesOf } from "../../support/safetensors.ts";

const DERIVED = `${ROOT}fixtures/gguf/derived.gguf`;

Deno.test("the errors of an exported checkpoint are those of the checkpoint", () =>
  inTemporary(async (temporary) => {
    for (const bits of [4, 8]) {
      const quant = await quantizeTo(join(temporary, `q${bits}`), TINY, bits);
      const path = join(temporary, `q${bits}.gguf`);
      await exportGguf(quant, path);
      const found = await weightErrors(openAny(path), openCheckpoint(TINY));
      const wanted = await verifyAgainst(quant, TINY);
      assertAlmostEquals(found.rms, wanted.rms, 1e-9);
      const byName = new Map(wanted.tensors.map((tensor) => [tensor.name, tensor]));
      assertEquals(found.tensors.length, wanted.tensors.length);
      for (const { name, rms, squares, equal } of found.tensors) {
        const other = byName.get(name)!;
        assertEquals([rms === undefined, equal], [other.rms === undefined, undefined], name);
        if (rms === undefined) continue;
        assertAlmostEquals(rms, other.rms!, 1e-9, name);
        assertAlmostEquals(squares!, other.squares!, 1e-6 * squares!, name);
      }
    }
  }));

Deno.test("the error of a float tensor is that of its changed weights, and the tensor's rows are in their order", () =>
  inTemporary(async (temporary) => {
    const { tensors } = readGguf(DERIVED);
    // Neighbouring rows of a head belong to its halves: row 1 of the file is the first row of the second half.
    const changed = tensors.find(({ name }) => name === "blk.0.attn_k.weight")!;
    assertEquals(changed.type.name, "F32");
    const file = Deno.readFileSync(DERIVED);
    new DataView(file.buffer).setFloat32(changed.offset + 4 * changed.shape[1], 3, true);
    const path = join(temporary, "m.gguf");
    Deno.writeFileSync(path, file);
    const name = "model.layers.0.self_attn.k_proj.weight";
    const { bytes, dtype } = entriesOf(Deno.readFileSync(join(TINY, WEIGHTS))).find((entry) => entry.name === name)!;
    assertEquals(dtype, "BF16");
    const words = new Uint16Array(bytes.slice().buffer);
    const weights = [...new Float32Array(Uint32Array.from(words, (bits) => bits << 16).buffer)];
    const headDim = 16;
    const at = headDim / 2 * changed.shape[1];
    const squares = weights.reduce((sum, weight) => sum + weight ** 2, 0);
    const { tensors: found } = await weightErrors(openAny(path), openCheckpoint(TINY));
    assertAlmostEquals(
      found.find((each) => each.name === name)!.rms!,
      Math.abs(weights[at] - 3) / Math.sqrt(squares),
      1e-9,
    );
    const { tensors: same } = await weightErrors(openAny(DERIVED), openCheckpoint(TINY));
    assertEquals(same.find((each) => each.name === name), { name });
    assert(same.every(({ rms }) => rms === undefined || rms > 0));
  }));
