/**
 * Text to ids and back, as the `tokenizers` library of Python and Rust does it, which models are trained with.
 *
 * @module
 */

import { CheckpointError, quote } from "../errors.ts";
import { AddedTokens } from "./added_tokens.ts";
import { NoUnknownToken } from "./bpe.ts";
import { Detokenizer, type TextStream } from "./detokenizer.ts";
import { type Field, naming } from "./field.ts";
import { TooManySteps } from "./regex/machine.ts";
import type { AddedToken } from "./special_tokens.ts";
import { readTokenizer, type TokenizerFiles } from "./tokenizer_files.ts";
import { type Piece, splitterOf } from "./pre_tokenizer.ts";
import { modelOf, type Normalizer, normalizerOf, Room, templateOf, TooLarge } from "./rules.ts";

/** What the decoder needs of a tokenizer. */
export interface Tokenizer {
  /**
   * The ids of a text. Tokens that the tokenizer knows as special are special wherever they stand in it.
   *
   * @param whole the text is a whole one: it gets the tokens that the model wants before it (`<s>`), if any
   * @throws {CheckpointError} a rule takes too long, makes too much of the text, or names a token that is not there
   */
  encode(text: string, whole?: boolean): number[];
  /** The text of ids. @throws {CheckpointError} a rule takes too long or makes too much of it */
  decode(ids: readonly number[]): string;
  /** The text of ids that come one by one. */
  stream(): TextStream;
  /** The id of a token, as it is written in the vocabulary. */
  idOf(token: string): number | undefined;
  /** What had to be assumed about the text, for a warning. */
  readonly assumed?: string;
}

/** Options of {@link loadTokenizer}. */
export interface TokenizerOptions {
  /** Ids that the model has, from 0 on; a file that gives a token another one is refused. */
  readonly vocabulary?: number;
  /** What to do about a tokenizer that can't be used, for the message. */
  readonly remedy?: string;
}

/**
 * Loads the tokenizer of a checkpoint directory.
 *
 * @param purpose `decode` leaves out what takes most of the time, the merges; `encode` then throws
 * @returns undefined if the directory has none
 * @throws {CheckpointError} its files can't be read as a tokenizer, or have rules that are not known
 */
export function loadTokenizer(
  directory: string,
  purpose: "encode" | "decode",
  { vocabulary, remedy }: TokenizerOptions = {},
): Tokenizer | undefined {
  const files = naming(() => readTokenizer(directory, purpose === "encode"), remedy);
  if (files === undefined) return undefined;
  const { json, vocabulary: ids, tokens, added, assumed } = files;
  const { detokenizer, encode } = naming(() => {
    if (vocabulary !== undefined) checkIds(files, vocabulary);
    const normalize = normalizerOf(json.get("normalizer"));
    const texts = refusing(json.path, () => textsOf(added, normalize));
    const byId = new Map([...texts].map(([{ id }, text]) => [id, text]));
    return {
      detokenizer: new Detokenizer(json.get("decoder"), (id) => byId.get(id) ?? tokens[id]),
      encode: purpose === "encode" ? encoder(files, texts, normalize, vocabulary) : undefined,
    };
  }, remedy);
  const inside = <T>(action: () => T) => refusing(json.path, action);
  return {
    encode(text, whole = false) {
      if (encode === undefined) throw new TypeError("this tokenizer was loaded to decode");
      return inside(() => encode(text, whole));
    },
    decode: (ids) => inside(() => detokenizer.decode(ids)),
    stream() {
      const stream = detokenizer.stream();
      return { push: (id) => inside(() => stream.push(id)), end: () => inside(() => stream.end()) };
    },
    idOf: (token) => added.find(({ content }) => content === token)?.id ?? ids.get(token),
    assumed,
  };
}

/** What a tokenizer that is sound is refused for by a text. */
const REFUSALS = [TooManySteps, TooLarge, NoUnknownToken];

/** Encodes or decodes something; what it is refused for becomes an error of the file. */
function refusing<T>(path: string, action: () => T): T {
  try {
    return action();
  } catch (error) {
    if (!REFUSALS.some((kind) => error instanceof kind)) throw error;
    throw new CheckpointError({ path }, (error as Error).message);
  }
}

/** Files may name tokens without an id; those may get one that no model has. */
function checkIds({ json, vocabulary, added }: TokenizerFiles, size: number): void {
  for (const [token, id] of vocabulary) {
    if (id >= size) refuseId(json.get("model").get("vocab"), token, id, size);
  }
  for (const { content, id, implied } of added) {
    if (id >= size && !implied) refuseId(json.get("added_tokens"), content, id, size);
  }
}

function refuseId(field: Field, token: string, id: number, size: number): never {
  field.refuse(
    `${quote(token)} has the id ${id}, but the model's vocabulary (config.json) ends at ${size - 1}`,
  );
}

/** What each added token is looked for as: in normalized text, as its own normalized form. */
function textsOf(added: readonly AddedToken[], normalize: Normalizer): ReadonlyMap<AddedToken, string> {
  const room = new Room("");
  return new Map(added.map((token) => {
    room.add(token.content.length);
    return [token, token.normalized ? normalize(token.content, room) : token.content];
  }));
}

/** @throws {FieldError} a rule is not known */
function encoder(
  { json, vocabulary }: TokenizerFiles,
  texts: ReadonlyMap<AddedToken, string>,
  normalize: Normalizer,
  size = Infinity,
) {
  const place = json.get("added_tokens");
  const finder = (wanted: boolean) => {
    return new AddedTokens(place, [...texts].filter(([{ normalized }]) => normalized === wanted));
  };
  const raw = finder(false);
  const normalized = finder(true);
  const split = splitterOf(json.get("pre_tokenizer"), json.get("normalizer"));
  const model = modelOf(json.get("model"), vocabulary);
  const { before, behind } = templateOf(json.get("post_processor"), size);
  return (given: string, whole: boolean): number[] => {
    const text = given.toWellFormed();
    const room = new Room(text);
    const found = whole ? [...before] : [];
    for (const part of raw.split(text)) {
      if ("token" in part) {
        found.push(part.token.id);
        continue;
      }
      for (const inner of normalized.split(normalize(part.text, room))) {
        if ("token" in inner) {
          found.push(inner.token.id);
          continue;
        }
        if (inner.text === "") continue;
        const piece: Piece = { text: inner.text, first: part.start === 0 && inner.start === 0 };
        for (const word of split([piece], room)) model.encode(word.text, found);
      }
    }
    for (const id of whole ? behind : []) found.push(id);
    return found;
  };
}
