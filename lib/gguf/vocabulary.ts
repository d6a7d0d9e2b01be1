/**
 * A tokenizer as in GGUF's metadata, read from there or from the files of a Hugging Face checkpoint. The model `gpt2`
 * is a byte-level BPE with a named pre-tokenizer (`tokenizer.ggml.pre`, see splits.ts); `llama` is SentencePiece's BPE.
 *
 * @module
 */

import { join } from "@std/path/join";
import { CheckpointError, quote } from "../errors.ts";
import { readJsonObject } from "../format/json.ts";
import { exists } from "../files/read.ts";
import { readChatTemplate } from "../text/chat.ts";
import { FieldError } from "../text/field.ts";
import { readTokenizer, type TokenizerFiles } from "../text/tokenizer_files.ts";
import { Keys } from "./keys.ts";
import { BYTE, mergesOf as mergesOfScores, scoresOf, spacePrefix } from "./sentencepiece.ts";
import { splitNamed, SPLITS, tokenizerJson } from "./splits.ts";
import { at } from "./untyped.ts";
import { type Metadata, type Value, value } from "./values.ts";

/** Larger than the tokenizer files of any known model (Gemma: 33 MB). */
const MAX_BYTES = 200_000_000;

/**
 * Longer than any token. SentencePiece's tokens are split at every position, which takes time quadratic in the length.
 */
const MAX_TOKEN = 1000;

/** Token types, as in `tokenizer.ggml.token_type` (llama.h). */
export const TYPE = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 };

/** A tokenizer in the terms of GGUF. */
export interface Vocabulary {
  /** The name of a pre-tokenizer: of `SPLITS` in splits.ts, or given by the user; `default` for SentencePiece. */
  readonly pre: string;
  /** Why `pre` may be wrong, if the user gave it and it is not what the tokenizer says. */
  readonly doubt?: string;
  /** For SentencePiece only: a score for each id, and whether a space is added before a text. */
  readonly sentencePiece?: { readonly scores: readonly number[]; readonly prefix: boolean };
  /** The tokens, by id. */
  readonly tokens: readonly string[];
  /** The type of each id: a value of {@link TYPE}. */
  readonly types: readonly number[];
  /** Pairs of tokens, separated by a space. */
  readonly merges: readonly string[];
  /** The ids of special tokens. */
  readonly special: ReadonlyMap<Special, number>;
  /** Whether the BOS token is added before a text. */
  readonly addBos: boolean;
  /** Whether the EOS token is added after a text. */
  readonly addEos: boolean;
  /** The chat template, in Jinja. */
  readonly chatTemplate?: string;
}

/** Special tokens; eot and eom are the second and third EOS token. */
export type Special = "bos" | "eos" | "eot" | "eom" | "unk" | "pad";

/** The key of each special id. */
const SPECIAL_KEYS: readonly (readonly [Special, string])[] = [
  ["bos", "bos_token_id"],
  ["eos", "eos_token_id"],
  ["eot", "eot_token_id"],
  ["eom", "eom_token_id"],
  ["unk", "unknown_token_id"],
  ["pad", "padding_token_id"],
];

// ---------------------------------------------------------------- from Hugging Face's files

/** The advice if a tokenizer can't be exported. */
const REMEDY = "move the tokenizer's files elsewhere to export the weights alone";

/**
 * Reads the tokenizer of a checkpoint directory.
 *
 * @param size the number of rows of the embedding; ids without a token are filled
 * @param config config.json, for ids that the tokenizer's files do not name
 * @param pre the name of the pre-tokenizer (default: inferred)
 * @returns undefined if the directory has none
 * @throws {CheckpointError} it is not a supported BPE, or GGUF has no name for its pre-tokenizer
 */
export function readVocabulary(directory: string, size: number, config: unknown, pre?: string): Vocabulary | undefined {
  try {
    const files = readTokenizer(directory);
    return files && fromFiles(files, directory, size, config, pre);
  } catch (error) {
    throw error instanceof FieldError ? error.named(REMEDY) : error;
  }
}

