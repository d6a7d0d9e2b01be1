/**
 * The tokens that the files beside a vocabulary name, put together as transformers 5.24 does it: tokenizer_config.json,
 * special_tokens_map.json, added_tokens.json, and `added_tokens` of tokenizer.json. fixtures/tokenizers/make_files.py asks it.
 *
 * @module
 */

import { join } from "@std/path/join";
import { quote } from "../errors.ts";
import { exists, readText } from "../files/read.ts";
import { Field, naming } from "./field.ts";

/** Larger than the tokenizer files of any model known (Gemma: 33 MB). */
export const MAX_BYTES = 200_000_000;

/** A token that is found in a text before anything else. */
export interface AddedToken {
  readonly id: number;
  readonly content: string;
  /** White space before and behind it is a part of it. */
  readonly lstrip: boolean;
  readonly rstrip: boolean;
  /** It is looked for in the normalized text, in its own normalized form. */
  readonly normalized: boolean;
  readonly special: boolean;
  /** No file says its id, which is one that no other token has. */
  readonly implied: boolean;
}

/** Names of tokens that every tokenizer of transformers may have, in its order. */
const NAMES = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/** A class of transformers. */
export interface TokenizerClass {
  readonly name: string;
  /** Contents of `bos_token` and the like where no file names them. */
  readonly special: Readonly<Record<string, string>>;
  /** How those that read vocab.json and merges.txt split a text. */
  readonly split?: "gpt2" | "qwen2";
}

/** Classes of models whose tokenizers have this class, whatever class the files name. */
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

/** tokenizer_config.json, and what transformers takes from special_tokens_map.json. */
export interface Settings {
  readonly directory: string;
  readonly config: Field;
  /** undefined if neither tokenizer_config.json nor config.json names one. */
  readonly class?: TokenizerClass;
  /** The field that names it. */
  readonly classField: Field;
  /** `added_tokens_decoder` of tokenizer_config.json; where it is there, special_tokens_map.json and added_tokens.json do not count. */
  readonly decoder?: Field;
  /** Tokens by their name; undefined is one of the class. */
  readonly named: ReadonlyMap<string, Named>;
  /** Special tokens without a name. */
  readonly extra: readonly Field[];
}

interface Named {
  readonly content: string;
  readonly field?: Field;
}

/** @throws {CheckpointError} a file is no JSON object @throws {FieldError} a token is no text */
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
    // Of these tokenizer_config.json's texts come first.
    const field = typeof config.get(name).value === "string" ? config.get(name) : last;
    // add_bos_token and the like are settings.
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

/** Llama 3 declares Llama 2's class, and transformers takes the general one for its tokenizer.json. */
function isGeneral(directory: string, kind: TokenizerClass): boolean {
  const path = join(directory, "tokenizer.json");
  return kind.name === "LlamaTokenizer" && exists(path) && readText(path, MAX_BYTES).includes('"ByteLevel"');
}

/** Lists of special tokens without names, or objects of some with names. */
function extraOf(config: Field, map: Field): Field[] {
  const [extra, more] = [config.get("extra_special_tokens"), map.get("extra_special_tokens")];
  const given = [extra.absent ? config.get("additional_special_tokens") : extra, more].filter(({ absent }) => !absent);
  return given.length > 0 ? given : [map.get("additional_special_tokens")].filter(({ absent }) => !absent);
}

/** A token is written as its text, or as an object with it. */
function contentOf(field: Field): string {
  return typeof field.value === "string" ? field.text() : field.get("content").text();
}

/**
 * Contents of `bos_token`, `eos_token` and the like, of whichever file has them.
 *
 * @throws {CheckpointError} a file is no JSON object, or a token no text
 */
export function readSpecialTokens(directory: string): Readonly<Record<string, string>> {
  return naming(() => specialTokens(readSettings(directory)));
}

/** Contents of `bos_token`, `eos_token` and the like. */
export function specialTokens({ named }: Settings): Readonly<Record<string, string>> {
  return Object.fromEntries([...named].map(([name, { content }]) => [name, content]));
}

