/**
 * Reads and checks config.json. A setting that the decoder does not implement is refused, and the error names the
 * field.
 *
 * @module
 */

import { CheckpointError } from "../errors.ts";
import { parseJson } from "../format/json.ts";
import { MOST_HEAD_DIM } from "../kernels/view.ts";
import { Fields, idsOf, show } from "./fields.ts";
import { type Rope, rotary } from "./rope.ts";

export type { Rope } from "./rope.ts";

/** Parts of the computation that differ between the supported architectures. */
export interface Family {
  /** Biases on the q, k and v projections. */
  readonly qkvBias: boolean;
  /** RMSNorm of each query and key head. */
  readonly headNorm: boolean;
}

/** How a class of transformers reads config.json: the fields it uses, and their defaults. */
interface Class {
  readonly modelType: string;
  /** Whether q, k and v have biases: always, never, or if attention_bias is true. */
  readonly qkvBias: boolean | "attention_bias";
  /** The same for o. */
  readonly outputBias: boolean | "attention_bias";
  readonly headNorm: boolean;
  /** Whether the class reads mlp_bias. */
  readonly mlpBias: boolean;
  /**
   * The layers with a sliding window. `all`: every layer. Otherwise layer_types decides; if it is absent, `all that are
   * cached` means every layer (Llama's mask has no window, but the cache of transformers drops tokens outside it), and
   * `if switched on` means those from max_window_layers on. The latter requires use_sliding_window.
   */
  readonly windows: "all" | "all that are cached" | "if switched on";
  readonly defaults: {
    readonly intermediate_size: number;
    readonly max_position_embeddings: number;
    readonly vocab_size: number;
    /** Undefined: num_attention_heads. */
    readonly num_key_value_heads?: number;
    /** Undefined: hidden_size / num_attention_heads. */
    readonly head_dim?: number;
    readonly sliding_window?: number;
    readonly eos_token_id?: number;
  };
}

/**
 * The classes by their names in `architectures`. The defaults are those of transformers 5.24; fixtures/configs has the
 * values that its classes read from configurations with and without each key.
 */
const CLASSES: ReadonlyMap<string, Class> = new Map<string, Class>([
  ["LlamaForCausalLM", {
    modelType: "llama",
    qkvBias: "attention_bias",
    outputBias: "attention_bias",
    headNorm: false,
    mlpBias: true,
    windows: "all that are cached",
    defaults: { intermediate_size: 11008, max_position_embeddings: 2048, vocab_size: 32000, eos_token_id: 2 },
  }],
  ["MistralForCausalLM", {
    modelType: "mistral",
    qkvBias: false,
    outputBias: false,
    headNorm: false,
    mlpBias: false,
    windows: "all",
    defaults: {
      intermediate_size: 14336,
      max_position_embeddings: 131072,
      vocab_size: 32000,
      num_key_value_heads: 8,
      sliding_window: 4096,
      eos_token_id: 2,
    },
  }],
  ["Qwen2ForCausalLM", {
    modelType: "qwen2",
    qkvBias: true,
    outputBias: false,
    headNorm: false,
    mlpBias: false,
    windows: "if switched on",
    defaults: {
      intermediate_size: 22016,
      max_position_embeddings: 32768,
      vocab_size: 151936,
      num_key_value_heads: 32,
      sliding_window: 4096,
    },
  }],
  ["Qwen3ForCausalLM", {
    modelType: "qwen3",
    qkvBias: "attention_bias",
    outputBias: "attention_bias",
    headNorm: true,
    mlpBias: false,
    windows: "if switched on",
    defaults: {
      intermediate_size: 22016,
      max_position_embeddings: 32768,
      vocab_size: 151936,
      num_key_value_heads: 32,
      head_dim: 128,
      sliding_window: 4096,
    },
  }],
]);

/** The model_type of a supported class. */
export function modelTypeOf(architecture: string): string {
  return CLASSES.get(architecture)!.modelType;
}

