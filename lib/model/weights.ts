/**
 * The weights of a model: all of them in memory, or the head and those of one layer at a time.
 *
 * @module
 */

import { CheckpointError } from "../errors.ts";
import type { Work } from "../pace.ts";
import { type Format, FORMATS } from "../format/blocks.ts";
import { notFinite } from "../format/not_finite.ts";
import {
  type ActivationBuffer,
  BadScale,
  type Matrix,
  type Norm,
  type Operations,
  type ReadBytes,
  type Vector,
} from "../kernels/operations.ts";
import type { Config } from "./config.ts";
import { checkTensors, type FoundTensor, nameOfPart, type Part, tensorsOf, type TensorSource } from "./tensors.ts";

/** The weights of one layer. */
export interface Layer {
  readonly attentionNorm: Norm;
  readonly q: Matrix; // heads * headDim x hidden
  readonly k: Matrix; // kvHeads * headDim x hidden
  readonly v: Matrix; // kvHeads * headDim x hidden
  readonly qBias?: Vector;
  readonly kBias?: Vector;
  readonly vBias?: Vector;
  readonly qNorm?: Norm; // headDim
  readonly kNorm?: Norm;
  readonly o: Matrix; // hidden x heads * headDim
  readonly oBias?: Vector;
  readonly mlpNorm: Norm;
  readonly gate: Matrix; // intermediate x hidden
  readonly up: Matrix; // intermediate x hidden
  readonly down: Matrix; // hidden x intermediate
}

/** The weights of a model. */
export interface Weights {
  /** out[t] = the embedding of token ids[t]. */
  embed(ids: readonly number[], out: ActivationBuffer): void;
  /** The weights of a layer, valid until another is asked for. */
  layer(n: number): Layer;
  readonly norm: Norm;
  readonly head: Matrix; // vocabulary x hidden; the embedding if they are tied
}

/**
 * Loads all weights, as a generator that yields after each layer.
 *
 * @throws {CheckpointError} a tensor is missing or unexpected or has the wrong shape, or a scale is not finite
 */
export function* loadWeights(ops: Operations, config: Config, source: TensorSource): Work<Weights> {
  const loader = new Loader(ops, config, source);
  const embedding = loader.matrix("embedding");
  const layers: Layer[] = [];
  for (let n = 0; n < config.layers; n++) {
    layers.push(loader.layer(n));
    yield;
  }
  return {
    embed: (ids, out) => ops.embed(embedding, ids, out),
    layer: (n) => layers[n],
    norm: loader.norm("norm"),
    head: config.tied ? embedding : loader.matrix("head"),
  };
}

/**
 * Loads the head. Layers are read from the source when they are asked for, into the place of the one before; of an
 * embedding that is not the head, the rows of the tokens are read.
 *
 * @param batch the most tokens that are embedded at once
 * @throws {CheckpointError} as {@link loadWeights}, and so do its methods
 */
export function* readWeights(
  ops: Operations,
  config: Config,
  source: TensorSource,
  batch: number,
): Work<Weights> {
  const loader = new Loader(ops, config, source, true);
  const { hidden, tied } = config;
  const head = loader.matrix(tied ? "embedding" : "head");
  const norm = loader.norm("norm");
  yield;
  const rows = tied ? undefined : loader.place("embedding", [batch, hidden]) as Matrix;
  for (const { part, layer, shape } of tensorsOf(config)) if (layer !== undefined) loader.place(part, shape, layer);
  let held: { n: number; layer: Layer } | undefined;
  return {
    embed(ids, out) {
      if (rows === undefined) return ops.embed(head, ids, out);
      const outside = ids.find((id) => !(id >= 0 && id < config.vocabulary));
      if (outside !== undefined) throw new RangeError(`token ${outside} of a vocabulary of ${config.vocabulary}`);
      loader.rows("embedding", rows, ids);
      ops.embed(rows, [...ids.keys()], out);
    },
    layer(n) {
      if (held?.n !== n) {
        held = undefined;
        held = { n, layer: loader.layer(n) };
      }
      return held.layer;
    },
    norm,
    head,
  };
}

/** Loads tensors of a source. */
class Loader {
  readonly #tensors: ReadonlyMap<string, FoundTensor>;
  /** By part and format: where the tensors of one layer are. */
  readonly #places?: Map<string, Matrix | Vector>;

  /** @param inPlace whether each layer replaces the one before */
  constructor(
    readonly ops: Operations,
    readonly config: Config,
    readonly source: TensorSource,
    inPlace = false,
  ) {
    this.#tensors = checkTensors(config, source);
    if (inPlace) this.#places = new Map();
  }

