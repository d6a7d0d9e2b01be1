/**
 * Several texts that are measured as one.
 *
 * @module
 */

import { RabbitError } from "../errors.ts";
import type { Divergence } from "../measure/metrics.ts";
import { sumOfWindows, windowsOf } from "../measure/perplexity.ts";
import type { WindowedText } from "./memory_plan.ts";

/** One of several texts. */
export interface TextPart {
  /** Its path or name. */
  readonly file: string;
  /** Number of tokens. */
  readonly tokens: number;
  /** Number of windows. */
  readonly windows: number;
}

/** Texts, divided into windows: those of the first text, then those of the second, and so on. */
export interface WindowedTexts extends WindowedText {
  /** The texts in their order. */
  readonly texts: readonly TextPart[];
  /** Tokens from one window to the next. */
  readonly stride: number;
}

/** Divides texts into windows. @throws {RabbitError} two are the same, which would count twice as evidence */
export function windowTexts(
  texts: readonly { readonly file: string; readonly ids: readonly number[] }[],
  window: number,
  stride: number,
): WindowedTexts {
  const seen = new Map<string, string>();
  const divided = texts.map(({ file, ids }) => {
    const key = ids.join();
    const same = seen.get(key);
    if (same !== undefined) throw new RabbitError(`${same} and ${file} are the same text; give it once`);
    seen.set(key, file);
    return windowsOf(ids.length, window, stride);
  });
  let offset = 0;
  const windows = divided.flatMap((windows, text) => {
    const from = offset;
    offset += texts[text].ids.length;
    return windows.map(({ start, scored, end }) => ({ start: from + start, scored: from + scored, end: from + end }));
  });
  return {
    ids: texts.length === 1 ? texts[0].ids : texts.flatMap(({ ids }) => ids),
    window,
    stride,
    windows,
    texts: texts.map(({ file, ids }, text) => ({ file, tokens: ids.length, windows: divided[text].length })),
  };
}

/** The measurements of texts. */
export interface MeasuredTexts {
  /** Of each text. */
  readonly texts: readonly Divergence[];
  /** Of all scored tokens. */
  readonly all: Divergence;
}

/** The measurements of texts from those of their windows, in order. */
export function sumOfTexts(texts: readonly TextPart[], windows: readonly Divergence[]): MeasuredTexts {
  let first = 0;
  const sums = texts.map((text) => sumOfWindows(windows.slice(first, first += text.windows)));
  return { texts: sums, all: sums.length === 1 ? sums[0] : sumOfWindows(sums) };
}
