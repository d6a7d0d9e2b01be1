// config.json: what the decoder reads from it, and what it refuses.

import { assert, assertEquals, assertThrows } from "@std/assert";
import { parseConfig } from "../../../lib/model/config.ts";
import { CheckpointError } from "../../../lib/errors.ts";
import { assertNear } from "../../support/numbers.ts";
import { assertRefused } from "../../support/refusals.ts";

/** A configuration with only what can't be left out. */
const LEAST = {
  architectures: ["LlamaForCausalLM"],
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 3,
  num_attention_heads: 8,
  vocab_size: 500,
};

/** Parses LEAST with changes; a field that is undefined is left out. */
function parse(changes: Record<string, unknown> = {}) {
  return parseConfig("config.json", JSON.stringify({ ...LEAST, ...changes }));
}

Deno.test("parseConfig takes what is there, and the defaults of transformers for what is not", () => {
  const { ropeFrequencies, ...config } = parse();
  assertNear(ropeFrequencies, [1, 0.1, 0.01, 0.001], 1e-9, "frequencies");
  assertEquals(config, {
    architecture: "LlamaForCausalLM",
    qkvBias: false,
    headNorm: false,
    hidden: 64,
    intermediate: 96,
    layers: 3,
    heads: 8,
    kvHeads: 8,
    headDim: 8,
    vocabulary: 500,
    maxPositions: 2048,
    normEps: 1e-6,
    window: undefined,
    tied: false,
    outputBias: false,
    endOfText: [2],
    endAssumed: true,
    rope: { base: 10000, scaling: "default" },
  });
  const full = parse({
    num_key_value_heads: 2,
    head_dim: 12,
    max_position_embeddings: 77,
    rms_norm_eps: 1e-5,
    tie_word_embeddings: false,
    attention_bias: true,
    eos_token_id: [3, 9],
    hidden_act: "silu",
    pretraining_tp: 1,
    mlp_bias: false,
    rope_interleaved: false,
    partial_rotary_factor: 1.0,
  });
  assertEquals(
    [full.kvHeads, full.headDim, full.maxPositions, full.normEps, full.tied, full.qkvBias, full.outputBias],
    [2, 12, 77, 1e-5, false, true, true],
  );
  assertEquals(full.endOfText, [3, 9]);
  assertEquals(parse({ tie_word_embeddings: true, eos_token_id: 0 }).endOfText, [0]);
  assertEquals(parse({ tie_word_embeddings: true }).tied, true);
});

Deno.test("parseConfig takes null for a field that is not there, where the class does", () => {
  const nulls = {
    hidden_size: 64,
    head_dim: null,
    rope_scaling: null,
    rope_parameters: null,
    sliding_window: null,
    quantization_config: null,
    partial_rotary_factor: null,
    use_sliding_window: null,
    max_window_layers: null,
    layer_types: null,
  };
  assertEquals(parse(nulls), parse());
  for (const name of ["Mistral", "Qwen2"]) {
    const changes = { architectures: [`${name}ForCausalLM`], num_attention_heads: 32, hidden_size: 128 };
    assertEquals(parse({ ...changes, attention_bias: null, mlp_bias: null }), parse(changes));
  }
  // At the top it counts only where there is no other.
  const inside = { rope_parameters: { rope_theta: 16 } };
  assertEquals(parse({ ...inside, rope_theta: null }), parse(inside));
});

