// Text to ids and back. fixtures/tokenizers holds what the `tokenizers` library of Python and Rust gives for 1,000 strings.

import { assert, assertEquals, assertRejects } from "@std/assert";
import { loadTokenizer, type Tokenizer } from "../../../lib/text/tokenizer.ts";
import { CheckpointError } from "../../../lib/errors.ts";
import { json } from "../../support/models.ts";
import { inTemporary, ROOT } from "../../support/program.ts";
import { Random, write } from "../../support/testing.ts";

const FIXTURES = `${ROOT}fixtures/tokenizers`;
const STRINGS: string[] = json(`${FIXTURES}/strings.json`);
const KINDS = ["smollm", "llama3", "qwen2", "llama2", "metaspace"];

interface Answers {
  whole: number[];
  ids: string[];
  changed: Record<string, string>;
  odd: [string, string][];
}

function numbers(text: string): number[] {
  return text === "" ? [] : text.split(" ").map(Number);
}

/** The pieces of a text, one for each id, and the end. */
function pieces(tokenizer: Tokenizer, ids: readonly number[]): string[] {
  const stream = tokenizer.stream();
  return [...ids.map((id) => stream.push(id)), stream.end()];
}

for (const kind of KINDS) {
  const answers: Answers = json(`${FIXTURES}/${kind}/expected.json`);

  Deno.test(`${kind}: the ids of 1,000 strings are those of the Rust library`, async () => {
    const tokenizer = (await loadTokenizer(`${FIXTURES}/${kind}`, "encode"))!;
    assertEquals([STRINGS.length, answers.ids.length], [1000, 1000]);
    const wrong = STRINGS.flatMap((text, n) => {
      const found = tokenizer.encode(text).join(" ");
      return found === answers.ids[n] ? [] : [{ text, found, wanted: answers.ids[n] }];
    });
    assertEquals(wrong, []);
    assertEquals(tokenizer.encode("Paris is", true), answers.whole);
    assertEquals(tokenizer.assumed, undefined);
  });

  Deno.test(`${kind}: the first text of a tokenizer, which is encoded with a part of it, has the same ids`, async () => {
    for (let n = 0; n < 1000; n += 9) {
      const tokenizer = (await loadTokenizer(`${FIXTURES}/${kind}`, "encode"))!;
      assertEquals(tokenizer.encode(STRINGS[n]).join(" "), answers.ids[n], STRINGS[n]);
    }
    const tokenizer = (await loadTokenizer(`${FIXTURES}/${kind}`, "encode"))!;
    assertEquals(tokenizer.encode("Paris is", true), answers.whole);
  });

  Deno.test(`${kind}: the text of ids is that of the Rust library, whole and in pieces`, async () => {
    const tokenizer = (await loadTokenizer(`${FIXTURES}/${kind}`, "decode"))!;
    const texts = STRINGS.map((text, n) => [answers.ids[n], answers.changed[n] ?? text]);
    for (const [ids, text] of [...texts, ...answers.odd]) {
      assertEquals(tokenizer.decode(numbers(ids)), text, ids);
      assertEquals(pieces(tokenizer, numbers(ids)).join(""), text, ids);
    }
    assert(answers.odd.length === 200);
  });

  Deno.test(`${kind}: no piece has a part of a character`, async () => {
    const tokenizer = (await loadTokenizer(`${FIXTURES}/${kind}`, "decode"))!;
    let split = 0;
    STRINGS.forEach((text, n) => {
      const found = pieces(tokenizer, numbers(answers.ids[n]));
      split += found.filter((piece) => piece === "").length;
      // U+FFFD comes only where the text itself has it, and a pair of surrogates stays together.
      if (!(answers.changed[n] ?? text).includes("\ufffd")) assert(found.every((piece) => !piece.includes("\ufffd")));
      assert(found.every((piece) => piece.isWellFormed()), text);
    });
    assert(split > 1000, `${split} tokens ended within a character`);
  });
}

