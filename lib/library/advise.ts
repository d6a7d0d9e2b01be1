/**
 * Finds the width that a checkpoint needs: quantizes it in memory at every width, compares each with the float model,
 * and applies the conditions of measure/advise.ts.
 *
 * @module
 */

import { checkOptions, checkString, checkWhole, WATCH } from "../options.ts";
import type { Watch } from "../pace.ts";
import { WIDTHS } from "../format/blocks.ts";
import { capacityFor } from "../kernels/cache.ts";
import { ANSWER_STEPS, type Answers, type Judgement, judgeWidth, measureAnswers } from "../measure/advise.ts";
import type { Divergence } from "../measure/metrics.ts";
import { LOGIT_ROWS } from "../measure/group.ts";
import { fedTokens, measureText, WINDOW, windowsOf } from "../measure/perplexity.ts";
import { longestContext } from "../model/config.ts";
import { BATCH } from "../model/llama.ts";
import { type Model, openModel } from "../model/load.ts";
import { QuantizingReader } from "../quantize/quantizing_reader.ts";
import { type Plan, planQuantize } from "../quantize/quantize.ts";
import type { Method } from "../format/quantization.ts";
import { Congruential } from "../random.ts";
import { loadTokenizer, type Tokenizer } from "../text/tokenizer.ts";
import { calibratedPlan, checkApart } from "./advise_calibrated.ts";
import { type CalibrationOptions, planCalibration } from "./calibration.ts";
import { type Resources, type Unloaded, withGroup } from "./group.ts";
import { type Needs, OBSERVATION_BYTES, weighed } from "./memory_plan.ts";
import { PROMPTS, TEXT } from "./advise_text.ts";
import { scoredIds, tokenizerOf } from "./prompt.ts";

/** The number of prompts of a model without a tokenizer, and of the token ids of each. */
const ID_PROMPTS = 8;
const ID_PROMPT_TOKENS = 8;

/** Options of {@link advise}. Progress counts tokens. */
export interface AdviseOptions extends Watch {
  /** The text to predict (default: a built-in page). A longer text gives tighter estimates. */
  readonly text?: string;
  /** Threads to use (default: one for each processor). */
  readonly threads?: number;
  /** The memory that the process may use, in bytes (default: what is available). The results are the same. */
  readonly memory?: number;
  /** Where the narrowest width does not suffice, also calibrate it: with texts, by their paths, or `self`. */
  readonly calibrate?: CalibrationOptions["calibrate"];
}

/** The measurements of one width. */
export interface WidthAdvice extends Judgement {
  /** Its bits. */
  readonly bits: number;
  /** Size of the checkpoint in bytes. */
  readonly bytes: number;
  /** How the blocks are chosen, where that is not by the format's rule. */
  readonly method?: Method;
  /** What that took, in seconds. */
  readonly seconds?: number;
  /** The answers to the prompts. */
  readonly answers: Answers;
  /** The predictions of the text. */
  readonly text: Divergence;
}

/** The result of {@link advise}. */
export interface Advice {
  /** The bits of the narrowest width that suffices, or `float` if none does. */
  readonly use: number | "float";
  /** The reason, in words for each width. */
  readonly why: string;
  /** The widths, narrowest first. */
  readonly widths: readonly WidthAdvice[];
}

/**
 * Finds the width that a float checkpoint needs. The float model and all quantized models are in memory at the same
 * time if they fit, otherwise one layer of each; nothing is written.
 *
 * ```ts
 * import { advise, generateModel } from "@rabbit/rabbit";
 *
 * const directory = Deno.makeTempDirSync();
 * generateModel(`${directory}/float`);
 *
 * const { use, why } = await advise(`${directory}/float`, { text: "A short text makes it quick." });
 * console.log(use, why);
 * Deno.removeSync(directory, { recursive: true });
 * ```
 *
 * @param path the float checkpoint: a directory, or a safetensors file
 * @throws {CheckpointError} a file is invalid, or the model is unsupported
 * @throws {SystemError} a file cannot be read
 * @throws the reason of the signal
 */
