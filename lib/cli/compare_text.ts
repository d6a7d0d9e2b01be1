/**
 * `rabbit compare --text`: measures how well both models predict a text.
 *
 * @module
 */

import { longestContext } from "../model/config.ts";
import { predictText as predict, predictWindows } from "../library/compare.ts";
import type { Resources } from "../library/group.ts";
import { threadCount } from "../kernels/workers.ts";
import { planMemory, textNeeds, weighed } from "../library/memory_plan.ts";
import { availableMemory, memory } from "../files/memory.ts";
import { describeText, windowLine, windowsOfPart } from "../library/text_parts.ts";
import { type MeasuredTexts, sumOfTexts, type TextPart, type WindowedTexts, windowTexts } from "../library/texts.ts";
import type { Limits } from "../measure/gates.ts";
import { bytesOf } from "../format/checkpoint.ts";
import { checkModel, type Model } from "../model/load.ts";
import { readText } from "../files/read.ts";
import { type Divergence, type Figure, type PredictionFigures, predictionFigures } from "../measure/metrics.ts";
import { digitsOf } from "../measure/printed.ts";
import { fedTokens, WINDOW } from "../measure/perplexity.ts";
import { type Arguments, COUNT, type Detail, FILE, type Flag, type Flags, SIZE, type Values } from "./arguments.ts";
import { warnOfOverlap } from "./calibrate.ts";
import type { Part } from "../quantize/parts.ts";
import { UsageError } from "./errors.ts";
import { MAX_TEXT_BYTES, scoredIds } from "../library/prompt.ts";
import { judged, LIMIT_DETAILS, LIMIT_FLAGS, limitFlag, limitsOf } from "./limits.ts";
import { tokenizerFor } from "./model.ts";
import { type Fields, Fixed, type Output, tokensPerSecond, warn, withBar } from "./output.ts";

/** `--memory` of the commands that measure a text. */
export const MEMORY = {
  type: SIZE,
  unset: "what the machine has free, or the limit of its control group",
  help: "with --text: memory to use, such as 8GB; if the weights do not fit, they are read one layer at a time",
} as const satisfies Flag;

/** The flags of a measurement on a text. */
export const TEXT_FLAGS = {
  text: {
    type: FILE,
    many: true,
    help:
      "measure how well both models predict a text (UTF-8), instead of a prompt; or several texts, if it is given several " +
      "times",
  },
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
  ...LIMIT_FLAGS,
  memory: MEMORY,
} as const satisfies Flags;

/** An explanation of the results, for the help. */
export const TEXT_DETAILS: readonly Detail[] = [
  "With --text both checkpoints are in memory at the same time if they fit, otherwise their heads and one layer of each; " +
  "the figures are the same. Every window begins without a context and without " +
  "special tokens. All tokens of a window but the first are scored. If the stride is less than the window, windows " +
  "overlap, and each window but the first scores only its last N = stride tokens. (llama.cpp's perplexity tool has the " +
  "same window but scores only its second half, where the context is longer, so its figures are lower.)",
  [
    [
      "perplexity",
      "exp of the mean of -log p(token), with its standard error; ratio is quant / float, with the standard error of the " +
      "differences per token",
    ],
    [
      "kl",
      "Kullback-Leibler divergence of QUANT from FLOAT per token, in nats: sum of p (log p - log q); mean and its standard " +
      "error, median, 99.9% quantile (p999), maximum",
    ],
    ["same_top", "fraction of tokens where both models have the same most probable token"],
    ["prob", "change of the probability of the text's token, q - p: root mean square, and mean"],
  ],
  "The definitions are those of llama.cpp's tools/perplexity/README.md. Of several texts each has a line, and the others " +
  "are of all scored tokens. Without a limit there is no verdict, and the exit status is 0.",
  ...LIMIT_DETAILS,
];

/** Texts to measure, as given on the command line. */
interface Asked {
  readonly paths: readonly string[];
  readonly window?: number;
  readonly stride?: number;
  readonly part?: Part;
  readonly dry?: boolean;
  readonly limits?: Limits;
  readonly memory?: number;
}

