/**
 * The memory that work with several models takes, with all weights in memory or with those of one layer at a time.
 *
 * @module
 */

import { LimitError } from "../errors.ts";
import { memoryFor } from "../files/memory.ts";
import { FORMATS } from "../format/blocks.ts";
import { type Tensor, TensorReader } from "../format/checkpoint.ts";
import { capacityFor } from "../kernels/cache.ts";
import { packedBytes } from "../kernels/load.ts";
import { LOGIT_ROWS } from "../measure/group.ts";
import { fedTokens, type Window } from "../measure/perplexity.ts";
import { type Config, longestContext } from "../model/config.ts";
import { BATCH } from "../model/llama.ts";
import type { Model } from "../model/load.ts";
import { nameOfPart, tensorsOf } from "../model/tensors.ts";

/** A text, divided into windows. */
export interface WindowedText {
  readonly ids: readonly number[];
  readonly window: number;
  readonly windows: readonly Window[];
}

/** A model as its memory depends on it. */
export interface Weighed {
  readonly config: Config;
  readonly tensors: readonly Pick<Tensor, "name" | "dtype" | "shape" | "bytes">[];
}

/** What is done with models that are in memory at the same time. */
export interface Needs {
  /** What it is, for messages. */
  readonly name: string;
  /** The capacity of the caches, in tokens. */
  readonly context: number;
  /** The most tokens whose logits are computed at once. */
  readonly logitRows: number;
  /** Whether one KV cache serves all layers if they are read one at a time. */
  readonly oneCache: boolean;
  /** The tokens whose activations wait for their layer then, and at least how many of them at once. */
  readonly fed: number;
  readonly fewest: number;
  /** Bytes of its results. */
  readonly results: number;
}

/** How it is done. */
export interface MemoryPlan {
  /** The memory that it takes, with the program, in bytes. */
  readonly memory: number;
  /** If the weights of one layer are in memory at a time: the most tokens whose activations are. */
  readonly rows?: number;
}

/**
 * Plans the memory of some needs. If all weights do not fit, the models are read one layer at a time; if the activations
 * of all tokens do not fit either, they are read several times.
 *
 * @param budget the memory that the process may use, in bytes
 * @throws {LimitError} that is not enough
 */
export function planMemory(models: readonly Weighed[], needs: Needs, threads: number, budget: number): MemoryPlan {
  const bytes = (of: (model: Weighed) => number) => {
    return memoryFor(models.reduce((sum, model) => sum + of(model), needs.results), threads);
  };
  const memory = bytes((model) => modelMemory(model, needs));
  if (memory <= budget) return { memory };
  const least = bytes((model) => layerMemory(model, needs));
  const rowBytes = models.reduce((sum, { config: { hidden } }) => sum + 4 * hidden, 0);
  const rows = Math.min(needs.fed, Math.floor((budget - least) / rowBytes));
  if (rows >= needs.fewest) return { memory: least + rows * rowBytes, rows };
  throw new LimitError(
    `${needs.name} takes ${
      Math.ceil((least + needs.fewest * rowBytes) / 1e6)
    } MB with the weights of one layer in memory, ` +
      `and ${Math.floor(budget / 1e6)} MB may be used`,
    "memory",
  );
}

/** Bytes of the observations of a scored token, while windows are summed. */
export const OBSERVATION_BYTES = 80;

/** What measuring a text needs. */
export function textNeeds(models: readonly Weighed[], { ids, window, windows }: WindowedText): Needs {
  // Short windows share passes.
  const room = Math.min(BATCH, ...models.map(({ config }) => longestContext(config)));
  const fed = fedTokens(windows);
  return {
    name: "measuring the text",
    context: Math.min(Math.max(window, room), ids.length),
    logitRows: LOGIT_ROWS,
    oneCache: true,
    fed,
    // Those of a window, or of as many windows as share a pass.
    fewest: Math.min(fed, Math.max(window, BATCH)),
    results: OBSERVATION_BYTES * windows.reduce((sum, { scored, end }) => sum + end - scored, 0),
  };
}

/** A model, as {@link planMemory} takes it and withGroup of group.ts. */
export function weighed({ checkpoint, config }: Model): Weighed & { open(): TensorReader } {
  return { tensors: checkpoint.tensors, config, open: () => new TensorReader(checkpoint) };
}

/** The memory of a loaded model beside the program, in bytes: weights, caches and activations. */
function modelMemory({ tensors, config }: Weighed, { context, logitRows }: Needs): number {
  const weights = tensors.reduce((sum, tensor) => sum + heldBytes(tensor), 0);
  return weights + config.layers * cacheBytes(config, context) + activationBytes(config, context, logitRows);
}

/** The memory of a model that is read one layer at a time, without the activations that wait for their layer. */
function layerMemory({ tensors: list, config }: Weighed, { context, logitRows, oneCache }: Needs): number {
  const { tied, layers } = config;
  const tensors = new Map(list.map((tensor) => [tensor.name, tensor]));
  const places = new Map<string, number>();
  let head = 0;
  for (const { part, layer, name } of tensorsOf(config)) {
    const tensor = tensors.get(name);
    if (tensor === undefined) continue;
    if (layer !== undefined) places.set(`${part} ${tensor.dtype}`, heldBytes(tensor));
    else if (name === nameOfPart(tied ? "embedding" : "head")) head = heldBytes(tensor);
    else if (part === "embedding") head += heldBytes({ ...tensor, shape: [Math.min(context, BATCH), tensor.shape[1]] });
  }
  const layer = [...places.values()].reduce((sum, bytes) => sum + bytes, head);
  return layer + (oneCache ? 1 : layers) * cacheBytes(config, context) + activationBytes(config, context, logitRows);
}

/** The bytes of a tensor in memory. */
function heldBytes({ dtype, shape: [rows, columns], bytes }: Omit<Weighed["tensors"][number], "name">): number {
  const format = FORMATS.get(dtype);
  return columns === undefined || format === undefined ? bytes : packedBytes({ format, rows, columns });
}

/** The bytes of the keys and values of a layer. */
function cacheBytes({ kvHeads, headDim }: Config, context: number): number {
  return 4 * 2 * capacityFor(context) * kvHeads * headDim;
}

function activationBytes(config: Config, context: number, logitRows: number): number {
  const { hidden, intermediate, heads, kvHeads, headDim, vocabulary } = config;
  const tokens = Math.min(context, BATCH);
  return 4 * (tokens * (2 * hidden + 2 * (heads + kvHeads) * headDim + intermediate) + logitRows * vocabulary);
}
