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
import { ANSWER_STEPS, MAX_KL, MAX_RATIO, NEAR_TIE } from "../measure/advise.ts";
import { openModel } from "../model/load.ts";
import { loadTokenizer } from "../text/tokenizer.ts";
import { readText } from "../files/read.ts";
import { CONFIDENCE } from "../measure/gates.ts";
import { predictionFigures } from "../measure/metrics.ts";
import type { Plan } from "../quantize/quantize.ts";
import { WINDOW } from "../measure/perplexity.ts";
import { divergenceFields, inLine, MEMORY } from "./compare_text.ts";
import { CHECKPOINT, command, FILE, THREADS } from "./arguments.ts";
import { calibratedPlan, checkApart } from "../library/advise_calibrated.ts";
import { planCalibration } from "../library/calibration.ts";
import { MAX_TEXT_BYTES } from "../library/prompt.ts";
import { CALIBRATE, sourcesOf, withCalibrationBar } from "./calibrate.ts";
import { memory as processMemory } from "../files/memory.ts";
import { tokenizerFor } from "./model.ts";
import { Fixed, type Output, tokensPerSecond, warn, withBar } from "./output.ts";

/** `rabbit advise` */
export const adviseCommand = command({
  name: "advise",
  summary: "say which width a float checkpoint needs, and why",
  positionals: [
    { name: "FLOAT", type: CHECKPOINT, alias: "in", help: "the float checkpoint, with config.json in its directory" },
  ],
  flags: {
    text: { type: FILE, help: "the text to predict (UTF-8), instead of the built-in page" },
    calibrate: {
      ...CALIBRATE,
      unset: "no calibration",
      help:
        "if the narrowest width does not suffice by the format's rule, calibrate it in memory and measure it again: with a " +
        "text other than the one to predict, or with text sampled from the float model",
    },
    memory: {
      ...MEMORY,
      help: "memory to use, such as 8GB; if the models do not fit, they are read one layer at a time",
    },
    threads: THREADS,
  },
  details: [
    "Quantizes in memory at every width, and writes nothing; the float model and all quantized models are in memory at " +
    "the same time, if they fit. `use` is the narrowest width that suffices, or float if none does. A width suffices if all hold:",
    [
      [
        "answers",
        `for each built-in prompt, the best token is the float model's at all ${ANSWER_STEPS} steps of its answer, except ` +
        `at near ties, where its two best logits differ by less than ${NEAR_TIE}`,
      ],
      [
        "perplexity",
        `that of the text is at most ${MAX_RATIO} times the float model's, with ${CONFIDENCE * 100}% confidence`,
      ],
      [
        "kl",
        `the mean Kullback-Leibler divergence from the float model is at most ${MAX_KL} nats per token, with ` +
        `${CONFIDENCE * 100}% confidence`,
      ],
    ],
    "`undecided` names the rules that are not met because the text is too short to tell. The bounds are those of " +
    "`compare --text`.",
    "Without a tokenizer the prompts are random ids, and the float model's answers to them are the text. The text is " +
    `divided into windows of ${WINDOW} tokens; rabbit compare --help defines the figures. A longer --text gives tighter ` +
    "bounds.",
  ],
  example: "rabbit advise SmolLM2-135M",
  async run({ positionals: [input], values: { text: path, calibrate, threads, memory } }, out) {
    const float = openModel(input);
    const plans: Plan[] = widthsOf(float);
    const given = path === undefined ? undefined : readText(path, MAX_TEXT_BYTES);
    const tokenizer = path === undefined
      ? loadTokenizer(float.checkpoint.directory, "encode", {
        vocabulary: float.config.vocabulary,
        remedy: "move the tokenizer's files elsewhere to measure with random ids",
      })
      : tokenizerFor("text", float, "leave it out", "leave --text out");
    if (path === undefined && tokenizer?.assumed !== undefined) warn("advise", tokenizer.assumed);
    const task = taskOf(float, tokenizer, path === undefined ? undefined : { name: path, text: given! });
    const planned = calibrate && await planCalibration(plans[0], { calibrate: sourcesOf(calibrate) });
    if (planned) checkApart(planned, task);
    for (const text of planned ? planned.warnings : []) warn("--calibrate", text);
    const measured = await withBar(
      "advise",
      tokensOf(task, float),
      (watch) => measureWidths(float, plans, task, { threads, memory, ...watch }),
      tokensPerSecond,
    );
    if (planned && measured[0].fails.length > 0) {
      const plan = await withCalibrationBar("advise: calibrate", planned, threads, (options) => {
        return calibratedPlan(planned, options);
      });
      const more = await withBar(
        "advise",
        tokensOf(task, float),
        (watch) => measureWidths(float, [plan], task, { threads, memory, ...watch }),
        tokensPerSecond,
      );
      plans.splice(1, 0, plan);
      measured.splice(1, 0, ...more);
    }
    print(plans, task, measured, calibrate, out);
    return 0;
  },
});

/** The command that writes what is advised. */
function commandOf(plan: Plan | undefined, calibrate: readonly string[] | undefined): string | undefined {
  if (plan === undefined) return undefined;
  const texts = plan.method === undefined ? [] : calibrate!.map((text) => ` --calibrate ${shellWord(text)}`);
  return `rabbit quantize ${shellWord(plan.source.path)} OUT --bits ${plan.format.bits}${texts.join("")}`;
}

/** A word that a shell takes for this text. */
function shellWord(text: string): string {
  return /^[\w./:@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

function print(
  plans: readonly Plan[],
  asked: Task,
  measured: readonly Measured[],
  calibrate: readonly string[] | undefined,
  out: Output,
): void {
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
  for (const [n, { format, bytes, sourceBytes, method, ...plan }] of plans.entries()) {
    const { answers, text, fails, undecided } = measured[n];
    const figures = divergenceFields(predictionFigures(text));
    const width = {
      bits: format.bits,
      method,
      seconds: "seconds" in plan ? new Fixed(plan.seconds as number, 0) : undefined,
      bytes,
      ratio: new Fixed(bytes / sourceBytes, 3),
      answers_kept: answers.kept,
      max_diff: new Fixed(answers.difference.max, 6),
      mean_diff: new Fixed(answers.difference.mean, 9),
    };
    const verdict = {
      suffices: fails.length === 0,
      fails: fails.join(",") || undefined,
      undecided: undecided.join(",") || undefined,
    };
    out.item("widths", { ...width, ...inLine(figures), ...verdict }, { ...width, ...figures, ...verdict });
  }
  out.group("memory", { models: "all", peak_rss: processMemory().peak });
  const use = plans.find((_, n) => measured[n].fails.length === 0);
  // The narrowest width by the rule is the first; a calibrated one stands behind it, if it was tried.
  const tried = plans.some(({ method }) => method !== undefined);
  const advised = tried ? { method: use?.method, command: commandOf(use, calibrate) } : {};
  const untried = !tried && measured[0].fails.length > 0;
  out.line({
    use: String(useOf(plans, measured)),
    ...advised,
    why: whyOf(plans, measured),
    try: untried ? `rabbit advise ${shellWord(plans[0].source.path)} --calibrate self` : undefined,
  });
}
