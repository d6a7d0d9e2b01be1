/**
 * The residual stream of a model on a text, layer by layer: what the layers have added up so far for each token, and how
 * a part of a layer changes it. The weights of one part are loaded at a time, and one window of tokens passes through them
 * at a time. The kernels are those that decode, with exact products.
 *
 * @module
 */

import { FORMATS } from "../format/blocks.ts";
import { notFinite } from "../format/not_finite.ts";
import {
  type ActivationBuffer,
  BadScale,
  type KeyValueCache,
  type Matrix,
  type Norm,
  type Operations,
  type RopeTable,
  type Vector,
} from "../kernels/operations.ts";
import type { Config } from "../model/config.ts";
import { ropeValues } from "../model/rope.ts";
import { nameOfPart, type Part, type TensorSource } from "../model/tensors.ts";

/** The rows of some tokens, one after the other. */
export type Rows = Float32Array<ArrayBuffer>;

/** Weights of a part of a layer, for one window of tokens at a time. */
export interface Half {
  /** Computes what attention gives of a residual stream [tokens, hidden], or the gated product: what the last matrix reads. */
  inner(x: Rows, out: Rows): void;
  /** Adds the product of the last matrix and its input to the residual stream. */
  add(inner: Rows, x: Rows): void;
}

/** The attention of a layer, up to its output projection, or with it. */
export function attentionHalf(ops: Operations, model: Loader, layer: number, window: number): Half {
  const { config } = model;
  const { hidden, heads, kvHeads, headDim, qkvBias, headNorm, outputBias } = config;
  const norm = model.norm(ops, "attentionNorm", layer);
  const [q, k, v] = (["q", "k", "v"] as const).map((part) => model.matrix(ops, part, layer)!);
  const [qBias, kBias, vBias] = (["qBias", "kBias", "vBias"] as const).map((part) => {
    return qkvBias ? model.vector(ops, part, layer) : undefined;
  });
  const [qNorm, kNorm] = (["qNorm", "kNorm"] as const).map((part) => {
    return headNorm ? model.norm(ops, part, layer) : undefined;
  });
  const o = model.matrix(ops, "o", layer);
  const oBias = outputBias ? model.vector(ops, "oBias", layer) : undefined;
  const [x, mixed] = [ops.buffer(window, hidden), ops.buffer(window, heads * headDim)];
  const [qs, ks, vs] = [heads, kvHeads, kvHeads].map((heads) => ops.buffer(window, heads * headDim));
  const cache: KeyValueCache = ops.cache(window, kvHeads, headDim);
  const rope: RopeTable = ops.ropeTable(window, ropeValues(config.ropeFrequencies, window));
  return {
    inner(rows, out) {
      const tokens = put(ops, x, rows);
      ops.project({ from: x, norm }, tokens, [
        { matrix: q, bias: qBias, out: qs },
        { matrix: k, bias: kBias, out: ks },
        { matrix: v, bias: vBias, out: vs },
      ]);
      ops.attend({ q: qs, k: ks, v: vs, out: mixed, cache, rope, heads, position: 0, qNorm, kNorm }, tokens);
      ops.run();
      take(ops, mixed, out);
    },
    add: adding(ops, mixed, x, o, oBias),
  };
}

/** The feed-forward network of a layer, up to its last matrix, or with it. */
export function gatedHalf(ops: Operations, model: Loader, layer: number, window: number): Half {
  const { hidden, intermediate } = model.config;
  const norm = model.norm(ops, "mlpNorm", layer);
  const [gate, up] = (["gate", "up"] as const).map((part) => model.matrix(ops, part, layer)!);
  const down = model.matrix(ops, "down", layer);
  const [x, inner] = [ops.buffer(window, hidden), ops.buffer(window, intermediate)];
  return {
    inner(rows, out) {
      const tokens = put(ops, x, rows);
      ops.projectGated({ from: x, norm }, tokens, gate, up, inner);
      ops.run();
      take(ops, inner, out);
    },
    add: adding(ops, inner, x, down, undefined),
  };
}

function adding(
  ops: Operations,
  from: ActivationBuffer,
  to: ActivationBuffer,
  matrix: Matrix | undefined,
  bias: Vector | undefined,
) {
  return (inner: Rows, x: Rows): void => {
    if (matrix === undefined) throw new Error("the last matrix is not loaded");
    const tokens = put(ops, from, inner);
    put(ops, to, x);
    ops.projectAdd({ from }, tokens, matrix, to, bias);
    ops.run();
    take(ops, to, x);
  };
}

