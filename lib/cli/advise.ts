/**
 * `rabbit advise`: prints the measurements of each width, and the width to use.
 *
 * @module
 */

import {
  type Measured,
  measureWidths,
  type Task,
  taskOf,
  tokensOf,
  useOf,
  whyOf,
  widthsOf,
} from "../library/advise.ts";
import { ANSWER_STEPS, MAX_KL, MAX_RATIO, NEAR_TIE, RATIO_ERRORS } from "../measure/advise.ts";
import { openModel } from "../model/load.ts";
import { loadTokenizer } from "../text/tokenizer.ts";
import { readText } from "../files/read.ts";
import { predictionFigures } from "../measure/metrics.ts";
import type { Plan } from "../quantize/quantize.ts";
import { WINDOW } from "../measure/perplexity.ts";
import { divergenceFields, MAX_TEXT_BYTES } from "./compare_text.ts";
import { CHECKPOINT, command, FILE, THREADS } from "./arguments.ts";
import { memory, tokenizerFor } from "./model.ts";
import { Fixed, type Output, tokensPerSecond, withBar } from "./output.ts";

/** `rabbit advise` */
export const adviseCommand = command({
  name: "advise",
  summary: "say which width a float checkpoint needs, and why",
  positionals: [
    { name: "FLOAT", type: CHECKPOINT, alias: "in", help: "the float checkpoint, with config.json in its directory" },
  ],
  flags: {
    text: { type: FILE, help: "the text to predict (UTF-8), instead of the built-in page" },
    threads: THREADS,
  },
  details: [
    "Quantizes in memory at every width, and writes nothing; the float model and all quantized models are in memory at " +
    "the same time. `use` is the narrowest width that suffices, or float if none does. A width suffices if all hold:",
    [
      [
        "answers",
        `for each built-in prompt, the best token is the float model's at all ${ANSWER_STEPS} steps of its answer, except ` +
        `at near ties, where its two best logits differ by less than ${NEAR_TIE}`,
      ],
      [
        "perplexity",
        `that of the text, plus ${RATIO_ERRORS} standard errors, is less than ${MAX_RATIO} times the float model's`,
      ],
      ["kl", `the mean Kullback-Leibler divergence from the float model is at most ${MAX_KL} nats per token`],
    ],
    "Without a tokenizer the prompts are random ids, and the float model's answers to them are the text. The text is " +
    `divided into windows of ${WINDOW} tokens; rabbit compare --help defines the figures. A longer --text gives tighter ` +
    "estimates.",
  ],
  example: "rabbit advise SmolLM2-135M",
  async run({ positionals: [input], values: { text: path, threads } }, out) {
    const float = openModel(input);
    const plans = widthsOf(float);
    const given = path === undefined ? undefined : readText(path, MAX_TEXT_BYTES);
    const tokenizer = path === undefined
      ? loadTokenizer(float.checkpoint.directory, "encode", {
        vocabulary: float.config.vocabulary,
        remedy: "move the tokenizer's files elsewhere to measure with random ids",
      })
      : tokenizerFor("text", float, "leave it out", "leave --text out");
    const task = taskOf(float, tokenizer, path === undefined ? undefined : { name: path, text: given! });
    const measured = await withBar(
      "advise",
      tokensOf(task, float),
      (watch) => measureWidths(float, plans, task, { threads, ...watch }),
      tokensPerSecond,
    );
    print(plans, task, measured, out);
    return 0;
  },
});

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
  out.line({ use: String(useOf(plans, measured)), why: whyOf(plans, measured) });
}
