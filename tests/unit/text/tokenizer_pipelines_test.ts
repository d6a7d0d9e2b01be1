// Whole tokenizers, made at random, and the files beside them. fixtures/tokenizers holds what the `tokenizers` library and
// transformers make of them.

import { assert, assertEquals } from "@std/assert";
import { readSpecialTokens } from "../../../lib/text/special_tokens.ts";
import { loadTokenizer, type Tokenizer } from "../../../lib/text/tokenizer.ts";
import { inTemporary, write } from "../../support/files.ts";
import { json, ROOT } from "../../support/fixtures.ts";
import { attempt } from "../../support/refusals.ts";

const FIXTURES = `${ROOT}fixtures/tokenizers`;

/** The text of ids that come one by one. */
function streamed(tokenizer: Tokenizer, ids: readonly number[]): string {
  const stream = tokenizer.stream();
  return ids.map((id) => stream.push(id)).join("") + stream.end();
}

Deno.test("random tokenizers give the ids and texts of the tokenizers library, or are refused", async () => {
  interface Case {
    file: unknown;
    texts: string[];
    odd: number[][];
    /** null where the library refuses the file, or a text. */
    answers: { ids: (number[] | null)[]; whole: (number[] | null)[]; decoded: (string | null)[] } | null;
  }
  // RABBIT_PIPELINES names a larger file.
  const cases: Case[] = json(Deno.env.get("RABBIT_PIPELINES") ?? `${FIXTURES}/pipelines.json`);
  const tally = { equal: 0, refused: 0, refused_by_both: 0, refused_by_the_library: 0 };
  await inTemporary((directory) => {
    for (const { file, texts, odd, answers } of cases) {
      write(directory, { "tokenizer.json": JSON.stringify(file) });
      const tokenizer = attempt(() => loadTokenizer(directory, "encode"));
      if (tokenizer === undefined || answers === null) {
        const kind = tokenizer !== undefined
          ? "refused_by_the_library"
          : answers === null
          ? "refused_by_both"
          : "refused";
        tally[kind]++;
        continue;
      }
      texts.forEach((text, n) => {
        const expected = answers.ids[n];
        if (expected !== null) {
          assertEquals(attempt(() => tokenizer.encode(text)), expected, JSON.stringify([file, text]));
        }
      });
      answers.whole.forEach((expected, n) => {
        if (expected !== null) {
          assertEquals(attempt(() => tokenizer.encode(texts[n], true)), expected, JSON.stringify(file));
        }
      });
      odd.forEach((ids, n) => {
        if (answers.decoded[n] === null) return;
        assertEquals(attempt(() => tokenizer.decode(ids)), answers.decoded[n]!, JSON.stringify([file, ids]));
        assertEquals(streamed(tokenizer, ids), answers.decoded[n], JSON.stringify([file, ids]));
      });
      tally.equal++;
    }
  });
  console.log(`random tokenizers: ${JSON.stringify(tally)}`);
  assert(tally.equal > cases.length / 4, JSON.stringify(tally));
});

Deno.test("tokens that any of the files names count as they do in transformers", async () => {
  interface Case {
    files: Record<string, unknown>;
    texts: string[];
    answers: { ids: number[][]; special: Record<string, string> } | null;
  }
  // RABBIT_FILES names a larger file.
  const cases: Case[] = json(Deno.env.get("RABBIT_FILES") ?? `${FIXTURES}/files.json`);
  const tally = { equal: 0, refused: 0 };
  for (const { files, texts, answers } of cases) {
    await inTemporary((directory) => {
      const text = (
        [name, content]: [string, unknown],
      ) => [name, typeof content === "string" ? content : JSON.stringify(content)];
      write(directory, Object.fromEntries(Object.entries(files).map(text)));
      const tokenizer = attempt(() => loadTokenizer(directory, "encode"));
      tally[tokenizer === undefined ? "refused" : "equal"]++;
      if (tokenizer !== undefined) {
        assertEquals(texts.map((text) => tokenizer.encode(text)), answers?.ids, JSON.stringify(files));
        assertEquals(readSpecialTokens(directory), answers?.special, JSON.stringify(files));
      }
    });
  }
  console.log(`files of tokenizers: ${JSON.stringify(tally)}`);
  assert(tally.equal > cases.length * 0.9, JSON.stringify(tally));
});
