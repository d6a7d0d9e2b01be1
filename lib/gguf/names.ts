/**
 * The Llama family in GGUF: llama.cpp's tensor names, row order and metadata keys, and what they are in a Hugging Face
 * checkpoint. https://github.com/ggml-org/llama.cpp/tree/master/src/models
 *
 * @module
 */

import { CheckpointError, quote } from "../errors.ts";
import { type Config, modelTypeOf, parseConfig } from "../model/config.ts";
import { type Part, tensorsOf } from "../model/tensors.ts";
import { Keys } from "./keys.ts";
import { ropeFactorsOf, ropeScaling } from "./rope_scaling.ts";
import { type Metadata, type Scalar, type Value, value } from "./values.ts";

/** The properties of one value of `general.architecture` in llama.cpp. */
interface Architecture {
  readonly name: string;
  /** The transformers class that is exported as this architecture, and that an import writes. */
  readonly huggingFace: string;
  /** The class of models without biases and with a window in all layers, if it is another one. */
  readonly windowed?: string;
  /**
   * Rotates neighbouring rows of a head, not its halves, so that q and k have another row order than in safetensors.
   */
  readonly interleaved: boolean;
  /** Supports factors of the rotary frequencies, in `rope_freqs.weight`. */
  readonly ropeFactors: boolean;
  /** Supports a head_dim other than hidden / heads. */
  readonly freeHeadDim: boolean;
  /** Supports a bias on the output projection of attention. */
  readonly outputBias: boolean;
  /** Whether attention_bias of config.json determines if there are biases; otherwise the class does. */
  readonly biasField: boolean;
  /** Whether a window applies to all layers. */
  readonly windows: boolean;
}

const ARCHITECTURES: readonly Architecture[] = [
  {
    name: "llama",
    huggingFace: "LlamaForCausalLM",
    windowed: "MistralForCausalLM",
    interleaved: true,
    ropeFactors: true,
    freeHeadDim: true,
    outputBias: true,
    biasField: true,
    windows: true,
  },
  {
    name: "qwen2",
    huggingFace: "Qwen2ForCausalLM",
    interleaved: false,
    ropeFactors: false,
    freeHeadDim: false,
    outputBias: false,
    biasField: false,
    windows: false,
  },
  {
    name: "qwen3",
    huggingFace: "Qwen3ForCausalLM",
    interleaved: false,
    ropeFactors: false,
    freeHeadDim: true,
    outputBias: false,
    biasField: true,
    windows: false,
  },
];

/**
 * The key in which an export records the tensors of its source: `NAME DTYPE` for each, in the order of the data. Other
 * programs ignore it.
 */
export const SOURCE_TENSORS = "rabbit.tensors";

/** A tensor of the model with both of its names. */
export interface NamedTensor {
  /** The name in a GGUF file. */
  readonly gguf: string;
  /** The name in a checkpoint. */
  readonly huggingFace: string;
  /** Rows and columns of a matrix, the length of a vector. */
  readonly shape: readonly number[];
  /** Whether its rows belong to heads of headDim rows, which GGUF interleaves ({@link interleaveRows}). */
  readonly interleaved: boolean;
}

/**
 * The architecture as which a configuration is exported.
 *
 * @throws {CheckpointError} llama.cpp has none that computes the same
 */
export function architectureOf(path: string, config: Config): string {
  const found = ARCHITECTURES.find(({ huggingFace, windowed }) =>
    [huggingFace, windowed].includes(config.architecture)
  );
  if (found === undefined) {
    const known = ARCHITECTURES.flatMap(({ huggingFace, windowed }) =>
      windowed ? [huggingFace, windowed] : [huggingFace]
    );
    throw new CheckpointError(
      { path, field: "architectures" },
      `${quote(config.architecture)} can't be exported; ${known.join(", ")} can`,
    );
  }
  const refuse = (field: string, problem: string) => {
    throw new CheckpointError(
      { path, field },
      `${problem} is not supported by llama.cpp's ${found.name}; the model can't be exported`,
    );
  };
  if (!found.ropeFactors && config.rope.scaling === "llama3") refuse("rope_scaling", "llama3");
  if (!found.freeHeadDim && config.headDim * config.heads !== config.hidden) {
    refuse("head_dim", `${config.headDim} (not hidden_size / num_attention_heads)`);
  }
  if (!found.outputBias && config.outputBias) refuse("attention_bias", "a bias on o_proj");
  // A Qwen model may have a window in some layers only, for which there is no key.
  if (!found.windows && config.window !== undefined && config.window < config.maxPositions) {
    refuse("sliding_window", `a window of ${config.window}`);
  }
  return found.name;
}

/** llama.cpp's names of tensors; for those of layers, the part after `blk.N.`. */
const NAMES: Readonly<Record<Part, string>> = {
  embedding: "token_embd.weight",
  norm: "output_norm.weight",
  head: "output.weight",
  attentionNorm: "attn_norm.weight",
  q: "attn_q.weight",
  k: "attn_k.weight",
  v: "attn_v.weight",
  o: "attn_output.weight",
  qBias: "attn_q.bias",
  kBias: "attn_k.bias",
  vBias: "attn_v.bias",
  oBias: "attn_output.bias",
  qNorm: "attn_q_norm.weight",
  kNorm: "attn_k_norm.weight",
  mlpNorm: "ffn_norm.weight",
  gate: "ffn_gate.weight",
  up: "ffn_up.weight",
  down: "ffn_down.weight",
};

