// The figures of a report, by hand.

import { assertEquals } from "@std/assert";
import { trace } from "../../../lib/measure/compare.ts";
import type { Config } from "../../../lib/model/config.ts";
import { Q4B32 } from "../../../lib/format/blocks.ts";
import type { Checkpoint } from "../../../lib/format/checkpoint.ts";
import { decodeQuantized, figures } from "../../../lib/report/figures.ts";
import { FakeModel } from "../../support/decoders.ts";

// ---------------------------------------------------------------- decoding

/** A model of four tokens whose logits after each text are written down. */
function table(rows: Record<string, number[]>): FakeModel {
  return new FakeModel((text) => rows[text.join("")]);
}

const FLOAT = { "0": [0, 3, 1, 0], "01": [0, 0, 2, 1.5], "012": [1, 0, 0, 4], "0123": [7, 7, 0, 0] };
const QUANT = {
  "0": [0, 2, 1.5, 0],
  // After 01 the float model takes 2, this one 3.
  "01": [0, 0, 1, 1.25],
  "012": [1, 0, 0, 2],
  "0123": [7, 6.5, 0, 0],
  "013": [9, 0, 0, 5],
};

Deno.test("decodeQuantized has the margins of the model's own answer, and what it chooses after the float model's", () => {
  const steps: number[] = [];
  const traced = trace(table(FLOAT), [0], 3, () => steps.push(1));
  assertEquals([traced.tokens, steps.length], [[1, 2, 3], 4]);
  const { comparison, margins, agree, histogram } = decodeQuantized(table(QUANT), traced);
  assertEquals(comparison.tokens, [1, 3, 0]);
  assertEquals(margins, [0.5, 0.25, 4]);
  // 1 and 3 after the float model's tokens, not 2.
  assertEquals(agree, 2);
  // The differences after the tokens of the answer: -1, -0.25; -2; -0.5, and nine zeros.
  assertEquals(histogram.bins(1), { width: 1, first: -2, counts: [1, 3, 8] });
  assertEquals([comparison.steps.values, comparison.steps.max, comparison.steps.mean], [12, 2, 3.75 / 12]);
});

Deno.test("decodeQuantized finds nothing to tell of a model that is the float model", () => {
  const traced = trace(table(FLOAT), [0], 3);
  const { comparison, margins, agree, histogram } = decodeQuantized(table(FLOAT), traced);
  assertEquals([comparison.match, margins, agree], [true, [2, 0.5, 3], 3]);
  assertEquals(histogram.bins().counts, [12]);
});

// ---------------------------------------------------------------- figures

function checkpoint(
  path: string,
  width: Checkpoint["width"],
  tensors: [string, number[], string, number][],
): Checkpoint {
  const files = [{ path, bytes: 1000, dataStart: 8, version: "" }];
  return {
    path,
    directory: "d",
    files,
    width,
    tensors: tensors.map(([name, shape, dtype, bytes]) => ({ name, shape, dtype, bytes, file: 0, offset: 8 })),
  };
}

Deno.test("figures puts every tensor of either side in a row, and weighs a layer's errors by their squares", () => {
  const q = "model.layers.0.self_attn.q_proj.weight";
  const down = "model.layers.0.mlp.down_proj.weight";
  const far = "model.layers.7.mlp.up_proj.weight";
  const float = checkpoint("a/b/model.safetensors", undefined, [
    [q, [2, 32], "BF16", 128],
    [down, [4, 32], "F32", 512],
    [far, [1, 32], "BF16", 64],
    ["norm", [32], "F32", 128],
    ["scalar", [], "F32", 4],
  ]);
  const stored = checkpoint("c/other.safetensors", Q4B32, [
    [down, [4, 32], "Q4B32", 72],
    ["more", [3, 32], "Q4B32", 54],
    [q, [2, 32], "Q4B32", 36],
    [far, [1, 32], "Q4B32", 18],
  ]);
  const traced = trace(table(FLOAT), [0], 3);
  const report = figures({
    program: "p",
    float: { checkpoint: float, config: { layers: 2, architecture: "A" } as Config, trace: traced },
    quants: [{
      checkpoint: stored,
      measured: decodeQuantized(table(QUANT), traced),
      against: {
        rms: 0.25,
        tensors: [
          { name: down, equal: true, rms: 0.5, squares: 3 },
          { name: "more", equal: false, problem: "not in the source" },
          { name: q, equal: false, row: 1, block: 0, rms: 0.125, squares: 16 },
          { name: far, equal: true, rms: 2, squares: 1 },
          { name: "norm", equal: false, problem: "missing from the quantized checkpoint" },
        ],
      },
    }],
    textOf: (id) => "abcd"[id],
  });
  assertEquals(
    report.tensors.map(({ name, layer, part, shape, dtype, bytes }) => [name, layer, part, shape, dtype, bytes]),
    [
      [q, 0, "q", [2, 32], "BF16", 128],
      [down, 0, "down", [4, 32], "F32", 512],
      // The model has two layers: this one is none of them, and makes no list of eight.
      [far, undefined, undefined, [1, 32], "BF16", 64],
      ["norm", undefined, undefined, [32], "F32", 128],
      ["scalar", undefined, undefined, [], "F32", 4],
      ["more", undefined, undefined, [3, 32], undefined, undefined],
    ],
  );
  assertEquals(report.tensors.map(({ quants: [stored] }) => stored && [stored.dtype, stored.equal, stored.rms]), [
    ["Q4B32", false, 0.125],
    ["Q4B32", true, 0.5],
    ["Q4B32", true, 2],
    null,
    null,
    ["Q4B32", false, undefined],
  ]);
  const [quant] = report.quants;
  assertEquals(quant.layers, [Math.sqrt((0.25 * 3 + 16 / 64) / 19), 0]);
  assertEquals([quant.name, report.model.name], ["other.safetensors", "b"]);
  assertEquals([report.model.parameters, report.model.bits_per_weight], [64 + 128 + 32 + 32 + 1, 8000 / 257]);
  assertEquals(report.model.dtypes, ["BF16", "F32"]);
  assertEquals([quant.match, quant.kept, quant.agree, quant.steps, quant.equal, quant.different], [
    false,
    1,
    2,
    3,
    2,
    3,
  ]);
  assertEquals(report.answer, { ids: [1, 2, 3], texts: ["b", "c", "d"], margins: [2, 0.5, 3] });
  assertEquals(quant.answer, { ids: [1, 3, 0], texts: ["b", "d", "a"], margins: [0.5, 0.25, 4] });
  assertEquals(report.prompt, { ids: [0], texts: ["a"] });
});

Deno.test("figures calls checkpoints by their paths where their names are alike", () => {
  const traced = trace(table(FLOAT), [0], 1);
  const config = { layers: 0 } as Config;
  const against = { digests: [], blocks: 0, rms: 0, tensors: [] };
  const { model, quants } = figures({
    program: "p",
    float: { checkpoint: checkpoint("model.safetensors", undefined, []), config, trace: traced },
    quants: ["a/q/model.safetensors", "./r/", "b/q"].map((path) => {
      return { checkpoint: checkpoint(path, Q4B32, []), measured: decodeQuantized(table(QUANT), traced), against };
    }),
  });
  assertEquals(model.name, "model.safetensors");
  assertEquals(quants.map(({ name }) => name), ["a/q/model.safetensors", "r", "b/q"]);
});
