// What GGUF's metadata say of a model, as import reads and export writes them; the factors of fixtures/gguf/rope_freqs.json
// were computed as llama.cpp's converter does.

import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { join } from "@std/path/join";
import { parseConfig } from "../../../lib/model/config.ts";
import { architectureOf, configOf, metadataOf } from "../../../lib/gguf/names.ts";
import { ropeFactorsOf } from "../../../lib/gguf/rope_scaling.ts";
import { CheckpointError } from "../../../lib/errors.ts";
import { exportGguf, planTensors } from "../../../lib/gguf/export.ts";
import { openCheckpoint } from "../../../lib/format/checkpoint.ts";
import { type Metadata, parseGguf } from "../../../lib/gguf/container.ts";
import { importGguf, planImport } from "../../../lib/gguf/import.ts";
import { inTemporary, tree, write } from "../../support/files.ts";
import { fixture, MODELS, TINY, WEIGHTS } from "../../support/fixtures.ts";
import { configOf as configFrom } from "../../support/models.ts";
import { entriesOf, safetensors } from "../../support/safetensors.ts";

interface Scaled {
  readonly head_dim: number;
  readonly base: number;
  readonly factor: number;
  readonly original: number;
  readonly factors: number[];
  readonly frequencies: number[];
}

const LLAMA = {
  architectures: ["LlamaForCausalLM"],
  hidden_size: 64,
  intermediate_size: 8,
  num_hidden_layers: 1,
  num_attention_heads: 1,
  vocab_size: 9,
};

/** The configuration that metadata give, with or without factors of the frequencies. */
function imported(metadata: Metadata, ropeFactors?: Float32Array) {
  const shape = (name: string) => name === "token_embd.weight" ? [9, 64] : undefined;
  return configOf("x.gguf", metadata, { shape, ropeFactors }, "float32", {});
}

/** The metadata of a configuration. */
function metadata(changes: Record<string, unknown>, architecture = "llama") {
  const config = parseConfig("config.json", JSON.stringify({ ...LLAMA, ...changes }));
  return { config, metadata: new Map(metadataOf(architecture, config)) };
}

function far(a: readonly number[], b: readonly number[]): number {
  return Math.max(...a.map((x, n) => Math.abs(x / b[n] - 1)));
}

Deno.test("import finds a llama3 scaling in the factors of any head, however few they are", () => {
  for (const { head_dim, base, factor, original, factors, frequencies } of fixture<Scaled[]>("gguf/rope_freqs.json")) {
    const what = `head_dim ${head_dim}, base ${base}, factor ${factor}, original ${original}`;
    const { metadata: pairs } = metadata({ head_dim, rope_theta: base });
    const { config } = imported(pairs, Float32Array.from(factors));
    assert(far(config.ropeFrequencies, frequencies) < 2e-6, `${what}: ${config.ropeFrequencies}, not ${frequencies}`);
  }
});

Deno.test("import finds the frequencies that export wrote", () => {
  let same = 0;
  for (const head_dim of [4, 8, 20, 64, 128]) {
    for (const rope_theta of [50, 1e4, 5e5]) {
      for (const factor of [1, 1.5, 8, 40]) {
        for (const original of [16, 48, 1000, 8192, 1e5]) {
          const scaling = {
            factor,
            high_freq_factor: 4,
            low_freq_factor: 1,
            original_max_position_embeddings: original,
            rope_type: "llama3",
          };
          const { config, metadata: pairs } = metadata({ head_dim, rope_theta, rope_scaling: scaling });
          const found = imported(pairs, ropeFactorsOf(config));
          assert(far(found.config.ropeFrequencies, config.ropeFrequencies) < 2e-6, JSON.stringify([head_dim, scaling]));
          if (JSON.stringify(found.json.rope_scaling) === JSON.stringify(scaling)) same++;
        }
      }
    }
  }
  assert(same > 100, `${same} are the same in every number`);
});

