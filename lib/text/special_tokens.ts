/**
 * Special and added tokens, from tokenizer_config.json, special_tokens_map.json, added_tokens.json and `added_tokens` of
 * tokenizer.json, combined as transformers 5.24 does. fixtures/tokenizers/make_files.py generates its answers.
 *
 * @module
 */

import { join } from "@std/path/join";
import { quote } from "../errors.ts";
import { exists, readText } from "../files/read.ts";
import { Field, naming } from "./field.ts";

/** Larger than any known tokenizer file (Gemma: 33 MB). */
export const MAX_BYTES = 200_000_000;

/** A token that is found in a text before it is normalized or split. */
export interface AddedToken {
  readonly id: number;
  readonly content: string;
  /** Whether it includes white space to its left, and to its right. */
  readonly lstrip: boolean;
  readonly rstrip: boolean;
  /** Whether it is found in normalized text, by its own normalized form. */
  readonly normalized: boolean;
  readonly special: boolean;
  /** Whether no file gives its id; it has the next free one. */
  readonly implied: boolean;
}

/** The names of special tokens that every tokenizer of transformers may have, in its order. */
const NAMES = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/** A tokenizer class of transformers. */
export interface TokenizerClass {
  readonly name: string;
  /** Default special tokens, by name. */
  readonly special: Readonly<Record<string, string>>;
  /** How the class splits text when it reads vocab.json and merges.txt; undefined if it does not. */
  readonly split?: "gpt2" | "qwen2";
}

/** Tokenizer classes by model type; they take precedence over the class that the files name. */
const MODEL_CLASSES: Readonly<Record<string, string>> = {
  qwen2: "Qwen2Tokenizer",
  qwen3: "Qwen2Tokenizer",
};

const END_OF_TEXT = "<|endoftext|>";
const CLASSES: readonly TokenizerClass[] = [
  {
    name: "GPT2Tokenizer",
    special: { unk_token: END_OF_TEXT, bos_token: END_OF_TEXT, eos_token: END_OF_TEXT },
    split: "gpt2",
  },
  {
    name: "Qwen2Tokenizer",
    special: { unk_token: END_OF_TEXT, eos_token: END_OF_TEXT, pad_token: END_OF_TEXT },
    split: "qwen2",
  },
  { name: "LlamaTokenizer", special: { unk_token: "<unk>", bos_token: "<s>", eos_token: "</s>" } },
];

/** The settings of tokenizer_config.json, special_tokens_map.json and config.json. */
export interface Settings {
  readonly directory: string;
  readonly config: Field;
  /** undefined if neither tokenizer_config.json nor config.json determines it. */
  readonly class?: TokenizerClass;
  /** The field that determines the class, for messages. */
  readonly classField: Field;
  /** `added_tokens_decoder` of tokenizer_config.json; if present, special_tokens_map.json and added_tokens.json are ignored. */
  readonly decoder?: Field;
  /** Special tokens by name. */
  readonly named: ReadonlyMap<string, Named>;
  /** Additional special tokens without a name. */
  readonly extra: readonly Field[];
}

interface Named {
  readonly content: string;
  /** undefined for a default of the class. */
  readonly field?: Field;
}

/** Reads the settings. @throws {CheckpointError} a file is not a JSON object @throws {FieldError} a token is not a string */
export function readSettings(directory: string): Settings {
  const read = (name: string) => {
    const path = join(directory, name);
    return exists(path) ? Field.ofFile(path, MAX_BYTES) : new Field(path, "", {});
  };
  const config = read("tokenizer_config.json");
  const given = config.get("added_tokens_decoder");
  const decoder = given.value === undefined ? undefined : given;
  const map = decoder === undefined ? read("special_tokens_map.json") : new Field(config.path, "", {});
  const classField = classFieldOf(config, read("config.json"));
  const kind = classOf(classField);
  return {
    directory,
    config,
    class: kind,
    classField,
    decoder,
    named: namedOf(directory, config, map, kind),
    extra: extraOf(config, map).filter(({ value }) => Array.isArray(value)).flatMap((field) => field.list()),
  };
}

function classFieldOf(config: Field, model: Field): Field {
  const type = model.get("model_type");
  if (typeof type.value === "string" && Object.hasOwn(MODEL_CLASSES, type.value)) return type;
  const own = config.get("tokenizer_class");
  return own.absent ? model.get("tokenizer_class") : own;
}

