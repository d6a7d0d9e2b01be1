/**
 * config.json of the Llama family, checked: everything that the decoder would compute wrongly is refused by name.
 *
 * @module
 */

import { CheckpointError, quote } from "../errors.ts";
import { parseJson } from "../format/json.ts";

/** What differs between the families that the decoder knows. */
export interface Family {
  /** Biases on the q, k and v projections, whatever attention_bias says. */
  readonly qkvBias: boolean;
  /** RMSNorm of each query and key head. */
  readonly headNorm: boolean;
}

/** By the names in `architectures`. A new family is a row here. */
const FAMILIES: ReadonlyMap<string, Family> = new Map([
  ["LlamaForCausalLM", { qkvBias: false, headNorm: false }],
  ["MistralForCausalLM", { qkvBias: false, headNorm: false }],
  ["Qwen2ForCausalLM", { qkvBias: true, headNorm: false }],
  ["Qwen3ForCausalLM", { qkvBias: false, headNorm: true }],
]);

/** By `model_type`, for files without `architectures`. */
const MODEL_TYPES: ReadonlyMap<string, string> = new Map([
  ["llama", "LlamaForCausalLM"],
  ["mistral", "MistralForCausalLM"],
  ["qwen2", "Qwen2ForCausalLM"],
  ["qwen3", "Qwen3ForCausalLM"],
]);

/** Where the angles of the rotary embedding come from. */
export interface Rope {
  readonly base: number;
  readonly scaling: "default" | "linear" | "llama3";
}

/** A checked configuration. */
export interface Config extends Family {
  readonly architecture: string;
  readonly hidden: number;
  readonly intermediate: number;
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly vocabulary: number;
  /** The longest context, in tokens. */
  readonly maxPositions: number;
  readonly normEps: number;
  /** Angles of the rotary embedding per position, headDim / 2 of them, in radians. */
  readonly ropeFrequencies: readonly number[];
  readonly rope: Rope;
  /** Whether the logits use the embedding. Undefined: the config does not say. */
  readonly tied?: boolean;
  /** Bias on the output projection of attention. */
  readonly outputBias: boolean;
  /** Ids that end a text. */
  readonly endOfText: readonly number[];
}

/**
 * Reads a configuration.
 *
 * @param path for the messages
 * @throws {CheckpointError} naming the field
 */
export function parseConfig(path: string, text: string): Config {
  const json = parseJson(path, text);
  if (typeof json !== "object" || json === null || Array.isArray(json)) {
    throw new CheckpointError({ path }, "expected a JSON object");
  }
  const fields = new Fields(path, json as Record<string, unknown>);
  const architecture = architectureOf(fields);
  const family = FAMILIES.get(architecture)!;
  const hidden = fields.count("hidden_size");
  const heads = fields.count("num_attention_heads");
  const kvHeads = fields.count("num_key_value_heads", heads);
  const headDim = fields.count("head_dim", hidden / heads);
  const maxPositions = fields.count("max_position_embeddings", 2048);
  if (!Number.isInteger(headDim) || headDim % 4 !== 0) {
    fields.fail("head_dim", `${headDim} is not a multiple of 4, which the decoder needs`);
  }
  if (heads % kvHeads !== 0) {
    fields.fail("num_key_value_heads", `${kvHeads} does not divide the ${heads} attention heads`);
  }
  refuseUnknown(fields, maxPositions);
  const attentionBias = fields.flag("attention_bias") ?? false;
  return {
    architecture,
    qkvBias: family.qkvBias || attentionBias,
    headNorm: family.headNorm,
    hidden,
    intermediate: fields.count("intermediate_size"),
    layers: fields.count("num_hidden_layers"),
    heads,
    kvHeads,
    headDim,
    vocabulary: fields.count("vocab_size"),
    maxPositions,
    normEps: fields.positive("rms_norm_eps", 1e-6),
    ...rotary(fields, headDim),
    tied: fields.flag("tie_word_embeddings"),
    outputBias: attentionBias,
    endOfText: endOfText(fields),
  };
}

function architectureOf(fields: Fields): string {
  const list = fields.get("architectures");
  const type = fields.get("model_type");
  const name = Array.isArray(list) && list.length > 0 ? list[0] : MODEL_TYPES.get(String(type)) ?? type;
  if (typeof name !== "string" || !FAMILIES.has(name)) {
    const field = Array.isArray(list) && list.length > 0 ? "architectures" : "model_type";
    fields.fail(field, `${show(name)} is not supported; the decoder knows ${[...FAMILIES.keys()].join(", ")}`);
  }
  return name;
}

/** Fields that change the arithmetic in a way that the decoder does not know. */
function refuseUnknown(fields: Fields, maxPositions: number): void {
  const only = (field: string, ...allowed: unknown[]) => {
    const value = fields.get(field);
    if (value !== undefined && value !== null && !allowed.includes(value)) {
      const known = allowed.length > 0 ? `; the decoder knows ${allowed.map(show).join(", ")}` : "";
      fields.fail(field, `${show(value)} is not supported${known}`);
    }
  };
  only("hidden_act", "silu", "swish");
  only("quantization_config");
  only("pretraining_tp", 1);
  only("partial_rotary_factor", 1);
  only("rope_interleaved", false);
  only("mlp_bias", false);
  const window = fields.get("sliding_window");
  if (typeof window === "number" && fields.get("use_sliding_window") !== false && window < maxPositions) {
    fields.fail(
      "sliding_window",
      `${window} would take effect below max_position_embeddings ${maxPositions}, and is not supported`,
    );
  }
  const kinds = fields.get("layer_types");
  if (Array.isArray(kinds)) {
    const other = kinds.find((kind) => kind !== "full_attention");
    const inactive = other === "sliding_attention" &&
      (window === null || window === undefined || Number(window) >= maxPositions);
    if (other !== undefined && !inactive) fields.fail("layer_types", `${show(other)} is not supported`);
  }
}

