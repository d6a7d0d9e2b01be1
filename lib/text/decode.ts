/**
 * Decoding token by token.
 *
 * @module
 */

import type { Config } from "../model/config.ts";
import { endOfText } from "../model/end_of_text.ts";
import type { ChatTemplate } from "./chat.ts";
import { greedy, type Sampler } from "./sample.ts";
import type { Tokenizer } from "./tokenizer.ts";

/** What {@link decoding} needs of a model. */
export interface Feedable {
  /** Feeds tokens; the logits after the last one, valid until the next call. */
  feed(ids: readonly number[]): Float32Array;
}

/** Options of {@link decoding}. */
export interface Decoding {
  /** The maximum number of tokens. */
  readonly steps: number;
  /** EOS tokens. */
  readonly stops: readonly number[];
  /** Without a sampler, decoding is greedy. */
  readonly sampler?: Sampler;
}

/** Generates the tokens that follow a prompt; the last one may be one of `stops`. @throws {NumericError} as {@link greedy} */
export function* decoding(
  model: Feedable,
  prompt: readonly number[],
  { steps, stops, sampler }: Decoding,
): Generator<number, void> {
  let fed = prompt;
  for (let n = 0; n < steps; n++) {
    const logits = model.feed(fed);
    const token = sampler?.sample(logits) ?? greedy(logits);
    yield token;
    if (stops.includes(token)) return;
    fed = [token];
  }
}

/**
 * The EOS tokens of a model: those of config.json and generation_config.json, and the EOS token of the chat template, if
 * one is used.
 *
 * @throws {CheckpointError} generation_config.json is bad
 */
export function stopsOf(config: Config, directory: string, chat?: ChatTemplate, tokenizer?: Tokenizer): number[] {
  const end = chat?.tokens.eos_token;
  const turn = end === undefined ? undefined : tokenizer?.idOf(end);
  return [...endOfText(config, directory), ...turn === undefined ? [] : [turn]];
}
