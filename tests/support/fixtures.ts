/**
 * The repository, and what several tests read of fixtures/.
 *
 * @module
 */

import { dirname } from "@std/path/dirname";

/** The repository, with a slash at its end. */
export const ROOT = `${dirname(dirname(import.meta.dirname!))}/`;

/** The name of the weights file of a checkpoint. */
export const WEIGHTS = "model.safetensors";

/** The tiny model. */
export const TINY = `${ROOT}fixtures/tiny`;

/** The models that have one particular thing each. */
export const MODELS = `${ROOT}fixtures/models`;

/** A GGUF file with tensors of several types. */
export const MIXED = `${ROOT}fixtures/gguf/mixed.gguf`;

/** A JSON file. */
// deno-lint-ignore no-explicit-any
export function json(path: string): any {
  return JSON.parse(Deno.readTextFileSync(path));
}

/** A JSON file of fixtures/. */
// deno-lint-ignore no-explicit-any
export function fixture<T = any>(name: string): T {
  return json(`${ROOT}fixtures/${name}`);
}

/** What is known of a model. */
export interface Expected {
  readonly prompt_ids: number[];
  readonly tokens: number[];
  readonly smallest_margin: number;
  readonly prefill_logits: number[];
}

/** What fixtures/tiny answers, as computed by an independent decoder. */
export const expected = fixture("tiny/expected.json");

/** The prompt of that answer, as arguments. */
export const IDS: readonly string[] = ["--ids", expected.prompt_ids.join(" ")];

/** The names of the models in {@link MODELS}. */
export function modelNames(): string[] {
  return [...Deno.readDirSync(MODELS)].filter(({ isDirectory }) => isDirectory).map(({ name }) => name).sort();
}