export async function advise(
  path: string,
  options: AdviseOptions = {},
): Promise<Advice> {
  checkOptions("advise", options, { ...WATCH, text: true, threads: true, memory: true, calibrate: true });
  const { text, threads, memory, calibrate, ...watch } = options;
  if (memory !== undefined) checkWhole("memory", memory, 1);
  if (text !== undefined) checkString("the text", text);
  const model = openModel(path);
  const plans: Plan[] = widthsOf(model);
  const { checkpoint, config } = model;
  const tokenizer = text === undefined
    ? loadTokenizer(checkpoint.directory, "encode", { vocabulary: config.vocabulary })
    : tokenizerOf(model);
  const task = taskOf(model, tokenizer, text === undefined ? undefined : { name: "the text", text });
  const planned = calibrate && await planCalibration(plans[0], { calibrate });
  if (planned) checkApart(planned, task);
  const measured = await measureWidths(model, plans, task, { threads, memory, ...watch });
  let seconds: number | undefined;
  if (planned && measured[0].fails.length > 0) {
    const plan = await calibratedPlan(planned, { threads, signal: watch.signal });
    seconds = plan.seconds;
    plans.splice(1, 0, plan);
    measured.splice(1, 0, ...await measureWidths(model, [plan], task, { threads, memory, signal: watch.signal }));
  }
  const widths = plans.map(({ format: { bits }, bytes, method }, n) => {
    return { bits, bytes, ...method && { method, seconds }, ...measured[n] };
  });
  return { use: useOf(plans, measured), why: whyOf(plans, measured), widths };
}

/** Plans of all widths, narrowest first. */
export function widthsOf({ checkpoint }: Model): Plan[] {
  return WIDTHS.toSorted((a, b) => a.bits - b.bits).map((format) => planQuantize(checkpoint, format));
}

/** The prompts to answer and the text to predict. */
export interface Task {
  readonly prompts: readonly (readonly number[])[];
  /** The name and token ids of the text; if undefined, the answers of the float model are the text. */
  readonly text?: { readonly name: string; readonly ids: readonly number[] };
}

/**
 * The task for a model: built-in prompts and a text, or random token ids if there is no tokenizer.
 *
 * @param given the text (default: a built-in page)
 */
export function taskOf(
  model: Model,
  tokenizer: Tokenizer | undefined,
  given: { readonly name: string; readonly text: string } = { name: "built-in", text: TEXT },
): Task {
  if (tokenizer === undefined) return { prompts: idPrompts(model.config.vocabulary) };
  const name = given.text === TEXT ? "the built-in text" : given.name;
  return {
    prompts: PROMPTS.map((prompt) => scoredIds(`the prompt ${JSON.stringify(prompt)}`, prompt, tokenizer, model)),
    text: { name: given.name, ids: scoredIds(name, given.text, tokenizer, model) },
  };
}

/** Random token ids, the same for every model with this size of the vocabulary. */
function idPrompts(vocabulary: number): number[][] {
  const random = new Congruential(1);
  return Array.from(
    { length: ID_PROMPTS },
    () => Array.from({ length: ID_PROMPT_TOKENS }, () => random.below(vocabulary)),
  );
}

/** The measurements of one planned width. */
export type Measured = Pick<WidthAdvice, "answers" | "text" | keyof Judgement>;

/** The number of tokens that each model is fed for a task. */
export function tokensOf({ prompts, text }: Task, float: Model): number {
  const window = windowOf(float);
  const asked = prompts.reduce((sum, { length }) => sum + length + ANSWER_STEPS, 0);
  return asked + fedTokens(windowsOf(text?.ids.length ?? 0, window, window));
}

function windowOf({ config }: Model): number {
  return Math.min(WINDOW, longestContext(config));
}