function fromFiles(
  files: TokenizerFiles,
  directory: string,
  size: number,
  config: unknown,
  pre?: string,
): Vocabulary {
  const { path, value: json } = files.json;
  const { tokens, types } = tokenList(files, size);
  const own = join(directory, "tokenizer_config.json");
  const settings = exists(own) ? readJsonObject(own, MAX_BYTES) : {};
  const merges = mergesOf(path, at(json, "model", "merges"));
  const sentencePiece = at(json, "model", "byte_fallback") === true
    ? { scores: scoresOf(path, tokens, (id) => types[id] === TYPE.normal, merges), prefix: spacePrefix(path, json) }
    : undefined;
  const derived = sentencePiece ? "default" : splitOf(path, json, pre !== undefined);
  return {
    pre: pre ?? derived!,
    ...pre !== undefined && doubtOf(pre, derived),
    sentencePiece,
    tokens,
    types,
    merges,
    special: specialOf(tokens, files.special, config),
    ...ends(at(json, "post_processor"), settings, tokens),
    chatTemplate: readChatTemplate(directory)?.template,
  };
}

function tokenList({ json, vocabulary, added }: TokenizerFiles, size: number) {
  const { path } = json;
  const tokens = Array.from({ length: size }, (_, id) => `[PAD${id}]`);
  const types = new Array<number>(size).fill(TYPE.unused);
  const put = (token: string, id: number, type: number) => {
    if (id >= size) {
      throw new CheckpointError(
        { path },
        `${quote(token)} has the id ${id}, but the model's vocabulary (config.json) ends at ${size - 1}`,
      );
    }
    if (token.length > MAX_TOKEN) throw new CheckpointError({ path }, tooLong(token));
    tokens[id] = token;
    types[id] = type;
  };
  const model = json.get("model");
  const fallback = model.get("byte_fallback").flag(false);
  for (const [token, id] of vocabulary) put(token, id, fallback && BYTE.test(token) ? TYPE.byte : TYPE.normal);
  for (const { content, id, special, implied } of added) {
    // Skip an added token whose id is only implied and beyond the model's vocabulary: it can't occur in a text.
    if (id < size || !implied) put(content, id, special ? TYPE.control : TYPE.userDefined);
  }
  const unknown = model.get("unk_token");
  const id = unknown.absent ? -1 : tokens.indexOf(unknown.text());
  if (fallback && id >= 0) types[id] = TYPE.unknown;
  const seen = new Set<string>();
  for (const token of tokens) {
    if (token === "" || seen.has(token)) {
      throw new CheckpointError({ path }, `the token ${quote(token)} is ${token === "" ? "empty" : "a duplicate"}`);
    }
    seen.add(token);
  }
  return { tokens, types };
}

function tooLong(token: string): string {
  return `${quote(token)} has ${token.length} characters; the limit is ${MAX_TOKEN}`;
}

function mergesOf(path: string, merges: unknown): string[] {
  const place = { path, field: "merges" };
  if (!Array.isArray(merges)) throw new CheckpointError(place, "expected a list");
  return merges.map((merge) => {
    // Newer files have pairs, older ones strings.
    const parts = typeof merge === "string" ? merge.split(" ") : merge;
    const good = Array.isArray(parts) && parts.length === 2 &&
      parts.every((part) => typeof part === "string" && part !== "" && !part.includes(" "));
    if (!good) throw new CheckpointError(place, `expected two words, found ${quote(JSON.stringify(merge))}`);
    return parts.join(" ");
  });
}

/** llama.cpp's name of the pre-tokenizer in a tokenizer.json; undefined if it is unknown and `given` by the user. */
function splitOf(path: string, json: unknown, given: boolean): string | undefined {
  const found = spell(json);
  const split = SPLITS.find((split) => spell(tokenizerJson(split)) === found);
  if (split !== undefined || given) return split?.name;
  throw new CheckpointError(
    { path, field: "pre_tokenizer" },
    `llama.cpp has no known name for ${quote(found)}`,
    "unknown-split",
  );
}

