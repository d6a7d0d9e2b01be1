/**
 * Tokenizer files that tests write.
 *
 * @module
 */

import { utf8 } from "./bytes.ts";

/** The tokenizers in fixtures/tokenizers. */
export const KINDS: readonly string[] = ["smollm", "llama3", "qwen2", "llama2", "metaspace"];

/** The letter that stands for each byte in byte-level vocabularies (GPT-2, "bytes_to_unicode"). */
export const LETTERS: readonly string[] = letters();

function letters(): string[] {
  const printable = (byte: number) => /[!-~¡-¬®-ÿ]/.test(String.fromCharCode(byte));
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(printable(byte) ? byte : next++));
}

/** The letters of a text's UTF-8. */
export function byteLevel(text: string): string {
  return [...utf8(text)].map((byte) => LETTERS[byte]).join("");
}

/** The tokenizer.json of a byte-level vocabulary without merges, in the order of the ids; `added` are its special ids. */
export function tokenizerJson(words: readonly string[], added: readonly number[] = []): string {
  return JSON.stringify({
    added_tokens: added.map((id) => ({ id, content: words[id], special: true, normalized: false })),
    normalizer: null,
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, use_regex: true },
    post_processor: null,
    decoder: { type: "ByteLevel" },
    model: { type: "BPE", vocab: Object.fromEntries(words.map((word, n) => [word, n])), merges: [] },
  });
}