Deno.test("parseConfig refuses null where the class does", () => {
  // Of transformers 5.24: the fields of the configurations whose types do not allow None.
  const all = [
    ...["hidden_act", "rms_norm_eps", "tie_word_embeddings", "max_position_embeddings", "vocab_size", "hidden_size"],
    ...["num_hidden_layers", "num_attention_heads", "intermediate_size"],
  ];
  const windows = ["use_sliding_window", "max_window_layers"];
  for (
    const [name, own] of [
      ["Llama", ["attention_bias", "mlp_bias"]],
      ["Mistral", []],
      ["Qwen2", windows],
      ["Qwen3", ["attention_bias", "head_dim", ...windows]],
    ] as const
  ) {
    const base = { architectures: [`${name}ForCausalLM`], num_attention_heads: 32, hidden_size: 128 };
    const switched = { ...base, use_sliding_window: true, sliding_window: 7 };
    for (const field of [...all, ...own]) {
      const error = assertThrows(() => parse({ ...switched, [field]: null }), CheckpointError, "", `${name} ${field}`);
      assert(error.message.startsWith(`config.json: ${field}: `), error.message);
      assert(error.message.includes("null"), error.message);
    }
  }
  // These have no type there, and fail when the angles are computed.
  for (
    const [changes, place] of [
      [{ rope_theta: null }, "rope_theta"],
      [{ rope_theta: null, rope_parameters: { rope_type: "default" } }, "rope_theta"],
      [{ rope_theta: 16, rope_parameters: { rope_theta: null } }, "rope_parameters rope_theta"],
      [{ rope_parameters: { rope_type: null, rope_theta: 16 } }, "rope_parameters rope_type"],
      [{ rope_scaling: { rope_type: null, type: "linear", factor: 2 } }, "rope_scaling type"],
      [{ rope_scaling: { rope_type: "linear", factor: null } }, "rope_scaling factor"],
    ] as const
  ) {
    const error = assertThrows(() => parse(changes), CheckpointError, "", JSON.stringify(changes));
    assert(error.message.startsWith(`config.json: ${place}: `), error.message);
  }
});

Deno.test("parseConfig takes null for none where transformers does", () => {
  assertEquals(parse({ eos_token_id: null }).endOfText, []);
  const mistral = { architectures: ["MistralForCausalLM"], num_attention_heads: 16 };
  assertEquals([parse(mistral).kvHeads, parse({ ...mistral, num_key_value_heads: null }).kvHeads], [8, 16]);
  assertEquals([parse(mistral).window, parse({ ...mistral, sliding_window: null }).window], [4096, undefined]);
});

Deno.test("parseConfig takes the defaults of each class for a file that only names it", () => {
  // From the classes' sources in transformers 5.24.
  const all = { hidden: 4096, layers: 32, heads: 32, normEps: 1e-6, tied: false, outputBias: false, endAssumed: true };
  const llama = { intermediate: 11008, kvHeads: 32, headDim: 128, vocabulary: 32000, maxPositions: 2048 };
  const qwen = { intermediate: 22016, kvHeads: 32, headDim: 128, vocabulary: 151936, maxPositions: 32768 };
  const mistral = { intermediate: 14336, kvHeads: 8, headDim: 128, vocabulary: 32000, maxPositions: 131072 };
  for (
    const [model_type, own] of [
      ["llama", { ...llama, window: undefined, endOfText: [2], qkvBias: false, headNorm: false }],
      ["mistral", { ...mistral, window: 4096, endOfText: [2], qkvBias: false, headNorm: false }],
      ["qwen2", { ...qwen, window: undefined, endOfText: [], qkvBias: true, headNorm: false }],
      ["qwen3", { ...qwen, window: undefined, endOfText: [], qkvBias: false, headNorm: true }],
    ] as const
  ) {
    const { ropeFrequencies, architecture: _, rope, ...config } = parseConfig("c", JSON.stringify({ model_type }));
    assertEquals(config, { ...all, ...own });
    assertEquals([rope, ropeFrequencies[32]], [{ base: 10000, scaling: "default" }, 0.01]);
  }
});

Deno.test("parseConfig knows four families, by architectures or by model_type", () => {
  const of = (changes: Record<string, unknown>) => {
    const { architecture, qkvBias, headNorm, outputBias } = parse(changes);
    return [architecture, qkvBias, headNorm, outputBias];
  };
  for (
    const [name, type, ...traits] of [
      ["LlamaForCausalLM", "llama", false, false, false],
      ["MistralForCausalLM", "mistral", false, false, false],
      ["Qwen2ForCausalLM", "qwen2", true, false, false],
      ["Qwen3ForCausalLM", "qwen3", false, true, false],
    ] as const
  ) {
    const own = { num_key_value_heads: 8, head_dim: 8 };
    for (
      const names of [
        { architectures: [name] },
        { architectures: [name], model_type: type },
        { architectures: undefined, model_type: type },
        { architectures: [], model_type: type },
        { architectures: null, model_type: type },
      ]
    ) assertEquals(of({ ...own, ...names }), [name, ...traits]);
    const biased = of({ ...own, architectures: [name], attention_bias: true });
    const reads = name === "LlamaForCausalLM" || name === "Qwen3ForCausalLM";
    assertEquals(biased, reads ? [name, true, traits[1], true] : [name, ...traits]);
  }
  assertEquals(of({ architectures: ["LLaMAForCausalLM"], model_type: "llama" })[0], "LlamaForCausalLM");
});

