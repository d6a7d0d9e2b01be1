/**
 * `rabbit report`: measures quantized checkpoints and writes an HTML page.
 *
 * @module
 */

import { basename } from "@std/path/basename";
import { dirname } from "@std/path/dirname";
import { Llama } from "../model/llama.ts";
import { type Model, openModel, openQuantized } from "../model/load.ts";
import { type Decoder, type Trace, trace } from "../measure/compare.ts";
import { loadTokenizer } from "../text/tokenizer.ts";
import { CheckpointError } from "../errors.ts";
import { bytesOf, type Checkpoint, nameOf, TensorReader } from "../format/checkpoint.ts";
import { availableMemory } from "../files/memory.ts";
import { NewFiles, type Seen } from "../files/new_files.ts";
import { checkOutputFile, tryOutputFile } from "../format/outputs.ts";
import { Pool } from "../kernels/pool.ts";
import { finish, nextTurn } from "../pace.ts";
import { planQuantize } from "../quantize/quantize.ts";
import { decodeQuantized, figures, type Measured, type Report } from "../report/figures.ts";
import { openAny } from "../gguf/open.ts";
import { type WeightErrors, weightErrors } from "../gguf/weight_errors.ts";
import { verifyAgainst } from "../quantize/verify.ts";
import { COMPARE_STEPS } from "../library/compare.ts";
import { threadCount } from "../kernels/workers.ts";
import type { Resources } from "../library/group.ts";
import { type Needs, planMemory, weighed } from "../library/memory_plan.ts";
import { divergenceFields, fixed, MEMORY, openTexts, predictText } from "./compare_text.ts";
import {
  type Arguments,
  CHECKPOINT,
  command,
  COUNT,
  FILE,
  type Flags,
  FORCE,
  THREADS,
  type Values,
} from "./arguments.ts";
import { warnOfOverlap } from "./calibrate.ts";
import { PROMPT_FLAGS, promptOf } from "./model.ts";
import { type Fields, Fixed, interruptible, type Output, progressBar, withBar } from "./output.ts";
import { VERSION } from "./version.ts";

const FLAGS = {
  out: { type: FILE, required: true, help: "the HTML file; its name ends in .html" },
  ...PROMPT_FLAGS,
  steps: { type: COUNT, default: COMPARE_STEPS, help: "tokens to decode" },
  text: { type: FILE, help: "also measure how well all models predict a text, like compare --text" },
  memory: { ...MEMORY, help: "memory to use, such as 8GB; if a model does not fit, its layers are read one at a time" },
  threads: THREADS,
  force: { ...FORCE, help: "overwrite an existing file" },
} as const satisfies Flags;

/** `rabbit report` */
export const reportCommand = command({
  name: "report",
  summary: "write an HTML report on quantized checkpoints: sizes, answers, logits, the error of each tensor",
  positionals: [
    { name: "FLOAT", type: CHECKPOINT, help: "the float checkpoint, a directory or a file, or a GGUF file" },
    { name: "QUANT", type: CHECKPOINT, many: true, help: "one or more quantized checkpoints of it, or GGUF files" },
  ],
  flags: FLAGS,
  example: "rabbit report SmolLM2-135M SmolLM2-135M-q8 SmolLM2-135M-q4 --out report.html",
  async run(args, out) {
    const [floatPath, ...quantPaths] = args.positionals;
    const { out: file, steps, text: path, threads, memory } = args.values;
    const use = { threads, memory };
    const float = openModel(openAny(floatPath));
    const quants = quantPaths.map((path) => openQuantized(openAny(path), float));
    for (const { checkpoint } of quants) checkQuantized(checkpoint, float.checkpoint);
    const seen = await interruptible(async (signal) => {
      const seen = checkPage(args, [float, ...quants]);
      await nextTurn();
      signal.throwIfAborted();
      return seen;
    });
    const prompt = await promptOf(args, float);
    const text = path === undefined ? undefined : openTexts({ paths: [path] }, [float, ...quants]);

    if (text) await warnOfOverlap("--text", text.contents, quants.map(({ checkpoint }) => checkpoint));

    const { traced, measured } = await decode(float, quants, prompt, steps, use);
    const verified: WeightErrors[] = [];
    for (const { checkpoint } of quants) {
      verified.push(
        await withBar("report: verify", bytesOf(checkpoint), (watch) => {
          return checkpoint.foreign
            ? weightErrors(checkpoint, float.checkpoint, watch)
            : verifyAgainst(checkpoint, float.checkpoint, { threads, ...watch });
        }),
      );
    }
    const divergences = text &&
      await predictText("report: text", float, quants, text, use);
    const tokenizer = loadTokenizer(float.checkpoint.directory, "decode", float.config);
    const report = figures({
      program: `rabbit ${VERSION}`,
      float: { ...float, trace: traced },
      quants: quants.map(({ checkpoint }, n) => {
        return { checkpoint, measured: measured[n], against: verified[n], divergence: divergences?.[n] };
      }),
      text: text && { ...text.texts[0], window: text.window },
      textOf: tokenizer && ((id) => tokenizer.decode([id])),
    });
    const { page } = await import("../report/page.ts");
    const bytes = new TextEncoder().encode(page(report));
    // A signal is handled after the page has been renamed.
    await interruptible(() => Promise.resolve(writePage(file, bytes, seen)));
    print(report, file, bytes.length, out);
    return 0;
  },
});

