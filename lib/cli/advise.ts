import {
  ANSWER_STEPS,
  type Answers,
  failures,
  MAX_KL,
  MAX_RATIO,
  measureAnswers,
  NEAR_TIE,
  RATIO_ERRORS,
} from "../measure/advise.ts";
import { Llama } from "../model/llama.ts";
import { loadTokenizer, type Tokenizer } from "../text/tokenizer.ts";
import { type Config, longestContext } from "../model/config.ts";
import { QuantizingReader } from "../quantize/quantizing_reader.ts";
import { readText } from "../files/read.ts";
import { Pool } from "../kernels/pool.ts";
import { Congruential } from "../random.ts";
import { type Divergence, predictionFigures } from "../measure/metrics.ts";
import { type Plan, planQuantize } from "../quantize/quantize.ts";
import { fedTokens, LOGIT_ROWS, measureText, WINDOW, windowsOf } from "../measure/perplexity.ts";
import { PROMPTS, TEXT } from "./advise_text.ts";
import { divergenceFields, MAX_TEXT_BYTES } from "./compare_text.ts";
import { CHECKPOINT, command, FILE, THREADS } from "./arguments.ts";
import { loadModel, memory, type Model, openModel, textIds, tokenizerFor } from "./model.ts";
import { Fixed, type Output, tokensPerSecond, withBar } from "./output.ts";
import { NARROWEST_FIRST } from "./widths.ts";

/** Prompts of a model without a tokenizer, and ids of each. */
const ID_PROMPTS = 8;
const ID_PROMPT_TOKENS = 8;

/** `rabbit advise` */
export const adviseCommand = command({
  name: "advise",
  summary: "say which width a float checkpoint needs, and why",
  positionals: [
    { name: "FLOAT", type: CHECKPOINT, alias: "in", help: "the float checkpoint, with config.json beside it" },
  ],
  flags: {
    text: { type: FILE, help: "predict this text (UTF-8), all of it, instead of a page that is built in" },
    threads: THREADS,
  },
  details: [
    "Quantizes in memory at every width, and writes nothing; the float model and all quantized ones are held in memory. " +
    "The answer is `use`: the narrowest width that suffices, or float where none does. A width suffices when",
    [
      [
        "answers",
        `of each built-in prompt, the best token is the float model's at all ${ANSWER_STEPS} steps of its answer, except ` +
        `where its two best logits are within ${NEAR_TIE}, which is near a tie; and`,
      ],
      [
        "perplexity",
        `the text's grows to less than ${MAX_RATIO} times the float model's, ${RATIO_ERRORS} standard errors included; and`,
      ],
      ["kl", `the mean Kullback-Leibler divergence from the float model is at most ${MAX_KL} nats a token.`],
    ],
    "Without a tokenizer the prompts are random ids, and the float model's answers to them are the text. The text is cut " +
    `into windows of ${WINDOW} tokens; rabbit compare --help defines the figures. A longer --text makes them surer.`,
  ],
  example: "rabbit advise SmolLM2-135M",
  async run({ positionals: [input], values: { text: path, threads } }, out) {
    const float = openModel(input);
    const plans = NARROWEST_FIRST.map((format) => planQuantize(float.checkpoint, format));
    const given = path === undefined ? undefined : readText(path, MAX_TEXT_BYTES);
    const tokenizer = path === undefined
      ? loadTokenizer(float.checkpoint.directory, "encode", {
        vocabulary: float.config.vocabulary,
        remedy: "move the tokenizer's files elsewhere to measure with random ids",
      })
      : tokenizerFor("text", float, "leave it out", "leave --text out");
    const task = taskOf(tokenizer, given, path, float.config);
    const measured = await measure(float, plans, task, threads);
    print(plans, task, measured, out);
    return 0;
  },
});

/** What the models are asked. */
interface Task {
  readonly prompts: readonly (readonly number[])[];
  /** The text's name and ids; without one the float model's answers are the text. */
  readonly text?: { readonly name: string; readonly ids: readonly number[] };
}

function taskOf(
  tokenizer: Tokenizer | undefined,
  given: string | undefined,
  path: string | undefined,
  config: Config,
): Task {
  if (tokenizer === undefined) return { prompts: idPrompts(config.vocabulary) };
  const name = path ?? "built-in";
  return {
    prompts: PROMPTS.map((prompt) => textIds(tokenizer, prompt, `the prompt ${JSON.stringify(prompt)}`, config)),
    text: { name, ids: textIds(tokenizer, given ?? TEXT, path ?? "the built-in text", config) },
  };
}

/** The same ids for every model of a vocabulary. */
function idPrompts(vocabulary: number): number[][] {
  const random = new Congruential(1);
  return Array.from(
    { length: ID_PROMPTS },
    () => Array.from({ length: ID_PROMPT_TOKENS }, () => random.below(vocabulary)),
  );
}

