/**
 * What the tests of the decoder share: checkpoints of fixtures/, and the implementations of the operations.
 *
 * @module
 */

import { join } from "@std/path/join";
import { type Config, parseConfig } from "../../lib/model/config.ts";
import type { Llama } from "../../lib/model/llama.ts";
import { loadModel } from "../../lib/model/load.ts";
import type { TensorSource } from "../../lib/model/tensors.ts";
import { WIDTHS } from "../../lib/format/blocks.ts";
import { openCheckpoint } from "../../lib/format/checkpoint.ts";
import type { Activations, Operations } from "../../lib/kernels/operations.ts";
import { Pool } from "../../lib/kernels/pool.ts";
import { Reference } from "../../lib/kernels/reference.ts";
import { planQuantize, quantize } from "../../lib/quantize/quantize.ts";
import { ROOT } from "./program.ts";

/** The tiny model. */
export const TINY = `${ROOT}fixtures/tiny`;

/** The models that have one particular thing each. */
export const MODELS = `${ROOT}fixtures/models`;

/** Every implementation of the operations, at every number of threads that tests use. */
export const IMPLEMENTATIONS: readonly { name: string; make(activations?: Activations): Operations }[] = [
  { name: "Reference", make: (activations) => new Reference(activations) },
  ...[1, 2, 3].map((threads) => ({
    name: `Pool of ${threads}`,
    make: (activations?: Activations) => new Pool({ threads, activations }),
  })),
];

/** What is known of a model. */
export interface Expected {
  readonly prompt_ids: number[];
  readonly tokens: number[];
  readonly smallest_margin: number;
  readonly prefill_logits: number[];
}

/** A JSON file. */
// deno-lint-ignore no-explicit-any
export function json(path: string): any {
  return JSON.parse(Deno.readTextFileSync(path));
}

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

/** The bits of binary32 values; every NaN is one and the same. */
export function bitsOf(values: Float32Array): Uint32Array {
  return new Uint32Array(values.slice().buffer).map((bits) => (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : bits);
}

/** @throws {Error} naming the first value that differs in a bit */
export function assertSameBits(actual: Float32Array, expected: Float32Array, what: string): void {
  if (actual.length !== expected.length) throw new Error(`${what}: ${actual.length} values, not ${expected.length}`);
  const [a, b] = [bitsOf(actual), bitsOf(expected)];
  const at = a.findIndex((bits, n) => bits !== b[n]);
  if (at >= 0) throw new Error(`${what}: value ${at} of ${a.length} is ${actual[at]}, not ${expected[at]}`);
}

/** @throws {Error} naming the value that is farthest off */
export function assertNear(
  actual: Float32Array,
  expected: readonly number[],
  tolerance: number,
  what: string,
): void {
  if (actual.length !== expected.length) throw new Error(`${what}: ${actual.length} values, not ${expected.length}`);
  const off = expected.map((x, n) => Math.abs(x - actual[n]));
  const worst = off.reduce((worst, d, n) => d <= off[worst] ? worst : n, 0);
  if (!(off[worst] <= tolerance)) {
    throw new Error(`${what}: value ${worst} is ${actual[worst]}, not ${expected[worst]}: off by ${off[worst]}`);
  }
}
