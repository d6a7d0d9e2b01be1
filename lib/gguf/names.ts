/**
 * The Llama family in GGUF: llama.cpp's names of its tensors, the order of their rows, and its metadata keys beside the
 * fields of config.json. https://github.com/ggml-org/llama.cpp/tree/master/src/models
 *
 * @module
 */

import { CheckpointError, quote } from "../errors.ts";
import { describe, type Metadata, type Scalar, type Value, type ValueType } from "./container.ts";
import { type Config, parseConfig } from "../model/config.ts";
import { type Part, tensorsOf } from "../model/tensors.ts";

/** What llama.cpp has under one value of `general.architecture`. */
interface Architecture {
  readonly name: string;
  /** The class and the model_type that an import writes. */
  readonly huggingFace: string;
  readonly modelType: string;
  /** The classes that are exported as this. */
  readonly takes: readonly string[];
  /** Rotates neighbouring rows of a head, not its halves: q and k have another order of rows than in safetensors. */
  readonly interleaved: boolean;
  /** Takes frequencies of its own, in `rope_freqs.weight`. */
  readonly ropeFactors: boolean;
  /** Takes a head_dim that is not hidden / heads. */
  readonly freeHeadDim: boolean;
  /** Takes a bias on the output projection of attention. */
  readonly outputBias: boolean;
  /** A window is that of all layers. */
  readonly windows: boolean;
}

const ARCHITECTURES: readonly Architecture[] = [
  {
    name: "llama",
    huggingFace: "LlamaForCausalLM",
    modelType: "llama",
    takes: ["LlamaForCausalLM", "MistralForCausalLM"],
    interleaved: true,
    ropeFactors: true,
    freeHeadDim: true,
    outputBias: true,
    windows: true,
  },
  {
    name: "qwen2",
    huggingFace: "Qwen2ForCausalLM",
    modelType: "qwen2",
    takes: ["Qwen2ForCausalLM"],
    interleaved: false,
    ropeFactors: false,
    freeHeadDim: false,
    outputBias: false,
    windows: false,
  },
  {
    name: "qwen3",
    huggingFace: "Qwen3ForCausalLM",
    modelType: "qwen3",
    takes: ["Qwen3ForCausalLM"],
    interleaved: false,
    ropeFactors: false,
    freeHeadDim: true,
    outputBias: false,
    windows: false,
  },
];

/** The tensor with the factors by which a llama3 scaling divides the frequencies. */
export const ROPE_FACTORS = "rope_freqs.weight";

/**
 * The key under which an export records the tensors of its source: `NAME DTYPE` for each, in the order of the source's data.
 * Other programs ignore it.
 */
export const SOURCE_TENSORS = "rabbit.tensors";

/** A tensor of the model under both names. */
export interface NamedTensor {
  readonly gguf: string;
  readonly huggingFace: string;
  readonly shape: readonly number[];
  /** Its rows are those of heads of headDim rows, which GGUF interleaves ({@link interleaveRows}). */
  readonly interleaved: boolean;
}

/** The architecture of an exported configuration. @throws {CheckpointError} llama.cpp has none that computes the same */
export function architectureOf(path: string, config: Config): string {
  const found = ARCHITECTURES.find(({ takes }) => takes.includes(config.architecture))!;
  const refuse = (field: string, problem: string) => {
    throw new CheckpointError(
      { path, field },
      `${problem}, which llama.cpp's ${found.name} does not know; the model can't be exported`,
    );
  };
  if (!found.ropeFactors && config.rope.scaling === "llama3") refuse("rope_scaling", "llama3");
  if (!found.freeHeadDim && config.headDim * config.heads !== config.hidden) {
    refuse("head_dim", `${config.headDim}, not hidden_size / num_attention_heads`);
  }
  if (!found.outputBias && config.outputBias) refuse("attention_bias", "a bias on o_proj");
  // Some layers of a Qwen may have a window and others none, for which there is no key.
  if (!found.windows && config.window !== undefined && config.window < config.maxPositions) {
    refuse("sliding_window", `a window of ${config.window}`);
  }
  return found.name;
}

