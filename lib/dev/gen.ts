/**
 * Generates small Llama models with random weights, for tests, demonstrations and benchmarks without a download. The
 * same seed gives the same bytes on every machine. With `exact`, a block format represents every weight exactly, so
 * that quantizing changes nothing; gate.ts relies on this.
 *
 * @module
 */

import { checkOptions } from "../options.ts";
import { parseConfig } from "../model/config.ts";
import { tensorsOf } from "../model/tensors.ts";
import { BLOCK } from "../format/blocks.ts";
import { MODEL_FILE } from "../format/checkpoint.ts";
import { writeAt } from "../files/read.ts";
import { f32ToBf16 } from "../format/floats.ts";
import { NewFiles } from "../files/new_files.ts";
import { checkOutput } from "../format/outputs.ts";
import { serializeHeader } from "../format/safetensors.ts";
import { Xorshift32 } from "../random.ts";
import { BYTE_LETTERS } from "../text/byte_letters.ts";

/** The default shape. */
const SHAPE: Shape = {
  hidden: 256,
  intermediate: 768,
  layers: 4,
  heads: 8,
  kvHeads: 4,
  vocabulary: 8192,
  tied: true,
};

/** The sizes of a model. */
export interface Shape {
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
  /** Size of the vocabulary. */
  readonly vocabulary: number;
  /** Whether the embedding is also the output matrix. */
  readonly tied: boolean;
}

/** Options of {@link generate}. */
export interface GenerateModelOptions {
  /** The seed of the weights (default: 0). */
  readonly seed?: number;
  /**
   * The `levels` of a block format. The weights are then integers from -levels to levels, and every block of 32 weights
   * has one of these two, so that its scale is 1 and quantizing changes nothing.
   */
  readonly exact?: number;
  /** Overwrite an existing checkpoint. */
  readonly force?: boolean;
  /** The shape (default: 4 layers, a vocabulary of 8192, 10 MB). */
  readonly shape?: Shape;
}

/** Writes 32 BF16 weights of one block. */
type Fill = (out: Uint16Array, random: Xorshift32) => void;

/**
 * Writes a model with random weights, config.json, vocab.json and merges.txt to a directory.
 *
 * @throws {Refusal} the directory contains a checkpoint and `force` is not set
 * @throws {SystemError} a file cannot be written
 */
export function generate(
  directory: string,
  options: GenerateModelOptions = {},
): void {
  checkOptions("generateModel", options, { seed: true, exact: true, force: true, shape: true });
  const { seed = 0, exact, force = false, shape = SHAPE } = options;
  const seen = checkOutput(directory, undefined, [MODEL_FILE, "config.json", "vocab.json", "merges.txt"], force);
  using files = new NewFiles(directory, seen);
  writeWeights(files, shape, seed, exact);
  const json = (value: unknown) => new TextEncoder().encode(JSON.stringify(value, null, 2) + "\n");
  files.write("config.json", json(configOf(shape)));
  const { vocabulary, merges } = tokenizer(shape.vocabulary);
  files.write("vocab.json", json(vocabulary));
  files.write("merges.txt", new TextEncoder().encode(["#version: 0.2", ...merges, ""].join("\n")));
  files.commit();
}

/** The config.json of a Llama of this shape. */
export function configOf(shape: Shape) {
  return {
    architectures: ["LlamaForCausalLM"],
    model_type: "llama",
    hidden_act: "silu",
    hidden_size: shape.hidden,
    intermediate_size: shape.intermediate,
    num_hidden_layers: shape.layers,
    num_attention_heads: shape.heads,
    num_key_value_heads: shape.kvHeads,
    max_position_embeddings: 2048,
    rms_norm_eps: 1e-5,
    rope_theta: 10000,
    tie_word_embeddings: shape.tied,
    attention_bias: false,
    mlp_bias: false,
    bos_token_id: 0,
    eos_token_id: 0,
    torch_dtype: "bfloat16",
    vocab_size: shape.vocabulary,
  };
}