/** What is doubtful about a given name, if it is not the derived one. */
function doubtOf(pre: string, derived: string | undefined): { doubt?: string } {
  const split = splitNamed(pre);
  if (derived !== undefined && (split?.name ?? pre) === derived) return {};
  const why = derived === undefined ? "rabbit has no name for the tokenizer's" : `the tokenizer's is ${derived}`;
  const risk = split === undefined
    ? "rabbit does not know this name, and import refuses it"
    : "llama.cpp may divide texts into other tokens";
  return { doubt: `pre-tokenizer ${quote(pre)}: ${why}; ${risk}` };
}

/** The preprocessing of a tokenizer.json before the merges, in one line. */
function spell(json: unknown): string {
  const parts = (part: unknown, list: string): unknown[] => {
    if (part === null || part === undefined) return [];
    const inner = at(part, list);
    return Array.isArray(inner) ? inner.flatMap((part) => parts(part, list)) : [part];
  };
  const typeOf = (part: unknown) => String(at(part, "type"));
  // llama.cpp does not normalize texts. NFC, which leaves almost every text unchanged, is ignored.
  const normal = parts(at(json, "normalizer"), "normalizers").map(typeOf).filter((type) => type !== "NFC");
  const split = parts(at(json, "pre_tokenizer"), "pretokenizers").map((part) => {
    const is = (key: string) => at(part, key) === true;
    const type = typeOf(part);
    if (type === "Digits") return `Digits ${is("individual_digits")}`;
    if (type === "ByteLevel") return `ByteLevel ${at(part, "use_regex") ?? true} ${is("add_prefix_space")}`;
    const pattern = at(part, "pattern", "Regex") ?? at(part, "pattern", "String");
    return type === "Split" ? `Split ${at(part, "behavior")} ${is("invert")} ${pattern}` : type;
  });
  return [...normal, ...split, at(json, "model", "ignore_merges") === true ? "ignore_merges" : "merges"].join(", ");
}

/** The ids of special tokens: those in the tokenizer's files, then those in config.json. */
function specialOf(
  tokens: readonly string[],
  special: Readonly<Record<string, string>>,
  config: unknown,
): Map<Special, number> {
  const ids = (word: string): number[] => {
    const named = tokens.indexOf(special[`${word}_token`] ?? "");
    const listed: unknown[] = [at(config, `${word}_token_id`)].flat();
    const fits = (id: unknown) => Number.isSafeInteger(id) && (id as number) >= 0 && (id as number) < tokens.length;
    return [...new Set([named, ...listed].filter(fits) as number[])];
  };
  const [eos, eot, eom] = ids("eos");
  const found: [Special, number | undefined][] = [
    ["bos", ids("bos")[0]],
    ["eos", eos],
    ["eot", eot],
    ["eom", eom],
    ["unk", ids("unk")[0]],
    ["pad", ids("pad")[0]],
  ];
  return new Map(found.filter((pair): pair is [Special, number] => pair[1] !== undefined));
}

/** Whether the tokenizer adds BOS before a text and EOS after it. */
function ends(processor: unknown, settings: unknown, tokens: readonly string[]): { addBos: boolean; addEos: boolean } {
  const processors = at(processor, "processors");
  const steps: unknown[] = Array.isArray(processors) ? processors : [processor];
  const single = at(steps.find((step) => at(step, "type") === "TemplateProcessing"), "single");
  const template: unknown[] = Array.isArray(single) ? single : [];
  const special = (part: unknown) => tokens.includes(at(part, "SpecialToken", "id") as string);
  const flag = (name: string, otherwise: boolean) => {
    const value = at(settings, name);
    return typeof value === "boolean" ? value : otherwise;
  };
  return {
    addBos: flag("add_bos_token", template.length > 1 && special(template[0])),
    addEos: flag("add_eos_token", template.length > 1 && special(template.at(-1))),
  };
}

// ---------------------------------------------------------------- GGUF's metadata

