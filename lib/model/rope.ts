/**
 * Computes the frequencies of the rotary embedding from config.json, with the supported scalings.
 *
 * @module
 */

import { Fields, show } from "./fields.ts";

/** The default of rope_theta in all classes. */
const ROPE_THETA = 10000;

/** The parameters of the rotary embedding. */
export interface Rope {
  /** The base of the frequencies (rope_theta). */
  readonly base: number;
  /**
   * `dynamic` equals `default` up to max_position_embeddings, which is the longest context that the decoder supports.
   */
  readonly scaling: "default" | "linear" | "dynamic" | "llama3";
}

/** The keys of each scaling, besides `rope_type` (formerly `type`), `rope_theta` and `partial_rotary_factor`. */
const SCALINGS: ReadonlyMap<unknown, { readonly kind: Rope["scaling"]; readonly keys: readonly string[] }> = new Map([
  // These two do not use the original context, but tools that remove a scaling leave the key behind.
  ["default", { kind: "default", keys: ["original_max_position_embeddings"] }],
  ["linear", { kind: "linear", keys: ["factor", "original_max_position_embeddings"] }],
  ["dynamic", { kind: "dynamic", keys: ["factor"] }],
  ["llama3", {
    kind: "llama3",
    keys: ["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"],
  }],
]);

/** The rotary embedding of a configuration. */
interface Rotary {
  readonly rope: Rope;
  /** headDim / 2 angles per position, in radians. */
  readonly ropeFrequencies: readonly number[];
}

/**
 * Computes the rotary embedding of a configuration. transformers 5 writes `rope_parameters`, older versions write
 * `rope_theta` and `rope_scaling`, and some tools write both. Each version reads different fields, so they must agree.
 *
 * @throws {CheckpointError} a field is invalid or unsupported; names the field
 */
export function rotary(fields: Fields, headDim: number): Rotary {
  const places = ["rope_scaling", "rope_parameters"].map((field) => fields.object(field))
    .filter((place) => place !== undefined && Object.keys(place.json).length > 0) as Fields[];
  const [first, second] = places.map((place) => scaled(fields, place, headDim));
  if (second !== undefined && JSON.stringify(first) !== JSON.stringify(second)) {
    fields.fail("rope_parameters", "contradicts rope_scaling; remove one of them");
  }
  return first ?? scaled(fields, new Fields(fields.path, {}), headDim);
}

/** Computes theta^(-2n/d) and scales it, as modeling_rope_utils of https://github.com/huggingface/transformers does. */
function scaled(config: Fields, fields: Fields, headDim: number): Rotary {
  const [type, old] = ["rope_type", "type"].map((field) => fields.get(field));
  const name = [type, old, "default"].find((name) => name !== undefined);
  if ((old ?? undefined) !== undefined && old !== name) {
    fields.fail("type", `${show(old)} contradicts rope_type, ${show(name)}; remove one of them`);
  }
  const known = SCALINGS.get(name);
  if (known === undefined) {
    fields.fail("rope_type", `${show(name)} is not supported; the decoder knows ${[...SCALINGS.keys()].join(", ")}`);
  }
  const { kind: scaling, keys } = known;
  for (const [field, value] of Object.entries(fields.json)) {
    if (value === null || ["rope_type", "type", "rope_theta", ...keys].includes(field)) continue;
    if (field === "partial_rotary_factor" && value === 1) continue;
    fields.fail(field, `${show(value)} is not supported${field === "partial_rotary_factor" ? "" : ` in ${scaling}`}`);
  }
  // transformers ignores a null at the top level if the object has a rope_theta.
  const unused = config.get("rope_theta") === null && fields.get("rope_theta") !== undefined;
  const outer = unused ? ROPE_THETA : config.atLeastOne("rope_theta", ROPE_THETA);
  const base = fields.atLeastOne("rope_theta", outer);
  if (base !== outer && !unused && config.get("rope_theta") !== undefined) {
    fields.fail("rope_theta", `${base} contradicts the rope_theta at the top, ${outer}; remove one of them`);
  }
  const plain = Array.from({ length: headDim / 2 }, (_, n) => base ** (-2 * n / headDim));
  const rope = { base, scaling };
  if (scaling === "default") return { rope, ropeFrequencies: plain };
  const factor = fields.atLeastOne("factor");
  if (scaling === "dynamic") return { rope, ropeFrequencies: plain };
  if (scaling === "linear") return { rope, ropeFrequencies: plain.map((f) => f / factor) };
  const low = fields.positive("low_freq_factor");
  const high = fields.positive("high_freq_factor");
  const original = fields.positive("original_max_position_embeddings");
  // If both exist, transformers uses the one at the top level.
  const top = config.get("original_max_position_embeddings") ?? original;
  if (top !== original) {
    config.fail(
      "original_max_position_embeddings",
      `${show(top)} contradicts that of ${fields.prefix.trimEnd()}, ${original}; remove it`,
    );
  }
  if (high <= low) fields.fail("high_freq_factor", `${high} is not above low_freq_factor ${low}`);
  const ropeFrequencies = plain.map((f) => {
    const wavelength = 2 * Math.PI / f;
    if (wavelength < original / high) return f;
    if (wavelength > original / low) return f / factor;
    const smooth = (original / wavelength - low) / (high - low);
    return (1 - smooth) * f / factor + smooth * f;
  });
  return { rope, ropeFrequencies };
}

/** The cosines, then the sines, of the angles of each position. The angles are computed in binary64. */
export function ropeValues(frequencies: readonly number[], positions: number): Float32Array {
  const half = frequencies.length;
  const values = new Float32Array(positions * half * 2);
  for (let p = 0; p < positions; p++) {
    for (const [n, frequency] of frequencies.entries()) {
      values[p * half * 2 + n] = Math.cos(p * frequency);
      values[p * half * 2 + half + n] = Math.sin(p * frequency);
    }
  }
  return values;
}
