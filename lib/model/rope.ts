/**
 * The rotary embedding of config.json: the angles per position, with the scalings that the decoder knows.
 *
 * @module
 */

import { Fields, show } from "./fields.ts";

/** What all classes take for an absent rope_theta. */
const ROPE_THETA = 10000;

/** Where the angles of the rotary embedding come from. */
export interface Rope {
  /** The base of the frequencies (rope_theta). */
  readonly base: number;
  /** `dynamic` is the default up to max_position_embeddings, and no context is longer. */
  readonly scaling: "default" | "linear" | "dynamic" | "llama3";
}

/** The keys of each kind of scaling, beside `rope_type` (once `type`), `rope_theta` and `partial_rotary_factor`. */
const SCALINGS: ReadonlyMap<unknown, { readonly kind: Rope["scaling"]; readonly keys: readonly string[] }> = new Map([
  // The original context is noted by tools that took a scaling away; these two kinds do not use it.
  ["default", { kind: "default", keys: ["original_max_position_embeddings"] }],
  ["linear", { kind: "linear", keys: ["factor", "original_max_position_embeddings"] }],
  ["dynamic", { kind: "dynamic", keys: ["factor"] }],
  ["llama3", {
    kind: "llama3",
    keys: ["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"],
  }],
]);

/** A reading of the rotary embedding. */
interface Rotary {
  readonly rope: Rope;
  /** Angles per position, headDim / 2 of them, in radians. */
  readonly ropeFrequencies: readonly number[];
}

/**
 * The rotary embedding. transformers 5 writes `rope_parameters`, older versions `rope_theta` and `rope_scaling`, and some
 * tools a mixture, of which every version reads another part: the parts must agree.
 *
 * @throws {CheckpointError} naming the field
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

/** theta^(-2n/d), scaled. https://github.com/huggingface/transformers modeling_rope_utils */
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
  // To transformers null at the top is no theta, which is one too few only where there is none inside.
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
  // transformers takes the one at the top where there are two.
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