/** What a task needs, with the float model and some quantized ones. */
export function taskNeeds({ prompts, text }: Task, float: Model, quants: number): Needs {
  const tokens = text?.ids.length ?? 0;
  const window = windowOf(float);
  // Room for all prompts, which then share passes.
  const lengths = prompts.map(({ length }) => capacityFor(length + ANSWER_STEPS));
  const room = Math.min(lengths.reduce((sum, length) => sum + length, 0), BATCH);
  const longest = Math.max(...prompts.map(({ length }) => length + ANSWER_STEPS));
  const fed = fedTokens(windowsOf(tokens, window, window));
  return {
    name: "measuring the widths",
    context: Math.max(longest, Math.min(Math.max(tokens, room), window)),
    logitRows: LOGIT_ROWS,
    // Answers pass through all layers, token after token.
    oneCache: false,
    fed,
    fewest: Math.min(fed, Math.max(window, BATCH)),
    results: OBSERVATION_BYTES * fed * quants,
  };
}

/** Runs the task on the float model and on all planned widths. Progress counts the tokens of {@link tokensOf}. */
export async function measureWidths(
  float: Model,
  plans: readonly Plan[],
  task: Task,
  { threads, memory, signal, progress }: Watch & Resources,
): Promise<Measured[]> {
  const { config } = float;
  const ids = task.text?.ids ?? [];
  const window = windowOf(float);
  const windows = windowsOf(ids.length, window, window);
  const total = tokensOf(task, float);
  const part = (from: number) => ({
    signal,
    progress: (done: number) => progress?.(from + done, total),
  });
  const models: Unloaded[] = [
    weighed(float),
    ...plans.map((plan) => {
      const tensors = plan.tensors.map(({ source, dtype, bytes }) => ({ ...source, dtype, bytes }));
      return { config, tensors, open: () => new QuantizingReader(plan) };
    }),
  ];
  const needs = taskNeeds(task, float, plans.length);
  return await withGroup(models, needs, { threads, memory, signal }, async (models) => {
    const answers = await measureAnswers(models, task.prompts, part(0));
    const texts = await measureText(models, ids, windows, part(total - needs.fed));
    return plans.map((_, n) => {
      const text = task.text === undefined ? answers[n].divergence : texts[n];
      return { answers: answers[n], text, ...judgeWidth(answers[n], text) };
    });
  });
}

/** The bits of the narrowest width that suffices, or `float`. */
export function useOf(plans: readonly Plan[], measured: readonly Measured[]): number | "float" {
  // The widths need not be ordered by quality: weights trained for four bits may suffice at four and fail at eight.
  return plans.find((_, n) => measured[n].fails.length === 0)?.format.bits ?? "float";
}

/** What is added to a value that would suffice, were it certain. */
function unless(undecided: boolean, upper: string | undefined): string {
  if (!undecided) return "";
  return upper === undefined ? " on too few tokens to tell" : `, at most ${upper}`;
}

/** The reason for the advice, in words for each width. */
export function whyOf(plans: readonly Plan[], measured: readonly Measured[]): string {
  const says: Record<string, (measured: Measured) => string> = {
    answers: ({ answers }) => `keeps ${answers.kept} of ${answers.prompts} answers`,
    perplexity: ({ text: { float, quant, ratio }, undecided, upper }) =>
      !Number.isFinite(float.value)
        ? "cannot be judged by the perplexity, since the float model's overflows"
        : !Number.isFinite(quant.value)
        ? "has a perplexity that overflows"
        : `has ${ratio.value.toFixed(3)} times the perplexity${
          unless(undecided.includes("perplexity"), upper.perplexity?.toFixed(3))
        }`,
    kl: ({ text: { kl }, undecided, upper }) =>
      `diverges by ${kl.value.toFixed(4)} nats a token${unless(undecided.includes("kl"), upper.kl?.toFixed(4))}`,
  };
  return plans.map(({ format, method }, n) => {
    const { fails } = measured[n];
    const name = method === undefined ? format.name : `${format.name} ${method}`;
    const words = fails.map((rule) => says[rule](measured[n]));
    return fails.length === 0 ? `${name} suffices` : `${name} ${words.join(", ")}`;
  }).join("; ");
}