Deno.test("strings come back from their ids, but for what the tokenizers normalize", () => {
  for (const kind of ["smollm", "llama3"]) {
    assertEquals(json(`${FIXTURES}/${kind}/expected.json`).changed, {}, kind);
  }
});

Deno.test("a piece comes as soon as its last byte does, and an unfinished one at the end", async () => {
  const tokenizer = (await loadTokenizer(`${FIXTURES}/smollm`, "decode"))!;
  // € is e2 82 ac, 😀 f0 9f 98 80; GPT-2 writes these bytes â Ĥ ¬ and ð Ł ĺ Ģ.
  const ids = (tokens: string) => [...tokens].map((token) => tokenizer.idOf(token)!);
  assertEquals(pieces(tokenizer, ids("aâĤ¬b")), ["a", "", "", "€", "b", ""]);
  assertEquals(pieces(tokenizer, ids("ðŁĺĢ")), ["", "", "", "😀", ""]);
  assertEquals(pieces(tokenizer, ids("aðŁ")), ["a", "", "", "\ufffd"]);
  // What can't become a character is replaced when that is known: here by the byte that follows.
  assertEquals(pieces(tokenizer, ids("ðŁa")), ["", "", "\ufffda", ""]);
});

Deno.test("bytes of a byte fallback come when the run of them ends: all of it is UTF-8, or none", async () => {
  const tokenizer = (await loadTokenizer(`${FIXTURES}/llama2`, "decode"))!;
  const ids = (...tokens: string[]) => tokens.map((token) => tokenizer.idOf(token)!);
  assertEquals(pieces(tokenizer, ids("▁", "<0xE2>", "<0x82>", "<0xAC>", "a")), ["", "", "", "", "€a", ""]);
  assertEquals(pieces(tokenizer, ids("a", "<0xE2>", "<0x82>")), ["a", "", "", "\ufffd\ufffd"]);
});

Deno.test("text is the same however it is cut into tokens", async () => {
  const tokenizer = (await loadTokenizer(`${FIXTURES}/smollm`, "decode"))!;
  const random = new Random(1);
  for (let n = 0; n < 300; n++) {
    const ids = Array.from({ length: 1 + random.below(20) }, () => random.below(1000));
    assertEquals(pieces(tokenizer, ids).join(""), tokenizer.decode(ids));
  }
});

/** A tokenizer.json of three letters. */
function small(changes: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false },
    post_processor: null,
    decoder: { type: "ByteLevel" },
    model: { type: "BPE", vocab: { a: 0, b: 1, ab: 2 }, merges: [["a", "b"]] },
    ...changes,
  };
}

Deno.test("a tokenizer.json with rules that are not known is refused by name", async () => {
  const model = small().model as Record<string, unknown>;
  const cases: [Record<string, unknown>, string][] = [
    [{ model: { ...model, type: "Unigram" } }, 'model: type "Unigram"'],
    [{ model: { ...model, dropout: 0.1 } }, "model: dropout 0.1"],
    [{ model: { ...model, continuing_subword_prefix: "##" } }, 'model: continuing_subword_prefix "##"'],
    [{ model: { ...model, end_of_word_suffix: "</w>" } }, 'model: end_of_word_suffix "</w>"'],
    [{ normalizer: { type: "Precompiled" } }, 'normalizer: type "Precompiled"'],
    [{ normalizer: { type: "Sequence", normalizers: [{ type: "Lowercase" }] } }, 'normalizer: type "Lowercase"'],
    [{ pre_tokenizer: { type: "Whitespace" } }, 'pre_tokenizer: type "Whitespace"'],
    [{ pre_tokenizer: { type: "ByteLevel", add_prefix_space: true } }, "pre_tokenizer: add_prefix_space of ByteLevel"],
    [{ pre_tokenizer: { type: "Metaspace", replacement: "_" } }, 'pre_tokenizer: replacement "_" of Metaspace'],
    [
      { pre_tokenizer: { type: "Split", pattern: { String: " " }, behavior: "MergedWithPrevious" } },
      'pre_tokenizer: behavior "MergedWithPrevious" of Split',
    ],
    [{ added_tokens: [{ id: 3, content: "x", single_word: true }] }, 'added_tokens: single_word of "x"'],
    [{ decoder: { type: "WordPiece" } }, 'decoder: type "WordPiece"'],
    [{ decoder: null }, "decoder: none"],
    [
      { decoder: { type: "Sequence", decoders: [{ type: "Strip", content: " ", start: 1 }] } },
      "decoder: Strip without Fuse",
    ],
  ];
  await inTemporary(async (directory) => {
    write(directory, { "tokenizer.json": JSON.stringify(small()) });
    assertEquals((await loadTokenizer(directory, "encode"))!.encode("abba"), [2, 1, 0]);
    for (const [changes, problem] of cases) {
      write(directory, { "tokenizer.json": JSON.stringify(small(changes)) });
      const error = await assertRejects(() => loadTokenizer(directory, "encode"), CheckpointError, undefined, problem);
      assertEquals(error.message, `${directory}/tokenizer.json: ${problem} is not supported; use --ids`);
    }
  });
});

