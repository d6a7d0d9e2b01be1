/**
 * Converts prompts and texts to token ids.
 *
 * @module
 */

import { CheckpointError, RabbitError } from "../errors.ts";
import type { Model } from "../model/load.ts";
import { loadTokenizer, type Tokenizer } from "../text/tokenizer.ts";
import { unreadVocabulary } from "../text/tokenizer_files.ts";

/** The size limit of a text: hours of work even for a small model. */
export const MAX_TEXT_BYTES = 100_000_000;

/** Loads the tokenizer of a model. */
function load({ checkpoint, config }: Model): Tokenizer | undefined {
  return loadTokenizer(checkpoint.directory, "encode", { vocabulary: config.vocabulary });
}

/** The tokenizer of a model. @throws {CheckpointError} it has none, or an unsupported one */
export function tokenizerOf(model: Model, tokenizer: () => Tokenizer | undefined = () => load(model)): Tokenizer {
  const found = tokenizer();
  if (found !== undefined) return found;
  const { directory, foreign } = model.checkpoint;
  if (foreign) throw new CheckpointError({ path: directory }, `${foreign.missing}; give token ids`);
  throw new CheckpointError(
    { path: directory },
    `no tokenizer.json, and no vocab.json and merges.txt${unreadVocabulary(directory)}; without them give token ids`,
  );
}

/** @throws {TypeError} a prompt is neither a text nor an array */
export function checkPrompt(prompt: unknown): void {
  if (typeof prompt === "string" || Array.isArray(prompt)) return;
  throw new TypeError(`the prompt is ${prompt === null ? "null" : typeof prompt}, expected a text or an array`);
}

/**
 * Converts a prompt to token ids.
 *
 * @param tokenizer returns the tokenizer of the model, if it is already loaded
 * @throws {CheckpointError} the prompt is a text, and there is no tokenizer
 * @throws {RabbitError} the prompt is empty, or an id is not in the vocabulary
 */
export function idsOf(
  prompt: string | readonly number[],
  model: Model,
  tokenizer?: () => Tokenizer | undefined,
): number[] {
  const ids = typeof prompt === "string" ? tokenizerOf(model, tokenizer).encode(prompt, true) : [...prompt];
  if (ids.length === 0) throw new RabbitError("the prompt is empty");
  checkIds("the prompt", ids, model);
  return ids;
}

/** Converts a text to token ids, without special tokens. @throws {RabbitError} one is not in the vocabulary */
export function textIds(what: string, text: string, tokenizer: Tokenizer, model: Model): number[] {
  const ids = tokenizer.encode(text);
  checkIds(what, ids, model);
  return ids;
}

/** As {@link textIds}, for a text that is scored. @throws {RabbitError} it has fewer than two tokens */
export function scoredIds(what: string, text: string, tokenizer: Tokenizer, model: Model): number[] {
  const ids = textIds(what, text, tokenizer, model);
  if (ids.length >= 2) return ids;
  throw new RabbitError(
    `${what}: expected at least 2 tokens, found ${ids.length}; the first one of a window is not scored`,
  );
}

/** @param advice what to do, after a semicolon @throws {RabbitError} an id is not in the vocabulary */
export function checkIds(
  what: string,
  ids: readonly number[],
  { config: { vocabulary } }: Pick<Model, "config">,
  advice = "",
): void {
  const outside = ids.find((id) => !(Number.isInteger(id) && id >= 0 && id < vocabulary));
  if (outside === undefined) return;
  throw new RabbitError(`${what} has the id ${outside}, the vocabulary ends at ${vocabulary - 1}${advice}`);
}
