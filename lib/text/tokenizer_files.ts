/**
 * Reads the files of a tokenizer: tokenizer.json, or the byte-level BPE of vocab.json and merges.txt, and the tokens that
 * the other files name.
 *
 * @module
 */

import { join } from "@std/path/join";
import { quote } from "../errors.ts";
import { exists, readText } from "../files/read.ts";
import { readJsonObject } from "../format/json.ts";
import { Field } from "./field.ts";
import { type AddedToken, addedTokens, MAX_BYTES, readSettings, specialTokens } from "./special_tokens.ts";

/** The content of a tokenizer's files. */
export interface TokenizerFiles {
  /** tokenizer.json, or its equivalent; the path is that of the vocabulary. */
  readonly json: Field;
  /** Ids by token, without added tokens, and tokens by id. */
  readonly vocabulary: ReadonlyMap<string, number>;
  readonly tokens: readonly (string | undefined)[];
  /** From all files, in the order in which they are added. */
  readonly added: readonly AddedToken[];
  /** Special tokens by name: `bos_token`, `eos_token` and so on. */
  readonly special: Readonly<Record<string, string>>;
  /** A warning about what the files do not say and was assumed. */
  readonly assumed?: string;
}

/** The assumption if no file says how text is split. */
const ASSUMED =
  "vocab.json and merges.txt do not say how text is split before it is encoded: GPT-2's rules are assumed, " +
  "and the ids may be wrong for this model; tokenizer.json would contain its rules";

/** Vocabulary files of other libraries. */
const FOREIGN = ["tokenizer.model", "tekken.json", "tiktoken.model", "spiece.model", "sentencepiece.bpe.model"];

/** Whether a checkpoint directory has a tokenizer. @throws {SystemError} it can't be determined */
export function hasTokenizer(directory: string): boolean {
  const has = (name: string) => exists(join(directory, name));
  return has("tokenizer.json") || (has("vocab.json") && has("merges.txt"));
}

/** What to do about a vocabulary of another library, in parentheses after a space; empty if there is none. */
export function unreadVocabulary(directory: string): string {
  const foreign = FOREIGN.find((name) => exists(join(directory, name)));
  if (foreign === undefined) return "";
  return ` (${foreign} is not supported; create tokenizer.json from it with transformers: ` +
    `AutoTokenizer.from_pretrained("${directory}").save_pretrained("${directory}"))`;
}

/**
 * Reads the tokenizer of a checkpoint directory.
 *
 * @param merges whether to read merges.txt, which takes a while
 * @returns undefined if the directory has none
 * @throws {CheckpointError} a file is not a JSON object
 * @throws {FieldError} the model is not BPE, or a file declares tokens in an invalid way
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

/** @throws {FieldError} the model is not BPE, or two tokens have the same id */
function vocabularyOf(field: Field): Pick<TokenizerFiles, "vocabulary" | "tokens"> {
  const type = field.get("type");
  if (!type.absent && type.value !== "BPE") type.refuse(`${type} is not supported, only BPE`);
  const vocab = field.get("vocab");
  const vocabulary = new Map<string, number>();
  const tokens: (string | undefined)[] = [];
  const object = vocab.object();
  // Object.entries would take several times as long.
  for (const token in object) {
    const id = object[token];
    if (!isId(id)) return vocab.refuse(`${quote(token)} has the invalid id ${vocab.get(token)}`);
    if (!token.isWellFormed()) vocab.refuse(`${quote(token)} contains a lone surrogate`);
    const other = tokens[id];
    if (other !== undefined) vocab.refuse(`${quote(other)} and ${quote(token)} both have the id ${id}`);
    tokens[id] = token;
    vocabulary.set(token, id);
  }
  return { vocabulary, tokens };
}

/** Larger than any known vocabulary, and small enough for an index of an array. */
const MAX_ID = 2 ** 24;

function isId(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) < MAX_ID;
}

// ---------------------------------------------------------------- vocab.json and merges.txt

const QWEN2 = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" +
  "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/** The tokenizer.json for vocab.json and merges.txt: that of the tokenizer's class, or of GPT-2's. */
function byteLevel(
  directory: string,
  { config, class: kind, classField }: ReturnType<typeof readSettings>,
  merges: boolean,
): Field {
  const split = kind === undefined ? "gpt2" : kind.split;
  if (split === undefined) {
    return classField.refuse(`${classField} without tokenizer.json is not supported`);
  }
  const path = join(directory, "vocab.json");
  const vocab = readJsonObject(path, MAX_BYTES);
  const prefix = kind !== undefined && config.get("add_prefix_space").flag(false);
  const bytes = { type: "ByteLevel", add_prefix_space: prefix, trim_offsets: true, use_regex: split === "gpt2" };
  const words = { type: "Split", pattern: { Regex: QWEN2 }, behavior: "Isolated", invert: false };
  // If no file says which tokens are special, these are assumed to be.
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

/** Pairs of tokens. No byte-level token contains a space or a newline. */
function readMerges(path: string): string[] {
  return readText(path, MAX_BYTES).split(/\r?\n/).filter((line) => line !== "" && !line.startsWith("#version"));
}
