/**
 * The tokenizer files of a Hugging Face checkpoint for a vocabulary: tokenizer.json, tokenizer_config.json, and for a
 * byte-level BPE vocab.json and merges.txt.
 *
 * @module
 */

import { sentencePieceJson } from "./sentencepiece.ts";
import { splitNamed, tokenizerJson } from "./splits.ts";
import { type Special, TYPE, type Vocabulary } from "./vocabulary.ts";

/** The special ids, as fields of config.json. */
export function specialIds({ special }: Vocabulary): Record<string, number | number[]> {
  const ends = (["eos", "eot", "eom"] as const).map((word) => special.get(word)).filter((id) => id !== undefined);
  const fields: [string, number | number[] | undefined][] = [
    ["bos_token_id", special.get("bos")],
    ["eos_token_id", ends.length > 1 ? [...new Set(ends)] : ends[0]],
    ["pad_token_id", special.get("pad")],
  ];
  return Object.fromEntries(fields.filter((field): field is [string, number | number[]] => field[1] !== undefined));
}

/** The files of a tokenizer, by name. */
export function vocabularyFiles(vocabulary: Vocabulary): Map<string, string> {
  const { sentencePiece, tokens, types, merges, special, addBos, addEos, chatTemplate } = vocabulary;
  // Not serialized as a JavaScript object, which would order numeric tokens first.
  const pairs = [...tokens.entries()].filter(([id]) => types[id] !== TYPE.unused)
    .map(([id, token]) => [JSON.stringify(token), id] as const);
  const vocab = pairs.map(([token, id]) => `${token}:${id}`).join(",");
  const indented = pairs.map(([token, id]) => `\n   ${token}: ${id}`).join(",");
  const text = JSON.stringify(wholeTokenizer(vocabulary), null, 1)
    .replace(`"vocab": {}`, () => `"vocab": {${indented}\n  }`);
  const nameOf = (word: Special) => {
    const id = special.get(word);
    return id === undefined ? undefined : tokens[id];
  };
  const settings = {
    add_bos_token: addBos,
    add_eos_token: addEos,
    bos_token: nameOf("bos"),
    chat_template: chatTemplate,
    clean_up_tokenization_spaces: false,
    eos_token: nameOf("eos"),
    pad_token: nameOf("pad"),
    tokenizer_class: "PreTrainedTokenizerFast",
    unk_token: nameOf("unk"),
  };
  const files = new Map([
    ["tokenizer.json", text + "\n"],
    ["tokenizer_config.json", JSON.stringify(settings, null, 2) + "\n"],
  ]);
  // vocab.json and merges.txt without tokenizer.json mean a byte-level BPE.
  if (sentencePiece === undefined) {
    files.set("vocab.json", `{${vocab}}`);
    files.set("merges.txt", ["#version: 0.2", ...merges, ""].join("\n"));
  }
  return files;
}

function wholeTokenizer({ pre, sentencePiece, tokens, types, merges, special, addBos, addEos }: Vocabulary) {
  const added = [...tokens.entries()].filter(([id]) =>
    [TYPE.unknown, TYPE.control, TYPE.userDefined].includes(types[id])
  );
  const unknown = types.indexOf(TYPE.unknown);
  const json = sentencePiece
    ? sentencePieceJson(sentencePiece.prefix, unknown < 0 ? null : tokens[unknown])
    : tokenizerJson(splitNamed(pre)!);
  return {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: added.map(([id, content]) => {
      const special = types[id] !== TYPE.userDefined;
      return { id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special };
    }),
    normalizer: json.normalizer,
    pre_tokenizer: json.pre_tokenizer,
    post_processor: template(tokens, addBos ? special.get("bos") : undefined, addEos ? special.get("eos") : undefined),
    decoder: json.decoder,
    model: { ...json.model, vocab: {}, merges },
  };
}

/** The post_processor that adds the BOS and EOS tokens. */
function template(tokens: readonly string[], bos: number | undefined, eos: number | undefined) {
  if (bos === undefined && eos === undefined) return null;
  const special = (id: number | undefined, type_id: number) => {
    return id === undefined ? [] : [{ SpecialToken: { id: tokens[id], type_id } }];
  };
  const part = (id: string, type_id: number) => {
    return [...special(bos, type_id), { Sequence: { id, type_id } }, ...special(eos, type_id)];
  };
  const ids = [bos, eos].filter((id) => id !== undefined);
  return {
    type: "TemplateProcessing",
    single: part("A", 0),
    pair: [...part("A", 0), ...part("B", 1)],
    special_tokens: Object.fromEntries(ids.map((id) => {
      return [tokens[id], { id: tokens[id], ids: [id], tokens: [tokens[id]] }];
    })),
  };
}
