// What calibration refuses, as the library calls it.

import { assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path/join";
import { CheckpointError } from "../../../lib/errors.ts";
import { openCheckpoint } from "../../../lib/format/checkpoint.ts";
import { quantize } from "../../../lib/library/quantize.ts";
import { inTemporary, tree } from "../../support/files.ts";
import { TINY, WEIGHTS } from "../../support/fixtures.ts";
import { copyModel } from "../../support/models.ts";

const SELF = { calibrate: "self", tokens: 64, window: 32, threads: 1 } as const;

for (const [bits, value] of [[[0xc0, 0x7f], "NaN"], [[0x80, 0x7f], "Infinity"], [[0x80, 0xff], "-Infinity"]] as const) {
  Deno.test({
    name: `a calibration names the tensor, row and column of a weight that is ${value}`,
    sanitizeOps: false,
    sanitizeResources: false,
    fn: () =>
      inTemporary(async (directory) => {
        const source = copyModel(TINY, join(directory, "in"));
        const path = join(source, WEIGHTS);
        const sound = Deno.readFileSync(path);
        for (
          const [name, weight, place] of [
            ["model.embed_tokens.weight", 64 * 3 + 5, "row 3 column 5 (block 0)"],
            ["model.layers.0.mlp.down_proj.weight", 128 * 63 + 127, "row 63 column 127 (block 3)"],
            ["model.layers.1.self_attn.v_proj.weight", 0, "row 0 column 0 (block 0)"],
            ["model.layers.1.input_layernorm.weight", 63, "row 0 column 63"],
            ["model.norm.weight", 0, "row 0 column 0"],
          ] as const
        ) {
          const { offset, dtype } = openCheckpoint(TINY).tensors.find((tensor) => tensor.name === name)!;
          assertEquals(dtype, "BF16");
          const bytes = sound.slice();
          bytes.set(bits, offset + 2 * weight);
          Deno.writeFileSync(path, bytes);
          const error = await assertRejects(() => quantize(source, join(directory, "out"), SELF), CheckpointError);
          assertEquals(error.place, { path, tensor: name });
          assertEquals(error.message.startsWith(`${path}: tensor "${name}": ${place}: `), true, error.message);
          assertEquals(tree(directory), ["in/", "in/config.json", `in/${WEIGHTS}`]);
        }
      }),
  });
}