function classOf(field: Field): TokenizerClass | undefined {
  if (field.absent) return undefined;
  const name = field.name === "model_type" ? MODEL_CLASSES[field.text()] : field.text().replace(/Fast$/, "");
  return CLASSES.find((known) => known.name === name) ?? { name, special: {} };
}

function namedOf(directory: string, config: Field, map: Field, kind?: TokenizerClass): Map<string, Named> {
  const values = new Map([...config.entries(), ...map.entries()]);
  const found = new Map<string, Named>();
  const missing = NAMES.filter((name) => !values.has(name) && kind?.special[name] !== undefined);
  const own = missing.length > 0 && !isGeneral(directory, kind!) ? kind!.special : {};
  for (const name of NAMES) {
    const field = values.get(name);
    if (field === undefined && own[name] !== undefined) found.set(name, { content: own[name] });
    if (field !== undefined && !field.absent) found.set(name, { content: contentOf(field), field });
  }
  for (const [name, last] of values) {
    // For these, strings of tokenizer_config.json take precedence.
    const field = typeof config.get(name).value === "string" ? config.get(name) : last;
    // Booleans such as add_bos_token are settings.
    const token = typeof field.value === "string" || (typeof field.value === "object" && !field.absent);
    if (token && name.endsWith("_token") && !NAMES.includes(name)) {
      found.set(name, { content: contentOf(field), field });
    }
  }
  for (const field of extraOf(config, map).filter(({ value }) => !Array.isArray(value))) {
    for (const [name, value] of field.entries()) found.set(name, { content: contentOf(value), field: value });
  }
  return found;
}

/** Whether transformers uses the general class instead: Llama 3 names Llama 2's class, but has a byte-level tokenizer.json. */
function isGeneral(directory: string, kind: TokenizerClass): boolean {
  const path = join(directory, "tokenizer.json");
  return kind.name === "LlamaTokenizer" && exists(path) && readText(path, MAX_BYTES).includes('"ByteLevel"');
}

/** The fields with additional special tokens: lists, or objects with their names. */
function extraOf(config: Field, map: Field): Field[] {
  const [extra, more] = [config.get("extra_special_tokens"), map.get("extra_special_tokens")];
  const given = [extra.absent ? config.get("additional_special_tokens") : extra, more].filter(({ absent }) => !absent);
  return given.length > 0 ? given : [map.get("additional_special_tokens")].filter(({ absent }) => !absent);
}

/** A token is a string, or an object that contains it. */
function contentOf(field: Field): string {
  return typeof field.value === "string" ? field.text() : field.get("content").text();
}

/**
 * Reads the special tokens with names, such as `bos_token`: those that a chat template can read.
 *
 * @throws {CheckpointError} a file is not a JSON object, or a token is not a string
 */
export function readSpecialTokens(directory: string): Readonly<Record<string, string>> {
  return naming(() => specialTokens(readSettings(directory)));
}

/** The special tokens with names, such as `bos_token`. */
export function specialTokens({ named }: Settings): Readonly<Record<string, string>> {
  return Object.fromEntries([...named].map(([name, { content }]) => [name, content]));
}

// ---------------------------------------------------------------- added tokens

/** A token that a file adds; without an id it gets the next free one. */
interface Declared extends Omit<AddedToken, "id" | "implied"> {
  readonly id?: number;
  /** The field that declares it, for messages. */
  readonly field: Field;
}

/**
 * All added tokens, in the order in which transformers adds them.
 *
 * @param own `added_tokens` of tokenizer.json
 * @param vocabulary ids by token
 * @throws {CheckpointError} a file is not a JSON object
 * @throws {FieldError} a declaration is invalid, or has another id than the `tokenizers` library would give
 */