/** Defaults that all classes share. */
const DEFAULTS = {
  hidden_size: 4096,
  num_hidden_layers: 32,
  num_attention_heads: 32,
  max_window_layers: 28,
  rms_norm_eps: 1e-6,
};

/** Other names of a class; the first conversions of Llama used this one. */
const ALIASES: ReadonlyMap<string, string> = new Map([["LLaMAForCausalLM", "LlamaForCausalLM"]]);

/**
 * The limits of counts, far above those of any known model. They bound the loops and arrays that depend on a count
 * before the tensors are compared with it.
 */
const MOST = {
  hidden_size: 2 ** 20,
  intermediate_size: 2 ** 22,
  num_hidden_layers: 10_000,
  num_attention_heads: 2 ** 14,
  num_key_value_heads: 2 ** 14,
  head_dim: MOST_HEAD_DIM,
  vocab_size: 2 ** 26,
};

/** Keys that say that another program has quantized the weights. */
const QUANTIZED = ["quantization_config", "quantization", "compression_config"];

/**
 * Keys that change the computation in other classes of transformers or other programs, with the values that change
 * nothing. The supported classes ignore these keys, but a checkpoint that has one was most likely made for another
 * class and is mislabelled. A key that adds tensors (a norm, a bias, experts) needs no row, since an unused tensor is
 * refused. All other keys are ignored, as in transformers: many tools write keys of their own, so a list of harmless
 * keys would never be complete.
 */
const OTHERS: ReadonlyMap<string, readonly unknown[]> = new Map<string, readonly unknown[]>([
  // Factors on activations, scores and logits: Granite, MiniCPM, Cohere, Gemma, Falcon.
  ["attention_multiplier", []],
  ["embedding_multiplier", [1]],
  ["residual_multiplier", [1]],
  ["logits_scaling", [1]],
  ["logit_scale", [1]],
  ["lm_head_multiplier", [1]],
  ["embedding_scale", [1]],
  ["scale_emb", [1]],
  ["scale_depth", []],
  ["dim_model_base", []],
  ["query_pre_attn_scalar", []],
  ["final_logit_softcapping", []],
  ["attn_logit_softcapping", []],
  ["clip_qkv", []],
  // Positions: SmolLM3, GPT-NeoX, Phi, ModernBERT, Qwen2-VL, Falcon.
  ["no_rope_layer_interval", []],
  ["rotary_pct", [1]],
  ["rope_pct", [1]],
  ["rope_interleaved", [false]],
  ["rope_interleave", [false]],
  ["rope_local_base_freq", []],
  ["use_mrope", [false]],
  ["mrope_section", []],
  ["alibi", [false]],
  // Masks and the order of operations: Llama 4, Gemma, GPT-NeoX, Falcon.
  ["attention_chunk_size", []],
  ["attn_temperature_tuning", [false, 0]],
  ["use_bidirectional_attention", [false]],
  ["is_causal", [true]],
  ["is_encoder_decoder", [false]],
  ["use_parallel_residual", [false]],
  ["parallel_attn", [false]],
  ["use_qk_norm", [false]],
  ["qk_norm", [false]],
  ["qk_layernorm", [false]],
  ["hidden_activation", ["silu", "swish"]],
  ["mlp_hidden_act", ["silu", "swish"]],
  // Settings per layer, and layers that reuse the keys and values of others.
  ["per_layer_config", []],
  ["num_kv_shared_layers", [0]],
]);

