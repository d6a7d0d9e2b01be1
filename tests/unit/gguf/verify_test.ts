// A GGUF file, derived again from its source. The file is the tiny model as llama.cpp's Python package quantizes it
// (fixtures/gguf/make_gguf.py).

import { assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path/join";
import { CheckpointError } from "../../../lib/errors.ts";
import { verifyGguf } from "../../../lib/gguf/verify.ts";
import { inTemporary } from "../../support/files.ts";
import { ROOT, TINY } from "../../support/fixtures.ts";
import { readGguf } from "../../support/gguf.ts";
import { variant } from "../../support/models.ts";
import { Random } from "../../support/random.ts";

const DERIVED = `${ROOT}fixtures/gguf/derived.gguf`;
const { tensors, data } = readGguf(DERIVED);

Deno.test("verifyGguf finds a flipped bit in any tensor, and its row and block", async () => {
  await inTemporary(async (temporary) => {
    const random = new Random(18);
    for (const { name, shape, type, bytes, offset } of tensors) {
      const byte = random.below(bytes);
      const file = data.slice();
      file[offset + byte] ^= 1 << random.below(8);
      const path = join(temporary, "flipped.gguf");
      Deno.writeFileSync(path, file);
      const rowBytes = bytes / shape[0];
      const place = type.blockWeights > 1
        ? { row: Math.floor(byte / rowBytes), block: Math.floor(byte % rowBytes / type.blockBytes) }
        : { byte };
      const found = (await verifyGguf(path, TINY)).tensors.filter(({ equal }) => !equal);
      assertEquals(found, [{ name, equal: false, ...place }]);
    }
  });
});

Deno.test("verifyGguf refuses weights of the source that are not finite, or too large for the type", async () => {
  await inTemporary(async (temporary) => {
    const name = "model.layers.0.mlp.gate_proj.weight";
    const { type } = tensors.find((tensor) => tensor.name === "blk.0.ffn_gate.weight")!;
    assertEquals(type.blockWeights, 32);
    const cases: [number, string][] = [
      [0x7f80, "row 3 column 5: the weight is not finite; the file is damaged, make or download it again"],
      [0x7f00, `row 3: a weight is too large for ${type.name}`],
    ];
    for (const [n, [bits, message]] of cases.entries()) {
      const directory = variant(join(temporary, `${n}`), TINY, {
        tensors: (entries) => {
          const { bytes, shape } = entries.find((entry) => entry.name === name)!;
          new DataView(bytes.buffer, bytes.byteOffset).setUint16(2 * (3 * shape[1] + 5), bits, true);
          return entries;
        },
      });
      await assertRejects(
        () => verifyGguf(DERIVED, directory),
        CheckpointError,
        `${directory}/model.safetensors: tensor "${name}": ${message}`,
      );
    }
  });
});

Deno.test("verifyGguf ends with the reason of its signal", async () => {
  const reason = new Error("enough");
  await assertRejects(() => verifyGguf(DERIVED, TINY, { signal: AbortSignal.abort(reason) }), Error, "enough");
});