/** Checks a checkpoint as verifyAgainst does, but before the long computation. Nothing is derived of a GGUF file. */
function checkQuantized(quant: Checkpoint, float: Checkpoint): void {
  if (quant.foreign) return;
  if (quant.width === undefined) {
    throw new CheckpointError(
      { path: nameOf(quant), field: "__metadata__" },
      "declares no width, so it is not a quantized checkpoint; the first argument is the float one, the others are quantized",
    );
  }
  planQuantize(float, quant.width);
}

/** Checks that the page can be written, and does not overwrite a file without --force. */
function checkPage(args: Arguments<Values<typeof FLAGS>>, models: readonly Model[]): Seen {
  const { out: file, force, text } = args.values;
  if (!file.endsWith(".html")) throw args.invalid("out", "a file that ends in .html");
  const seen = checkOutputFile(
    file,
    models.map(({ checkpoint }) => checkpoint),
    force,
    text === undefined ? [] : [text],
  );
  tryOutputFile(file);
  return seen;
}

function writePage(file: string, bytes: Uint8Array, seen: Seen): void {
  using files = new NewFiles(dirname(file), seen);
  files.write(basename(file), bytes);
  files.commit();
}

/** Decodes with one model at a time, to save memory. Only the logits of the float model are kept. */
async function decode(
  float: Model,
  quants: readonly Model[],
  prompt: readonly number[],
  steps: number,
  { threads, memory = availableMemory() }: Resources,
): Promise<{ traced: Trace; measured: Measured[] }> {
  const context = prompt.length + steps;
  const needs: Needs = { name: "decoding", context, logitRows: 1, oneCache: false, fed: 0, fewest: 0, results: 0 };
  const count = threadCount(threads);
  const pool = new Pool({ threads: count });
  const run = async <T>(model: Model, use: (decoder: Decoder, fed: () => void) => T): Promise<T> => {
    const { checkpoint, config } = model;
    const { rows } = planMemory([weighed(model)], needs, count, memory);
    await pool.reset();
    const bytes = bytesOf(checkpoint);
    // Each token reads all weights once.
    const bar = await progressBar("report: decode", bytes * (steps + 1));
    let done = 0;
    try {
      using reader = new TensorReader(checkpoint);
      const byLayer = rows === undefined ? undefined : needs;
      const llama = finish(Llama.loading(pool, config, reader, context, 1, byLayer));
      const result = use(llama, () => bar.update(done += bytes));
      reader.checkUnchanged();
      return result;
    } finally {
      bar.stop();
    }
  };
  try {
    const traced = await run(float, (decoder, fed) => trace(decoder, prompt, steps, fed));
    const measured: Measured[] = [];
    for (const model of quants) {
      measured.push(await run(model, (decoder, fed) => decodeQuantized(decoder, traced, fed)));
    }
    return { traced, measured };
  } finally {
    pool.close();
  }
}

function print({ model, answer, quants, text }: Report, file: string, bytes: number, out: Output): void {
  out.group("model", {
    path: model.path,
    architecture: model.architecture,
    parameters: model.parameters,
    layers: model.layers,
    bytes: model.bytes,
    bits_per_weight: new Fixed(model.bits_per_weight, 2),
  });
  out.list("tokens_float", answer.ids);
  for (const quant of quants) {
    const found = {
      path: quant.path,
      format: quant.format,
      method: quant.method,
      bytes: quant.bytes,
      ratio: new Fixed(quant.ratio, 3),
      bits_per_weight: new Fixed(quant.bits_per_weight, 2),
      steps: quant.steps,
      match: quant.match,
      kept: quant.kept,
      agree: quant.agree,
      logits_max: new Fixed(quant.logits_max, 6),
      logits_mean: new Fixed(quant.logits_mean, 9),
      values: quant.values,
      prefill_max: new Fixed(quant.prefill_max, 6),
      prefill_mean: new Fixed(quant.prefill_mean, 9),
      rms: new Fixed(quant.rms, 6),
      equal: quant.equal,
      calibrated: quant.calibrated,
      different: quant.different,
      tokens: quant.answer.ids,
    };
    const { perplexity, kl, same_top, prob } = quant;
    const figures = perplexity && kl && same_top && prob && divergenceFields({ perplexity, kl, same_top, prob });
    out.item("quants", { ...found, ...figures && inLine(figures) }, { ...found, ...figures });
  }
  if (text !== undefined) {
    const { perplexity, ...counts } = text;
    const { float, float_error } = fixed(perplexity, 4);
    out.group(
      "text",
      { ...counts, perplexity: float, perplexity_error: float_error },
      { ...counts, perplexity: { float, float_error } },
    );
  }
  out.group("page", { file, bytes });
}

/** Renames the figures of a text for a line that has other figures too. */
function inLine({ perplexity, kl, same_top, prob }: ReturnType<typeof divergenceFields>): Fields {
  return {
    perplexity: perplexity.quant,
    perplexity_error: perplexity.quant_error,
    perplexity_ratio: perplexity.ratio,
    perplexity_ratio_error: perplexity.ratio_error,
    kl: kl.mean,
    kl_error: kl.error,
    kl_median: kl.median,
    kl_p999: kl.p999,
    kl_max: kl.max,
    same_top: same_top.rate,
    same_top_error: same_top.error,
    prob_rms: prob.rms,
    prob_mean: prob.mean,
  };
}