/** A checked configuration. */
export interface Config extends Family {
  /** The class in transformers, such as LlamaForCausalLM. */
  readonly architecture: string;
  /** The size of the residual stream (hidden_size). */
  readonly hidden: number;
  /** The size of the feed-forward layer (intermediate_size). */
  readonly intermediate: number;
  /** Number of layers. */
  readonly layers: number;
  /** Number of query heads. */
  readonly heads: number;
  /** Number of key and value heads. */
  readonly kvHeads: number;
  /** The size of a head. */
  readonly headDim: number;
  /** Size of the vocabulary. */
  readonly vocabulary: number;
  /** The longest context, in tokens. */
  readonly maxPositions: number;
  /**
   * The sliding window, in tokens, if some layer has one. In a context of at most this length every token attends to
   * all tokens before it.
   */
  readonly window?: number;
  /** The epsilon of RMSNorm, added to the mean square. */
  readonly normEps: number;
  /** The frequencies of the rotary embedding: headDim / 2 angles per position, in radians. */
  readonly ropeFrequencies: readonly number[];
  /** The parameters of the rotary embedding. */
  readonly rope: Rope;
  /** Whether the embedding is also the output matrix (tie_word_embeddings). */
  readonly tied: boolean;
  /** Whether the output projection of attention has a bias. */
  readonly outputBias: boolean;
  /** The ids of the EOS tokens. */
  readonly endOfText: readonly number[];
  /** Whether they are the default of the class, which generation_config.json overrides. */
  readonly endAssumed: boolean;
}

/**
 * Parses a config.json.
 *
 * @param path the file, for messages
 * @throws {CheckpointError} a field is invalid or unsupported; names the field
 */
export function parseConfig(path: string, text: string): Config {
  const json = parseJson(path, text);
  if (typeof json !== "object" || json === null || Array.isArray(json)) {
    throw new CheckpointError({ path }, "expected a JSON object");
  }
  const fields = new Fields(path, json as Record<string, unknown>);
  const [architecture, cls] = classOf(fields);
  const { defaults } = cls;
  refuseOthers(fields, cls);
  const hidden = fields.count("hidden_size", DEFAULTS.hidden_size, MOST.hidden_size);
  const heads = fields.count("num_attention_heads", DEFAULTS.num_attention_heads, MOST.num_attention_heads);
  // In transformers null means the number of query heads, even if the default of the class differs.
  const kvHeads = fields.get("num_key_value_heads") === null
    ? heads
    : fields.count("num_key_value_heads", defaults.num_key_value_heads ?? heads, MOST.num_key_value_heads);
  const headDim = fields.get("head_dim") === null && defaults.head_dim === undefined
    ? hidden / heads
    : fields.count("head_dim", defaults.head_dim ?? hidden / heads);
  if (headDim > MOST.head_dim) fields.fail("head_dim", `${headDim} is more than ${MOST.head_dim}`);
  if (!Number.isInteger(headDim) || headDim % 4 !== 0) {
    fields.fail("head_dim", `${headDim} is not a multiple of 4, which the decoder needs`);
  }
  if (heads % kvHeads !== 0) {
    fields.fail("num_key_value_heads", `${kvHeads} does not divide the ${heads} attention heads`);
  }
  const layers = fields.count("num_hidden_layers", DEFAULTS.num_hidden_layers, MOST.num_hidden_layers);
  const bias = (has: boolean | "attention_bias") =>
    has === "attention_bias" ? fields.flag("attention_bias") ?? false : has;
  return {
    architecture,
    qkvBias: bias(cls.qkvBias),
    headNorm: cls.headNorm,
    hidden,
    intermediate: fields.count("intermediate_size", defaults.intermediate_size, MOST.intermediate_size),
    layers,
    heads,
    kvHeads,
    headDim,
    vocabulary: fields.count("vocab_size", defaults.vocab_size, MOST.vocab_size),
    maxPositions: fields.count("max_position_embeddings", defaults.max_position_embeddings),
    window: windowOf(fields, cls, layers),
    normEps: fields.positive("rms_norm_eps", DEFAULTS.rms_norm_eps),
    ...rotary(fields, headDim),
    tied: fields.flag("tie_word_embeddings") ?? false,
    outputBias: bias(cls.outputBias),
    endOfText: endOfText(fields, cls),
    endAssumed: fields.get("eos_token_id") === undefined,
  };
}

/** The longest context that the decoder supports, in tokens. */
export function longestContext({ maxPositions, window = Infinity }: Config): number {
  return Math.min(maxPositions, window);
}

/**
 * The class named by `architectures` or, if absent, by `model_type`. transformers reads the latter, others the former.
 */