  #find(part: Part, layer?: number) {
    const name = nameOfPart(part, layer);
    const { dtype, shape, path } = this.#tensors.get(name)!;
    const format = FORMATS.get(dtype);
    if (format === undefined || (shape.length === 1 && format.kind !== "float")) {
      throw new CheckpointError({ path, tensor: name, field: "dtype" }, `the decoder does not know ${dtype}`);
    }
    const read: ReadBytes = (offset, into) => this.source.read(name, offset, into);
    return { name, format, shape, path, read };
  }

  /** Makes a place for a tensor, unless there is one for this part and format. It holds zeros. */
  place(part: Part, [rows, columns]: readonly number[], layer?: number): Matrix | Vector {
    const { format } = this.#find(part, layer);
    const zeros: ReadBytes = (_, into) => into.fill(0);
    const key = `${part} ${format.name}`;
    let place = this.#places!.get(key);
    if (place === undefined) {
      place = columns === undefined
        ? this.ops.vector(format, rows, zeros)
        : this.ops.matrix(format, rows, columns, zeros);
      this.#places!.set(key, place);
    }
    return place;
  }

  /** The place of a tensor of a layer, if each layer replaces the one before. */
  #placeOf(part: Part, format: Format, layer: number | undefined): Matrix | Vector | undefined {
    return layer === undefined ? undefined : this.#places?.get(`${part} ${format.name}`);
  }

  matrix(part: Part, layer?: number): Matrix {
    const { format, shape: [rows, columns], read, ...at } = this.#find(part, layer);
    const place = this.#placeOf(part, format, layer) as Matrix | undefined;
    return naming(at, format, columns, (block) => block, () => {
      if (place === undefined) return this.ops.matrix(format, rows, columns, read, this.source.place?.(at.name));
      this.ops.replace(place, read);
      return place;
    });
  }

  vector(part: Part, layer?: number): Vector {
    const { format, shape: [length], read } = this.#find(part, layer);
    const place = this.#placeOf(part, format, layer);
    if (place === undefined) return this.ops.vector(format, length, read);
    this.ops.replaceVector(place as Vector, format, read);
    return place as Vector;
  }

  norm(part: Part, layer?: number): Norm {
    return { weight: this.vector(part, layer), eps: this.config.normEps };
  }

  /** Fills a matrix with some rows of another. */
  rows(part: Part, into: Matrix, rows: readonly number[]): void {
    const { format, shape: [, columns], read, ...at } = this.#find(part);
    const rowBytes = columns / format.blockWeights * format.blockBytes;
    const perRow = columns / format.blockWeights;
    const blockOf = (block: number) => rows[Math.floor(block / perRow)] * perRow + block % perRow;
    naming(at, format, columns, blockOf, () => {
      this.ops.replace(into, (offset, bytes) => {
        for (let done = 0; done < bytes.length; done += rowBytes) {
          const row = rows[(offset + done) / rowBytes];
          const to = bytes.subarray(done, done + rowBytes);
          if (row === undefined) to.fill(0);
          else read(row * rowBytes, to);
        }
      });
    });
  }

  layer(n: number): Layer {
    const { qkvBias, outputBias, headNorm } = this.config;
    return {
      attentionNorm: this.norm("attentionNorm", n),
      q: this.matrix("q", n),
      k: this.matrix("k", n),
      v: this.matrix("v", n),
      qBias: qkvBias ? this.vector("qBias", n) : undefined,
      kBias: qkvBias ? this.vector("kBias", n) : undefined,
      vBias: qkvBias ? this.vector("vBias", n) : undefined,
      qNorm: headNorm ? this.norm("qNorm", n) : undefined,
      kNorm: headNorm ? this.norm("kNorm", n) : undefined,
      o: this.matrix("o", n),
      oBias: outputBias ? this.vector("oBias", n) : undefined,
      mlpNorm: this.norm("mlpNorm", n),
      gate: this.matrix("gate", n),
      up: this.matrix("up", n),
      down: this.matrix("down", n),
    };
  }
}

/** Loads a matrix; an error names the tensor, row and block. `blockOf` gives the number of a block in the tensor. */
function naming<T>(
  { path, name }: { readonly path: string; readonly name: string },
  format: Format,
  columns: number,
  blockOf: (block: number) => number,
  load: () => T,
): T {
  try {
    return load();
  } catch (error) {
    if (!(error instanceof BadScale)) throw error;
    throw notFinite({ path, tensor: name }, format.blockWeights, columns, blockOf(error.block));
  }
}