// ---------------------------------------------------------------- added tokens

/** A token that a file adds; without an id it gets the next one. */
interface Declared extends Omit<AddedToken, "id" | "implied"> {
  readonly id?: number;
  /** Where it is, for messages. */
  readonly field: Field;
}

/**
 * All added tokens, in the order in which they are added.
 *
 * @param own `added_tokens` of tokenizer.json
 * @param vocabulary ids by token
 * @throws {CheckpointError} a file is no JSON object
 * @throws {FieldError} one is not written as a token, or has another id than the `tokenizers` library gives it
 */
export function addedTokens(own: Field, vocabulary: ReadonlyMap<string, number>, settings: Settings): AddedToken[] {
  const listed = own.absent ? [] : own.list().map((field) => declared(field, field.get("id").count()));
  const others = othersOf(settings, new Set(listed.map(({ id }) => id!)));
  const known = new Set([...listed, ...others].map(({ content }) => content));
  const seen = new Set<string>();
  const unlisted = [...namedTokens(settings, vocabulary), ...settings.extra.map(specialToken)].filter((token) => {
    // The same text with other properties counts again.
    const { field, ...rest } = token;
    const key = JSON.stringify([typeof field.value === "object" && field !== settings.config, rest]);
    return !known.has(token.content) && !seen.has(key) && seen.add(key);
  });
  const added = numbered([listed, [...others, ...unlisted]], vocabulary);
  // This class adds all special tokens once more, as plain ones.
  if (settings.class?.split !== "qwen2" || own.path.endsWith("tokenizer.json")) return added;
  const special = new Set([...Object.values(specialTokens(settings)), ...settings.extra.map(contentOf)]);
  return added.map((each) => special.has(each.content) ? { ...each, ...plain(each.content, true) } : each);
}

/** Tokens of tokenizer_config.json's `added_tokens_decoder`, or of added_tokens.json without those of tokenizer.json. */
function othersOf(settings: Settings, ids: ReadonlySet<number>): Declared[] {
  const path = join(settings.directory, "added_tokens.json");
  let found: Declared[] = [];
  if (settings.decoder !== undefined) {
    found = settings.decoder.entries().map(([key, field]) => {
      return /^\d{1,9}$/.test(key) ? declared(field, Number(key)) : field.refuse("expected an id as the key");
    });
  } else if (exists(path)) {
    const special = new Set([...Object.values(specialTokens(settings)), ...settings.extra.map(contentOf)]);
    found = Field.ofFile(path, MAX_BYTES).entries().map(([content, field]): Declared => {
      if (!content.isWellFormed()) field.refuse("has a lone surrogate, which is no character");
      return { ...plain(content, special.has(content)), id: field.count(), field };
    }).filter(({ id }) => !ids.has(id!));
  }
  return found.sort((a, b) => a.id! - b.id!);
}

/** A token with all that there is to say about it. */
function declared(field: Field, id: number): Declared {
  const special = field.get("special").flag(false);
  return { ...written(field, special, !special), id, field };
}

function written(field: Field, special: boolean, normalized: boolean): Omit<Declared, "field"> {
  const content = field.get("content").text();
  const single = field.get("single_word");
  if (single.flag(false)) single.refuse(`of ${quote(content)} is not supported`);
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
    // A class that makes a vocabulary of its own adds its tokens to it; of others only those that are in it are meant.
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
 * Gives each token the id that the `tokenizers` library gives it: that of its text in the vocabulary, or the next one. A file
 * that says another one is wrong.
 *
 * @param batches tokens that are added at once
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
        const place = old === undefined ? "the next one is" : "elsewhere it has";
        field.refuse(`${quote(content)} has the id ${said}, but ${place} ${id}`);
      }
      // Where it is written again, that counts.
      found.set(content, { ...token, id, implied: said === undefined && (before?.implied ?? old === undefined) });
    }
  }
  return [...found.values()];
}