/** llama.cpp's names of tensors, those of layers after `blk.N.`. */
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

/** Parts whose rows are those of heads that are rotated. */
const ROTATED: readonly Part[] = ["q", "k", "qBias", "kBias"];

/** The tensors of a model under both names, in the order of {@link tensorsOf}. */
export function* namedTensors(architecture: string, config: Config): Generator<NamedTensor> {
  const { interleaved } = ARCHITECTURES.find(({ name }) => name === architecture)!;
  for (const { part, layer, name, shape } of tensorsOf(config)) {
    const gguf = layer === undefined ? NAMES[part] : `blk.${layer}.${NAMES[part]}`;
    yield { gguf, huggingFace: name, shape, interleaved: interleaved && ROTATED.includes(part) };
  }
}

/**
 * Puts the rows of one head into GGUF's order: row `half * rows / 2 + n` becomes row `2 * n + half`.
 *
 * @param head the rows, one after the other
 * @param rowBytes bytes of a row
 */
export function interleaveRows(head: Uint8Array, rowBytes: number): Uint8Array {
  const out = new Uint8Array(head.length);
  moveRows(head.length / rowBytes, (from, to) => {
    out.set(head.subarray(from * rowBytes, (from + 1) * rowBytes), to * rowBytes);
  });
  return out;
}

/** Undoes {@link interleaveRows}. */
export function separateRows(head: Uint8Array, rowBytes: number): Uint8Array {
  const out = new Uint8Array(head.length);
  moveRows(head.length / rowBytes, (to, from) => {
    out.set(head.subarray(from * rowBytes, (from + 1) * rowBytes), to * rowBytes);
  });
  return out;
}

function moveRows(rows: number, move: (separate: number, interleaved: number) => void): void {
  for (let n = 0; n < rows / 2; n++) {
    move(n, 2 * n);
    move(rows / 2 + n, 2 * n + 1);
  }
}

/** A metadata value. */
export function value(type: ValueType, value: Scalar): Value {
  return { type, value };
}

/** The metadata of a model, but for the tokenizer's. */
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

/** The numbers by which the rotary frequencies are divided, headDim / 2 of them. */
export function ropeFactorsOf({ ropeFrequencies, rope, headDim }: Config): Float32Array<ArrayBuffer> {
  return Float32Array.from(ropeFrequencies, (f, n) => rope.base ** (-2 * n / headDim) / f);
}

/**
 * Keys (after the architecture's name) with which llama.cpp computes something, for one architecture or another, that the
 * decoder does not, and the values that change nothing. They are those of gguf-py's constants.py that are not read here, but
 * for those that describe what other architectures have beside attention and an MLP, which shows in the tensors.
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

/** What {@link SOURCE_TENSORS} says: the dtype of each tensor, by name and in their order; empty where the key is absent. */
export function sourceTensors(path: string, metadata: Metadata): Map<string, string> {
  const listed = (new Keys(path, metadata, "").list(SOURCE_TENSORS, "string") ?? []) as string[];
  return new Map(listed.map((text) => [text.split(" ")[0], text.split(" ")[1] ?? ""]));
}

/** What an import knows of a file's tensors. */
export interface Weights {
  /** The shape of a tensor, undefined if the file has none of that name. */
  shape(name: string): readonly number[] | undefined;
  /** The values of {@link ROPE_FACTORS}. */
  readonly ropeFactors?: Float32Array;
}

