/**
 * The gate passes, and it fails when a single nibble or scale is wrong: a gate that nothing fails proves nothing.
 */

import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path/join";
import { PUBLISHED_PROMPT } from "../../../lib/cli/model.ts";
import { openCheckpoint } from "../../../lib/format/checkpoint.ts";
import { Q4B32, Q8B32, WIDTHS } from "../../../lib/format/blocks.ts";
import { GATE_TOLERANCE, prepareGate, runGate } from "../../../lib/dev/gate.ts";
import { Pool } from "../../../lib/kernels/pool.ts";
import { inTemporary } from "../../support/files.ts";
import { using } from "../../support/models.ts";

/** Changes one byte of a tensor of the gate's quantized checkpoint. */
function damage(directory: string, tensor: string, offset: number, change: (byte: number) => number): void {
  const { tensors, files: [{ path }] } = openCheckpoint(join(directory, "quant"));
  const bytes = Deno.readFileSync(path);
  const at = tensors.find(({ name }) => name === tensor)!.offset + offset;
  bytes[at] = change(bytes[at]);
  Deno.writeFileSync(path, bytes);
}

for (const format of WIDTHS) {
  Deno.test(`runGate passes ${format.name}: the same tokens, and no logit differs`, () =>
    inTemporary((directory) =>
      using(new Pool({ threads: 2 }), async (pool) => {
        await prepareGate(directory, format, 2);
        const { pass, match, prefill, steps, tokens, float } = await runGate(directory, pool, PUBLISHED_PROMPT);
        assert(pass && match);
        assertEquals(tokens, float.tokens);
        assertEquals(Math.max(prefill.max, steps.max), 0);
        assertEquals(steps.values, 8 * 8192);
      })
    ));
}

const CONTROLS = [
  // Row 282 of the embedding is a token of the prompt; its first block begins at byte 282 * 8 * blockBytes.
  { says: "one flipped nibble", format: Q4B32, offset: 282 * 8 * 18 + 2, change: (byte: number) => byte ^ 0x04 },
  {
    says: "one flipped bit of an eight-bit weight",
    format: Q8B32,
    offset: 282 * 8 * 34 + 2,
    change: (byte: number) => byte ^ 0x40,
  },
  // 3c00 is one; 4000 is two.
  { says: "one wrong scale", format: Q4B32, offset: 282 * 8 * 18 + 1, change: () => 0x40 },
  { says: "one wrong scale", format: Q8B32, offset: 282 * 8 * 34 + 1, change: () => 0x40 },
];

for (const { says, format, offset, change } of CONTROLS) {
  Deno.test(`runGate fails ${format.name} with ${says}`, () =>
    inTemporary((directory) =>
      using(new Pool({ threads: 1 }), async (pool) => {
        await prepareGate(directory, format, 1);
        damage(directory, "model.embed_tokens.weight", offset, change);
        const { pass, prefill, steps } = await runGate(directory, pool, PUBLISHED_PROMPT);
        assertEquals(pass, false);
        assert(Math.max(prefill.max, steps.max) >= GATE_TOLERANCE);
      })
    ));
}
