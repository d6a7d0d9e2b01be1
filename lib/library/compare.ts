/**
 * Compares two checkpoints of a model, on a prompt or on a text.
 *
 * @module
 */

import { checkOptions, checkString, checkWhole, type Names, WATCH } from "../options.ts";
import { inTurns, type Watch, type Work } from "../pace.ts";
import { TensorReader } from "../format/checkpoint.ts";
import { Pool } from "../kernels/pool.ts";
import { threadCount } from "../kernels/workers.ts";
import { comparing, type Comparison, type Trace, tracing } from "../measure/compare.ts";
import type { Divergence } from "../measure/metrics.ts";
import { measureWindows, sumOfWindows, WINDOW } from "../measure/perplexity.ts";
import { checkLimits, type Gate, judge, type Limits, type Verdict, verdictOf } from "../measure/gates.ts";
import { longestContext } from "../model/config.ts";
import type { Llama } from "../model/llama.ts";
import { loadInTurns, type Model, openModel, openQuantized } from "../model/load.ts";
import { openAny } from "../gguf/open.ts";
import { type Resources, withGroup } from "./group.ts";
import { textNeeds, weighed, type WindowedText } from "./memory_plan.ts";
import { sumOfTexts, type WindowedTexts, windowTexts } from "./texts.ts";
import { checkPrompt, idsOf, scoredIds, tokenizerOf } from "./prompt.ts";

/** The default number of tokens of an answer. */
export const COMPARE_STEPS = 8;

/** Options of {@link compare}. Progress counts tokens. */
export interface CompareOptions extends Watch {
  /** The prompt: a text, or token ids. */
  readonly prompt: string | readonly number[];
  /** Tokens to decode (default 8). */
  readonly steps?: number;
  /** Threads to use (default: one for each processor). */
  readonly threads?: number;
}

/** The result of {@link compare}. */
export interface Compared {
  /** Whether both answers are the same. */
  readonly match: boolean;
  /** The token ids of the prompt. */
  readonly prompt: readonly number[];
  /** The token ids of the float checkpoint's answer. */
  readonly float: readonly number[];
  /** The token ids of the quantized checkpoint's answer. */
  readonly quant: readonly number[];
  /** The differences of the logits after each token of the float model's answer. */
  readonly logits: Comparison["steps"];
  /** The differences of the logits after the prompt. */
  readonly prefill: Comparison["prefill"];
}

/**
 * Decodes a prompt greedily with a float checkpoint and a quantized one, and compares answers and logits. Only one of
 * them is in memory at a time.
 *
 * ```ts
 * import { compare, generateModel, quantize } from "@rabbit/rabbit";
 *
 * const directory = Deno.makeTempDirSync();
 * generateModel(`${directory}/float`);
 * await quantize(`${directory}/float`, `${directory}/q8`, { bits: 8 });
 *
 * const { match, logits } = await compare(`${directory}/float`, `${directory}/q8`, { prompt: [1, 2, 3] });
 * console.log(match, logits.mean);
 * Deno.removeSync(directory, { recursive: true });
 * ```
 *
 * @param float the float checkpoint: a directory, or a safetensors or GGUF file
 * @param quant the quantized checkpoint, or another float checkpoint of the same architecture
 * @throws {CheckpointError} a file is invalid, the model is unsupported, or the first checkpoint is quantized
 * @throws {RabbitError} both are the same checkpoint, or not of one architecture
 * @throws {SystemError} a file cannot be read
 * @throws the reason of the signal
 */
export async function compare(float: string, quant: string, options: CompareOptions): Promise<Compared> {
  checkOptions("compare", options, { ...WATCH, prompt: true, steps: true, threads: true });
  checkPrompt(options.prompt);
  const model = openModel(openAny(float));
  const other = openQuantized(openAny(quant), model);
  const prompt = idsOf(options.prompt, model);
  const { traced, compared } = await compareModels(model, other, prompt, options);
  const { match, tokens, steps: logits, prefill } = compared;
  return { match, prompt, float: traced.tokens, quant: tokens, logits, prefill };
}

