/**
 * Text to ids, over @huggingface/tokenizers, and back: tokenizer.json, or a byte-level BPE of vocab.json and merges.txt.
 *
 * @module
 */

import { join } from "@std/path/join";
import { CheckpointError } from "../errors.ts";
import { readJson } from "../format/json.ts";
import { exists, readText } from "../files/read.ts";
import { Detokenizer, type TextStream } from "./detokenizer.ts";
import { type AddedToken, exactRules, type Part, type TokenizerFile, UnknownRule } from "./rules.ts";

/** Larger than the tokenizer of any model known (Gemma: 33 MB). */
const MAX_BYTES = 200_000_000;

/** What the decoder needs of a tokenizer. */
export interface Tokenizer {
  /**
   * The ids of a text. Tokens that the tokenizer knows as special are special wherever they stand in it.
   *
   * @param whole the text is a whole one: it gets the tokens that the model wants before it (`<s>`), if any
   */
  encode(text: string, whole?: boolean): number[];
  /** The text of ids. */
  decode(ids: readonly number[]): string;
  /** The text of ids that come one by one. */
  stream(): TextStream;
  /** The id of a token, as it is written in the vocabulary. */
  idOf(token: string): number | undefined;
  /** What had to be assumed about the text, for a warning. */
  readonly assumed?: string;
}

/** What is assumed where the rules are not in a file. */
const ASSUMED =
  "vocab.json and merges.txt do not say how text is split before it is encoded: GPT-2's way is assumed, " +
  "and the ids may not be the model's; tokenizer.json has its rules";

/** Whether a checkpoint directory has a tokenizer. @throws {SystemError} if that can't be known */
export function hasTokenizer(directory: string): boolean {
  const has = (name: string) => exists(join(directory, name));
  return has("tokenizer.json") || (has("vocab.json") && has("merges.txt"));
}

/**
 * Loads the tokenizer of a checkpoint directory.
 *
 * @param purpose `decode` leaves out what takes most of the time, the library and the merges; `encode` then throws
 * @returns undefined if the directory has none
 * @throws {CheckpointError} its files can't be read as a tokenizer, or have rules that are not known
 */
export async function loadTokenizer(directory: string, purpose: "encode" | "decode"): Promise<Tokenizer | undefined> {
  const path = join(directory, "tokenizer.json");
  const vocabulary = join(directory, "vocab.json");
  const merges = join(directory, "merges.txt");
  if (!hasTokenizer(directory)) return undefined;
  const whole = exists(path);
  const origin = whole ? path : vocabulary;
  const file = whole ? checked(path, readJson(path, MAX_BYTES)) : byteLevel(
    checkedVocabulary(vocabulary, readJson(vocabulary, MAX_BYTES)),
    purpose === "encode" ? readMerges(merges) : [],
  );
  try {
    const detokenizer = new Detokenizer(file);
    return {
      encode: purpose === "encode" ? await encoder(file) : () => {
        throw new TypeError("this tokenizer was loaded to decode");
      },
      decode: (ids) => detokenizer.decode(ids),
      stream: () => detokenizer.stream(),
      idOf: (token) => detokenizer.idOf(token),
      assumed: whole ? undefined : ASSUMED,
    };
  } catch (error) {
    if (error instanceof UnknownRule) {
      throw new CheckpointError({ path: origin, field: error.field }, `${error.message} is not supported; use --ids`);
    }
    throw new CheckpointError({ path: origin }, `not a tokenizer: ${(error as Error).message}`);
  }
}

/** A text of up to so many UTF-16 units has few of the merges in it. */
const SHORT = 2000;