/** Writes rows into a buffer. @returns how many they are */
function put(ops: Operations, buffer: ActivationBuffer, rows: Rows): number {
  const { width } = buffer;
  const tokens = rows.length / width;
  for (let t = 0; t < tokens; t++) ops.row(buffer, t).set(rows.subarray(t * width, (t + 1) * width));
  return tokens;
}

/** Reads as many rows as there is room for. */
function take(ops: Operations, buffer: ActivationBuffer, rows: Rows): void {
  const { width } = buffer;
  for (let t = 0; t * width < rows.length; t++) rows.set(ops.row(buffer, t), t * width);
}

/** Loads the weights of a half from a checkpoint, or from what was made of it. */
export interface Loader {
  readonly config: Config;
  /** A matrix; undefined if the half is wanted without it. */
  matrix(ops: Operations, part: Part, layer: number): Matrix | undefined;
  vector(ops: Operations, part: Part, layer: number): Vector;
  norm(ops: Operations, part: Part, layer: number): Norm;
}

/** Blocks that were made, by the name of the tensor. */
export type Made = ReadonlyMap<string, Uint8Array>;

/**
 * A loader of tensors of a source.
 *
 * @param wanted the matrices that are loaded
 * @param made matrices that are taken from here
 * @throws {CheckpointError} a weight is not finite
 */
export function loaderOf(
  config: Config,
  source: TensorSource,
  wanted: readonly Part[],
  made?: { readonly format: Matrix["format"]; readonly blocks: Made },
): Loader {
  const vector = (ops: Operations, part: Part, layer: number): Vector => {
    const name = nameOfPart(part, layer);
    const { dtype, shape: [length] } = source.find(name)!;
    return ops.vector(FORMATS.get(dtype)!, length, (offset, into) => source.read(name, offset, into));
  };
  return {
    config,
    matrix(ops, part, layer) {
      if (!wanted.includes(part)) return undefined;
      const name = nameOfPart(part, layer);
      const { dtype, shape: [rows, columns], path } = source.find(name)!;
      const blocks = made?.blocks.get(name);
      if (blocks !== undefined) {
        return ops.matrix(made!.format, rows, columns, (offset, into) => {
          into.set(blocks.subarray(offset, offset + into.length));
        });
      }
      const format = FORMATS.get(dtype)!;
      try {
        return ops.matrix(format, rows, columns, (offset, into) => source.read(name, offset, into));
      } catch (error) {
        if (!(error instanceof BadScale)) throw error;
        throw notFinite({ path, tensor: name }, format.blockWeights, columns, error.block);
      }
    },
    vector,
    norm: (ops, part, layer) => ({ weight: vector(ops, part, layer), eps: config.normEps }),
  };
}

/** Bytes of a tensor that are read at once. */
const READ_BYTES = 1 << 20;

/** Fills `values` with the weights of a tensor from number `first` on. */
export function readWeights(source: TensorSource, name: string, first: number, values: Rows): Rows {
  const format = FORMATS.get(source.find(name)!.dtype)!;
  const most = READ_BYTES / format.blockBytes;
  const bytes = new Uint8Array(Math.min(most, values.length) * format.blockBytes);
  for (let at = 0; at < values.length; at += most) {
    const count = Math.min(most, values.length - at);
    source.read(name, (first + at) * format.blockBytes, bytes.subarray(0, count * format.blockBytes));
    format.decode(new DataView(bytes.buffer), 0, count, values.subarray(at, at + count));
  }
  return values;
}

/**
 * Each row x / sqrt(mean(x^2) + eps) * weight, as {@link Operations} computes it: the sum of squares in binary64, over four
 * interleaved partial sums.
 */
export function normalize(x: Rows, weight: Float32Array, eps: number, out: Rows): void {
  const { fround } = Math;
  const width = weight.length;
  for (let at = 0; at < x.length; at += width) {
    let [a, b, c, d] = [0, 0, 0, 0];
    for (let n = at; n < at + width; n += 4) {
      a += x[n] * x[n];
      b += x[n + 1] * x[n + 1];
      c += x[n + 2] * x[n + 2];
      d += x[n + 3] * x[n + 3];
    }
    const scale = fround(1 / Math.sqrt((a + b + (c + d)) / width + eps));
    for (let n = 0; n < width; n++) out[at + n] = fround(x[at + n] * scale) * weight[n];
  }
}
