/**
 * How well models predict a text that is given: the float model and quantized ones over the same windows of tokens.
 * Knows tokens and logits only.
 *
 * @module
 */

import type { Decoder } from "./compare.ts";
import { checkFinite } from "../text/sample.ts";
import { Distribution, Divergence } from "./metrics.ts";
import { pacer, type Watch } from "../pace.ts";

/** A model that says what follows each token. */
export interface TextModel extends Decoder {
  /** Feeds tokens and visits the logits after each, which are valid during the call. */
  feedAll(ids: readonly number[], visit: (index: number, logits: Float32Array) => void): void;
}

/** Tokens start to end of a text (end is the first that is not in it), which begin without a context. */
export interface Window {
  /** The first token. */
  readonly start: number;
  /** The first token that is scored; so are all after it. Always after `start`. */
  readonly scored: number;
  /** The first token after it. */
  readonly end: number;
}

/** The window of llama.cpp's perplexity tool, in tokens. */
export const WINDOW = 512;

/** Tokens whose logits are held at a time: of more, the float model's copy would be large; with fewer, passes are slow. */
export const LOGIT_ROWS = 128;

/**
 * Cuts a text into windows. Window n begins at token n * stride, and has `window` tokens or what is left. Scored is each
 * token that no window before has scored, but the first of the window, before which the model has seen nothing. So with
 * stride = window all but the first token of each window are scored, and with a smaller stride the last `stride` tokens
 * of each window but the first, each after window - stride tokens of context at least. The windows end with the text.
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

/** Tokens that a model is fed for windows: the last of a window is scored, but what follows it is not asked for. */
export function fedTokens(windows: readonly Window[]): number {
  return windows.reduce((sum, { start, end }) => sum + end - 1 - start, 0);
}

/** Options of {@link measureText}; the progress is in tokens, those of {@link fedTokens}. */
export interface TextOptions extends Watch {
  /** Logits of a row. */
  readonly vocabulary: number;
}

/**
 * Passes the windows of a text through the models, {@link LOGIT_ROWS} tokens at a time, and compares each quantized model
 * with the float one at every scored token.
 *
 * @returns what each quantized model gave
 * @throws {NumericError} logits are not finite
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
    // The logits after a token say how likely the next one is.
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