Deno.test("import refuses factors that are those of no llama3 scaling", () => {
  const { metadata: pairs } = metadata({ head_dim: 16, rope_theta: 500000 });
  for (
    const factors of [
      [1, 1, 1, 1, 2, 3, 4, 5],
      [8, 1, 1, 1, 1, 1, 1, 1],
      [1, 1, 1, 1, 8, 8, 8, 7],
      [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5],
      [1, 1, 1, 1, NaN, 8, 8, 8],
      [1, 1, 1, 1, 8, 8, 8, NaN],
      [1, 1, 1, 1, 8, 8, 8, Infinity],
      [-1, 1, 1, 1, 8, 8, 8, 8],
      [0, 0, 0, 0, 0, 0, 0, 0],
      [1, 1, 1, 8],
      [],
    ]
  ) {
    const error = assertThrows(() => imported(pairs, Float32Array.from(factors)), CheckpointError, "", `${factors}`);
    assert(error.message.includes('tensor "rope_freqs.weight": the factors are not those of'), error.message);
  }
});

Deno.test("import refuses metadata with which llama.cpp computes what the decoder does not", () => {
  const { metadata: plain } = metadata({});
  imported(plain);
  const f32 = (value: number) => ({ type: "f32", value } as const);
  const u32 = (value: number) => ({ type: "u32", value } as const);
  for (
    const [key, value, neutral] of [
      ["attn_logit_softcapping", f32(50), f32(0)],
      ["final_logit_softcapping", f32(30), f32(0)],
      ["logit_scale", f32(0.0625), f32(1)],
      ["embedding_scale", f32(12), f32(1)],
      ["residual_scale", f32(0.22), f32(0)],
      ["attention.scale", f32(0.015625), f32(0)],
      ["attention.causal", { type: "bool", value: false } as const, { type: "bool", value: true } as const],
      ["attention.clamp_kqv", f32(8), f32(0)],
      ["rope.scaling.attn_factor", f32(1.2), f32(1)],
      ["rope.scaling.yarn_ext_factor", f32(1), f32(0)],
      ["expert_count", u32(8), u32(0)],
      ["nextn_predict_layers", u32(1), u32(0)],
      ["pooling_type", u32(1), u32(0)],
    ] as const
  ) {
    const full = `llama.${key}`;
    imported(new Map([...plain, [full, neutral]]));
    const error = assertThrows(() => imported(new Map([...plain, [full, value]])), CheckpointError);
    assertEquals(
      error.message,
      `x.gguf: key "${full}": ${value.value} is not supported`,
    );
  }
});

Deno.test("a window goes to GGUF and back where all layers have it, and is refused where some do", () => {
  const mistral = metadata({ architectures: ["MistralForCausalLM"], num_key_value_heads: 1, sliding_window: 7 });
  const { config } = imported(mistral.metadata);
  assertEquals([config.architecture, config.window], ["MistralForCausalLM", 7]);
  const llama = metadata({});
  assertEquals(imported(llama.metadata).config.window, undefined);

  const directory = `${MODELS}/qwen2`;
  const qwen = configFrom(directory, { use_sliding_window: true, max_window_layers: 1, sliding_window: 7 });
  const error = assertThrows(() => planTensors(openCheckpoint(directory), qwen, "config.json", undefined));
  assertEquals(
    (error as Error).message,
    "config.json: sliding_window: a window of 7 is not supported by llama.cpp's qwen2; the model can't be exported",
  );
});

Deno.test("import writes null for the special ids that a file does not have: an absent key has a default", () => {
  const { json, config } = imported(metadata({}).metadata);
  assertEquals([json.bos_token_id, json.eos_token_id, config.endOfText], [null, null, []]);
});

