// What GGUF's metadata say of a model, as import reads and export writes them; the factors of fixtures/gguf/rope_freqs.json
// were computed as llama.cpp's converter does.

import { assert, assertEquals, assertThrows } from "@std/assert";
import { parseConfig } from "../lib/decoder/config.ts";
import { configOf, metadataOf, ropeFactorsOf } from "../lib/decoder/gguf.ts";
import { CheckpointError } from "../lib/errors.ts";
import { planExport } from "../lib/export.ts";
import { openCheckpoint } from "../lib/format/checkpoint.ts";
import type { Metadata } from "../lib/format/gguf.ts";
import { configOf as configFrom, MODELS } from "./models.ts";
import { fixture } from "./testing.ts";

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
      `x.gguf: key "${full}": ${value.value} is not supported; the decoder does not know it`,
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
  const error = assertThrows(() => planExport(openCheckpoint(directory), qwen, "config.json", undefined));
  assertEquals(
    (error as Error).message,
    "config.json: sliding_window: a window of 7, which llama.cpp's qwen2 does not know; the model can't be exported",
  );
});

Deno.test("import writes null for the special ids that a file does not have: an absent key has a default", () => {
  const { json, config } = imported(metadata({}).metadata);
  assertEquals([json.bos_token_id, json.eos_token_id, config.endOfText], [null, null, []]);
});