/** The tokenizer's metadata; without a vocabulary, the model `none`. */
export function vocabularyMetadata(vocabulary: Vocabulary | undefined): [string, Value][] {
  const key = (name: string) => `tokenizer.ggml.${name}`;
  if (vocabulary === undefined) return [[key("model"), value("string", "none")]];
  const { pre, sentencePiece, tokens, types, merges, special, addBos, addEos, chatTemplate } = vocabulary;
  const pairs: [string, Value][] = [
    [key("model"), value("string", sentencePiece ? "llama" : "gpt2")],
    [key("pre"), value("string", pre)],
    [key("tokens"), { type: "string", values: tokens }],
    [key("token_type"), { type: "i32", values: types }],
  ];
  if (sentencePiece === undefined) pairs.push([key("merges"), { type: "string", values: merges }]);
  else {
    pairs.push([key("scores"), { type: "f32", values: sentencePiece.scores }]);
    pairs.push([key("add_space_prefix"), value("bool", sentencePiece.prefix)]);
  }
  for (const [word, name] of SPECIAL_KEYS) {
    const id = special.get(word);
    if (id !== undefined) pairs.push([key(name), value("u32", id)]);
  }
  pairs.push([key("add_bos_token"), value("bool", addBos)], [key("add_eos_token"), value("bool", addEos)]);
  if (chatTemplate !== undefined) pairs.push(["tokenizer.chat_template", value("string", chatTemplate)]);
  return pairs;
}

/** The vocabulary of a file, or the reason why an import omits it. */
export type FoundVocabulary = { readonly vocabulary: Vocabulary } | { readonly missing: string };

/**
 * Reads a vocabulary from metadata.
 *
 * @param size the number of rows of the embedding
 * @throws {CheckpointError} a list is invalid, or has another length
 */
export function vocabularyOf(path: string, metadata: Metadata, size: number): FoundVocabulary {
  const keys = new Keys(path, metadata, "tokenizer.ggml.");
  const model = keys.optional("model")?.value ?? "none";
  if (model !== "gpt2" && model !== "llama") return { missing: `its tokenizer (${quote(String(model))}) is not a BPE` };
  const pre = String(keys.optional("pre")?.value ?? "default");
  const split = splitNamed(pre);
  if (split === undefined && model === "gpt2") {
    return { missing: `its pre-tokenizer (${quote(pre)}) is not supported` };
  }
  const tokens = (keys.list("tokens", "string") ?? keys.fail("tokens", "is missing")) as string[];
  const types = (keys.list("token_type", "i32") ?? tokens.map(() => TYPE.normal)) as number[];
  const scores = model === "llama"
    ? (keys.list("scores", "f32") ?? keys.fail("scores", "is missing")) as number[]
    : undefined;
  for (const [key, list] of [["tokens", tokens], ["token_type", types], ["scores", scores]] as const) {
    if (list === undefined) continue;
    const { length } = list;
    if (length !== size) keys.fail(key, `${length} entries, but token_embd.weight has ${size} rows`);
  }
  const long = tokens.find(({ length }) => length > MAX_TOKEN);
  if (long !== undefined) keys.fail("tokens", tooLong(long));
  if (new Set(tokens).size !== size) {
    const seen = new Set<string>();
    keys.fail("tokens", `duplicate token ${quote(tokens.find((token) => seen.size === seen.add(token).size)!)}`);
  }
  const merges = scores
    ? mergesOfScores(tokens, (id) => types[id] === TYPE.normal, scores)
    : (keys.list("merges", "string") ?? keys.fail("merges", "is missing")) as string[];
  const bad = merges.find((merge) => !/^[^ ]+ [^ ]+$/.test(merge));
  if (bad !== undefined) keys.fail("merges", `expected two words, found ${quote(bad)}`);
  // llama.cpp's defaults for SentencePiece.
  const special = new Map<Special, number>(scores ? [["bos", 1], ["eos", 2], ["unk", 0]] : []);
  for (const [word, key] of SPECIAL_KEYS) {
    const id = keys.optional(key)?.value;
    if (typeof id === "number" && id >= 0 && id < size) special.set(word, id);
  }
  const template = metadata.get("tokenizer.chat_template");
  return {
    vocabulary: {
      pre,
      sentencePiece: scores && { scores, prefix: keys.optional("add_space_prefix")?.value !== false },
      tokens,
      types,
      merges,
      special,
      addBos: Boolean(keys.optional("add_bos_token")?.value ?? split?.addBos ?? model === "llama"),
      addEos: Boolean(keys.optional("add_eos_token")?.value ?? false),
      chatTemplate: template && "value" in template ? String(template.value) : undefined,
    },
  };
}
