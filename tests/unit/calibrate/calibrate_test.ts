// Calibration as a whole: four tiny models, one for each way that models differ, against fixtures/make_calibration.py,
// which is the method in numpy and binary64.

import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { calibrate, type Calibrated, costsOf } from "../../../lib/calibrate/calibrate.ts";
import { NumericError } from "../../../lib/errors.ts";
import { Q4B32 } from "../../../lib/format/blocks.ts";
import type { MatrixLoss } from "../../../lib/format/quantization.ts";
import type { Operations } from "../../../lib/kernels/operations.ts";
import { Pool } from "../../../lib/kernels/pool.ts";
import { Reference } from "../../../lib/kernels/reference.ts";
import { type Model, openModel } from "../../../lib/model/load.ts";
import { tensorsOf } from "../../../lib/model/tensors.ts";
import type { Calibration } from "../../../lib/quantize/calibrate/calibration.ts";
import { Definition } from "../../../lib/quantize/calibrate/definition.ts";
import { Engine } from "../../../lib/quantize/calibrate/engine.ts";
import { planQuantize } from "../../../lib/quantize/quantize.ts";
import { exactBytes } from "../../support/blocks.ts";
import { inTemporary } from "../../support/files.ts";
import { fixture } from "../../support/fixtures.ts";
import { type Entry, safetensors } from "../../support/safetensors.ts";

interface Known {
  name: string;
  config: Record<string, unknown>;
  losses: Record<string, { before: number; after: number; spread: [number, number] }>;
}

const { window, windows: count, damping, models } = fixture<
  { window: number; windows: number; damping: number; models: Known[] }
>("calibration.json");

/** Values of about (-1, 1) that bfloat16 has, as the script makes them: a Lehmer generator. */
function numbers(count: number, seed: number): number[] {
  let state = seed;
  return Array.from({ length: count }, () => {
    state = state * 48271 % 2147483647;
    return (Math.floor(state / 8388608) - 128) / 128;
  });
}

/** To the nearest multiple of 2^-7, ties to even. */
function rounded(x: number): number {
  const down = Math.floor(x * 128);
  const part = x * 128 - down;
  return (part > 0.5 || (part === 0.5 && down % 2 !== 0) ? down + 1 : down) / 128;
}

/** Writes a model of the fixture; `change` may replace its values. */
function write(
  directory: string,
  { config }: Known,
  change: (name: string, values: number[]) => void = () => {},
): Model {
  Deno.writeTextFileSync(`${directory}/config.json`, JSON.stringify(config));
  Deno.writeFileSync(`${directory}/model.safetensors`, safetensors([]));
  const { config: read } = openModel(directory);
  const entries = [...tensorsOf(read)].map(({ name, shape, part }, n): Entry => {
    const norm = /[nN]orm$/.test(part);
    const factor = ["embedding", "head"].includes(part) || part.endsWith("Bias") ? 0.5 : 0.25;
    const values = numbers(shape.reduce((a, b) => a * b), n + 1).map((x) => {
      return norm ? rounded(x * factor + 1) : x * factor;
    });
    change(name, values);
    return { name, dtype: "BF16", shape: [...shape], bytes: exactBytes("BF16", Float32Array.from(values))! };
  });
  Deno.writeFileSync(`${directory}/model.safetensors`, safetensors(entries));
  return openModel(directory);
}

function windowsOf({ config }: Known): number[][] {
  const ids = numbers(window * count, 99).map((x) => Math.floor((x + 1) / 2 * (config.vocab_size as number)));
  return Array.from({ length: count }, (_, n) => ids.slice(n * window, (n + 1) * window));
}

/** Runs a calibration. @returns what it found, and the blocks of all matrices */
async function run(
  model: Model,
  known: Known,
  ops: Operations,
  core: Calibration,
): Promise<Calibrated & { blocks: Map<string, string> }> {
  const blocks = new Map<string, string>();
  const windows = windowsOf(known);
  const plan = planQuantize(model.checkpoint, Q4B32);
  const costs = costsOf(model, count, window, false);
  let last = 0;
  const progress = (done: number, total: number, matrix?: MatrixLoss) => {
    assert(done >= last && done <= total * (1 + 1e-9), `${done} of ${total} after ${matrix?.name}`);
    last = done / total * total;
  };
  const sink = (name: string, first: number, bytes: Uint8Array) => {
    blocks.set(name, (blocks.get(name) ?? `${first} `) + bytes.toHex());
  };
  try {
    const found = await calibrate({ model, plan, costs, windows, damping, sink, ops, core, progress });
    assert(last > costs.total * (1 - 1e-9), `${last} of ${costs.total} at the end`);
    return { ...found, blocks };
  } finally {
    ops.close();
    core.close();
  }
}

for (const known of models) {
  Deno.test(`calibrate of ${known.name} loses what the method in binary64 loses`, () =>
    inTemporary(async (directory) => {
      const model = write(directory, known);
      const { matrices, raised } = await run(model, known, new Reference(), new Definition());
      assertEquals(matrices.map(({ name }) => name), Object.keys(known.losses));
      assertEquals(raised, []);
      // What has fallen another way stays with all that follows.
      let spread = 0;
      for (const { name, before, after } of matrices) {
        const wanted = known.losses[name];
        spread = Math.max(spread, ...wanted.spread);
        const bound = 3 * spread + 1e-5;
        for (
          const [found, expected, what] of [[before, wanted.before, "before"], [after, wanted.after, "after"]] as const
        ) {
          const off = Math.abs(found / expected - 1);
          assert(off <= bound, `${name} ${what}: ${found}, not ${expected}: off by ${off}, may be ${bound}`);
        }
      }
    }));

  Deno.test({
    name: `calibrate of ${known.name} gives the same blocks on kernels, at 1, 2 and 3 threads`,
    sanitizeOps: false,
    sanitizeResources: false,
    fn: () =>
      inTemporary(async (directory) => {
        const model = write(directory, known);
        const wanted = await run(model, known, new Reference(), new Definition());
        for (const threads of [1, 2, 3]) {
          const found = await run(model, known, new Pool({ threads }), new Engine({ threads }));
          assertEquals(found.matrices, wanted.matrices);
          for (const [name, blocks] of wanted.blocks) {
            assertEquals(found.blocks.get(name) === blocks, true, `${name} at ${threads} threads`);
          }
        }
      }),
  });
}

for (const known of models) {
  Deno.test(`calibrate of ${known.name} names the matrix at which a value is not finite`, () =>
    inTemporary(async (directory) => {
      for (
        const [damaged, value, named] of [
          ["model.layers.1.input_layernorm.weight", 2 ** 120, "model.layers.1.self_attn.q_proj.weight"],
          ["model.layers.1.post_attention_layernorm.weight", 2 ** 120, "model.layers.1.mlp.gate_proj.weight"],
          ["model.layers.0.mlp.down_proj.weight", 2 ** 127, "model.layers.0.mlp.down_proj.weight"],
        ] as const
      ) {
        const model = write(directory, known, (name, values) => {
          if (name === damaged) values.fill(value);
        });
        const error = await assertRejects(() => run(model, known, new Reference(), new Definition()), NumericError);
        assertStringIncludes(error.message, `calibrating ${named}: a value is not finite`);
      }
    }));
}