/** @throws {Error} the library can't make a tokenizer of it */
async function encoder(file: TokenizerFile): Promise<Tokenizer["encode"]> {
  const rules = exactRules(file);
  const { vocab, merges } = checkedModel(file.model);
  // The library is loaded when text is to be encoded: ids need none of it.
  const { Tokenizer } = await import("@huggingface/tokenizers");
  const make = (part: Partial<Model>) => new Tokenizer({ ...rules, model: { ...rules.model, ...part } }, {});
  const letters = make({ vocab: only(vocab, (token) => token.length === 1), merges: [] });
  // The first text is most often the only one: the library takes most of its time for merges that are not in it.
  const forOne = (text: string) => {
    const found = letters.tokenize(text).join("");
    const inside = (token: string) => found.includes(token) || (token[0] === "<" && SPECIAL.test(token));
    return make({
      vocab: only(vocab, inside),
      merges: merges.filter((merge) =>
        found.includes(typeof merge === "string" ? merge.replace(" ", "") : merge.join(""))
      ),
    });
  };
  let whole: typeof letters | undefined;
  let first = true;
  return (text, special = false) => {
    const options = { add_special_tokens: special };
    const library = first && text.length <= SHORT ? forOne(text) : whole ??= make({});
    first = false;
    const { ids } = library.encode(text, options);
    // A token that only the post-processor names.
    return ids.includes(undefined as unknown as number) ? (whole ??= make({})).encode(text, options).ids : ids;
  };
}

/** Tokens that stand for what is not in the vocabulary. */
const SPECIAL = /^<(unk|0x[0-9A-Fa-f]{2})>$/;

type Vocabulary = Readonly<Record<string, number>>;
type Merge = string | string[];
interface Model {
  readonly vocab: Vocabulary;
  readonly merges: readonly Merge[];
}

function only(vocab: Vocabulary, wanted: (token: string) => boolean): Vocabulary {
  const part: Record<string, number> = {};
  for (const token in vocab) if (wanted(token)) part[token] = vocab[token];
  return part;
}

function checkedModel({ vocab, merges }: Part): Model {
  const pair = (merge: unknown) =>
    typeof merge === "string" ||
    (Array.isArray(merge) && merge.length === 2 && merge.every((token) => typeof token === "string"));
  if (Array.isArray(merges) && merges.every(pair)) return { vocab: vocab as Vocabulary, merges };
  throw new Error("merges: expected pairs of tokens");
}

function checked(path: string, json: unknown): TokenizerFile {
  const file = json as TokenizerFile;
  if (!isObject(file) || !isObject(file.model)) throw new CheckpointError({ path, field: "model" }, "is missing");
  checkedVocabulary(path, file.model.vocab, "model vocab");
  const added = file.added_tokens ?? [];
  const sound = Array.isArray(added) &&
    added.every((token: AddedToken) => isObject(token) && isId(token.id) && typeof token.content === "string");
  if (!sound) throw new CheckpointError({ path, field: "added_tokens" }, "expected objects with an id and a content");
  return { normalizer: null, pre_tokenizer: null, post_processor: null, ...file, added_tokens: added };
}

function checkedVocabulary(path: string, vocab: unknown, field?: string): Record<string, number> {
  if (isObject(vocab) && allIds(vocab)) return vocab as Record<string, number>;
  throw new CheckpointError({ path, field }, "expected an object of tokens and ids");
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Object.values of a whole vocabulary takes several times as long. */
function allIds(vocab: Record<string, unknown>): boolean {
  for (const token in vocab) if (!isId(vocab[token])) return false;
  return true;
}

/** An id that an array may have as its index. */
function isId(value: unknown): boolean {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 31;
}

/** Pairs of tokens. Neither has a space or the end of a line: byte-level tokens write them otherwise. */
function readMerges(path: string): string[][] {
  const lines = readText(path, MAX_BYTES).split(/\r?\n/);
  return lines.filter((line) => line !== "" && !line.startsWith("#version")).map((line) => line.split(" "));
}

/** GPT-2's byte-level BPE as a tokenizer.json. */
function byteLevel(vocab: Record<string, number>, merges: string[][]): TokenizerFile {
  return {
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
