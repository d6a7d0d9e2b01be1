// config.json: what the decoder reads from it, and what it refuses.

import { assert, assertEquals, assertThrows } from "@std/assert";
import { parseConfig } from "../lib/decoder/config.ts";
import { CheckpointError } from "../lib/errors.ts";

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

function assertNearList(actual: readonly number[], expected: readonly number[]): void {
  assertEquals(actual.length, expected.length);
  expected.forEach((x, n) => assert(Math.abs(actual[n] - x) < 1e-9, `number ${n} is ${actual[n]}, not ${x}`));
}

Deno.test("parseConfig takes what is there, and the defaults of transformers for what is not", () => {
  const { ropeFrequencies, ...config } = parse();
  assertNearList(ropeFrequencies, [1, 0.1, 0.01, 0.001]);
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
    tied: undefined,
    outputBias: false,
    endOfText: [],
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

Deno.test("parseConfig takes null for a field that is not there", () => {
  const nulls = {
    num_key_value_heads: null,
    head_dim: null,
    rope_scaling: null,
    rope_parameters: null,
    sliding_window: null,
    eos_token_id: null,
    quantization_config: null,
    attention_bias: null,
    tie_word_embeddings: null,
    rope_theta: null,
    layer_types: null,
    hidden_act: null,
  };
  assertEquals(parse(nulls), parse());
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
    assertEquals(of({ architectures: [name] }), [name, ...traits]);
    assertEquals(of({ architectures: [name], model_type: "anything" }), [name, ...traits]);
    assertEquals(of({ architectures: undefined, model_type: type }), [name, ...traits]);
    assertEquals(of({ architectures: [], model_type: type }), [name, ...traits]);
  }
});

// ---------------------------------------------------------------- rotary frequencies

Deno.test("parseConfig computes theta^(-2n/d)", () => {
  assertNearList(parse({ rope_theta: 16 }).ropeFrequencies, [1, 0.5, 0.25, 0.125]);
  assertNearList(parse({ head_dim: 4, rope_theta: 1e6 }).ropeFrequencies, [1, 0.001]);
  assertNearList(parse({ rope_scaling: { rope_type: "default" }, rope_theta: 16 }).ropeFrequencies, [
    1,
    0.5,
    0.25,
    0.125,
  ]);
});

Deno.test("parseConfig divides frequencies by the factor of a linear scaling", () => {
  const expected = [0.25, 0.125, 0.0625, 0.03125];
  for (const scaling of [{ type: "linear", factor: 4 }, { rope_type: "linear", factor: 4.0 }]) {
    assertNearList(parse({ rope_theta: 16, rope_scaling: scaling }).ropeFrequencies, expected);
  }
});

Deno.test("parseConfig keeps, smooths and divides frequencies as llama3 says", () => {
  // theta 256 gives 1, 1/4, 1/16, 1/64: wavelengths 2 pi, 8 pi, 32 pi, 128 pi = 6.3, 25.1, 100.5, 402.1. Below
  // 48 / 4 = 12 kept, above 48 / 1 = 48 divided by 8. For 1/4: smooth = (48 / (8 pi) - 1) / (4 - 1) = (6 / pi - 1) / 3
  // = 0.303286439, and (1 - smooth) / 32 + smooth / 4 = 0.021772299 + 0.075821610 = 0.097593909.
  const scaling = { factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 48 };
  const expected = [1, 0.0975939085, 1 / 128, 1 / 512];
  for (const kind of [{ rope_type: "llama3" }, { type: "llama3" }]) {
    assertNearList(parse({ rope_theta: 256, rope_scaling: { ...scaling, ...kind } }).ropeFrequencies, expected);
  }
  const parameters = { ...scaling, rope_type: "llama3", rope_theta: 256 };
  assertNearList(parse({ rope_parameters: parameters }).ropeFrequencies, expected);
});

Deno.test("parseConfig reads rope_parameters, whose theta comes before rope_theta", () => {
  const half = [1, 0.5, 0.25, 0.125];
  assertNearList(parse({ rope_parameters: { rope_type: "default", rope_theta: 16 } }).ropeFrequencies, half);
  assertNearList(parse({ rope_parameters: { rope_theta: 16, partial_rotary_factor: 1 } }).ropeFrequencies, half);
  assertNearList(parse({ rope_parameters: { rope_theta: 16 }, rope_theta: 99 }).ropeFrequencies, half);
  assertNearList(parse({ rope_parameters: { rope_theta: null }, rope_theta: 16 }).ropeFrequencies, half);
  assertNearList(
    parse({ rope_parameters: { rope_type: "linear", rope_theta: 16, factor: 2 } }).ropeFrequencies,
    half.map((f) => f / 2),
  );
});

// ---------------------------------------------------------------- windows

Deno.test("parseConfig takes a sliding window that has no effect", () => {
  for (
    const changes of [
      { sliding_window: 4096, max_position_embeddings: 4096 },
      { sliding_window: 5000, max_position_embeddings: 4096 },
      { sliding_window: 128, use_sliding_window: false },
      { sliding_window: null, use_sliding_window: true },
      { layer_types: ["full_attention", "full_attention", "full_attention"] },
      { layer_types: ["sliding_attention"], sliding_window: null },
      { layer_types: ["full_attention", "sliding_attention"], sliding_window: 4096, max_position_embeddings: 4096 },
    ]
  ) parse(changes);
});

// ---------------------------------------------------------------- refusals

const WHOLE = "expected a whole number of 1 or more, found";
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
  [{ architectures: [], model_type: undefined }, `model_type: undefined ${KNOWN}`],
  // Counts.
  ...["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"].flatMap(
    (field): [Record<string, unknown>, string][] => [
      [{ [field]: undefined }, `${field}: is missing`],
      [{ [field]: null }, `${field}: is missing`],
      [{ [field]: 0 }, `${field}: ${WHOLE} 0`],
      [{ [field]: -8 }, `${field}: ${WHOLE} -8`],
      [{ [field]: 1.5 }, `${field}: ${WHOLE} 1.5`],
      [{ [field]: "64" }, `${field}: ${WHOLE} "64"`],
      [{ [field]: [64] }, `${field}: ${WHOLE} [64]`],
      [{ [field]: 2 ** 31 }, `${field}: ${WHOLE} 2147483648`],
    ],
  ),
  [{ num_key_value_heads: 0 }, `num_key_value_heads: ${WHOLE} 0`],
  [{ num_key_value_heads: 3 }, "num_key_value_heads: 3 does not divide the 8 attention heads"],
  [{ num_key_value_heads: 16 }, "num_key_value_heads: 16 does not divide the 8 attention heads"],
  [{ max_position_embeddings: 0 }, `max_position_embeddings: ${WHOLE} 0`],
  [{ head_dim: 6 }, "head_dim: 6 is not a multiple of 4, which the decoder needs"],
  [{ head_dim: 0 }, `head_dim: ${WHOLE} 0`],
  [{ hidden_size: 48 }, "head_dim: 6 is not a multiple of 4, which the decoder needs"],
  [{ hidden_size: 60 }, "head_dim: 7.5 is not a multiple of 4, which the decoder needs"],
  [{ rms_norm_eps: 0 }, `rms_norm_eps: ${POSITIVE} 0`],
  [{ rms_norm_eps: "1e-5" }, `rms_norm_eps: ${POSITIVE} "1e-5"`],
  [{ rope_theta: -1 }, `rope_theta: ${POSITIVE} -1`],
  [{ tie_word_embeddings: "yes" }, 'tie_word_embeddings: expected true or false, found "yes"'],
  [{ attention_bias: 1 }, "attention_bias: expected true or false, found 1"],
  [{ eos_token_id: "</s>" }, 'eos_token_id: expected ids, found "</s>"'],
  [{ eos_token_id: [2, 0.5] }, "eos_token_id: expected ids, found [2,0.5]"],
  // What would change the arithmetic.
  [{ hidden_act: "gelu" }, 'hidden_act: "gelu" is not supported; the decoder knows "silu", "swish"'],
  [{ quantization_config: { bits: 4 } }, 'quantization_config: {"bits":4} is not supported'],
  [{ pretraining_tp: 2 }, "pretraining_tp: 2 is not supported; the decoder knows 1"],
  [{ partial_rotary_factor: 0.5 }, "partial_rotary_factor: 0.5 is not supported; the decoder knows 1"],
  [{ rope_interleaved: true }, "rope_interleaved: true is not supported; the decoder knows false"],
  [{ mlp_bias: true }, "mlp_bias: true is not supported; the decoder knows false"],
  [
    { sliding_window: 1024, max_position_embeddings: 4096 },
    "sliding_window: 1024 would take effect below max_position_embeddings 4096, and is not supported",
  ],
  [
    { sliding_window: 1024, use_sliding_window: true },
    "sliding_window: 1024 would take effect below max_position_embeddings 2048, and is not supported",
  ],
  [{ layer_types: ["full_attention", "chunked"] }, 'layer_types: "chunked" is not supported'],
  [
    { layer_types: ["sliding_attention"], sliding_window: 128, use_sliding_window: false },
    'layer_types: "sliding_attention" is not supported',
  ],
  // Rotary embedding.
  [{ rope_scaling: "linear" }, 'rope_scaling: expected an object, found "linear"'],
  [{ rope_parameters: [1] }, "rope_parameters: expected an object, found [1]"],
  [
    { rope_scaling: { type: "yarn", factor: 4 } },
    'rope_scaling rope_type: "yarn" is not supported; the decoder knows default, linear, llama3',
  ],
  [
    { rope_parameters: { rope_type: "dynamic", factor: 4 } },
    'rope_parameters rope_type: "dynamic" is not supported; the decoder knows default, linear, llama3',
  ],
  [{ rope_scaling: { type: "linear" } }, "rope_scaling factor: is missing"],
  [{ rope_scaling: { type: "linear", factor: 0 } }, `rope_scaling factor: ${POSITIVE} 0`],
  [
    { rope_parameters: { full_attention: { rope_theta: 16 } } },
    'rope_parameters full_attention: {"rope_theta":16} is not supported',
  ],
  [
    { rope_parameters: { rope_theta: 16, partial_rotary_factor: 0.5 } },
    "rope_parameters partial_rotary_factor: 0.5 is not supported",
  ],
  [{ rope_parameters: { rope_theta: 0 } }, `rope_parameters rope_theta: ${POSITIVE} 0`],
  ...["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"].flatMap(
    (field): [Record<string, unknown>, string][] => [
      [{ rope_scaling: { ...LLAMA3, [field]: undefined } }, `rope_scaling ${field}: is missing`],
      [{ rope_scaling: { ...LLAMA3, [field]: "8" } }, `rope_scaling ${field}: ${POSITIVE} "8"`],
    ],
  ),
  [
    { rope_scaling: { ...LLAMA3, high_freq_factor: 1 } },
    "rope_scaling high_freq_factor: 1 is not above low_freq_factor 1",
  ],
];