/** {@link compare} for opened models. */
export async function compareModels(
  float: Model,
  quant: Model,
  prompt: readonly number[],
  { steps = COMPARE_STEPS, threads, signal, progress }: Omit<CompareOptions, "prompt">,
): Promise<{ readonly traced: Trace; readonly compared: Comparison }> {
  checkWhole("steps", steps, 1);
  const context = prompt.length + steps;
  let done = 0;
  // A quantized model with a different answer is fed both answers, so the total is an upper bound.
  const fed = (tokens: number) => progress?.(Math.min(done += tokens, 2 * context), 2 * context);
  const pool = new Pool({ threads: threadCount(threads) });
  const run = async <T>(model: Model, work: (model: Llama) => Work<T>): Promise<T> => {
    const reader = new TensorReader(model.checkpoint);
    const llama = await loadInTurns(pool, model.config, reader, context, 1, { signal });
    let first = true;
    return await inTurns(work(llama), signal, () => {
      fed(first ? prompt.length : 1);
      first = false;
    });
  };
  try {
    const traced = await run(float, (model) => tracing(model, prompt, steps));
    await pool.reset();
    const compared = await run(quant, (model) => comparing(model, traced));
    return { traced, compared };
  } finally {
    pool.close();
  }
}

/** Options of {@link compareText}. Progress counts tokens. */
export interface CompareTextOptions extends Watch {
  /** Tokens per window (default: 512, or the model's context if that is shorter). */
  readonly window?: number;
  /**
   * Tokens from the beginning of a window to that of the next (default: the window, so that windows do not overlap).
   */
  readonly stride?: number;
  /** Limits to judge the result by (default: none). */
  readonly limits?: Limits;
  /** Threads to use (default: one for each processor). */
  readonly threads?: number;
  /** The memory that the process may use, in bytes (default: what is available). The results are the same. */
  readonly memory?: number;
}

/** The result of {@link compareText}: the figures of all scored tokens, and more. */
export type ComparedText = Divergence & {
  /** The figures of each text. */
  readonly texts: readonly Divergence[];
  /** The judgement of each limit on all scored tokens. */
  readonly gates: readonly Gate[];
  /** Whether the quantized checkpoint is within all limits. */
  readonly verdict: Verdict;
};

/**
 * Measures how well a float checkpoint and a quantized one predict a text: perplexity, KL divergence and more. Both are
 * in memory at the same time if they fit, otherwise one layer of each. With limits, the result says whether the quantized
 * one is within them.
 *
 * ```ts
 * import { compareText, generateModel, quantize } from "@rabbit/rabbit";
 *
 * const directory = Deno.makeTempDirSync();
 * generateModel(`${directory}/float`);
 * await quantize(`${directory}/float`, `${directory}/q8`, { bits: 8 });
 *
 * const text = "A quick brown fox jumps over the lazy dog. ".repeat(20);
 * const limits = { maxKl: 0.02, maxRatio: 1.01, confidence: 0.99 };
 * const { kl, gates, verdict } = await compareText(`${directory}/float`, `${directory}/q8`, text, { limits });
 * console.log(kl.value, verdict, gates[0].upper);
 * Deno.removeSync(directory, { recursive: true });
 * ```
 *
 * @param float the float checkpoint: a directory, or a safetensors or GGUF file
 * @param quant the quantized checkpoint, or another float checkpoint of the same architecture
 * @param text a text, or several that are measured together
 * @throws {CheckpointError} a file is invalid, the model is unsupported, there is no tokenizer, or the first checkpoint
 * is quantized
 * @throws {RabbitError} both are the same checkpoint, or not of one architecture, or two texts are the same
 * @throws {RangeError} the window is longer than the model's context, the stride longer than the window, or a limit is
 * out of its range
 * @throws {LimitError} the memory does not suffice
 */