/** The values of {@link TEXT_FLAGS}. */
type TextValues = Values<typeof TEXT_FLAGS>;

/** The texts to measure, if one is given. @throws {UsageError} flags exclude each other */
export function textOf(
  args: Arguments<TextValues & { readonly shard?: Part; readonly "dry-run"?: boolean }>,
): Asked | undefined {
  const { values, given } = args;
  const { text: paths, window, stride, shard: part, "dry-run": dry, memory } = values;
  const first = (names: readonly string[]) => names.find((name) => given.has(name));
  if (paths === undefined) {
    const stray = first(["window", "stride", "shard", "memory"]) ?? limitFlag(args) ?? (dry ? "dry-run" : undefined);
    if (stray !== undefined) throw new UsageError(`--${stray} is for --text, which is not given`);
    return undefined;
  }
  const other = first(["ids", "prompt", "steps", "reference"]);
  if (other !== undefined) throw new UsageError(`--text and --${other} exclude each other: a text is not a prompt`);
  const limits = limitsOf(args);
  if (part !== undefined && limits !== undefined) {
    throw new UsageError(`--${limitFlag(args)} is for the whole text, and --shard for a part; give it to rabbit merge`);
  }
  return { paths, window, stride, part, dry, limits, memory };
}

/**
 * Reads texts with the tokenizer of the first model, and divides them into windows.
 *
 * @throws {UsageError} a text is too short, or the window or the stride is too large for a model
 * @throws {RabbitError} two texts are the same
 */
export function openTexts(
  asked: Asked,
  models: readonly Model[],
): WindowedTexts & { readonly contents: readonly string[] } {
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
  const contents = asked.paths.map((file) => ({ file, content: readText(file, MAX_TEXT_BYTES) }));
  const tokenizer = tokenizerFor("text", models[0], "copy them there", "leave --text out");
  const texts = contents.map(({ file, content }) => ({ file, ids: scoredIds(file, content, tokenizer, models[0]) }));
  return { ...windowTexts(texts, window, stride), contents: contents.map(({ content }) => content) };
}

/** Measures how well each model predicts a text, with a progress bar. */
export async function predictText(
  label: string,
  float: Model,
  quants: readonly Model[],
  text: WindowedTexts,
  options: Resources,
): Promise<Divergence[]> {
  return await withBar(
    label,
    fedTokens(text.windows),
    (watch) => predict(float, quants, text, { ...options, ...watch }),
    tokensPerSecond,
  );
}

/** Measures texts and prints the results. @throws {UsageError} as {@link openTexts} */
export async function compareText(
  float: Model,
  quant: Model,
  asked: Asked,
  threads: number,
  out: Output,
): Promise<number> {
  const text = openTexts(asked, [float, quant]);
  const { part, limits } = asked;
  const use = { threads, memory: asked.memory };
  if (asked.dry) return printPlan([float, quant], text, part, use, out);
  await warnOfOverlap("--text", text.contents, [quant.checkpoint]);
  const numbers = part ? windowsOfPart(text, part) : [...text.windows.keys()];
  const windows = numbers.map((window) => text.windows[window]);
  const run = part && await describeText(float, quant, text, warn);
  const measured = windows.length === 0 ? [] : await withBar(
    "compare",
    fedTokens(windows),
    (watch) => predictWindows(float, [quant], { ...text, windows }, { ...use, ...watch }),
    tokensPerSecond,
  );
  if (run !== undefined) {
    out.records(measured.map(([window], n) => windowLine(run, numbers[n], window)));
    return 0;
  }
  const { texts, window: length, stride } = text;
  const whole = sumOfTexts(texts, measured.map(([window]) => window));
  return printTexts({ texts, length, stride }, whole, limits, out, () => {
    out.group("memory", { models: "both", peak_rss: memory().peak });
  });
}

/** What results are printed of. */
interface Measurement {
  readonly texts: readonly TextPart[];
  /** Tokens of a window. */
  readonly length: number;
  readonly stride: number;
}

/**
 * Prints the results of texts: one line for each, if there are several, and those of the whole.
 *
 * @param more prints what stands before the verdict
 * @returns the exit status
 */
