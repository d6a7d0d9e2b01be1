/**
 * Lists the tensors of a model with their names and shapes, and checks that a checkpoint has exactly these. All code
 * that loads, writes or shows the tensors of a model uses this list.
 *
 * @module
 */

import { CheckpointError } from "../errors.ts";
import { FORMATS, matrixBytes } from "../format/blocks.ts";
import type { Place } from "../kernels/operations.ts";
import type { Config } from "./config.ts";

/** The role of a tensor. */
export type Part = keyof typeof OUTER | keyof typeof INNER;

/** Tensors outside the layers, by their names in a Hugging Face checkpoint. */
const OUTER = {
  embedding: "model.embed_tokens.weight",
  norm: "model.norm.weight",
  head: "lm_head.weight",
} as const;

/** Tensors of each layer, by their names after the prefix of the layer. */
const INNER = {
  attentionNorm: "input_layernorm.weight",
  q: "self_attn.q_proj.weight",
  k: "self_attn.k_proj.weight",
  v: "self_attn.v_proj.weight",
  o: "self_attn.o_proj.weight",
  qBias: "self_attn.q_proj.bias",
  kBias: "self_attn.k_proj.bias",
  vBias: "self_attn.v_proj.bias",
  oBias: "self_attn.o_proj.bias",
  qNorm: "self_attn.q_norm.weight",
  kNorm: "self_attn.k_norm.weight",
  mlpNorm: "post_attention_layernorm.weight",
  gate: "mlp.gate_proj.weight",
  up: "mlp.up_proj.weight",
  down: "mlp.down_proj.weight",
} as const;

/** A tensor of a model. */
export interface ModelTensor {
  readonly part: Part;
  /** The layer; undefined for a tensor outside the layers. */
  readonly layer?: number;
  readonly name: string;
  /** Rows and columns of a matrix, or the length of a vector. */
  readonly shape: readonly number[];
}

/** The name of a tensor in a Hugging Face checkpoint. */
export function nameOfPart(part: Part, layer?: number): string {
  return part in OUTER
    ? OUTER[part as keyof typeof OUTER]
    : `model.layers.${layer}.${INNER[part as keyof typeof INNER]}`;
}

/** The tensors of a model, in the order of a forward pass. A generator, since a configuration may claim very many. */
export function* tensorsOf(config: Config): Generator<ModelTensor> {
  const { hidden, intermediate, heads, kvHeads, headDim, vocabulary } = config;
  const [queries, keys] = [heads * headDim, kvHeads * headDim];
  const layerParts: (readonly [Part, readonly number[], boolean?])[] = [
    ["attentionNorm", [hidden]],
    ["q", [queries, hidden]],
    ["qBias", [queries], config.qkvBias],
    ["k", [keys, hidden]],
    ["kBias", [keys], config.qkvBias],
    ["v", [keys, hidden]],
    ["vBias", [keys], config.qkvBias],
    ["qNorm", [headDim], config.headNorm],
    ["kNorm", [headDim], config.headNorm],
    ["o", [hidden, queries]],
    ["oBias", [hidden], config.outputBias],
    ["mlpNorm", [hidden]],
    ["gate", [intermediate, hidden]],
    ["up", [intermediate, hidden]],
    ["down", [hidden, intermediate]],
  ];
  yield { part: "embedding", name: nameOfPart("embedding"), shape: [vocabulary, hidden] };
  for (let layer = 0; layer < config.layers; layer++) {
    for (const [part, shape, has = true] of layerParts) {
      if (has) yield { part, layer, name: nameOfPart(part, layer), shape };
    }
  }
  yield { part: "norm", name: nameOfPart("norm"), shape: [hidden] };
  if (!config.tied) yield { part: "head", name: nameOfPart("head"), shape: [vocabulary, hidden] };
}

/** The tensors of a file, as {@link matchTensors} needs them. */
export interface TensorList<T> {
  /** The file or directory, for messages. */
  readonly path: string;
  /** The names of all tensors. */
  readonly names: Iterable<string>;
  /** A tensor and its file; undefined if there is no tensor of that name. */
  find(name: string): (T & { readonly shape: readonly number[]; readonly path: string }) | undefined;
}

/**
 * Finds the tensors of a model, and refuses unexpected tensors, which mean that the model computes something that the
 * decoder does not.
 *
 * @param wanted names and shapes
 * @param says for messages: the file that describes the model, with a verb ("config.json calls"), and the model
 * @param unused whether a tensor can be ignored
 * @returns the tensors by name
 * @throws {CheckpointError} a tensor is missing or unexpected, or has the wrong shape
 */
