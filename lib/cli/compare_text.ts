/**
 * `rabbit compare --text`: how well both models predict a text.
 *
 * @module
 */

import { longestContext } from "../model/config.ts";
import { predictText as predict } from "../library/compare.ts";
import type { Model } from "../model/load.ts";
import { readText } from "../files/read.ts";
import { type Divergence, type Figure, type PredictionFigures, predictionFigures } from "../measure/metrics.ts";
import { fedTokens, WINDOW, type Window, windowsOf } from "../measure/perplexity.ts";
import { type Arguments, COUNT, type Detail, FILE, type Flags, type Values } from "./arguments.ts";
import { UsageError } from "./errors.ts";
import { memory, textIds, tokenizerFor } from "./model.ts";
import { type Fields, Fixed, type Output, tokensPerSecond, withBar } from "./output.ts";

/** Hours of work for the smallest model; a file larger than this is another one. */
export const MAX_TEXT_BYTES = 100_000_000;

/** The flags of a measurement by text. */
export const TEXT_FLAGS = {
  text: { type: FILE, help: "measure how well both models predict a text (UTF-8), instead of a prompt" },
  window: {
    type: { kind: "integer", min: 2 },
    unset: `${WINDOW}, or the model's context if that is less`,
    help: "tokens of a window",
  },
  stride: {
    type: COUNT,
    unset: "the window's length: windows do not overlap",
    help: "tokens from one window to the next",
  },
} as const satisfies Flags;

/** What the results of a text mean, for the help. */
export const TEXT_DETAILS: readonly Detail[] = [
  "With --text both checkpoints are held in memory, and every window begins without a context and without special " +
  "tokens. All tokens of a window but its first are scored; where windows overlap, those that no window before has " +
  "scored: with a stride below the window, the last N = stride of each window but the first. (llama.cpp's perplexity " +
  "tool, which has the same window, scores only the second half of each, where the context is longer: its figures are " +
  "lower.)",
  [
    [
      "perplexity",
      "exp of the mean of -log p(right token); error: its standard error, that of the mean times the perplexity; ratio is " +
      "quant / float, with the error of the differences token by token",
    ],
    [
      "kl",
      "Kullback-Leibler divergence of QUANT from FLOAT for each token, in nats: sum of p (log p - log q); mean and its " +
      "standard error, median, 99.9% quantile (p999), largest",
    ],
    ["same_top", "part of the tokens where both models have the same most probable one"],
    ["prob", "change of the probability of the right token, q - p: root mean square, and mean"],
  ],
  "With --text there is no verdict: the exit status is 0. The definitions are those of llama.cpp's " +
  "tools/perplexity/README.md.",
];

/** A text to measure, as the command line has it. */
interface Asked {
  readonly path: string;
  readonly window?: number;
  readonly stride?: number;
}

/** The flags that textOf looks at. */
type TextValues = Values<typeof TEXT_FLAGS>;

/** What is asked of a text; undefined if nothing is. @throws {UsageError} flags that exclude each other */
export function textOf({ values: { text: path, window, stride }, given }: Arguments<TextValues>): Asked | undefined {
  const first = (names: readonly string[]) => names.find((name) => given.has(name));
  if (path === undefined) {
    const stray = first(["window", "stride"]);
    if (stray !== undefined) throw new UsageError(`--${stray} is for --text, which is not given`);
    return undefined;
  }
  const other = first(["ids", "prompt", "steps", "reference"]);
  if (other !== undefined) throw new UsageError(`--text and --${other} exclude each other: a text is not a prompt`);
  return { path, window, stride };
}

/** A text, cut into windows. */
export interface Text {
  readonly file: string;
  readonly ids: readonly number[];
  readonly window: number;
  readonly stride: number;
  readonly windows: readonly Window[];
}

/**
 * Reads a text with the tokenizer of the first model, and cuts it into windows that all models can take.
 *
 * @throws {UsageError} the text, the window or the stride can't be had
 */
export function openText(asked: Asked, models: readonly Model[]): Text {
  const [{ config }] = models;
  const longest = Math.min(...models.map(({ config }) => longestContext(config)));
  const window = asked.window ?? Math.min(WINDOW, longest);
  if (window > longest) {
    const field = models.some(({ config }) => config.window === longest) ? "sliding_window" : "max_position_embeddings";
    throw new UsageError(
      `--window ${window} is more than the model's context of ${longest} (${field}); use a smaller one`,
    );
  }
  const stride = asked.stride ?? window;
  if (stride > window) {
    throw new UsageError(`--stride ${stride} is more than the window of ${window}: tokens between would be left out`);
  }
  const content = readText(asked.path, MAX_TEXT_BYTES);
  const tokenizer = tokenizerFor("text", models[0], "copy them there", "leave --text out");
  const ids = textIds(tokenizer, content, asked.path, config);
  return { file: asked.path, ids, window, stride, windows: windowsOf(ids.length, window, stride) };
}

/** How well each quantized model predicts a text, beside the float one, with a bar. */
export async function predictText(
  label: string,
  float: Model,
  quants: readonly Model[],
  text: Text,
  threads: number,
): Promise<Divergence[]> {
  return await withBar(
    label,
    fedTokens(text.windows),
    (watch) => predict(float, quants, text, { threads, ...watch }),
    tokensPerSecond,
  );
}

/** Measures a text and prints the results. @throws {UsageError} the text, the window or the stride can't be had */
export async function compareText(
  float: Model,
  quant: Model,
  asked: Asked,
  threads: number,
  out: Output,
): Promise<number> {
  const text = openText(asked, [float, quant]);
  const [measured] = await predictText("compare", float, [quant], text, threads);
  const { file, ids, windows, window, stride } = text;
  out.group("text", {
    file,
    tokens: ids.length,
    windows: windows.length,
    window,
    stride,
    scored: measured.scored,
  });
  for (const [word, fields] of Object.entries(divergenceFields(predictionFigures(measured)))) out.group(word, fields);
  out.group("memory", { models: "both", peak_rss: memory().peak });
  return 0;
}

/** The results of a text by the words of their lines. */
export function divergenceFields(measured: PredictionFigures): { [Word in keyof PredictionFigures]: Fields } {
  const { perplexity, kl, same_top, prob } = measured;
  const { ratio, ratio_error, ...values } = perplexity;
  return {
    perplexity: { ...fixed(values, 4), ...fixed({ ratio, ratio_error }, 6) },
    kl: fixed(kl, 6),
    same_top: fixed(same_top, 6),
    prob: fixed(prob, 6),
  };
}

/** Figures with the digits that a line shows. */
export function fixed(figures: Readonly<Record<string, Figure | undefined>>, digits: number): Fields {
  return Object.fromEntries(
    Object.entries(figures).map(([key, figure]) => {
      return [key, typeof figure === "number" ? new Fixed(figure, digits) : figure];
    }),
  );
}
