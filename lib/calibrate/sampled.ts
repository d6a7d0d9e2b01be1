/**
 * Text that a model makes up itself, to calibrate it with when there is no other: windows that begin with the token that
 * begins a text, each next token sampled from all that the model gives (temperature 1, nothing cut off).
 *
 * @module
 */

import { join } from "@std/path/join";
import { RabbitError } from "../errors.ts";
import { exists } from "../files/read.ts";
import { TensorReader } from "../format/checkpoint.ts";
import { readJsonObject } from "../format/json.ts";
import { ATTENTION_CHUNK, type Operations } from "../kernels/operations.ts";
import { longestContext } from "../model/config.ts";
import { loadInTurns, MAX_CONFIG_BYTES, type Model } from "../model/load.ts";
import { pacer } from "../pace.ts";
import { SplitMix64 } from "../random.ts";
import { Sampler } from "../text/sample.ts";

/** Windows that are sampled at the same time: eight take two thirds of the time, and the memory of four more caches. */
export const TOGETHER = 4;

/** Files that name the token that begins a text, the first that does wins. */
const FILES = ["config.json", "generation_config.json"];

/** The token that begins a text. @throws {RabbitError} no file names one, or it is none of the vocabulary */
export function beginOfText({ checkpoint: { directory }, config: { vocabulary } }: Model): number {
  for (const path of FILES.map((name) => join(directory, name)).filter(exists)) {
    const id = readJsonObject(path, MAX_CONFIG_BYTES).bos_token_id ?? undefined;
    if (id === undefined) continue;
    if (Number.isSafeInteger(id) && id as number >= 0 && id as number < vocabulary) return id as number;
    throw new RabbitError(`${path}: bos_token_id: expected a token id below ${vocabulary}; calibrate with a text`);
  }
  throw new RabbitError(
    `${
      FILES.join(" and ")
    } of ${directory} name no bos_token_id, with which a sampled text begins; calibrate with a text`,
  );
}

/**
 * Samples windows of tokens. They depend on the model and the seed alone, each window on a seed of its own.
 *
 * @param ops the weights of the model are loaded into it
 * @param progress called with the tokens that are sampled
 * @throws {NumericError} the logits are not finite
 * @throws the reason of the signal
 */
export async function sampledWindows(
  ops: Operations,
  model: Model,
  { count, window, seed, signal, progress }: {
    readonly count: number;
    readonly window: number;
    readonly seed: number;
    readonly signal?: AbortSignal;
    readonly progress?: (tokens: number) => void;
  },
): Promise<number[][]> {
  const { config, checkpoint } = model;
  const first = beginOfText(model);
  const random = new SplitMix64(seed);
  const pause = pacer(signal);
  const room = Math.ceil(window / ATTENTION_CHUNK) * ATTENTION_CHUNK;
  const together = Math.max(1, Math.min(TOGETHER, count, Math.floor(longestContext(config) / room)));
  const context = together === 1 ? window : together * room;
  const llama = await loadInTurns(ops, config, new TensorReader(checkpoint), context, together, { signal });
  const windows: number[][] = [];
  while (windows.length < count) {
    const group = Array.from({ length: Math.min(together, count - windows.length) }, (_, n) => ({
      ids: [first],
      start: n * room,
      sampler: new Sampler({ temperature: 1, topP: 1, seed: Number(random.next() >> 11n) }),
    }));
    for (let position = 0; position < window - 1; position++) {
      llama.pass(group.map(({ ids, start }) => ({ ids: [ids[position]], position, start })));
      const logits = llama.predict(0, group.length);
      ops.run();
      for (const [n, { ids, sampler }] of group.entries()) ids.push(sampler.sample(ops.row(logits, n)));
      progress?.(group.length);
      await pause();
    }
    windows.push(...group.map(({ ids }) => ids));
  }
  return windows;
}