// ---------------------------------------------------------------- rotary frequencies

Deno.test("parseConfig computes theta^(-2n/d)", () => {
  assertNear(parse({ rope_theta: 16 }).ropeFrequencies, [1, 0.5, 0.25, 0.125], 1e-9, "frequencies");
  assertNear(parse({ head_dim: 4, rope_theta: 1e6 }).ropeFrequencies, [1, 0.001], 1e-9, "frequencies");
  assertNear(
    parse({ rope_scaling: { rope_type: "default" }, rope_theta: 16 }).ropeFrequencies,
    [1, 0.5, 0.25, 0.125],
    1e-9,
    "frequencies",
  );
});

Deno.test("parseConfig divides frequencies by the factor of a linear scaling", () => {
  const expected = [0.25, 0.125, 0.0625, 0.03125];
  for (const scaling of [{ type: "linear", factor: 4 }, { rope_type: "linear", factor: 4.0 }]) {
    assertNear(parse({ rope_theta: 16, rope_scaling: scaling }).ropeFrequencies, expected, 1e-9, "frequencies");
  }
});

Deno.test("parseConfig keeps, smooths and divides frequencies as llama3 says", () => {
  // theta 256 gives 1, 1/4, 1/16, 1/64: wavelengths 2 pi, 8 pi, 32 pi, 128 pi = 6.3, 25.1, 100.5, 402.1. Below
  // 48 / 4 = 12 kept, above 48 / 1 = 48 divided by 8. For 1/4: smooth = (48 / (8 pi) - 1) / (4 - 1) = (6 / pi - 1) / 3
  // = 0.303286439, and (1 - smooth) / 32 + smooth / 4 = 0.021772299 + 0.075821610 = 0.097593909.
  const scaling = { factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 48 };
  const expected = [1, 0.0975939085, 1 / 128, 1 / 512];
  for (const kind of [{ rope_type: "llama3" }, { type: "llama3" }]) {
    assertNear(
      parse({ rope_theta: 256, rope_scaling: { ...scaling, ...kind } }).ropeFrequencies,
      expected,
      1e-9,
      "frequencies",
    );
  }
  const parameters = { ...scaling, rope_type: "llama3", rope_theta: 256 };
  assertNear(parse({ rope_parameters: parameters }).ropeFrequencies, expected, 1e-9, "frequencies");
});

Deno.test("parseConfig leaves the frequencies of a dynamic scaling, which begins beyond the longest context", () => {
  const scaling = { type: "dynamic", factor: 4 };
  assertNear(
    parse({ rope_theta: 16, rope_scaling: scaling }).ropeFrequencies,
    [1, 0.5, 0.25, 0.125],
    1e-9,
    "frequencies",
  );
});

Deno.test("parseConfig reads rope_theta in each of its places", () => {
  const half = [1, 0.5, 0.25, 0.125];
  for (
    const [changes, divided = 1] of [
      [{ rope_parameters: { rope_type: "default", rope_theta: 16 } }],
      [{ rope_parameters: { rope_theta: 16, partial_rotary_factor: 1 } }],
      [{ rope_parameters: { rope_theta: 16, factor: null } }],
      [{ rope_parameters: { rope_theta: 16 }, rope_theta: 16.0 }],
      [{ rope_scaling: { rope_type: "default", rope_theta: 16 } }],
      [{ rope_scaling: {}, rope_parameters: { rope_theta: 16 } }],
      [{ rope_scaling: { rope_theta: 16 }, rope_parameters: { rope_type: "default", rope_theta: 16 } }],
      [{ rope_scaling: { rope_type: "default" }, rope_parameters: { rope_theta: 16 }, rope_theta: 16 }],
      [{ rope_scaling: { rope_type: "linear", rope_theta: 16, factor: 2 } }, 2],
      [{ rope_parameters: { rope_type: "linear", rope_theta: 16, factor: 2 } }, 2],
      [{ rope_parameters: { rope_type: "linear", factor: 2 }, rope_theta: 16 }, 2],
      [{ rope_scaling: { type: "linear", rope_type: "linear", factor: 2 }, rope_theta: 16 }, 2],
    ] as const
  ) assertNear(parse(changes).ropeFrequencies, half.map((f) => f / divided), 1e-9, "frequencies");
});

