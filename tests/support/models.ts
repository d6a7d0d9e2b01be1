/**
 * Checkpoints that tests load, change and quantize, and the implementations of the operations.
 *
 * @module
 */

import { assert } from "@std/assert";
import { join } from "@std/path/join";
import { WIDTHS } from "../../lib/format/blocks.ts";
import { openCheckpoint } from "../../lib/format/checkpoint.ts";
import type { Activations, Operations } from "../../lib/kernels/operations.ts";
import { Pool } from "../../lib/kernels/pool.ts";
import { Reference } from "../../lib/kernels/reference.ts";
import { type Config, parseConfig } from "../../lib/model/config.ts";
import type { Llama } from "../../lib/model/llama.ts";
import { loadModel } from "../../lib/model/load.ts";
import type { TensorSource } from "../../lib/model/tensors.ts";
import { planQuantize, quantize } from "../../lib/quantize/quantize.ts";
import { write } from "./files.ts";
import { json, TINY, WEIGHTS } from "./fixtures.ts";
import { entriesOf, type Entry, metadataOf, safetensors } from "./safetensors.ts";
import { tokenizerJson } from "./tokenizers.ts";

/** Every implementation of the operations, at every number of threads that tests use. */
export const IMPLEMENTATIONS: readonly { name: string; make(activations?: Activations): Operations }[] = [
  { name: "Reference", make: (activations) => new Reference(activations) },
  ...[1, 2, 3].map((threads) => ({
    name: `Pool of ${threads}`,
    make: (activations?: Activations) => new Pool({ threads, activations }),
  })),
];

/** The configuration of a directory, with some fields changed. */
export function configOf(directory: string, changes: Record<string, unknown> = {}): Config {
  const path = join(directory, "config.json");
  return parseConfig(path, JSON.stringify({ ...json(path), ...changes }));
}

/** Loads a model; `config` and `context` are the directory's and 64 when they are not given. */
export function load(
  ops: Operations,
  directory: string,
  { config = configOf(directory), context = 64, logitRows = 1, change = (source: TensorSource) => source } = {},
): Llama {
  return loadModel(ops, { checkpoint: openCheckpoint(directory), config }, context, logitRows, change);
}

/** Calls `test` with operations, and ends their threads. */
export function using<O extends Operations, T>(ops: O, test: (ops: O) => T): T {
  const done = () => ops.close();
  let result: T;
  try {
    result = test(ops);
  } catch (error) {
    done();
    throw error;
  }
  if (result instanceof Promise) return result.finally(done) as T;
  done();
  return result;
}

/** Quantizes `source` to `directory`. */
export async function quantizeTo(directory: string, source: string, bits: number): Promise<string> {
  const format = WIDTHS.find((format) => format.bits === bits)!;
  await quantize(planQuantize(openCheckpoint(source), format), directory, { threads: 1, force: false });
  return directory;
}

/** Makes `directory` a checkpoint with the weights and the configuration of another. */
export function copyModel(from: string, directory: string): string {
  Deno.mkdirSync(directory, { recursive: true });
  for (const name of [WEIGHTS, "config.json"]) Deno.copyFileSync(join(from, name), join(directory, name));
  return directory;
}

/** Makes `directory` a checkpoint like another, with other tensors, other fields of config.json, and more files. */
export function variant(
  directory: string,
  from: string,
  { tensors, config = {}, files = {} }: {
    readonly tensors?: (entries: Entry[]) => Entry[];
    readonly config?: Record<string, unknown>;
    readonly files?: Record<string, string>;
  },
): string {
  const file = Deno.readFileSync(join(from, WEIGHTS));
  write(directory, {
    [WEIGHTS]: tensors === undefined ? file : safetensors(tensors(entriesOf(file)), metadataOf(file)),
    "config.json": JSON.stringify({ ...json(join(from, "config.json")), ...config }),
    ...files,
  });
  return directory;
}

/** Makes `directory` the tiny model with a tokenizer of its 320 ids, of which `added` are special, and more files. */
export function talkingModel(
  directory: string,
  words: readonly string[],
  files: Record<string, string> = {},
  added: readonly number[] = [],
): string {
  copyModel(TINY, directory);
  write(directory, { "tokenizer.json": tokenizerJson(words, added), ...files });
  return directory;
}

/** Tensors of a checkpoint that is nowhere; a read beyond the end of one is a defect of the reader. */
export function tensorSource(
  tensors: Readonly<Record<string, { dtype: string; shape: readonly number[]; bytes: Uint8Array }>>,
): TensorSource {
  const path = "model";
  return {
    path,
    names: Object.keys(tensors),
    find(name) {
      if (!Object.hasOwn(tensors, name)) return undefined;
      const { dtype, shape } = tensors[name];
      return { dtype, shape, path };
    },
    read(name, offset, into) {
      const { bytes } = tensors[name];
      const end = offset + into.length;
      assert(end <= bytes.length, `${name} is read to byte ${end} of ${bytes.length}`);
      into.set(bytes.subarray(offset, end));
    },
  };
}