export function matchTensors<T>(
  wanted: Iterable<{ readonly name: string; readonly shape: readonly number[] }>,
  list: TensorList<T>,
  says: { readonly subject: string; readonly model: string },
  unused: (name: string) => boolean = () => false,
): Map<string, T & { readonly shape: readonly number[]; readonly path: string }> {
  const found = new Map<string, T & { readonly shape: readonly number[]; readonly path: string }>();
  for (const { name, shape } of wanted) {
    const tensor = list.find(name);
    if (tensor === undefined) {
      const hint = name === OUTER.head ? "; if the logits use the embedding, set tie_word_embeddings to true" : "";
      throw new CheckpointError({ path: list.path, tensor: name }, `missing, although ${says.subject} for it${hint}`);
    }
    if (String(tensor.shape) !== String(shape)) {
      throw new CheckpointError(
        { path: tensor.path, tensor: name, field: "shape" },
        `[${tensor.shape}], but ${says.subject} for [${shape}]`,
      );
    }
    found.set(name, tensor);
  }
  for (const name of list.names) {
    if (found.has(name) || unused(name)) continue;
    throw new CheckpointError(
      { path: list.find(name)?.path ?? list.path, tensor: name },
      `unexpected tensor: the ${says.model} that ${says.subject} for does not use it`,
    );
  }
  return found;
}

/** A source of tensors, such as a checkpoint. */
export interface TensorSource extends TensorList<{ readonly dtype: string }> {
  /** Reads `into.length` bytes of a tensor, from `offset` on. */
  read(name: string, offset: number, into: Uint8Array): void;
  /** Where a tensor is, if other threads can read it. */
  place?(name: string): Place | undefined;
}

/** A tensor of a checkpoint. */
export interface FoundTensor {
  readonly dtype: string;
  readonly shape: readonly number[];
  /** The file. */
  readonly path: string;
}

/** Frequencies that old versions of transformers stored. New versions ignore them and compute them from config.json. */
const FREQUENCIES = /^model\.(?:layers\.(\d+)\.self_attn\.)?rotary_emb\.inv_freq$/;

/** The size of the parts in which the embedding and the head are compared, in bytes. */
const COMPARED_BYTES = 1 << 20;

/**
 * Finds the tensors of a model in a checkpoint. Two kinds of other tensors are ignored: frequencies that old versions
 * of transformers stored, and, if the embedding is tied, a head that is equal to it.
 *
 * @returns the tensors by name
 * @throws {CheckpointError} a tensor is missing or unexpected, or has the wrong shape
 */
export function checkTensors(config: Config, source: TensorSource): Map<string, FoundTensor> {
  const buffer = (name: string) => {
    const match = FREQUENCIES.exec(name);
    return match !== null && Number(match[1] ?? 0) < config.layers;
  };
  const says = { subject: "config.json calls", model: config.architecture };
  const found = matchTensors(tensorsOf(config), source, says, (name) => {
    return buffer(name) || (config.tied && name === OUTER.head);
  });
  const head = config.tied ? source.find(OUTER.head) : undefined;
  if (head !== undefined && !equal(source, found.get(OUTER.embedding)!, head)) {
    throw new CheckpointError(
      { path: head.path, tensor: OUTER.head },
      `differs from ${OUTER.embedding}, although tie_word_embeddings of config.json says that they are one; ` +
        "set it to false to use both",
    );
  }
  return found;
}

/** Whether the head has the same dtype, shape and bytes as the embedding. */
function equal(source: TensorSource, embedding: FoundTensor, head: FoundTensor): boolean {
  const format = FORMATS.get(embedding.dtype);
  if (embedding.dtype !== head.dtype || String(embedding.shape) !== String(head.shape) || format === undefined) {
    return false;
  }
  const [rows, columns] = embedding.shape;
  const rowBytes = matrixBytes(format, 1, columns);
  const most = Math.max(1, Math.floor(COMPARED_BYTES / rowBytes));
  for (let row = 0; row < rows; row += most) {
    const [a, b] = [OUTER.embedding, OUTER.head].map((name) => {
      const bytes = new Uint8Array(Math.min(most, rows - row) * rowBytes);
      source.read(name, row * rowBytes, bytes);
      return bytes;
    });
    if (a.some((byte, n) => byte !== b[n])) return false;
  }
  return true;
}
