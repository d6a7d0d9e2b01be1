/**
 * Shared code of commands that run a model: the prompt, the tokenizer, and the memory of the process.
 *
 * @module
 */

import { join } from "@std/path/join";
import type { Checkpoint } from "../format/checkpoint.ts";
import type { Model } from "../model/load.ts";
import { loadTokenizer, type Tokenizer } from "../text/tokenizer.ts";
import { unreadVocabulary } from "../text/tokenizer_files.ts";
import { CheckpointError } from "../errors.ts";
import { exists } from "../files/read.ts";
import published from "../measure/published.json" with { type: "json" };
import { checkIds } from "../library/prompt.ts";
import { type Arguments, type Flags, TEXT, type Values } from "./arguments.ts";
import { UsageError } from "./errors.ts";
import { warn } from "./output.ts";

/** The ids of the published prompt in the vocabulary of SmolLM2. */
export const PUBLISHED_PROMPT: readonly number[] = published.prompt_ids;

/** The flags of the prompt. */
export const PROMPT_FLAGS = {
  prompt: {
    type: TEXT,
    unset: `"${published.prompt}"; its ids in SmolLM2, "${PUBLISHED_PROMPT.join(" ")}", without tokenizer.json`,
    help: "the prompt as text",
  },
  ids: { type: TEXT, value: "IDS", help: "the prompt as token ids, instead of a text" },
} as const satisfies Flags;

/**
 * The ids of the prompt. The default is a published prompt, encoded by the tokenizer if there is a tokenizer.json, else
 * by that of SmolLM2.
 *
 * @param encode converts a text to ids
 * @throws {UsageError} the prompt is empty
 * @throws {RabbitError} an id is not in the vocabulary
 */
export async function promptOf(
  { values: { ids, prompt: given } }: Arguments<Values<typeof PROMPT_FLAGS>>,
  model: Model,
  encode: (text: string) => number[] | Promise<number[]> = (text) => {
    return tokenizerFor("prompt", model, "use --ids").encode(text, true);
  },
): Promise<number[]> {
  if (given !== undefined && ids !== undefined) throw new UsageError("--ids and --prompt exclude each other");
  if (ids === undefined && given === undefined && !exists(join(model.checkpoint.directory, "tokenizer.json"))) {
    checkIds("the default prompt", PUBLISHED_PROMPT, model, "; give --ids");
    return [...PUBLISHED_PROMPT];
  }
  const prompt = ids === undefined ? await encode(given ?? published.prompt) : parseIds(ids);
  if (prompt.length === 0) throw new UsageError("the prompt is empty");
  checkIds("the prompt", prompt, model);
  return prompt;
}

/**
 * The tokenizer of a checkpoint for encoding. A warning reports assumptions about it.
 *
 * @param flag the flag that needs it, for messages
 * @param absent the remedy if there is none
 * @param unusable the remedy if it is unsupported
 * @throws {UsageError} there is none
 * @throws {CheckpointError} it is unsupported
 */
export function tokenizerFor(
  flag: string,
  { checkpoint, config }: Model,
  absent: string,
  unusable = absent,
): Tokenizer {
  const { directory, foreign } = checkpoint;
  const tokenizer = loadTokenizer(directory, "encode", { vocabulary: config.vocabulary, remedy: unusable });
  if (tokenizer === undefined) throw noTokenizer(flag, checkpoint, foreign ? unusable : absent);
  if (tokenizer.assumed !== undefined) warn(`--${flag}`, tokenizer.assumed);
  return tokenizer;
}

/**
 * The tokenizer of a checkpoint for decoding, if any. An unsupported one is only a warning, since the ids do not depend
 * on it.
 */
export function decoderOf(command: string, { checkpoint, config }: Model): Tokenizer | undefined {
  try {
    return loadTokenizer(checkpoint.directory, "decode", config);
  } catch (error) {
    if (!(error instanceof CheckpointError)) throw error;
    warn(command, `no text: ${error.message}`);
    return undefined;
  }
}

/** Returns the error for a flag that needs a tokenizer. */
export function noTokenizer(flag: string, { directory, foreign }: Checkpoint, remedy: string): UsageError {
  if (foreign) return new UsageError(`--${flag} needs a tokenizer; ${directory}: ${foreign.missing}; ${remedy}`);
  const wanted = `tokenizer.json, or vocab.json and merges.txt, in ${directory}${unreadVocabulary(directory)}`;
  return new UsageError(`--${flag} needs ${wanted}; ${remedy}`);
}

function parseIds(text: string): number[] {
  return text.split(/[\s,]+/).filter((word) => word !== "").map((word) => {
    if (!/^\d{1,10}$/.test(word)) throw new UsageError(`--ids takes whole numbers, found "${word}"`);
    return Number(word);
  });
}