/** Parts whose rows belong to heads that are rotated. */
const ROTATED: readonly Part[] = ["q", "k", "qBias", "kBias"];

/** The tensors of a model with both of their names, in the order of {@link tensorsOf}. */
export function* namedTensors(architecture: string, config: Config): Generator<NamedTensor> {
  const { interleaved } = ARCHITECTURES.find(({ name }) => name === architecture)!;
  for (const { part, layer, name, shape } of tensorsOf(config)) {
    const gguf = layer === undefined ? NAMES[part] : `blk.${layer}.${NAMES[part]}`;
    yield { gguf, huggingFace: name, shape, interleaved: interleaved && ROTATED.includes(part) };
  }
}

/** The row in GGUF of a row of interleaved heads of `rows` rows: row `half * rows / 2 + n` of a head becomes `2 * n + half`. */
export function interleavedRow(row: number, rows: number): number {
  const within = row % rows;
  return row - within + 2 * (within % (rows / 2)) + Math.floor(within / (rows / 2));
}

/**
 * Reorders the rows of one head as in GGUF.
 *
 * @param head consecutive rows
 * @param rowBytes bytes of a row
 */
export function interleaveRows(head: Uint8Array, rowBytes: number): Uint8Array {
  const out = new Uint8Array(head.length);
  const rows = head.length / rowBytes;
  for (let row = 0; row < rows; row++) {
    out.set(head.subarray(row * rowBytes, (row + 1) * rowBytes), interleavedRow(row, rows) * rowBytes);
  }
  return out;
}

/** The metadata of a model, except the tokenizer's. */
export function metadataOf(architecture: string, config: Config): Map<string, Value> {
  const { hidden, heads, headDim, rope } = config;
  const key = (name: string) => `${architecture}.${name}`;
  const u32 = (number: number) => value("u32", number);
  const metadata = new Map<string, Value>([
    ["general.architecture", value("string", architecture)],
    ["general.type", value("string", "model")],
    [key("vocab_size"), u32(config.vocabulary)],
    [key("context_length"), u32(config.maxPositions)],
    [key("embedding_length"), u32(hidden)],
    [key("block_count"), u32(config.layers)],
    [key("feed_forward_length"), u32(config.intermediate)],
    [key("attention.head_count"), u32(heads)],
    [key("attention.head_count_kv"), u32(config.kvHeads)],
    [key("attention.layer_norm_rms_epsilon"), value("f32", config.normEps)],
    [key("rope.dimension_count"), u32(headDim)],
    [key("rope.freq_base"), value("f32", rope.base)],
  ]);
  if (headDim * heads !== hidden) {
    metadata.set(key("attention.key_length"), u32(headDim));
    metadata.set(key("attention.value_length"), u32(headDim));
  }
  if (config.window !== undefined) metadata.set(key("attention.sliding_window"), u32(config.window));
  if (rope.scaling === "linear") {
    metadata.set(key("rope.scaling.type"), value("string", "linear"));
    metadata.set(key("rope.scaling.factor"), value("f32", ropeFactorsOf(config)[0]));
  }
  return metadata;
}

/**
 * Keys (after the architecture's name) that make llama.cpp compute something, for some architecture, that the decoder
 * does not support, with the values that have no effect. They are all keys of gguf-py's constants.py that are not read
 * here, except those that describe parts of a layer other than attention and an MLP, which show in the tensors.
 */
const REFUSED: ReadonlyMap<string, readonly Scalar[]> = new Map<string, readonly Scalar[]>([
  ["expert_count", [0]],
  ["expert_used_count", [0]],
  ["leading_dense_block_count", [0]],
  ["interleave_moe_layer_step", [0]],
  ["nextn_predict_layers", [0]],
  ["n_deepstack_layers", [0]],
  ["full_attention_interval", [0, 1]],
  ["use_parallel_residual", [false]],
  ["swin_norm", [false]],
  ["pooling_type", [0]],
  ["embedding_scale", [0, 1]],
  ["residual_scale", [0, 1]],
  ["logit_scale", [0, 1]],
  ["attn_logit_softcapping", [0]],
  ["final_logit_softcapping", [0]],
  ["activation_sparsity_scale", []],
  ["swiglu_clamp_exp", [0]],
  ["attention.causal", [true]],
  ["attention.clamp_kqv", [0]],
  ["attention.max_alibi_bias", [0]],
  ["attention.scale", [0]],
  ["attention.output_scale", [0, 1]],
  ["attention.temperature_length", [0]],
  ["attention.temperature_scale", [0]],
  ["attention.shared_kv_layers", [0]],
  ["attention.sliding_window_pattern", []],
  ["attention.key_length_swa", []],
  ["attention.value_length_swa", []],
  ["attention.key_length_mla", [0]],
  ["attention.value_length_mla", [0]],
  ["rope.dimension_count_swa", []],
  ["rope.freq_base_swa", []],
  ["rope.dimension_sections", []],
  ["rope.scaling.alpha", [0, 1]],
  ["rope.scaling.attn_factor", [0, 1]],
  ["rope.scaling.yarn_ext_factor", [0]],
  ["rope.scaling.yarn_attn_factor", [1]],
  ["rope.scaling.yarn_log_multiplier", [0]],
]);