/** What a width gave. */
interface Measured {
  readonly answers: Answers;
  readonly text: Divergence;
  readonly fails: readonly string[];
}

async function measure(float: Model, plans: readonly Plan[], task: Task, threads: number): Promise<Measured[]> {
  const { config } = float;
  const { vocabulary } = config;
  const ids = task.text?.ids ?? [];
  const window = Math.min(WINDOW, longestContext(config));
  const windows = windowsOf(ids.length, window, window);
  const asked = task.prompts.map(({ length }) => length + ANSWER_STEPS);
  const context = Math.max(...asked, Math.min(window, ids.length));
  const pool = new Pool({ threads });
  try {
    const p = loadModel(pool, float, context, LOGIT_ROWS);
    const quants = plans.map((plan) => {
      using reader = new QuantizingReader(plan);
      const model = new Llama(pool, config, reader, context, LOGIT_ROWS);
      reader.checkUnchanged();
      return model;
    });
    const inAnswers = asked.reduce((sum, tokens) => sum + tokens, 0);
    return await withBar("advise", inAnswers + fedTokens(windows), async ({ signal, progress }) => {
      const options = { vocabulary, signal };
      const answers = await measureAnswers(p, quants, task.prompts, { ...options, progress });
      const inText = (done: number) => progress(inAnswers + done);
      const texts = await measureText(p, quants, ids, windows, { ...options, progress: inText });
      return plans.map((_, n) => {
        const text = task.text === undefined ? answers[n].divergence : texts[n];
        return { answers: answers[n], text, fails: failures(answers[n], text) };
      });
    }, tokensPerSecond);
  } finally {
    pool.close();
  }
}

function print(plans: readonly Plan[], asked: Task, measured: readonly Measured[], out: Output): void {
  const { text } = measured[0];
  const { float, float_error } = divergenceFields(predictionFigures(text)).perplexity;
  const task = {
    model: plans[0].source.path,
    bytes: plans[0].sourceBytes,
    prompts: asked.prompts.length,
    steps: ANSWER_STEPS,
    text: asked.text?.name ?? "answers",
    scored: text.scored,
  };
  out.line({ ...task, perplexity: float, perplexity_error: float_error }, {
    ...task,
    perplexity: { float, float_error },
  });
  for (const [n, { format, bytes, sourceBytes }] of plans.entries()) {
    const { answers, text, fails } = measured[n];
    const figures = divergenceFields(predictionFigures(text));
    const { perplexity, kl, same_top } = figures;
    const width = {
      bits: format.bits,
      bytes,
      ratio: new Fixed(bytes / sourceBytes, 3),
      answers_kept: answers.kept,
      max_diff: new Fixed(answers.difference.max, 6),
      mean_diff: new Fixed(answers.difference.mean, 9),
    };
    const verdict = { suffices: fails.length === 0, fails: fails.length === 0 ? undefined : fails.join(",") };
    const inLine = {
      perplexity: perplexity.quant,
      perplexity_ratio: perplexity.ratio,
      perplexity_ratio_error: perplexity.ratio_error,
      kl: kl.mean,
      kl_error: kl.error,
      same_top: same_top.rate,
    };
    out.item("widths", { ...width, ...inLine, ...verdict }, { ...width, ...figures, ...verdict });
  }
  out.group("memory", { models: "all", peak_rss: memory().peak });
  // Narrowest first. Weights that were trained for four bits may keep what they say there, and not at eight.
  const use = plans.find((_, n) => measured[n].fails.length === 0);
  out.line({ use: use === undefined ? "float" : String(use.format.bits), why: whyOf(plans, measured) });
}

/** A sentence about each width. */
function whyOf(plans: readonly Plan[], measured: readonly Measured[]): string {
  const says: Record<string, (measured: Measured) => string> = {
    answers: ({ answers }) => `keeps ${answers.kept} of ${answers.prompts} answers`,
    perplexity: ({ text: { float, quant, ratio } }) =>
      !Number.isFinite(float.value)
        ? "can't be judged by the perplexity, since the float model's overflows"
        : !Number.isFinite(quant.value)
        ? "has a perplexity that overflows"
        : `has ${ratio.value.toFixed(3)} times the perplexity`,
    kl: ({ text: { kl } }) => `diverges by ${kl.value.toFixed(4)} nats a token`,
  };
  return plans.map(({ format }, n) => {
    const { fails } = measured[n];
    const words = fails.map((rule) => says[rule](measured[n]));
    return fails.length === 0 ? `${format.name} suffices` : `${format.name} ${words.join(", ")}`;
  }).join("; ");
}