Deno.test("what is no tokenizer.json is refused in one line", async () => {
  const model = small().model as Record<string, unknown>;
  const files: (string | Record<string, unknown>)[] = [
    "",
    "{",
    "null",
    "[]",
    "7",
    "{}",
    small({ model: null }),
    small({ model: [] }),
    small({ model: { ...model, vocab: ["a"] } }),
    small({ model: { ...model, vocab: { a: -1 } } }),
    small({ model: { ...model, vocab: { a: "0" } } }),
    small({ model: { ...model, vocab: { a: 1e300 } } }),
    small({ model: { ...model, merges: 7 } }),
    small({ model: { ...model, merges: [7] } }),
    small({ added_tokens: {} }),
    small({ added_tokens: [null] }),
    small({ added_tokens: [{ id: "0", content: "a" }] }),
    small({ pre_tokenizer: { type: "Sequence" } }),
    small({ pre_tokenizer: { type: "Split", pattern: { Regex: "(" }, behavior: "Isolated" } }),
    small({ pre_tokenizer: 7 }),
    small({ normalizer: "NFC" }),
    small({ decoder: { type: "Sequence", decoders: 7 } }),
    small({ post_processor: { type: "Nothing" } }),
  ];
  await inTemporary(async (directory) => {
    for (const file of files) {
      const text = typeof file === "string" ? file : JSON.stringify(file);
      write(directory, { "tokenizer.json": text });
      const error = await assertRejects(() => loadTokenizer(directory, "encode"), CheckpointError, undefined, text);
      assert(error.message.startsWith(`${directory}/tokenizer.json: `) && !error.message.includes("\n"), error.message);
    }
  });
});

Deno.test("of vocab.json and merges.txt GPT-2's rules are assumed, which is said", async () => {
  await inTemporary(async (directory) => {
    assertEquals(await loadTokenizer(directory, "encode"), undefined);
    write(directory, {
      "vocab.json": JSON.stringify({ a: 0, b: 1, ab: 2, "Ġ": 3, "#": 4, "##": 5, "<|end|>": 6, "1": 7, "11": 8 }),
    });
    assertEquals(await loadTokenizer(directory, "encode"), undefined);
    write(directory, { "merges.txt": "#version: 0.2\r\na b\r\n# #\r\n1 1\r\n" });
    const tokenizer = (await loadTokenizer(directory, "encode"))!;
    assertEquals(tokenizer.encode("ab a##<|end|>111"), [2, 3, 0, 5, 6, 8, 7]);
    assertEquals(tokenizer.decode([2, 3, 0, 5, 6, 8, 7]), "ab a##<|end|>111");
    assert(tokenizer.assumed!.includes("GPT-2"));
  });
});