// ---------------------------------------------------------------- windows

Deno.test("parseConfig finds the window of each class", () => {
  const full = ["full_attention", "full_attention", "full_attention"];
  const last = ["full_attention", "full_attention", "sliding_attention"];
  const qwen = { num_key_value_heads: 8, head_dim: 8 };
  for (
    const [name, changes, window] of [
      ["Llama", {}, undefined],
      // The cache of transformers forgets what is outside of it.
      ["Llama", { sliding_window: 16 }, 16],
      ["Llama", { sliding_window: 16, layer_types: full }, undefined],
      ["Llama", { sliding_window: 16, layer_types: last }, 16],
      ["Mistral", {}, 4096],
      ["Mistral", { sliding_window: 16 }, 16],
      ["Mistral", { sliding_window: 16, use_sliding_window: false }, 16],
      ["Mistral", { sliding_window: 16, layer_types: full }, 16],
      ["Mistral", { sliding_window: null }, undefined],
      ...["Qwen2", "Qwen3"].flatMap((name) =>
        ([
          [{}, undefined],
          [{ sliding_window: 16 }, undefined],
          [{ sliding_window: 16, max_window_layers: 0 }, undefined],
          [{ sliding_window: 16, use_sliding_window: false, max_window_layers: 0 }, undefined],
          // The first layer with a window is 28 where nothing else is said, and there are three.
          [{ sliding_window: 16, use_sliding_window: true }, undefined],
          [{ sliding_window: 16, use_sliding_window: true, max_window_layers: 3 }, undefined],
          [{ sliding_window: 16, use_sliding_window: true, max_window_layers: 2 }, 16],
          [{ use_sliding_window: true, max_window_layers: 0 }, 4096],
          [{ sliding_window: null, use_sliding_window: true, max_window_layers: 0 }, undefined],
          [{ sliding_window: 16, use_sliding_window: true, max_window_layers: 0, layer_types: full }, undefined],
          [{ sliding_window: 16, use_sliding_window: true, layer_types: last }, 16],
        ] as const).map(([changes, window]) => [name, { ...qwen, ...changes }, window] as const)
      ),
    ] as const
  ) {
    const found = parse({ architectures: [`${name}ForCausalLM`], ...changes }).window;
    assertEquals(found, window, `${name} ${JSON.stringify(changes)}`);
  }
});

// ---------------------------------------------------------------- refusals

const WHOLE = "expected a whole number of at least 1, found";
const LEAST_ONE = "expected a number of at least 1, found";
const POSITIVE = "expected a number above 0, found";
const KNOWN = "is not supported; the decoder knows LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, " +
  "Qwen3ForCausalLM";
const LLAMA3 = {
  rope_type: "llama3",
  factor: 8,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 48,
};

