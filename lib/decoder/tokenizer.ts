/**
 * Text to ids and back, over @huggingface/tokenizers: tokenizer.json, or a byte-level BPE of vocab.json and merges.txt.
 *
 * @module
 */

import { join } from "@std/path/join";
import { CheckpointError } from "../errors.ts";
import { exists, readText } from "../format/checkpoint.ts";

/** Larger than the tokenizer of any model known (Gemma: 33 MB). */
const MAX_BYTES = 200_000_000;

/** What the decoder needs of a tokenizer. */
export interface Tokenizer {
  /** The ids of a text, without special tokens of the tokenizer's own. */
  encode(text: string): number[];
  /** The text of ids. */
  decode(ids: readonly number[]): string;
}

/**
 * Loads the tokenizer of a checkpoint directory.
 *
 * @param purpose `decode` leaves out the merges, which take most of the time and which only `encode` needs
 * @returns undefined if the directory has none
 * @throws {CheckpointError} its files can't be read as a tokenizer
 */
export async function loadTokenizer(
  directory: string,
  purpose: "encode" | "decode",
): Promise<Tokenizer | undefined> {
  const path = join(directory, "tokenizer.json");
  const vocabulary = join(directory, "vocab.json");
  const merges = join(directory, "merges.txt");
  const config = join(directory, "tokenizer_config.json");
  const whole = exists(path);
  if (!whole && !(exists(vocabulary) && exists(merges))) return undefined;
  const json: { model?: { merges?: unknown } } = whole
    ? parse(path)
    : byteLevel(parse(vocabulary) as Record<string, number>, readText(merges, MAX_BYTES).split(/\r?\n/));
  if (purpose === "decode" && json.model?.merges) json.model.merges = [];
  // The library is loaded when text is wanted: ids need none of it.
  const { Tokenizer } = await import("@huggingface/tokenizers");
  let library: InstanceType<typeof Tokenizer>;
  try {
    library = new Tokenizer(json, exists(config) ? parse(config) : {});
  } catch (error) {
    throw new CheckpointError({ path: whole ? path : vocabulary }, `not a tokenizer: ${(error as Error).message}`);
  }
  return {
    encode: (text) => library.encode(text, { add_special_tokens: false }).ids,
    decode: (ids) => library.decode([...ids], { skip_special_tokens: false, clean_up_tokenization_spaces: false }),
  };
}

function parse(path: string): object {
  try {
    return JSON.parse(readText(path, MAX_BYTES));
  } catch (error) {
    if (error instanceof SyntaxError) throw new CheckpointError({ path }, `not valid JSON: ${error.message}`);
    throw error;
  }
}

/** GPT-2's byte-level BPE as a tokenizer.json. */
function byteLevel(vocab: Record<string, number>, lines: string[]): object {
  const merges = lines.filter((line) => line !== "" && !line.startsWith("#version")).map((line) => line.split(" "));
  return {
    version: "1.0",
    added_tokens: Object.entries(vocab).filter(([token]) => /^<\|.*\|>$/.test(token)).map(([content, id]) => {
      return { id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
    }),
    normalizer: null,
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true },
    post_processor: null,
    decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: { type: "BPE", dropout: null, unk_token: null, vocab, merges, fuse_unk: false, byte_fallback: false },
  };
}