function classOf(fields: Fields): [string, Class] {
  const list = fields.get("architectures");
  const type = fields.get("model_type");
  const known = [...CLASSES.keys()].join(", ");
  if (Array.isArray(list) && list.length > 0) {
    const name = ALIASES.get(list[0]) ?? list[0];
    const cls = CLASSES.get(name);
    if (cls === undefined) fields.fail("architectures", `${show(name)} is not supported; the decoder knows ${known}`);
    if (type !== undefined && type !== null && type !== cls.modelType) {
      fields.fail("model_type", `${show(type)} contradicts architectures, ${show(list[0])} (${show(cls.modelType)})`);
    }
    return [name, cls];
  }
  const found = [...CLASSES].find(([, { modelType }]) => modelType === type);
  if (found !== undefined) return found;
  const problem = type === undefined ? "is missing, and so are architectures" : `${show(type)} is not supported`;
  fields.fail("model_type", `${problem}; the decoder knows ${known}`);
}

/** Refuses keys that change the computation in a way that the decoder does not implement. */
function refuseOthers(fields: Fields, { mlpBias }: Class): void {
  const only = (field: string, allowed: readonly unknown[]) => {
    const value = fields.get(field);
    if (value !== undefined && !allowed.includes(value)) {
      const named = allowed.filter((value) => value !== null);
      const known = named.length > 0 ? `; the decoder knows ${named.map(show).join(", ")}` : "";
      fields.fail(field, `${show(value)} is not supported${known}`);
    }
  };
  only("hidden_act", ["silu", "swish"]);
  only("partial_rotary_factor", [1, null]);
  if (mlpBias) only("mlp_bias", [false]);
  for (const field of QUANTIZED) {
    const value = fields.get(field) ?? undefined;
    if (value === undefined) continue;
    fields.fail(
      field,
      `${show(value)} is not supported: another program has quantized the weights; use the float checkpoint`,
    );
  }
  for (const [field, neutral] of OTHERS) only(field, [...neutral, null]);
  // SmolLM3 has a list with 1 for each layer with a rotary embedding, and 0 for each without.
  const rotated = fields.get("no_rope_layers");
  if (rotated !== undefined && rotated !== null && !(Array.isArray(rotated) && rotated.every((flag) => flag === 1))) {
    fields.fail("no_rope_layers", `${show(rotated)} is not supported; the decoder rotates the heads of every layer`);
  }
}

/** Computes the window of {@link Config}. */
function windowOf(fields: Fields, { windows, defaults }: Class, layers: number): number | undefined {
  const kinds = fields.get("layer_types") ?? undefined;
  if (kinds !== undefined && (!Array.isArray(kinds) || kinds.length !== layers)) {
    fields.fail("layer_types", `expected an array of num_hidden_layers (${layers}) names, found ${show(kinds)}`);
  }
  const other = kinds?.find((kind) => !["full_attention", "attention", "sliding_attention"].includes(kind));
  if (other !== undefined) fields.fail("layer_types", `${show(other)} is not supported`);
  const sliding = kinds?.includes("sliding_attention");
  const used = windows !== "if switched on" || (fields.flag("use_sliding_window") ?? false);
  const none = !used || fields.get("sliding_window") === null ||
    (fields.get("sliding_window") === undefined && defaults.sliding_window === undefined);
  if (none && sliding) {
    const why = used ? "sliding_window" : "use_sliding_window";
    fields.fail("layer_types", `"sliding_attention" has no window: ${why} is ${show(fields.get(why) ?? null)}`);
  }
  if (none) return undefined;
  const window = fields.count("sliding_window", defaults.sliding_window);
  if (windows === "all") return window;
  const first = windows === "all that are cached" ? 0 : fields.whole("max_window_layers", DEFAULTS.max_window_layers);
  return sliding ?? first < layers ? window : undefined;
}

function endOfText(fields: Fields, { defaults }: Class): number[] {
  const value = fields.get("eos_token_id") === undefined ? defaults.eos_token_id : fields.get("eos_token_id");
  return idsOf(value) ?? fields.fail("eos_token_id", `expected ids, found ${show(value)}`);
}