function endOfText(fields: Fields): number[] {
  const value = fields.get("eos_token_id");
  const ids = Array.isArray(value) ? value : value === undefined || value === null ? [] : [value];
  if (!ids.every((id) => Number.isSafeInteger(id))) fields.fail("eos_token_id", `expected ids, found ${show(value)}`);
  return ids;
}

/** theta^(-2n/d), scaled as rope_scaling says. https://github.com/huggingface/transformers modeling_rope_utils */
function rotary(fields: Fields, headDim: number): Pick<Config, "rope" | "ropeFrequencies"> {
  // transformers 5 writes rope_parameters, older versions rope_theta and rope_scaling.
  const parameters = fields.object("rope_parameters");
  const scaling = fields.object("rope_scaling") ?? parameters;
  for (const [field, value] of Object.entries(parameters?.json ?? {})) {
    // One set of parameters for each kind of layer, or a part of each head that is not rotated.
    const partial = field === "partial_rotary_factor" && value !== null && value !== 1;
    if (partial || (typeof value === "object" && value !== null)) {
      parameters!.fail(field, `${show(value)} is not supported`);
    }
  }
  const own = (parameters?.get("rope_theta") ?? null) !== null;
  const base = (own ? parameters! : fields).positive("rope_theta", 10000);
  const plain = Array.from({ length: headDim / 2 }, (_, n) => base ** (-2 * n / headDim));
  const kind = scaling?.get("rope_type") ?? scaling?.get("type") ?? "default";
  if (scaling === undefined || kind === "default") {
    return { ropeFrequencies: plain, rope: { base, scaling: "default" } };
  }
  if (kind === "linear") {
    const factor = scaling.positive("factor");
    return { ropeFrequencies: plain.map((f) => f / factor), rope: { base, scaling: kind } };
  }
  if (kind === "llama3") {
    const factor = scaling.positive("factor");
    const low = scaling.positive("low_freq_factor");
    const high = scaling.positive("high_freq_factor");
    const old = scaling.positive("original_max_position_embeddings");
    if (high <= low) scaling.fail("high_freq_factor", `${high} is not above low_freq_factor ${low}`);
    const ropeFrequencies = plain.map((f) => {
      const wavelength = 2 * Math.PI / f;
      if (wavelength < old / high) return f;
      if (wavelength > old / low) return f / factor;
      const smooth = (old / wavelength - low) / (high - low);
      return (1 - smooth) * f / factor + smooth * f;
    });
    return { ropeFrequencies, rope: { base, scaling: kind } };
  }
  return scaling.fail("rope_type", `${show(kind)} is not supported; the decoder knows default, linear, llama3`);
}

function show(value: unknown): string {
  return typeof value === "string" ? quote(value) : String(JSON.stringify(value)).slice(0, 80);
}

/** Reads fields of a JSON object; a field that is null counts as absent. */
class Fields {
  constructor(readonly path: string, readonly json: Record<string, unknown>, readonly prefix = "") {}

  get(field: string): unknown {
    return Object.hasOwn(this.json, field) ? this.json[field] : undefined;
  }

  fail(field: string, problem: string): never {
    throw new CheckpointError({ path: this.path, field: this.prefix + field }, problem);
  }

  #number(field: string, fallback: number | undefined, wanted: string, ok: (n: number) => boolean): number {
    const value = this.get(field) ?? fallback;
    if (value === undefined) this.fail(field, "is missing");
    if (typeof value !== "number" || (value !== fallback && !ok(value))) {
      this.fail(field, `expected ${wanted}, found ${show(value)}`);
    }
    return value;
  }

  /** A whole number of 1 or more. */
  count(field: string, fallback?: number): number {
    return this.#number(
      field,
      fallback,
      "a whole number of 1 or more",
      (n) => Number.isSafeInteger(n) && n >= 1 && n < 2 ** 31,
    );
  }

  /** A number above zero. */
  positive(field: string, fallback?: number): number {
    return this.#number(field, fallback, "a number above 0", (n) => Number.isFinite(n) && n > 0);
  }

  flag(field: string): boolean | undefined {
    const value = this.get(field);
    if (value === undefined || value === null) return undefined;
    if (typeof value !== "boolean") this.fail(field, `expected true or false, found ${show(value)}`);
    return value;
  }

  object(field: string): Fields | undefined {
    const value = this.get(field);
    if (value === undefined || value === null) return undefined;
    if (typeof value !== "object" || Array.isArray(value)) this.fail(field, `expected an object, found ${show(value)}`);
    return new Fields(this.path, value as Record<string, unknown>, `${this.prefix}${field} `);
  }
}
