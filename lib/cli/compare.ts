/**
 * `rabbit compare`: compares two checkpoints, on a prompt or on a text.
 *
 * @module
 */

import { DEFAULT_WIDTH } from "../format/blocks.ts";
import { join } from "@std/path/join";
import { COMPARE_STEPS, compareModels } from "../library/compare.ts";
import { openAny } from "../gguf/open.ts";
import { type Model, openModel, openQuantized } from "../model/load.ts";
import { CheckpointError } from "../errors.ts";
import { readJsonObject } from "../format/json.ts";
import { exists } from "../files/read.ts";
import published from "../measure/published.json" with { type: "json" };
import { compareText, TEXT_DETAILS, TEXT_FLAGS, textOf } from "./compare_text.ts";
import { CHECKPOINT, command, COUNT, FILE, PART, THREADS } from "./arguments.ts";
import { printMethod } from "./calibrate.ts";
import { UsageError } from "./errors.ts";
import { memory } from "../files/memory.ts";
import { decoderOf, PROMPT_FLAGS, promptOf } from "./model.ts";
import { Fixed } from "./output.ts";

/** The size limit of a reference. */
const MAX_REFERENCE_BYTES = 10_000_000;

/** The default arguments: the checkpoints in the initramfs of a guest (tools/guest). */
const GUEST = ["/model.safetensors", `/model-q${DEFAULT_WIDTH.bits}.safetensors`];

/** `rabbit compare` */
export const compareCommand = command({
  name: "compare",
  summary: "compare a quantized checkpoint with the float one: answer and logits of a prompt, or predictions of a text",
  positionals: [
    { name: "FLOAT", type: CHECKPOINT, help: "the float checkpoint, a directory or a file, or a GGUF file" },
    {
      name: "QUANT",
      type: CHECKPOINT,
      help: "the quantized checkpoint, or another float one of the same architecture, or a GGUF file",
    },
    {
      name: "CONFIG",
      type: FILE,
      optional: true,
      help: "the configuration of both (default: config.json in the directory of FLOAT)",
    },
  ],
  absent: GUEST,
  flags: {
    ...PROMPT_FLAGS,
    steps: { type: COUNT, default: COMPARE_STEPS, help: "tokens to decode" },
    reference: {
      type: FILE,
      unset:
        "reference.json in the directory of FLOAT, if it exists; or the published answer of SmolLM2-135M, if FLOAT gives it",
      help: "expected tokens (JSON with prompt_ids and tokens)",
    },
    ...TEXT_FLAGS,
    shard: {
      type: PART,
      help:
        "with --text: measure windows I, I + N and so on, and print a line of JSON for each; rabbit merge puts the lines " +
        "of all parts together",
    },
    threads: THREADS,
    "dry-run": { help: "with --text: check the input and print what would be measured, and the memory that is needed" },
  },
  verdict: "0 the answer is kept, or the text is measured and within all limits, 1 the tokens differ, or a limit is " +
    "exceeded or undecided",
  details: [
    `FLOAT and QUANT default to ${GUEST.join(" and ")}, the checkpoints of a guest.`,
    "The answers are also printed as text if there is a tokenizer. If there is a reference for the prompt, " +
    "reference_float and reference_quant say whether each answer begins with its tokens, or is the beginning of them.",
    ...TEXT_DETAILS,
  ],
  example: "rabbit compare SmolLM2-135M SmolLM2-135M-q8",
  async run(args, out) {
    const [floatPath, quantPath, configPath] = args.positionals;
    const { steps, threads } = args.values;
    const float = openModel(openAny(floatPath), configPath);
    const quant = openQuantized(openAny(quantPath), float, configPath);
    const asked = textOf(args);
    // A part prints lines of JSON alone.
    if (asked?.part === undefined) await printMethod(quant.checkpoint, out);
    if (asked !== undefined) return await compareText(float, quant, asked, threads, out);
    const prompt = await promptOf(args, float);
    const given = referenceOf(args.values.reference, float.checkpoint.directory, prompt);
    const { traced, compared } = await compareModels(float, quant, prompt, { steps, threads });
    const reference = given ?? publishedFor(float, prompt, traced.tokens);
    const { prefill, steps: difference } = compared;
    out.list("tokens_float", traced.tokens);
    out.list("tokens_quant", compared.tokens);
    const tokenizer = decoderOf("compare", float);
    if (tokenizer !== undefined) {
      out.group("text_float", { text: tokenizer.decode(traced.tokens) });
      out.group("text_quant", { text: tokenizer.decode(compared.tokens) });
    }
    // A guest always prints the same lines.
    if (reference !== undefined || floatPath === GUEST[0]) {
      out.line({
        reference_float: agrees(reference, traced.tokens),
        reference_quant: agrees(reference, compared.tokens),
      });
    }
    out.group("logits", {
      steps,
      values: difference.values,
      max: new Fixed(difference.max, 6),
      mean: new Fixed(difference.mean, 9),
    });
    out.group("prefill", { max: new Fixed(prefill.max, 6), mean: new Fixed(prefill.mean, 9) });
    out.group("memory", { models: "one-at-a-time", peak_rss: memory().peak });
    out.group("result", {
      match: compared.match,
      tokens: steps,
      max_diff: new Fixed(difference.max, 6),
      mean_diff: new Fixed(difference.mean, 9),
    });
    out.verdict(compared.match ? "OK" : "DIFFER");
    return compared.match ? 0 : 1;
  },
});

/** The expected tokens; undefined if unknown for this prompt. */
function referenceOf(asked: string | undefined, directory: string, prompt: readonly number[]) {
  const beside = join(directory, "reference.json");
  const path = asked ?? (exists(beside) ? beside : undefined);
  if (path === undefined) return undefined;
  const { prompt_ids, tokens } = readReference(path);
  if (String(prompt_ids) === String(prompt)) return tokens;
  if (asked !== undefined) {
    throw new UsageError(`the reference ${path} is for another prompt (${prompt_ids.join(" ")})`);
  }
  return undefined;
}

/**
 * The published answer of SmolLM2-135M to the default prompt. Other models have its shape too, so it is known to be this
 * model's only if the float model gives it.
 */
function publishedFor({ config }: Model, prompt: readonly number[], answer: readonly number[]) {
  const { shape, prompt_ids, tokens } = published;
  const fits = config.vocabulary === shape.vocabulary && config.hidden === shape.hidden &&
    config.layers === shape.layers && String(prompt_ids) === String(prompt);
  return fits && answer.length > 0 && agrees(tokens, answer) ? tokens : undefined;
}

function readReference(path: string): { prompt_ids: number[]; tokens: number[] } {
  const json = readJsonObject(path, MAX_REFERENCE_BYTES);
  const ids = (field: string): number[] => {
    const value = json[field];
    if (Array.isArray(value) && value.length > 0 && value.every((id) => Number.isSafeInteger(id))) return value;
    throw new CheckpointError({ path, field }, "expected an array of at least one token id");
  };
  return { prompt_ids: ids("prompt_ids"), tokens: ids("tokens") };
}

/** Whether an answer is the reference, as far as both go. */
function agrees(reference: readonly number[] | undefined, tokens: readonly number[]): boolean | string {
  if (reference === undefined) return "unknown";
  const length = Math.min(reference.length, tokens.length);
  return String(reference.slice(0, length)) === String(tokens.slice(0, length));
}