export function addedTokens(own: Field, vocabulary: ReadonlyMap<string, number>, settings: Settings): AddedToken[] {
  const listed = own.absent ? [] : own.list().map((field) => declared(field, field.get("id").count()));
  const others = othersOf(settings, new Set(listed.map(({ id }) => id!)));
  const known = new Set([...listed, ...others].map(({ content }) => content));
  const seen = new Set<string>();
  const unlisted = [...namedTokens(settings, vocabulary), ...settings.extra.map(specialToken)].filter((token) => {
    // The same content with other properties is added again.
    const { field, ...rest } = token;
    const key = JSON.stringify([typeof field.value === "object" && field !== settings.config, rest]);
    return !known.has(token.content) && !seen.has(key) && seen.add(key);
  });
  const added = numbered([listed, [...others, ...unlisted]], vocabulary);
  // This class adds all special tokens again, without properties.
  if (settings.class?.split !== "qwen2" || own.path.endsWith("tokenizer.json")) return added;
  const special = new Set([...Object.values(specialTokens(settings)), ...settings.extra.map(contentOf)]);
  return added.map((each) => special.has(each.content) ? { ...each, ...plain(each.content, true) } : each);
}

/** The tokens of `added_tokens_decoder` in tokenizer_config.json, or those of added_tokens.json that tokenizer.json lacks. */
function othersOf(settings: Settings, ids: ReadonlySet<number>): Declared[] {
  const path = join(settings.directory, "added_tokens.json");
  let found: Declared[] = [];
  if (settings.decoder !== undefined) {
    found = settings.decoder.entries().map(([key, field]) => {
      return /^\d{1,9}$/.test(key) ? declared(field, Number(key)) : field.refuse("expected a token id as the key");
    });
  } else if (exists(path)) {
    const special = new Set([...Object.values(specialTokens(settings)), ...settings.extra.map(contentOf)]);
    found = Field.ofFile(path, MAX_BYTES).entries().map(([content, field]): Declared => {
      if (!content.isWellFormed()) field.refuse("contains a lone surrogate");
      return { ...plain(content, special.has(content)), id: field.count(), field };
    }).filter(({ id }) => !ids.has(id!));
  }
  return found.sort((a, b) => a.id! - b.id!);
}

/** A token with all of its properties. */
function declared(field: Field, id: number): Declared {
  const special = field.get("special").flag(false);
  return { ...written(field, special, !special), id, field };
}

function written(field: Field, special: boolean, normalized: boolean): Omit<Declared, "field"> {
  const content = field.get("content").text();
  const single = field.get("single_word");
  if (single.flag(false)) single.refuse(`true (token ${quote(content)}) is not supported`);
  return {
    content,
    lstrip: field.get("lstrip").flag(false),
    rstrip: field.get("rstrip").flag(false),
    normalized: field.get("normalized").flag(normalized),
    special,
  };
}

function plain(content: string, special: boolean): Omit<Declared, "field"> {
  return { content, lstrip: false, rstrip: false, normalized: !special, special };
}

function namedTokens({ named, config, class: kind }: Settings, vocabulary: ReadonlyMap<string, number>): Declared[] {
  return [...named.values()].filter(({ content, field }) => {
    // A class that builds its own vocabulary adds its defaults to it; other classes only use those in the vocabulary.
    return field !== undefined || kind?.split !== undefined || vocabulary.has(content);
  }).map(({ content, field }) => {
    return field === undefined ? { ...plain(content, true), field: config } : specialToken(field);
  });
}

function specialToken(field: Field): Declared {
  return typeof field.value === "string"
    ? { ...plain(field.text(), true), field }
    : { ...written(field, true, false), field };
}

/**
 * Assigns the ids that the `tokenizers` library assigns: the id in the vocabulary, or the next free one. A file with
 * another id is invalid.
 *
 * @param batches groups of tokens that are added together
 */
function numbered(batches: readonly (readonly Declared[])[], vocabulary: ReadonlyMap<string, number>): AddedToken[] {
  const found = new Map<string, AddedToken>();
  const { size } = vocabulary;
  for (const batch of batches) {
    const last = [...found.values()].reduce((most, { id }) => Math.max(most, id), -1);
    let next = Math.max(size, last + 1);
    for (const { field, id: said, ...token } of batch) {
      const { content } = token;
      if (content === "") continue;
      const before = found.get(content);
      const old = before?.id ?? vocabulary.get(content);
      const id = old ?? next++;
      if (said !== undefined && said !== id) {
        const why = old === undefined ? "the next free id" : "its id elsewhere";
        field.refuse(`expected the id ${id} (${why}) for ${quote(content)}, found ${said}`);
      }
      // The last declaration counts.
      found.set(content, { ...token, id, implied: said === undefined && (before?.implied ?? old === undefined) });
    }
  }
  return [...found.values()];
}