Deno.test("import and export refuse a weight that is not finite, naming its row and column", () =>
  inTemporary(async (directory) => {
    const path = join(directory, "x.gguf");
    const bad = join(directory, "bad.gguf");
    // Each float format; the patterns of a NaN, an infinity and a negative one, little endian.
    const formats: [string, number[][]][] = [
      [TINY, [[0xc1, 0x7f], [0x80, 0x7f], [0x80, 0xff]]],
      [`${MODELS}/rope-linear`, [[0x01, 0x7e], [0x00, 0x7c], [0x00, 0xfc]]],
      [`${MODELS}/head-dim`, [[1, 0, 0x80, 0x7f], [0, 0, 0x80, 0x7f], [0, 0, 0x80, 0xff]]],
    ];
    for (const [from, patterns] of formats) {
      const plan = planTensors(openCheckpoint(from), configFrom(from), "config.json", undefined);
      await exportGguf(plan, path, { force: true });
      const file = Deno.readFileSync(path);
      const read = (offset: number, into: Uint8Array) => into.set(file.subarray(offset, offset + into.length));
      const { tensors } = parseGguf({ path, bytes: file.length, read });
      for (const pattern of patterns) {
        for (
          const [name, row, column] of [
            ["blk.0.ffn_down.weight", 3, 5],
            ["blk.0.attn_q.weight", 1, 2],
            ["output_norm.weight", 4, 0],
          ] as const
        ) {
          const tensor = tensors.find((tensor) => tensor.name === name)!;
          const vector = tensor.shape.length === 1;
          const bytes = vector ? [1, 0, 0xc0, 0x7f] : pattern;
          const columns = vector ? 1 : tensor.shape[1];
          const spoiled = file.slice();
          spoiled.set(bytes, tensor.offset + (row * columns + column) * bytes.length);
          Deno.writeFileSync(bad, spoiled);
          for (const dtype of [undefined, "same", "f32"] as const) {
            let message = "";
            try {
              await importGguf(planImport(bad, dtype), join(directory, "out"), { force: true });
            } catch (error) {
              message = (error as Error).message;
            }
            const place = `${bad}: tensor "${name}": row ${row} column ${column}: the weight is `;
            assert(message.startsWith(place), `${from} ${dtype} ${bytes}: ${message}`);
            assert(message.endsWith("; the file is damaged, make or download it again"), message);
          }
        }
        // The same in a checkpoint.
        const name = "model.layers.0.mlp.down_proj.weight";
        const entries = entriesOf(Deno.readFileSync(join(from, "model.safetensors")));
        const { shape, bytes } = entries.find((entry) => entry.name === name)!;
        bytes.set(pattern, (3 * shape[1] + 5) * pattern.length);
        const model = join(directory, "model");
        write(model, { "model.safetensors": safetensors(entries) });
        const broken = planTensors(openCheckpoint(model), configFrom(from), "config.json", undefined);
        let message = "";
        try {
          await exportGguf(broken, path, { force: true });
        } catch (error) {
          message = (error as Error).message;
        }
        assertEquals(
          message,
          `${model}/model.safetensors: tensor "${name}": row 3 column 5: the weight is not finite; the file is damaged, make or download it again`,
        );
      }
    }
    assertEquals(tree(directory).filter((name) => name.includes("partial")), []);
  }));

Deno.test("export refuses an element of a vector of F64 that overflows binary32, naming its row and value", () =>
  inTemporary(async (directory) => {
    const path = join(directory, "x.gguf");
    const name = "model.norm.weight";
    const entries = entriesOf(Deno.readFileSync(join(TINY, WEIGHTS)));
    const norm = entries.find((entry) => entry.name === name)!;
    const values = new Float64Array(norm.shape[0]).fill(1);
    Object.assign(norm, { dtype: "F64", bytes: new Uint8Array(values.buffer) });
    const model = join(directory, "model");
    const make = async () => {
      write(model, { "model.safetensors": safetensors(entries) });
      await exportGguf(planTensors(openCheckpoint(model), configFrom(TINY), "config.json", undefined), path, {
        force: true,
      });
    };
    // The largest that rounds to a number of binary32, and the next one of binary64.
    values[2] = 2 ** 128 - 2 ** 103 - 2 ** 75;
    await make();
    for (const large of [2 ** 128 - 2 ** 103, -1e300]) {
      values[2] = large;
      const error = await assertRejects(make, CheckpointError);
      assertEquals(
        error.message,
        `${model}/model.safetensors: tensor "${name}": row 2 column 0: ${large} overflows binary32, the type of llama.cpp's vectors`,
      );
    }
    assertEquals(tree(directory).filter((name) => name.includes("partial")), []);
  }));

Deno.test("export refuses a class that GGUF has no architecture for, although the decoder knows it", () => {
  const config = { ...parseConfig("config.json", JSON.stringify(LLAMA)), architecture: "NewForCausalLM" };
  assertThrows(
    () => architectureOf("config.json", config),
    CheckpointError,
    'config.json: architectures: "NewForCausalLM" can\'t be exported; ' +
      "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM can",
  );
});
