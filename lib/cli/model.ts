/**
 * What compare and infer share: opening a model, and the prompt.
 *
 * @module
 */

import { join } from "@std/path/join";
import { type Config, parseConfig } from "../model/config.ts";
import { Llama } from "../model/llama.ts";
import { checkTensors } from "../model/tensors.ts";
import { loadTokenizer, type Tokenizer } from "../text/tokenizer.ts";
import { unreadVocabulary } from "../text/tokenizer_files.ts";
import { type Checkpoint, openCheckpoint, TensorReader } from "../format/checkpoint.ts";
import { readText } from "../files/read.ts";
import type { Operations } from "../kernels/operations.ts";
import { processStatus } from "../libc.ts";
import type { Arguments, Flag } from "./arguments.ts";
import { UsageError } from "./errors.ts";
import { warn } from "./output.ts";

/** The published prompt, `The capital of France is`. */
export const PUBLISHED_PROMPT = [504, 3575, 282, 4649, 314];

/** Flags of the prompt. */
export const PROMPT_FLAGS: readonly Flag[] = [
  {
    name: "ids",
    value: "IDS",
    help: `the prompt as token ids (default "${PUBLISHED_PROMPT.join(" ")}", the published one)`,
  },
  { name: "prompt", value: "TEXT", help: "the prompt as text, for the model's tokenizer" },
];

/** A configuration larger than this is another file. */
export const MAX_CONFIG_BYTES = 1_000_000;

/** A checkpoint and the configuration to run it with. */
export interface Model {
  readonly checkpoint: Checkpoint;
  readonly config: Config;
}

/** Opens a checkpoint and the config.json beside it, or the given one. */
export function openModel(path: string, configPath?: string): Model {
  const checkpoint = openCheckpoint(path);
  const file = configPath ?? join(checkpoint.directory, "config.json");
  return { checkpoint, config: readConfig(file) };
}

/** Reads a config.json. */
export function readConfig(path: string): Config {
  return parseConfig(path, readText(path, MAX_CONFIG_BYTES));
}

/** @throws {CheckpointError} the checkpoint has not the tensors that the configuration calls for, and those alone */
export function checkModel({ checkpoint, config }: Model): void {
  using reader = new TensorReader(checkpoint);
  checkTensors(config, reader);
}

/** Loads the weights; `logitRows` as for {@link Llama}. */
export function loadModel(ops: Operations, { checkpoint, config }: Model, context: number, logitRows = 1): Llama {
  using reader = new TensorReader(checkpoint);
  const model = new Llama(ops, config, reader, context, logitRows);
  reader.checkUnchanged();
  return model;
}

/**
 * The ids of the prompt.
 *
 * @param encode turns the text of `--prompt` into ids
 * @throws {UsageError} it is empty, or has an id that the vocabulary lacks
 */
export async function promptOf(
  args: Arguments,
  model: Model,
  encode: (text: string) => number[] | Promise<number[]> = (text) => {
    return tokenizerFor("prompt", model, "use --ids").encode(text, true);
  },
): Promise<number[]> {
  const text = args.values.get("prompt");
  const ids = args.values.get("ids");
  if (text !== undefined && ids !== undefined) throw new UsageError("--ids and --prompt exclude each other");
  const prompt = text !== undefined ? await encode(text) : ids === undefined ? PUBLISHED_PROMPT : parseIds(ids);
  if (prompt.length === 0) throw new UsageError("the prompt is empty");
  checkIds("the prompt", prompt, model.config);
  return prompt;
}

/** @throws {UsageError} an id is not in the vocabulary */
function checkIds(what: string, ids: readonly number[], { vocabulary }: Config): void {
  const outside = ids.find((id) => !(id < vocabulary));
  if (outside !== undefined) {
    throw new UsageError(`${what} has the id ${outside}, the vocabulary ends at ${vocabulary - 1}`);
  }
}

/** The ids of a text, without special tokens. @throws {UsageError} one is not in the vocabulary, or they are fewer than two */
export function textIds(tokenizer: Tokenizer, text: string, what: string, config: Config): number[] {
  const ids = tokenizer.encode(text);
  checkIds(what, ids, config);
  if (ids.length < 2) {
    throw new UsageError(`${what} has ${ids.length} tokens, two are needed: the first one of a window is not scored`);
  }
  return ids;
}

/**
 * The tokenizer of a checkpoint, to encode with; a warning tells what had to be assumed.
 *
 * @param absent what to do where there is none
 * @param unusable what to do about one that can't be used
 * @throws {UsageError} naming the flag that needs it: there is none
 * @throws {CheckpointError} it can't be used
 */
export function tokenizerFor(
  flag: string,
  { checkpoint, config }: Model,
  absent: string,
  unusable = absent,
): Tokenizer {
  const { directory } = checkpoint;
  const tokenizer = loadTokenizer(directory, "encode", { vocabulary: config.vocabulary, remedy: unusable });
  if (tokenizer === undefined) throw noTokenizer(flag, directory, absent);
  if (tokenizer.assumed !== undefined) warn(`--${flag}`, tokenizer.assumed);
  return tokenizer;
}

/** The error for a flag that needs a tokenizer. */
export function noTokenizer(flag: string, directory: string, remedy: string): UsageError {
  const wanted = `tokenizer.json, or vocab.json and merges.txt, in ${directory}${unreadVocabulary(directory)}`;
  return new UsageError(`--${flag} needs ${wanted}; ${remedy}`);
}

function parseIds(text: string): number[] {
  return text.split(/[\s,]+/).filter((word) => word !== "").map((word) => {
    if (!/^\d{1,10}$/.test(word)) throw new UsageError(`--ids takes whole numbers, found "${word}"`);
    return Number(word);
  });
}

/** The most memory that the process has had, in bytes, and what it has now; Linux alone says the former. */
export function memory(): { peak?: number; now: number } {
  const status = processStatus();
  const of = (field: string) => {
    const kilobytes = new RegExp(`^${field}:\\s*(\\d+) kB$`, "m").exec(status ?? "")?.[1];
    return kilobytes === undefined ? undefined : Number(kilobytes) * 1024;
  };
  return { peak: of("VmHWM"), now: of("VmRSS") ?? Deno.memoryUsage().rss };
}