Deno.test("parseConfig refuses what the decoder would compute wrongly, naming the field", () => {
  for (const [changes, message] of REFUSED) {
    const error = assertThrows(() => parse(changes), CheckpointError, "", JSON.stringify(changes));
    assertEquals(error.message, `config.json: ${message}`);
  }
});

Deno.test("parseConfig refuses what is not a JSON object", () => {
  for (const text of ["[]", "3", "null", '"x"', "true"]) {
    const error = assertThrows(() => parseConfig("a/config.json", text), CheckpointError);
    assertEquals(error.message, "a/config.json: expected a JSON object");
  }
  for (const text of ["", "{", "{'a': 1}", "NaN"]) {
    const error = assertThrows(() => parseConfig("a/config.json", text), CheckpointError);
    // What follows is the engine's own words.
    assert(error.message.startsWith("a/config.json: not valid JSON: "), error.message);
  }
});

Deno.test("parseConfig does not take fields that JSON did not give, as of an object's prototype", () => {
  const text = JSON.stringify({ ...LEAST, vocab_size: undefined });
  const error = assertThrows(
    () => parseConfig("config.json", text.replace("{", '{"__proto__": {"vocab_size": 9},')),
    CheckpointError,
  );
  assertEquals(error.message, "config.json: vocab_size: is missing");
});