/** The tensors of a Llama, sorted by name as safetensors writers do. */
export function tensorShapes(shape: Shape): Map<string, readonly number[]> {
  const config = parseConfig("config.json", JSON.stringify(configOf(shape)));
  const tensors = [...tensorsOf(config)].sort((a, b) => a.name < b.name ? -1 : 1);
  return new Map(tensors.map(({ name, shape }) => [name, shape]));
}

/** Weights per write. */
const STEP = 1 << 20;

function writeWeights(files: NewFiles, shape: Shape, seed: number, exact: number | undefined): void {
  const tensors = tensorShapes(shape);
  const count = (dimensions: readonly number[]) => dimensions.reduce((a, b) => a * b);
  const entries = [...tensors].map(([name, shape]) => ({ name, dtype: "BF16", shape, bytes: 2 * count(shape) }));
  const header = serializeHeader({ format: "pt" }, entries);
  const total = entries.reduce((sum, { bytes }) => sum + bytes, header.length);
  const { file, partial } = files.create(MODEL_FILE, total);
  writeAt(file, partial, 0, header);
  let offset = header.length;
  const random = new Xorshift32(seed);
  for (const [, dimensions] of tensors) {
    const fill = fillOf(dimensions, exact);
    for (let done = 0, total = count(dimensions); done < total;) {
      const weights = new Uint16Array(Math.min(STEP, total - done));
      for (let at = 0; at < weights.length; at += BLOCK) fill(weights.subarray(at, at + BLOCK), random);
      writeAt(file, partial, offset, new Uint8Array(weights.buffer));
      offset += weights.byteLength;
      done += weights.length;
    }
  }
}

function fillOf(dimensions: readonly number[], exact: number | undefined): Fill {
  if (dimensions.length === 1) {
    return (out, random) => out.forEach((_, n) => out[n] = f32ToBf16(exact ? 1 : 1 + 0.1 * random.normal()));
  }
  if (exact) {
    return (out, random) => {
      const bound = (x: number) => Math.min(Math.max(Math.round(x), -exact), exact);
      out.forEach((_, n) => out[n] = f32ToBf16(bound(exact / 3 * random.normal())));
      out[random.below(BLOCK)] = f32ToBf16(random.below(2) ? exact : -exact);
    };
  }
  const sigma = 1 / Math.sqrt(dimensions[1]);
  return (out, random) => out.forEach((_, n) => out[n] = f32ToBf16(sigma * random.normal()));
}

/** `count` normally distributed BF16 weights, as their bits. */
export function randomWeights(seed: number, deviation: number, count: number): Uint16Array<ArrayBuffer> {
  const random = new Xorshift32(seed);
  return Uint16Array.from({ length: count }, () => f32ToBf16(deviation * random.normal()));
}

/**
 * A byte-level BPE of `size` tokens: an EOS token, the bytes, and pairs of bytes, lower-case letters and spaces first.
 */
function tokenizer(size: number): { vocabulary: Record<string, number>; merges: string[] } {
  const tokens = ["<|endoftext|>", ...BYTE_LETTERS];
  const merges: string[] = [];
  const others = BYTE_LETTERS.filter((_, byte) => byte !== 32 && (byte < 97 || byte > 122));
  const common = [...BYTE_LETTERS.slice(97, 123), BYTE_LETTERS[32], ...others];
  for (let sum = 0; tokens.length < size; sum++) {
    for (let left = 0; left <= sum && tokens.length < size; left++) {
      if (left >= 256 || sum - left >= 256) continue;
      merges.push(`${common[left]} ${common[sum - left]}`);
      tokens.push(common[left] + common[sum - left]);
    }
  }
  return { vocabulary: Object.fromEntries(tokens.slice(0, size).map((token, id) => [token, id])), merges };
}