export async function compareText(
  float: string,
  quant: string,
  text: string | readonly string[],
  options: CompareTextOptions = {},
): Promise<ComparedText> {
  checkOptions("compareText", options, { ...COMPARE_TEXT, limits: true });
  const { limits = {}, threads, memory, signal, progress } = options;
  checkLimits(limits);
  const { models: [model, other], ...windowed } = windowedTexts(float, quant, text, options);
  const windows = await predictWindows(model, [other], windowed, { threads, memory, signal, progress });
  const measured = sumOfTexts(windowed.texts, windows.map(([window]) => window));
  const gates = judge(measured.all, limits);
  return Object.assign(sumOfWindows([measured.all]), { texts: measured.texts, gates, verdict: verdictOf(gates) });
}

/** The names of {@link CompareTextOptions} without limits. */
export const COMPARE_TEXT: Names<Omit<CompareTextOptions, "limits">> = {
  ...WATCH,
  window: true,
  stride: true,
  threads: true,
  memory: true,
};

/** Opens two checkpoints, and divides texts into windows. @param names of the texts @throws as {@link compareText} */
export function windowedTexts(
  float: string,
  quant: string,
  text: string | readonly string[],
  options: Omit<CompareTextOptions, "limits">,
  names?: string | readonly string[],
): WindowedTexts & { readonly models: readonly [float: Model, quant: Model] } {
  const texts = Array.isArray(text) ? text : [text];
  if (texts.length === 0) throw new TypeError("there is no text");
  const files = typeof names === "string" ? [names] : names;
  const named = texts.map((text, n) => ({
    text,
    file: files?.[n] ?? (texts.length === 1 ? "the text" : `text ${n + 1}`),
  }));
  for (const { file, text } of named) checkString(file, text);
  if (options.memory !== undefined) checkWhole("memory", options.memory, 1);
  const model = openModel(openAny(float));
  const other = openQuantized(openAny(quant), model);
  const longest = Math.min(longestContext(model.config), longestContext(other.config));
  const { window = Math.min(WINDOW, longest) } = options;
  const { stride = window } = options;
  if (!(Number.isInteger(window) && window >= 2 && window <= longest)) {
    throw new RangeError(`window ${window}: expected a whole number from 2 to the model's context of ${longest}`);
  }
  if (!(Number.isInteger(stride) && stride >= 1 && stride <= window)) {
    throw new RangeError(`stride ${stride}: expected a whole number from 1 to the window of ${window}`);
  }
  const tokenizer = tokenizerOf(model);
  const encoded = named.map(({ file, text }) => ({ file, ids: scoredIds(file, text, tokenizer, model) }));
  return { models: [model, other], ...windowTexts(encoded, window, stride) };
}

/**
 * Compares how well a float model and quantized models predict a text. All models are in memory at the same time:
 * keeping the float model's logits instead would take more memory than the weights. If they do not fit, one layer of
 * each is.
 *
 * @throws {LimitError} one layer of each does not fit either
 */
export async function predictText(
  float: Model,
  quants: readonly Model[],
  text: WindowedText,
  options: Watch & Resources,
): Promise<Divergence[]> {
  const measured = await predictWindows(float, quants, text, options);
  return quants.map((_, quant) => sumOfWindows(measured.map((window) => window[quant])));
}

/** {@link predictText}, with one result for each window and quantized model. */
export async function predictWindows(
  float: Model,
  quants: readonly Model[],
  text: WindowedText,
  { threads, memory, ...watch }: Watch & Resources,
): Promise<Divergence[][]> {
  const models = [float, ...quants].map(weighed);
  return await withGroup(models, textNeeds(models, text), { threads, memory, signal: watch.signal }, (group) => {
    return measureWindows(group, text.ids, text.windows, watch);
  });
}
