/**
 * Converts text to token ids and back, as the `tokenizers` library of Rust and Python does, with which models are trained.
 *
 * rabbit has its own tokenizer because the npm package @huggingface/tokenizers 0.2.0 gives other results: of 1,000 strings
 * with each of the five tokenizers in fixtures/tokenizers it encoded 32 and decoded 97 differently (bench/RESULTS.md). This
 * tokenizer gave the Rust library's result in all of these cases, and for every random tokenizer, file and pattern that it
 * accepts (tests/README.md).
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

/** A tokenizer. */
export interface Tokenizer {
  /**
   * Encodes a text. Special tokens are recognized anywhere in it.
   *
   * @param whole add the tokens that the post-processor puts around a text, such as `<s>`
   * @throws {CheckpointError} a rule exceeds a limit, or the text needs an unknown token that is missing
   */
  encode(text: string, whole?: boolean): number[];
  /** Decodes token ids. @throws {CheckpointError} a rule exceeds a limit */
  decode(ids: readonly number[]): string;
  /** Decodes token ids one by one. */
  stream(): TextStream;
  /** The id of a token, spelled as in the vocabulary. */
  idOf(token: string): number | undefined;
  /** A warning about what the files do not say and was assumed. */
  readonly assumed?: string;
}

/** Options of {@link loadTokenizer}. */
export interface TokenizerOptions {
  /** The number of token ids of the model; a file with a token id outside of them is refused. */
  readonly vocabulary?: number;
  /** What to do about an unusable tokenizer, for the message. */
  readonly remedy?: string;
}

/**
 * Loads the tokenizer of a checkpoint directory.
 *
 * @param purpose `decode` skips the merges, which take most of the time; `encode` then throws
 * @returns undefined if the directory has none
 * @throws {CheckpointError} its files are invalid, or have unsupported rules
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

/** What encoding or decoding with a valid tokenizer may throw. */
const REFUSALS = [TooManySteps, TooLarge, NoUnknownToken];

/** Runs an action, and turns one of the {@link REFUSALS} into an error of the file. */
function refusing<T>(path: string, action: () => T): T {
  try {
    return action();
  } catch (error) {
    if (!REFUSALS.some((kind) => error instanceof kind)) throw error;
    throw new CheckpointError({ path }, (error as Error).message);
  }
}

/** Refuses token ids that the model does not have. Tokens without an id in any file may get such an id. */
function checkIds({ json, vocabulary, tokens, added }: TokenizerFiles, size: number): void {
  if (tokens.length > size) {
    for (const [token, id] of vocabulary) {
      if (id >= size) refuseId(json.get("model").get("vocab"), token, id, size);
    }
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

/** The text by which each added token is found: in normalized text, its own normalized form. */
function textsOf(added: readonly AddedToken[], normalize: Normalizer): ReadonlyMap<AddedToken, string> {
  const room = new Room("");
  return new Map(added.map((token) => {
    room.add(token.content.length);
    return [token, token.normalized ? normalize(token.content, room) : token.content];
  }));
}

/** @throws {FieldError} a rule is unsupported */
function encoder(
  { json, vocabulary, tokens }: TokenizerFiles,
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
  const model = modelOf(json.get("model"), vocabulary, tokens);
  const { before, after } = templateOf(json.get("post_processor"), size);
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
    for (const id of whole ? after : []) found.push(id);
    return found;
  };
}
