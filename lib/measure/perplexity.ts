/**
 * Measures how well a float model and its quantized versions predict a text, on the same windows of tokens. Uses tokens
 * and logits only.
 *
 * @module
 */

import { checkFinite } from "../text/sample.ts";
import type { ModelGroup } from "./group.ts";
import { Divergence } from "./metrics.ts";
import { counted, type Watch } from "../pace.ts";

/** The tokens from `start` up to `end` (exclusive) of a text. The model sees no tokens before them. */
export interface Window {
  /** The first token. */
  readonly start: number;
  /** The first token that is scored, as are all tokens after it; greater than `start`. */
  readonly scored: number;
  /** The first token after the window. */
  readonly end: number;
}

/** The default window in tokens, that of llama.cpp's perplexity tool. */
export const WINDOW = 512;

/**
 * Divides a text into windows. Window n begins at token n * stride, and has `window` tokens or those that are left.
 * Each token is scored in the first window that contains it and in which it is not the first token, which has no
 * context. If stride = window, each window scores all its tokens but the first. With a smaller stride, each window but
 * the first scores its last `stride` tokens, with at least window - stride tokens of context.
 */
export function windowsOf(tokens: number, window: number, stride: number): Window[] {
  const windows: Window[] = [];
  for (let start = 0, next = 1, end = 0; end < tokens; start += stride, next = end) {
    end = Math.min(start + window, tokens);
    const scored = Math.max(next, start + 1);
    if (scored < end) windows.push({ start, scored, end });
  }
  return windows;
}

/** The number of tokens that a model is fed: all but the last of each window, whose logits would not be used. */
export function fedTokens(windows: readonly Window[]): number {
  return windows.reduce((sum, { start, end }) => sum + end - 1 - start, 0);
}

/**
 * Feeds the windows of a text to the models, and compares each quantized model with the float model at every scored
 * token. The progress counts the tokens of {@link fedTokens}.
 *
 * @returns one result for each quantized model
 * @throws {NumericError} a logit is not finite
 * @throws the reason of `signal`
 */
export async function measureText(
  models: ModelGroup,
  ids: readonly number[],
  windows: readonly Window[],
  watch: Watch = {},
): Promise<Divergence[]> {
  const measured = await measureWindows(models, ids, windows, watch);
  return Array.from({ length: models.quants }, (_, quant) => sumOfWindows(measured.map((window) => window[quant])));
}

/** {@link measureText}, with one result for each window and quantized model. */
export async function measureWindows(
  models: ModelGroup,
  ids: readonly number[],
  windows: readonly Window[],
  watch: Watch = {},
): Promise<Divergence[][]> {
  const results = windows.map(() => Array.from({ length: models.quants }, () => new Divergence()));
  // The logits after a token predict the next one.
  const sequences = windows.map(({ start, scored, end }) => {
    return { ids: ids.slice(start, end - 1), first: scored - 1 - start };
  });
  const work = models.compare(sequences, (window, index, quant, pair) => {
    checkFinite(pair.topP >= 0 && pair.topQ >= 0);
    results[window][quant].add(pair, ids[windows[window].start + index + 1]);
  });
  await counted(work, fedTokens(windows), watch);
  return results;
}

/** The measurement of a text from those of its windows, in their order. */
export function sumOfWindows(windows: Iterable<Divergence>): Divergence {
  const sum = new Divergence();
  for (const { observations } of windows) sum.append(observations);
  return sum;
}
