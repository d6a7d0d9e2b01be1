// Tokenizers with faults: whatever the files hold, a text becomes ids, and ids a text, or one line says what is wrong.

import { assert, assertEquals } from "@std/assert";
import { readChatTemplate } from "../../../lib/text/chat.ts";
import { loadTokenizer } from "../../../lib/text/tokenizer.ts";
import { readVocabulary } from "../../../lib/gguf/vocabulary.ts";
import { inTemporary, write } from "../../support/files.ts";
import { ROOT } from "../../support/fixtures.ts";
import { rounds, Tally } from "../../support/fuzz.ts";
import { Random } from "../../support/random.ts";
import { attempt } from "../../support/refusals.ts";
import { KINDS } from "../../support/tokenizers.ts";

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

const FILES = KINDS.map((kind) => Deno.readTextFileSync(`${ROOT}fixtures/tokenizers/${kind}/tokenizer.json`));
const TEXTS = [
  "",
  "The capital of France is",
  "  naïve café 😀\r\n\t12345 <s></s><|im_start|>x",
  "a".repeat(300),
  "\u0301\ufeff\u0085한",
];

const CONFIG = {
  tokenizer_class: "PreTrainedTokenizerFast",
  bos_token: "<|im_start|>",
  eos_token: { content: "<|im_end|>", lstrip: true, rstrip: false, normalized: false, single_word: false },
  additional_special_tokens: ["<|x|>"],
  chat_template: "{{ messages }}",
};
const MAP: Json = { bos_token: "<s>", eos_token: { content: "</s>" }, additional_special_tokens: ["<|y|>"] };

/** What the files beside tokenizer.json say of its first token. */
const decoder = (content: string): Json => ({ "0": { content, special: true, normalized: false, lstrip: false } });

/** Values that are put where others were. */
const ODD: Json[] = [
  ...[null, true, false, 0, 1, -1, 1.5, 1e300, 2 ** 31, 2 ** 53, "", "a", "▁", "\ud83d", "NFKD", "Regex", "first"],
  ...["(a*)*b", "(?:a|a|aa)+b", "\\R", "[", ".", "$&", "x".repeat(5000)],
  ...[[], {}, [[]], [null], { type: "Sequence" }, { type: "Split" }, { String: "" }, { Regex: "" }, { a: 1e9 }],
  { type: "Replace", pattern: { String: "a" }, content: "aa".repeat(1000) },
  { type: "Strip", content: " ", start: 1e10, stop: 0 },
  { type: "Prepend", prepend: "▁".repeat(1000) },
  { type: "Metaspace", replacement: "▁", prepend_scheme: "always", split: true },
];

/** A copy with a few values changed, removed, doubled or exchanged. */
function mutated(json: Json, random: Random): Json {
  const copy = structuredClone(json);
  for (let n = 1 + random.below(2); n > 0; n--) {
    const places = placesOf(copy, random);
    if (places.length === 0) return random.pick(ODD);
    const [holder, key] = random.pick(places);
    const other = random.pick(places);
    const record = holder as Record<string, Json>;
    const kind = random.below(10);
    if (kind < 5) record[key] = structuredClone(random.pick(ODD));
    else if (kind < 7) delete record[key];
    else if (kind < 8) record[key] = structuredClone((other[0] as Record<string, Json>)[other[1]]) ?? null;
    else if (Array.isArray(holder)) holder.push(structuredClone(record[key] ?? null));
    else record[`${key}x`] = structuredClone(record[key] ?? null);
  }
  return copy;
}

/** Some of the places in it: of long lists and objects a few. */
function placesOf(json: Json, random: Random): [Json, string][] {
  if (typeof json !== "object" || json === null) return [];
  const keys = Object.keys(json);
  const few = keys.length <= 20 ? keys : Array.from({ length: 3 }, () => random.pick(keys));
  return few.flatMap((
    key,
  ) => [[json, key] as [Json, string], ...placesOf((json as Record<string, Json>)[key], random)]);
}

/** A text with a few characters changed. */
function scratched(text: string, random: Random): string {
  let found = text;
  for (let n = 1 + random.below(3); n > 0; n--) {
    const at = random.below(found.length + 1);
    found = found.slice(0, at) +
      random.pick(["", '"', "{", "}", "[", ",", "9", "-", "\\", "\\ud83d", "e9", "null", "\u0000"]) +
      found.slice(at + random.below(3));
  }
  return found;
}

Deno.test("texts become ids and ids texts by tokenizers with faults, or one line says what is wrong", async () => {
  const random = new Random(20251201);
  const tally = new Tally("tokenizers with faults");
  const count = rounds(250);
  await inTemporary((directory) => {
    for (let n = 0; n < count; n++) {
      const text = random.pick(FILES);
      const way = random.below(8);
      const first = /"content":"([^"]*)"/.exec(text)![1];
      const config = random.below(3) === 0 ? { ...CONFIG, added_tokens_decoder: decoder(first) } : CONFIG;
      const side = (json: Json) => way >= 5 ? JSON.stringify(mutated(json, random)) : JSON.stringify(json);
      const files: Record<string, string> = { "tokenizer.json": text };
      if (way < 4) files["tokenizer.json"] = JSON.stringify(mutated(JSON.parse(text), random));
      if (way === 4) files["tokenizer.json"] = scratched(text, random);
      if (way >= 5 || random.below(4) === 0) files["tokenizer_config.json"] = side(config);
      if (way >= 5 && random.below(2) === 0) files["special_tokens_map.json"] = side(MAP);
      if (way >= 5 && random.below(2) === 0) files["added_tokens.json"] = side({ [first]: 0 });
      write(directory, files);
      const start = performance.now();
      const tokenizer = attempt(() => loadTokenizer(directory, "encode", { vocabulary: 2000 }));
      if (tokenizer !== undefined) {
        for (const text of TEXTS) {
          const ids = attempt(() => tokenizer.encode(text, true)) ?? [];
          assert(ids.every((id) => Number.isInteger(id) && id >= 0 && id < 2100), `${ids}`);
          const decoded = attempt(() => tokenizer.decode(ids));
          const stream = tokenizer.stream();
          assertEquals(attempt(() => ids.map((id) => stream.push(id)).join("") + stream.end()), decoded);
        }
        attempt(() => tokenizer.decode(Array.from({ length: 50 }, () => random.below(3000))));
      }
      attempt(() => readChatTemplate(directory));
      attempt(() => readVocabulary(directory, 1100, {}, "gpt-2"));
      tally.add(tokenizer !== undefined, start);
      for (const name of Object.keys(files)) Deno.removeSync(`${directory}/${name}`);
    }
  });
  tally.print();
  assert(tally.accepted > count / 10 && tally.accepted < count * 0.9, `${tally.accepted} of ${count}`);
});