/** The dtype of each tensor in {@link SOURCE_TENSORS}, by name and in order; empty if the key is absent. */
export function sourceTensors(path: string, metadata: Metadata): Map<string, string> {
  const listed = (new Keys(path, metadata, "").list(SOURCE_TENSORS, "string") ?? []) as string[];
  return new Map(listed.map((text) => [text.split(" ")[0], text.split(" ")[1] ?? ""]));
}

/** The tensors of a file, as far as the configuration depends on them. */
export interface Weights {
  /** The shape of a tensor; undefined if the file has no such tensor. */
  shape(name: string): readonly number[] | undefined;
  /** The values of {@link ROPE_FACTORS}. */
  readonly ropeFactors?: Float32Array;
}

/** The configuration of an imported model. */
export interface Imported {
  readonly architecture: string;
  readonly config: Config;
  /** The fields of config.json. */
  readonly json: Record<string, unknown>;
}

/**
 * Reads a configuration from metadata.
 *
 * @param torchDtype the `torch_dtype` to write
 * @param special the ids of special tokens, as fields of config.json
 * @throws {CheckpointError} a key is missing or of another type, or the decoder does not support the model
 */
export function configOf(
  path: string,
  metadata: Metadata,
  weights: Weights,
  torchDtype: string,
  special: Record<string, unknown>,
): Imported {
  const name = new Keys(path, metadata, "").string("general.architecture");
  const architecture = ARCHITECTURES.find((architecture) => architecture.name === name);
  if (architecture === undefined) {
    throw new CheckpointError(
      { path, field: `key "general.architecture"` },
      `${quote(name)} is not supported; rabbit imports ${ARCHITECTURES.map(({ name }) => name).join(", ")}`,
    );
  }
  const keys = new Keys(path, metadata, name + ".");
  for (const [key, harmless] of REFUSED) {
    const found = keys.optional(key)?.value;
    if (found !== undefined && !harmless.includes(found)) {
      const shown = typeof found === "string" ? quote(found) : found;
      keys.fail(key, `${shown} is not supported`);
    }
  }
  const embedding = weights.shape("token_embd.weight");
  if (embedding === undefined) throw new CheckpointError({ path, tensor: "token_embd.weight" }, "missing");
  const heads = keys.count("attention.head_count");
  const headDim = keys.count("attention.key_length", keys.count("embedding_length") / heads);
  for (const same of ["attention.value_length", "rope.dimension_count"]) {
    const length = keys.count(same, headDim);
    if (length !== headDim) keys.fail(same, `${length}, but the heads have ${headDim}; the decoder needs them equal`);
  }
  const base = keys.float("rope.freq_base", 10000);
  const attentionBias = architecture.biasField && weights.shape("blk.0.attn_q.bias") !== undefined;
  const noWindow = (keys.optional("attention.sliding_window")?.value ?? 0) === 0;
  const window = noWindow ? 0 : keys.count("attention.sliding_window");
  const cls = window !== 0 && !attentionBias
    ? architecture.windowed ?? architecture.huggingFace
    : architecture.huggingFace;
  const json: Record<string, unknown> = {
    // null, since absent keys would mean the defaults.
    bos_token_id: null,
    eos_token_id: null,
    architectures: [cls],
    attention_bias: attentionBias,
    attention_dropout: 0,
    head_dim: headDim,
    hidden_act: "silu",
    hidden_size: keys.count("embedding_length"),
    intermediate_size: keys.count("feed_forward_length"),
    max_position_embeddings: keys.count("context_length"),
    mlp_bias: false,
    model_type: modelTypeOf(cls),
    num_attention_heads: heads,
    num_hidden_layers: keys.count("block_count"),
    num_key_value_heads: keys.count("attention.head_count_kv", heads),
    rms_norm_eps: keys.float("attention.layer_norm_rms_epsilon"),
    rope_scaling: ropeScaling(keys, base, headDim, weights.ropeFactors),
    rope_theta: base,
    tie_word_embeddings: weights.shape("output.weight") === undefined,
    torch_dtype: torchDtype,
    vocab_size: embedding[0],
    ...special,
  };
  if (window !== 0) {
    json.sliding_window = window;
    if (!architecture.windows) Object.assign(json, { max_window_layers: 0, use_sliding_window: true });
  }
  const sorted = Object.fromEntries(Object.entries(json).sort(([a], [b]) => a < b ? -1 : 1));
  return { architecture: name, config: parseConfig(path, JSON.stringify(sorted)), json: sorted };
}
