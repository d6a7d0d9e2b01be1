/**
 * Measures how well a float model and its quantized versions predict a text, on the same windows of tokens. Uses tokens
 * and logits only.
 *
 * @module
 */

import type { Decoder } from "./compare.ts";
import { checkFinite } from "../text/sample.ts";
import { Distribution, Divergence } from "./metrics.ts";
import { pacer, type Watch } from "../pace.ts";

/** A model that can return the logits after every token. */
export interface TextModel extends Decoder {
  /** Feeds tokens and calls `visit` with the logits after each, which are valid during the call. */
  feedAll(ids: readonly number[], visit: (index: number, logits: Float32Array) => void): void;
}

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

/** Rows of logits in memory at a time: more rows need more memory, fewer rows make the batches slow. */
export const LOGIT_ROWS = 128;

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

/** Options of {@link measureText}. Progress counts the tokens of {@link fedTokens}. */
export interface TextOptions extends Watch {
  /** Size of the vocabulary. */
  readonly vocabulary: number;
}

/**
 * Feeds the windows of a text to the models, {@link LOGIT_ROWS} tokens at a time, and compares each quantized model
 * with the float model at every scored token.
 *
 * @returns one result for each quantized model
 * @throws {NumericError} a logit is not finite
 * @throws the reason of `signal`
 */
export async function measureText(
  float: TextModel,
  quants: readonly TextModel[],
  ids: readonly number[],
  windows: readonly Window[],
  { vocabulary, signal, progress }: TextOptions,
): Promise<Divergence[]> {
  const results = quants.map(() => new Divergence());
  const kept = Array.from({ length: LOGIT_ROWS }, () => new Float32Array(vocabulary));
  const [p, q] = [new Distribution(vocabulary), new Distribution(vocabulary)];
  const pause = pacer(signal);
  const total = fedTokens(windows);
  let done = 0;
  for (const { start, scored, end } of windows) {
    for (const model of [float, ...quants]) {
      model.rewind(0);
      if (scored - 1 > start) model.feed(ids.slice(start, scored - 1));
    }
    done += scored - 1 - start;
    // The logits after a token predict the next one, so batches begin one token before the first that is scored.
    for (let at = scored - 1; at < end - 1; at += LOGIT_ROWS) {
      const batch = ids.slice(at, Math.min(at + LOGIT_ROWS, end - 1));
      float.feedAll(batch, (n, logits) => kept[n].set(logits));
      for (const [which, quant] of quants.entries()) {
        quant.feedAll(batch, (n, logits) => {
          checkFinite(p.set(kept[n]) && q.set(logits));
          results[which].add(p, q, ids[at + n + 1]);
        });
      }
      done += batch.length;
      progress?.(done, total);
      await pause();
    }
  }
  return results;
}