/** A model's configuration as a GGUF file gives it. */
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
 * @throws {CheckpointError} a key is missing or of another type, or the decoder would compute something else
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
      keys.fail(key, `${shown} is not supported; the decoder does not know it`);
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
  const attentionBias = name !== "qwen2" && weights.shape("blk.0.attn_q.bias") !== undefined;
  const noWindow = (keys.optional("attention.sliding_window")?.value ?? 0) === 0;
  const window = noWindow ? 0 : keys.count("attention.sliding_window");
  // A Llama with a window in every layer is a Mistral.
  const mistral = window !== 0 && name === "llama" && !attentionBias;
  const json: Record<string, unknown> = {
    // Absent keys have defaults, which these null say are not meant.
    bos_token_id: null,
    eos_token_id: null,
    architectures: [mistral ? "MistralForCausalLM" : architecture.huggingFace],
    attention_bias: attentionBias,
    attention_dropout: 0,
    head_dim: headDim,
    hidden_act: "silu",
    hidden_size: keys.count("embedding_length"),
    intermediate_size: keys.count("feed_forward_length"),
    max_position_embeddings: keys.count("context_length"),
    mlp_bias: false,
    model_type: mistral ? "mistral" : architecture.modelType,
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

function ropeScaling(keys: Keys, base: number, headDim: number, factors: Float32Array | undefined): unknown {
  const type = keys.optional("rope.scaling.type")?.value ?? "linear";
  const key = keys.optional("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  const factor = keys.float(key, 1);
  if (type !== "linear" && type !== "none") {
    keys.fail("rope.scaling.type", `${quote(String(type))} is not supported; the decoder knows none and linear`);
  }
  const linear = type === "linear" && factor !== 1;
  const plain = factors === undefined || (factors.length === headDim / 2 && factors.every((f) => f === 1));
  if (plain) return linear ? { factor, rope_type: "linear" } : null;
  const scaling = llama3(base, headDim, factors);
  if (scaling === undefined || linear) {
    throw new CheckpointError(
      { path: keys.path, tensor: ROPE_FACTORS },
      "the factors are not those of a llama3 rope scaling with frequency factors 1 and 4; no other can be imported",
    );
  }
  return scaling;
}

/** A llama3 scaling: frequencies of wavelengths above `original` are divided by `factor`, those below a quarter are kept. */
type Llama3 = readonly [factor: number, original: number];

/** low_freq_factor and high_freq_factor of a llama3 scaling: all models that have one have these. */
const [LOW, HIGH] = [1, 4];

/** The parameters of a llama3 scaling that divides the frequencies by these factors; undefined if none does. */
function llama3(base: number, headDim: number, factors: Float32Array) {
  if (factors.length !== headDim / 2 || !factors.every((f) => f > 0 && Number.isFinite(f))) return undefined;
  const waves = Array.from(factors, (_, n) => 2 * Math.PI * base ** (2 * n / headDim));
  const errorOf = ([factor, original]: Llama3) =>
    factor >= 1 && original > 0
      ? Math.max(...waves.map((wave, n) => {
        const smooth = Math.min(Math.max((original / wave - LOW) / (HIGH - LOW), 0), 1);
        return Math.abs(factors[n] * ((1 - smooth) / factor + smooth) - 1);
      }))
      : NaN;
  const exact = [...guesses(waves, factors)];
  const round = (digits: number) => {
    return exact.map(([factor, original]): Llama3 => [Number(factor.toPrecision(digits)), Math.round(original)]);
  };
  const best = (guesses: readonly Llama3[], tolerance: number) => {
    return guesses.filter((guess) => errorOf(guess) < tolerance).sort((a, b) => errorOf(a) - errorOf(b))[0];
  };
  // Numbers that are round were most likely those of the model; others mean the same frequencies, nearly. The factors were
  // computed in binary32, with an error of some units in the last place of the wavelength.
  const found = best(round(4), 2e-6) ?? best(round(7), 1e-5) ?? best(exact, 1e-4);
  return found && {
    factor: found[0],
    high_freq_factor: HIGH,
    low_freq_factor: LOW,
    original_max_position_embeddings: found[1],
    rope_type: "llama3",
  };
}

/**
 * What the parameters of a llama3 scaling may be. Between the wavelengths that are kept and those that are divided,
 * 1 / f = (1 - smooth) / factor + smooth, with smooth = (original / wave - 1) / 3. A head with few values may have one or
 * two frequencies there, or none; then several parameters mean the same frequencies, and any of them will do.
 */
function* guesses(waves: readonly number[], factors: Float32Array): Generator<Llama3> {
  const first = factors.findIndex((f) => f > 1);
  const last = factors.length - 1;
  const originalOf = (n: number, factor: number) => {
    return waves[n] * (LOW + (HIGH - LOW) * (1 / factors[n] - 1 / factor) / (1 - 1 / factor));
  };
  const kept = HIGH * (waves[first - 1] ?? 0);
  // The last frequency is divided by the whole factor,
  const factor = shortest(factors[last]);
  if (factors[first] < factors[last]) yield [factor, originalOf(first, factor)];
  else yield [factor, within(kept, waves[first])];
  if (first < last) {
    // or is smoothed as the one before it,
    const [a, b] = [first, first + 1].map((n) => [waves[n], waves[n] * (LOW + (HIGH - LOW) / factors[n])]);
    const solved = HIGH * (a[0] - b[0]) / (a[1] - b[1]);
    yield [solved, originalOf(first, solved)];
  } else {
    // or is the only one that is smoothed: each original context in a range has a factor.
    const [wave, f] = [waves[last], factors[last]];
    const original = within(Math.max(kept, wave), Math.min(HIGH, LOW + (HIGH - LOW) / f) * wave);
    const smooth = (original / wave - LOW) / (HIGH - LOW);
    yield [(1 - smooth) / (1 / f - smooth), original];
  }
}

/** A number between two: the context of Llama 3, a power of two, or a whole number if there is one. */
function within(low: number, high: number): number {
  const numbers = [8192, 2 ** Math.floor(Math.log2(high)), Math.round((low + high) / 2)];
  return numbers.find((x) => x > low && x < high) ?? (low + high) / 2;
}

/** The shortest decimal that rounds to a binary32: 9.999999747378752e-6 is 1e-5. */
export function shortest(x: number): number {
  for (let digits = 1; digits < 9; digits++) {
    const short = Number(x.toPrecision(digits));
    if (Math.fround(short) === x) return short;
  }
  return x;
}

/** Reads values of metadata whose keys begin with `prefix`. */
export class Keys {
  constructor(readonly path: string, readonly metadata: Metadata, readonly prefix: string) {}

  /** @throws {CheckpointError} */
  fail(key: string, problem: string): never {
    throw new CheckpointError({ path: this.path, field: `key ${quote(this.prefix + key)}` }, problem);
  }

  /** A value that is no array. @throws {CheckpointError} it is one */
  optional(key: string): { type: ValueType; value: Scalar } | undefined {
    const found = this.metadata.get(this.prefix + key);
    if (found === undefined || "value" in found) return found;
    return this.fail(key, `${describe(found)}; the decoder needs one value for all layers`);
  }

  /** An array of `type`. @throws {CheckpointError} it is something else */
  list(key: string, type: ValueType): readonly Scalar[] | undefined {
    const found = this.metadata.get(this.prefix + key);
    if (found === undefined) return undefined;
    if ("values" in found && found.type === type) return Array.from(found.values);
    return this.fail(key, `expected an array of ${type}, found ${describe(found)}`);
  }

  /** @throws {CheckpointError} */
  string(key: string): string {
    const found = this.optional(key);
    if (found === undefined) this.fail(key, "is missing");
    if (typeof found.value !== "string") this.fail(key, `expected a string, found ${describe(found)}`);
    return found.value;
  }

  /** A whole number of 1 or more. @throws {CheckpointError} */
  count(key: string, fallback?: number): number {
    const found = this.optional(key);
    const number = found?.value ?? fallback;
    if (number === undefined) this.fail(key, "is missing");
    if (typeof number !== "number" || !Number.isSafeInteger(number) || number < 1) {
      this.fail(key, `expected a whole number of 1 or more, found ${found ? describe(found) : number}`);
    }
    return number;
  }

  /** A number above 0, as the shortest decimal that a binary32 keeps. @throws {CheckpointError} */
  float(key: string, fallback?: number): number {
    const found = this.optional(key);
    const number = found?.value ?? fallback;
    if (number === undefined) this.fail(key, "is missing");
    if (typeof number !== "number" || !(number > 0) || !Number.isFinite(number)) {
      this.fail(key, `expected a number above 0, found ${found ? describe(found) : number}`);
    }
    return shortest(number);
  }
}