const REFUSED: readonly [Record<string, unknown>, string][] = [
  // Families.
  [{ architectures: ["GemmaForCausalLM"] }, `architectures: "GemmaForCausalLM" ${KNOWN}`],
  [{ architectures: ["Bad\nName"] }, `architectures: "Bad\\nName" ${KNOWN}`],
  [{ architectures: [7] }, `architectures: 7 ${KNOWN}`],
  [{ architectures: ["toString"] }, `architectures: "toString" ${KNOWN}`],
  [{ architectures: undefined, model_type: "gpt2" }, `model_type: "gpt2" ${KNOWN}`],
  [{ architectures: [], model_type: null }, `model_type: null ${KNOWN}`],
  [
    { architectures: [], model_type: undefined },
    `model_type: ${KNOWN.replace("is not supported", "is missing, and so are architectures")}`,
  ],
  [
    { model_type: "mistral" },
    'model_type: "mistral" contradicts architectures, "LlamaForCausalLM" ("llama")',
  ],
  [
    { architectures: ["LLaMAForCausalLM"], model_type: "anything" },
    'model_type: "anything" contradicts architectures, "LLaMAForCausalLM" ("llama")',
  ],
  // Counts.
  ...([
    ["hidden_size", 2 ** 20],
    ["intermediate_size", 2 ** 22],
    ["num_hidden_layers", 10_000],
    ["num_attention_heads", 2 ** 14],
    ["num_key_value_heads", 2 ** 14],
    ["vocab_size", 2 ** 26],
  ] as const).flatMap(([field, most]) => {
    const wanted = `${field}: expected a whole number of 1 to ${most}, found`;
    return [0, -8, 1.5, "64", [64], most + 1, 2 ** 31 - 1, 1e300].map((value): [Record<string, unknown>, string] => {
      return [{ [field]: value }, `${wanted} ${JSON.stringify(value)}`];
    });
  }),
  [
    { architectures: ["MistralForCausalLM"], num_attention_heads: 4, hidden_size: 32 },
    "num_key_value_heads: 8 does not divide the 4 attention heads",
  ],
  [{ num_key_value_heads: 3 }, "num_key_value_heads: 3 does not divide the 8 attention heads"],
  [{ num_key_value_heads: 16 }, "num_key_value_heads: 16 does not divide the 8 attention heads"],
  [{ max_position_embeddings: 0 }, `max_position_embeddings: ${WHOLE} 0`],
  [{ head_dim: 6 }, "head_dim: 6 is not a multiple of 4, which the decoder needs"],
  [{ head_dim: 0 }, `head_dim: ${WHOLE} 0`],
  [{ head_dim: 1028 }, "head_dim: 1028 is more than 1024"],
  [{ head_dim: 2 ** 31 - 4 }, "head_dim: 2147483644 is more than 1024"],
  [{ hidden_size: 2 ** 20, num_attention_heads: 1 }, "head_dim: 1048576 is more than 1024"],
  [{ hidden_size: 48 }, "head_dim: 6 is not a multiple of 4, which the decoder needs"],
  [{ hidden_size: 60 }, "head_dim: 7.5 is not a multiple of 4, which the decoder needs"],
  [{ rms_norm_eps: 0 }, `rms_norm_eps: ${POSITIVE} 0`],
  [{ rms_norm_eps: "1e-5" }, `rms_norm_eps: ${POSITIVE} "1e-5"`],
  [{ rms_norm_eps: 1e-50 }, `rms_norm_eps: ${POSITIVE} 1e-50`],
  [{ rms_norm_eps: 1e39 }, `rms_norm_eps: ${POSITIVE} 1e+39`],
  ...[-1, 0, 0.5, 1e-50, 1e39, "1e4"].map((value): [Record<string, unknown>, string] => {
    return [{ rope_theta: value }, `rope_theta: ${LEAST_ONE} ${JSON.stringify(value)}`];
  }),
  [{ tie_word_embeddings: "yes" }, 'tie_word_embeddings: expected true or false, found "yes"'],
  [{ attention_bias: 1 }, "attention_bias: expected true or false, found 1"],
  [{ eos_token_id: "</s>" }, 'eos_token_id: expected ids, found "</s>"'],
  [{ eos_token_id: [2, 0.5] }, "eos_token_id: expected ids, found [2,0.5]"],
  // What would change the arithmetic.
  [{ hidden_act: "gelu" }, 'hidden_act: "gelu" is not supported; the decoder knows "silu", "swish"'],
  ...["quantization_config", "quantization", "compression_config"].map((key): [Record<string, unknown>, string] => [
    { [key]: { bits: 4, names: ["x".repeat(80)] } },
    `${key}: {"bits":4,"names":["${"x".repeat(60)}… is not supported: another program has quantized the weights; ` +
    "use the float checkpoint",
  ]),
  [{ partial_rotary_factor: 0.5 }, "partial_rotary_factor: 0.5 is not supported; the decoder knows 1"],
  [{ rope_interleaved: true }, "rope_interleaved: true is not supported; the decoder knows false"],
  [{ mlp_bias: true }, "mlp_bias: true is not supported; the decoder knows false"],
  [{ embedding_multiplier: 12 }, "embedding_multiplier: 12 is not supported; the decoder knows 1"],
  [{ attention_multiplier: 0.0078125 }, "attention_multiplier: 0.0078125 is not supported"],
  [{ logits_scaling: 8 }, "logits_scaling: 8 is not supported; the decoder knows 1"],
  [{ residual_multiplier: 0.22 }, "residual_multiplier: 0.22 is not supported; the decoder knows 1"],
  [{ final_logit_softcapping: 30 }, "final_logit_softcapping: 30 is not supported"],
  [{ use_qk_norm: true }, "use_qk_norm: true is not supported; the decoder knows false"],
  [{ attention_chunk_size: 8192 }, "attention_chunk_size: 8192 is not supported"],
  [{ per_layer_config: { 0: { head_dim: 4 } } }, 'per_layer_config: {"0":{"head_dim":4}} is not supported'],
  [
    { no_rope_layers: [1, 0, 1] },
    "no_rope_layers: [1,0,1] is not supported; the decoder rotates the heads of every layer",
  ],
  [{ sliding_window: 0 }, `sliding_window: ${WHOLE} 0`],
  [{ sliding_window: "16" }, `sliding_window: ${WHOLE} "16"`],
  [
    { layer_types: ["full_attention", "chunked", "full_attention"] },
    'layer_types: "chunked" is not supported',
  ],
  [
    { layer_types: ["full_attention"] },
    'layer_types: expected an array of num_hidden_layers (3) names, found ["full_attention"]',
  ],
  [
    { layer_types: ["full_attention", "full_attention", "sliding_attention"] },
    'layer_types: "sliding_attention" has no window: sliding_window is null',
  ],
  [
    {
      architectures: ["Qwen2ForCausalLM"],
      num_key_value_heads: 8,
      sliding_window: 128,
      layer_types: ["full_attention", "full_attention", "sliding_attention"],
    },
    'layer_types: "sliding_attention" has no window: use_sliding_window is null',
  ],
  [
    {
      architectures: ["Qwen2ForCausalLM"],
      num_key_value_heads: 8,
      use_sliding_window: true,
      max_window_layers: -1,
    },
    "max_window_layers: expected a whole number of at least 0, found -1",
  ],
  // Rotary embedding.
  [{ rope_scaling: "linear" }, 'rope_scaling: expected an object, found "linear"'],
  [{ rope_parameters: [1] }, "rope_parameters: expected an object, found [1]"],
  [
    { rope_scaling: { type: "yarn", factor: 4 } },
    'rope_scaling rope_type: "yarn" is not supported; the decoder knows default, linear, dynamic, llama3',
  ],
  [
    { rope_parameters: { rope_type: "longrope", factor: 4 } },
    'rope_parameters rope_type: "longrope" is not supported; the decoder knows default, linear, dynamic, llama3',
  ],
  [{ rope_scaling: { type: "linear" } }, "rope_scaling factor: is missing"],
  [{ rope_scaling: { type: "linear", factor: 0 } }, `rope_scaling factor: ${LEAST_ONE} 0`],
  [
    { rope_scaling: { type: "linear", factor: 0.5 } },
    "rope_scaling factor: expected a number of at least 1, found 0.5",
  ],
  [{ rope_scaling: { type: "dynamic" } }, "rope_scaling factor: is missing"],
  [
    { rope_scaling: { type: "dynamic", factor: 2, alpha: 1000 } },
    "rope_scaling alpha: 1000 is not supported in dynamic",
  ],
  [{ rope_scaling: { factor: 2 } }, "rope_scaling factor: 2 is not supported in default"],
  [
    { rope_parameters: { rope_type: "linear", factor: 2, attention_factor: 1.2 } },
    "rope_parameters attention_factor: 1.2 is not supported in linear",
  ],
  [{ rope_scaling: { type: "linear", factor: 2, "a\nb": 1 } }, 'rope_scaling "a\\nb": 1 is not supported in linear'],
  [{ rope_scaling: { ...LLAMA3, mscale: 1 } }, "rope_scaling mscale: 1 is not supported in llama3"],
  [
    { rope_scaling: { type: "linear", rope_type: "default", factor: 2 } },
    'rope_scaling type: "linear" contradicts rope_type, "default"; remove one of them',
  ],
  [
    { rope_scaling: { rope_type: "default", rope_theta: 5e5 }, rope_theta: 1e4 },
    "rope_scaling rope_theta: 500000 contradicts the rope_theta at the top, 10000; remove one of them",
  ],
  [
    { rope_scaling: { rope_type: "default", rope_theta: 16 }, rope_parameters: { rope_theta: 17 } },
    "rope_parameters: contradicts rope_scaling; remove one of them",
  ],
  [
    { rope_scaling: { type: "default" }, rope_parameters: { rope_theta: 17 } },
    "rope_parameters: contradicts rope_scaling; remove one of them",
  ],
  [
    { rope_scaling: { type: "linear", factor: 2 }, rope_parameters: { rope_theta: 17 } },
    "rope_parameters: contradicts rope_scaling; remove one of them",
  ],
  [
    { rope_scaling: LLAMA3, original_max_position_embeddings: 64 },
    "original_max_position_embeddings: 64 contradicts that of rope_scaling, 48; remove it",
  ],
  [
    { rope_parameters: { full_attention: { rope_theta: 16 } } },
    'rope_parameters full_attention: {"rope_theta":16} is not supported in default',
  ],
  [
    { rope_parameters: { rope_theta: 16, partial_rotary_factor: 0.5 } },
    "rope_parameters partial_rotary_factor: 0.5 is not supported",
  ],
  [{ rope_parameters: { rope_theta: 0 } }, `rope_parameters rope_theta: ${LEAST_ONE} 0`],
  ...["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"].flatMap(
    (field): [Record<string, unknown>, string][] => [
      [{ rope_scaling: { ...LLAMA3, [field]: undefined } }, `rope_scaling ${field}: is missing`],
      [
        { rope_scaling: { ...LLAMA3, [field]: "8" } },
        `rope_scaling ${field}: ${field === "factor" ? LEAST_ONE : POSITIVE} "8"`,
      ],
    ],
  ),
  [
    { rope_scaling: { ...LLAMA3, high_freq_factor: 1 } },
    "rope_scaling high_freq_factor: 1 is not above low_freq_factor 1",
  ],
];