export function printTexts(
  { texts, length: window, stride }: Measurement,
  measured: MeasuredTexts,
  limits: Limits | undefined,
  out: Output,
  more?: () => void,
): number {
  if (texts.length > 1) {
    for (const [n, { file, tokens, windows }] of texts.entries()) {
      const [one, { scored }] = [divergenceFields(predictionFigures(measured.texts[n])), measured.texts[n]];
      const text = { file, tokens, windows, scored };
      out.item("texts", { ...text, ...inLine(one) }, { ...text, ...one });
      for (const line of limits ? judged(measured.texts[n], limits).lines : []) {
        out.item("text_gates", { file, ...line });
      }
    }
  }
  const sum = (key: "tokens" | "windows") => texts.reduce((sum, text) => sum + text[key], 0);
  out.group("text", {
    ...texts.length === 1 ? { file: texts[0].file } : { files: texts.length },
    tokens: sum("tokens"),
    windows: sum("windows"),
    window,
    stride,
    scored: measured.all.scored,
  });
  for (const [word, fields] of Object.entries(divergenceFields(predictionFigures(measured.all)))) {
    out.group(word, fields);
  }
  const result = limits && judged(measured.all, limits);
  for (const line of result?.lines ?? []) out.item("gates", line);
  more?.();
  if (result === undefined) return 0;
  out.verdict(result.verdict.toUpperCase());
  return result.verdict === "pass" ? 0 : 1;
}

/** The figures of a text for a line of its own. */
export function inLine({ perplexity, kl, same_top }: ReturnType<typeof divergenceFields>): Fields {
  return {
    perplexity: perplexity.quant,
    perplexity_ratio: perplexity.ratio,
    perplexity_ratio_error: perplexity.ratio_error,
    kl: kl.mean,
    kl_error: kl.error,
    same_top: same_top.rate,
  };
}

/** Prints what would be measured, and what it takes. */
function printPlan(
  models: readonly Model[],
  text: WindowedTexts,
  part: Part | undefined,
  { threads, memory = availableMemory() }: Resources,
  out: Output,
): number {
  for (const model of models) checkModel(model);
  const { texts, ids, window, stride } = text;
  const windows = part ? windowsOfPart(text, part).map((window) => text.windows[window]) : text.windows;
  const weights = models.map(weighed);
  const needs = textNeeds(weights, { ids, window, windows });
  const { memory: needed, rows } = planMemory(weights, needs, threadCount(threads), memory);
  out.group("text", {
    dry_run: true,
    ...texts.length === 1 ? { file: texts[0].file } : { files: texts.length },
    shard: part && `${part.number}/${part.count}`,
    tokens: ids.length,
    windows: windows.length,
    window,
    stride,
    scored: windows.reduce((sum, { scored, end }) => sum + end - scored, 0),
    fed: fedTokens(windows),
    source_bytes: models.reduce((sum, { checkpoint }) => sum + bytesOf(checkpoint), 0),
    memory: needed,
    weights: rows === undefined ? "all" : "one-layer",
  });
  return 0;
}

/** The figures of a text by the names of their lines. */
export function divergenceFields(measured: PredictionFigures): { [Word in keyof PredictionFigures]: Fields } {
  const { perplexity, kl, same_top, prob } = measured;
  return {
    perplexity: fieldsOf("perplexity", perplexity),
    kl: fieldsOf("kl", kl),
    same_top: fieldsOf("same_top", same_top),
    prob: fieldsOf("prob", prob),
  };
}

function fieldsOf(word: keyof PredictionFigures, figures: Readonly<Record<string, Figure | undefined>>): Fields {
  return Object.assign(
    {},
    ...Object.entries(figures).map(([key, figure]) => fixed({ [key]: figure }, digitsOf(word, key))),
  );
}

/** Sets the number of digits that a line shows. */
export function fixed(figures: Readonly<Record<string, Figure | undefined>>, digits: number): Fields {
  return Object.fromEntries(
    Object.entries(figures).map(([key, figure]) => {
      return [key, typeof figure === "number" ? new Fixed(figure, digits) : figure];
    }),
  );
}
