/**
 * The files of a tokenizer: tokenizer.json, or a byte-level BPE of vocab.json and merges.txt, and the tokens that the files
 * beside it name.
 *
 * @module
 */

import { join } from "@std/path/join";
import { quote } from "../errors.ts";
import { exists, readText } from "../files/read.ts";
import { readJsonObject } from "../format/json.ts";
import { Field } from "./field.ts";
import { type AddedToken, addedTokens, MAX_BYTES, readSettings, specialTokens } from "./special_tokens.ts";

/** A tokenizer as its files have it. */
export interface TokenizerFiles {
  /** tokenizer.json, or one that means the same; its path is that of the vocabulary. */
  readonly json: Field;
  /** Ids by token, without those that are added, and tokens by id. */
  readonly vocabulary: ReadonlyMap<string, number>;
  readonly tokens: readonly (string | undefined)[];
  /** Of all files, in the order in which they are added. */
  readonly added: readonly AddedToken[];
  /** Contents of `bos_token`, `eos_token` and the like. */
  readonly special: Readonly<Record<string, string>>;
  /** What had to be assumed, for a warning. */
  readonly assumed?: string;
}

/** What is assumed where no file says how a text is split. */
const ASSUMED =
  "vocab.json and merges.txt do not say how text is split before it is encoded: GPT-2's way is assumed, " +
  "and the ids may not be the model's; tokenizer.json has its rules";

/** Vocabularies of other libraries. */
const FOREIGN = ["tokenizer.model", "tekken.json", "tiktoken.model", "spiece.model", "sentencepiece.bpe.model"];

/** Whether a checkpoint directory has a tokenizer. @throws {SystemError} if that can't be known */
export function hasTokenizer(directory: string): boolean {
  const has = (name: string) => exists(join(directory, name));
  return has("tokenizer.json") || (has("vocab.json") && has("merges.txt"));
}

/** What to do about a vocabulary of another library, in parentheses behind a space; nothing where there is none. */
export function unreadVocabulary(directory: string): string {
  const foreign = FOREIGN.find((name) => exists(join(directory, name)));
  if (foreign === undefined) return "";
  return ` (${foreign} is not read: transformers makes a tokenizer.json of it, ` +
    `AutoTokenizer.from_pretrained("${directory}").save_pretrained("${directory}"))`;
}

/**
 * Reads the tokenizer of a checkpoint directory.
 *
 * @param merges whether the merges are wanted; reading merges.txt takes a while
 * @returns undefined if the directory has none
 * @throws {CheckpointError} a file is no JSON object
 * @throws {FieldError} the model is no BPE, or a file names tokens in a way that can't be understood
 */
export function readTokenizer(directory: string, merges = true): TokenizerFiles | undefined {
  if (!hasTokenizer(directory)) return undefined;
  const settings = readSettings(directory);
  const path = join(directory, "tokenizer.json");
  const whole = exists(path);
  const json = whole ? Field.ofFile(path, MAX_BYTES) : byteLevel(directory, settings, merges);
  const version = json.get("version");
  if (!version.absent && version.value !== "1.0") version.refuse(`${version} is not supported, only "1.0"`);
  const { vocabulary, tokens } = vocabularyOf(json.get("model"));
  return {
    json,
    vocabulary,
    tokens,
    added: addedTokens(json.get("added_tokens"), vocabulary, settings),
    special: specialTokens(settings),
    assumed: whole || settings.class !== undefined ? undefined : ASSUMED,
  };
}

/** @throws {FieldError} it is no BPE's, or two tokens have one id */
function vocabularyOf(field: Field): Pick<TokenizerFiles, "vocabulary" | "tokens"> {
  const type = field.get("type");
  if (!type.absent && type.value !== "BPE") type.refuse(`${type} is not supported, only BPE`);
  const vocab = field.get("vocab");
  const vocabulary = new Map<string, number>();
  const tokens: (string | undefined)[] = [];
  const object = vocab.object();
  // Object.entries of a whole vocabulary takes several times as long.
  for (const token in object) {
    const id = object[token];
    if (!isId(id)) return vocab.refuse(`the id of ${quote(token)} is ${vocab.get(token)}`);
    if (!token.isWellFormed()) vocab.refuse(`${quote(token)} has a lone surrogate, which is no character`);
    const other = tokens[id];
    if (other !== undefined) vocab.refuse(`${quote(other)} and ${quote(token)} both have the id ${id}`);
    tokens[id] = token;
    vocabulary.set(token, id);
  }
  return { vocabulary, tokens };
}

/** More than any vocabulary has; a list may have it as its index. */
const MAX_ID = 2 ** 24;

function isId(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) < MAX_ID;
}

// ---------------------------------------------------------------- vocab.json and merges.txt

const QWEN2 = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" +
  "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/** vocab.json and merges.txt as a tokenizer.json, by the class that reads them, or by GPT-2's. */
function byteLevel(
  directory: string,
  { config, class: kind, classField }: ReturnType<typeof readSettings>,
  merges: boolean,
): Field {
  const split = kind === undefined ? "gpt2" : kind.split;
  if (split === undefined) {
    return classField.refuse(`how ${classField} splits a text is not known without tokenizer.json`);
  }
  const path = join(directory, "vocab.json");
  const vocab = readJsonObject(path, MAX_BYTES);
  const prefix = kind !== undefined && config.get("add_prefix_space").flag(false);
  const bytes = { type: "ByteLevel", add_prefix_space: prefix, trim_offsets: true, use_regex: split === "gpt2" };
  const words = { type: "Split", pattern: { Regex: QWEN2 }, behavior: "Isolated", invert: false };
  // Such tokens are special where no file says which ones are.
  const special = kind === undefined ? Object.keys(vocab).filter((token) => /^<\|.*\|>$/.test(token)) : [];
  return new Field(path, "", {
    added_tokens: special.map((content) => ({ id: vocab[content], content, special: true })),
    normalizer: split === "qwen2" ? { type: "NFC" } : null,
    pre_tokenizer: split === "qwen2" ? { type: "Sequence", pretokenizers: [words, bytes] } : bytes,
    post_processor: null,
    decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: { type: "BPE", vocab, merges: merges ? readMerges(join(directory, "merges.txt")) : [] },
  });
}

/** Pairs of tokens. Neither has a space or the end of a line: byte-level tokens write them otherwise. */
function readMerges(path: string): string[] {
  return readText(path, MAX_BYTES).split(/\r?\n/).filter((line) => line !== "" && !line.startsWith("#version"));
}