Deno.test("parseConfig refuses what the decoder would compute wrongly, naming the field", () => {
  for (const [changes, message] of REFUSED) {
    assertRefused(
      () => parse(changes),
      `config.json: ${message}`,
      CheckpointError,
      JSON.stringify(changes),
    );
  }
});

Deno.test("parseConfig says infinity of a number that is one, not null", () => {
  const text = JSON.stringify({ ...LEAST, rms_norm_eps: 7 }).replace('"rms_norm_eps":7', '"rms_norm_eps":1e999');
  assertRefused(
    () => parseConfig("config.json", text),
    "config.json: rms_norm_eps: expected a number above 0, found Infinity",
  );
});

Deno.test("parseConfig refuses what is not a JSON object", () => {
  for (const text of ["[]", "3", "null", '"x"', "true"]) {
    assertRefused(() => parseConfig("a/config.json", text), "a/config.json: expected a JSON object");
  }
  for (const text of ["", "{", "{'a': 1}", "NaN"]) {
    const error = assertThrows(() => parseConfig("a/config.json", text), CheckpointError);
    // What follows is the engine's own words.
    assert(error.message.startsWith("a/config.json: not valid JSON: "), error.message);
  }
});

Deno.test("parseConfig does not take fields that JSON did not give, as of an object's prototype", () => {
  const text = JSON.stringify({ ...LEAST, vocab_size: undefined });
  const config = parseConfig("config.json", text.replace("{", '{"__proto__": {"vocab_size": 9},'));
  // The class's default.
  assertEquals(config.vocabulary, 32000);
});

Deno.test("parseConfig ignores what the class ignores", () => {
  const ignored = {
    _name_or_path: "x",
    transformers_version: "4.40.0",
    unsloth_version: "2024.9",
    initializer_range: 0.02,
    use_cache: false,
    attention_dropout: 0.1,
    pretraining_tp: 2,
    auto_map: { AutoModel: "modeling.Other" },
    max_sequence_length: 3,
    no_rope_layers: [1, 1, 1],
    rope_interleaved: false,
    embedding_multiplier: 1,
    final_logit_softcapping: null,
    "transformers.js_config": {},
  };
  assertEquals(parse(ignored), parse());
  assertEquals(
    parse({ architectures: ["MistralForCausalLM"], mlp_bias: true, max_window_layers: "x" }),
    parse({ architectures: ["MistralForCausalLM"] }),
  );
});
