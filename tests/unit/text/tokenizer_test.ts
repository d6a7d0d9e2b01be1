// Text to ids and back. fixtures/tokenizers holds what the `tokenizers` library of Python and Rust gives for 1,000 strings.

import { assert, assertEquals, assertMatch, assertThrows } from "@std/assert";
import { loadTokenizer, type Tokenizer } from "../../../lib/text/tokenizer.ts";
import { CheckpointError } from "../../../lib/errors.ts";
import { inTemporary, write } from "../../support/files.ts";
import { json, ROOT } from "../../support/fixtures.ts";
import { Random } from "../../support/random.ts";
import { assertRefused, checkRefusal } from "../../support/refusals.ts";
import { KINDS } from "../../support/tokenizers.ts";

const FIXTURES = `${ROOT}fixtures/tokenizers`;
const STRINGS: string[] = json(`${FIXTURES}/strings.json`);

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

  Deno.test(`${kind}: the ids of 1,000 strings are those of the Rust library`, () => {
    const tokenizer = (loadTokenizer(`${FIXTURES}/${kind}`, "encode"))!;
    assertEquals([STRINGS.length, answers.ids.length], [1000, 1000]);
    const wrong = STRINGS.flatMap((text, n) => {
      const found = tokenizer.encode(text).join(" ");
      return found === answers.ids[n] ? [] : [{ text, found, wanted: answers.ids[n] }];
    });
    assertEquals(wrong, []);
    assertEquals(tokenizer.encode("Paris is", true), answers.whole);
    assertEquals(tokenizer.assumed, undefined);
  });

  Deno.test(`${kind}: the first text of a tokenizer has the same ids`, () => {
    for (let n = 0; n < 1000; n += 9) {
      const tokenizer = (loadTokenizer(`${FIXTURES}/${kind}`, "encode"))!;
      assertEquals(tokenizer.encode(STRINGS[n]).join(" "), answers.ids[n], STRINGS[n]);
    }
    const tokenizer = (loadTokenizer(`${FIXTURES}/${kind}`, "encode"))!;
    assertEquals(tokenizer.encode("Paris is", true), answers.whole);
  });

  Deno.test(`${kind}: the text of ids is that of the Rust library, whole and in pieces`, () => {
    const tokenizer = (loadTokenizer(`${FIXTURES}/${kind}`, "decode"))!;
    const texts = STRINGS.map((text, n) => [answers.ids[n], answers.changed[n] ?? text]);
    for (const [ids, text] of [...texts, ...answers.odd]) {
      assertEquals(tokenizer.decode(numbers(ids)), text, ids);
      assertEquals(pieces(tokenizer, numbers(ids)).join(""), text, ids);
    }
    assert(answers.odd.length === 200);
  });

  Deno.test(`${kind}: no piece has a part of a character`, () => {
    const tokenizer = (loadTokenizer(`${FIXTURES}/${kind}`, "decode"))!;
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

Deno.test("a piece comes as soon as its last byte does, and an unfinished one at the end", () => {
  const tokenizer = (loadTokenizer(`${FIXTURES}/smollm`, "decode"))!;
  // € is e2 82 ac, 😀 f0 9f 98 80; GPT-2 writes these bytes â Ĥ ¬ and ð Ł ĺ Ģ.
  const ids = (tokens: string) => [...tokens].map((token) => tokenizer.idOf(token)!);
  assertEquals(pieces(tokenizer, ids("aâĤ¬b")), ["a", "", "", "€", "b", ""]);
  assertEquals(pieces(tokenizer, ids("ðŁĺĢ")), ["", "", "", "😀", ""]);
  assertEquals(pieces(tokenizer, ids("aðŁ")), ["a", "", "", "\ufffd"]);
  // What can't become a character is replaced when that is known: here by the byte that follows.
  assertEquals(pieces(tokenizer, ids("ðŁa")), ["", "", "\ufffda", ""]);
});

Deno.test("bytes of a byte fallback come when the run of them ends: all of it is UTF-8, or none", () => {
  const tokenizer = (loadTokenizer(`${FIXTURES}/llama2`, "decode"))!;
  const ids = (...tokens: string[]) => tokens.map((token) => tokenizer.idOf(token)!);
  assertEquals(pieces(tokenizer, ids("▁", "<0xE2>", "<0x82>", "<0xAC>", "a")), ["", "", "", "", "€a", ""]);
  assertEquals(pieces(tokenizer, ids("a", "<0xE2>", "<0x82>")), ["a", "", "", "\ufffd\ufffd"]);
});

Deno.test("text is the same however it is cut into tokens", () => {
  const tokenizer = (loadTokenizer(`${FIXTURES}/smollm`, "decode"))!;
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
  const split = { type: "Split", behavior: "Isolated", invert: false };
  const post = (single: unknown, special_tokens: unknown = {}) => {
    return { post_processor: { type: "TemplateProcessing", single, special_tokens } };
  };
  const cases: [Record<string, unknown>, string][] = [
    [{ version: "2.0" }, 'version: "2.0" is not supported, only "1.0"'],
    [{ model: { ...model, type: "Unigram" } }, 'model.type: "Unigram" is not supported, only BPE'],
    [{ model: { ...model, dropout: 0.1 } }, "model.dropout: 0.1 is not supported"],
    [
      { model: { ...model, continuing_subword_prefix: "##" } },
      'model.continuing_subword_prefix: "##" is not supported',
    ],
    [{ model: { ...model, end_of_word_suffix: "</w>" } }, 'model.end_of_word_suffix: "</w>" is not supported'],
    [{ model: { ...model, vocab: { a: 0, b: 0, ab: 1 } } }, 'model.vocab: "a" and "b" both have the id 0'],
    [
      { model: { ...model, merges: [["a", "a"]] } },
      "model.merges[0]: expected a pair of tokens, in the form of the first merge; both and the merged token must be in " +
      "the vocabulary",
    ],
    [{ normalizer: { type: "Precompiled" } }, 'normalizer: type "Precompiled" is not supported'],
    [
      { normalizer: { type: "Sequence", normalizers: [{ type: "Lowercase" }] } },
      'normalizer.normalizers[0]: type "Lowercase" is not supported',
    ],
    [
      { normalizer: { type: "Replace", pattern: { String: "" }, content: "a" } },
      "normalizer.pattern.String: an empty string is not supported",
    ],
    [
      { normalizer: { type: "Replace", pattern: { Regex: "a?" }, content: "a" } },
      'normalizer.pattern.Regex: "a?": empty matches are not supported here',
    ],
    [{ normalizer: { type: "Prepend", prepend: "" } }, "normalizer.prepend: an empty string is not supported"],
    [{ pre_tokenizer: { type: "Whitespace" } }, 'pre_tokenizer: type "Whitespace" is not supported'],
    [
      { pre_tokenizer: { type: "Metaspace", replacement: "▁▁" } },
      'pre_tokenizer.replacement: expected one character, found "▁▁"',
    ],
    [
      { pre_tokenizer: { type: "Metaspace", replacement: "▁", prepend_scheme: "always", add_prefix_space: false } },
      "pre_tokenizer.prepend_scheme: contradicts add_prefix_space",
    ],
    [
      {
        normalizer: { type: "Prepend", prepend: "x" },
        pre_tokenizer: { type: "Metaspace", replacement: "▁", prepend_scheme: "first" },
      },
      'pre_tokenizer.prepend_scheme: "first" is not supported after other rules that change or split the text',
    ],
    [
      { pre_tokenizer: { ...split, pattern: { String: " " }, behavior: "Nothing" } },
      'pre_tokenizer.behavior: "Nothing" is not supported',
    ],
    [
      { pre_tokenizer: { type: "Sequence", pretokenizers: [{ ...split, pattern: { Regex: "a\\R" } }] } },
      'pre_tokenizer.pretokenizers[0].pattern.Regex: "a\\\\R": "\\\\R" at character 1 is not supported',
    ],
    [
      {
        pre_tokenizer: { type: "Sequence", pretokenizers: Array.from({ length: 31 }, () => ({ type: "Whitespace" })) },
      },
      "pre_tokenizer: has more than 30 rules",
    ],
    [
      { added_tokens: [{ id: 3, content: "x", single_word: true }] },
      'added_tokens[0].single_word: true (token "x") is not supported',
    ],
    [
      { added_tokens: [{ id: 4, content: "x" }] },
      'added_tokens[0]: expected the id 3 (the next free id) for "x", found 4',
    ],
    [
      { added_tokens: [{ id: 4, content: "a" }] },
      'added_tokens[0]: expected the id 0 (its id elsewhere) for "a", found 4',
    ],
    [
      {
        normalizer: { type: "Replace", pattern: { String: "y" }, content: "x" },
        added_tokens: [{ id: 3, content: "x", normalized: true }, { id: 4, content: "y", normalized: true }],
      },
      'added_tokens: "y" and "x" are the same after normalization',
    ],
    [{ decoder: { type: "WordPiece" } }, 'decoder: type "WordPiece" is not supported'],
    [
      { decoder: { type: "Strip", content: " ", start: 1, stop: 1 } },
      "decoder.stop: expected 0; other values are not supported",
    ],
    [
      { decoder: { type: "Sequence", decoders: [{ type: "Fuse" }, { type: "ByteFallback" }] } },
      "decoder.decoders[1]: ByteFallback after Fuse is not supported",
    ],
    [{ post_processor: { type: "BertProcessing" } }, 'post_processor: type "BertProcessing" is not supported'],
    [post(null), "post_processor.single: expected a list, found null"],
    [post([7]), "post_processor.single[0]: expected an object, found 7"],
    [post([{ Sequence: { id: "B" } }]), 'post_processor.single[0].Sequence: expected the id "A"'],
    [post([{ SpecialToken: { id: "x" } }]), "post_processor.special_tokens.x: is missing"],
    [post([]), "post_processor.single: expected one Sequence"],
  ];
  await inTemporary((directory) => {
    write(directory, { "tokenizer.json": JSON.stringify(small()) });
    assertEquals(loadTokenizer(directory, "encode")!.encode("abba"), [2, 1, 0]);
    for (const [changes, problem] of cases) {
      write(directory, { "tokenizer.json": JSON.stringify(small(changes)) });
      const load = () => loadTokenizer(directory, "encode", { remedy: "use --ids" });
      assertRefused(load, `${directory}/tokenizer.json: ${problem}; use --ids`, CheckpointError, problem);
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
    small({ model: { ...model, vocab: { a: 2 ** 24 } } }),
    small({ model: { ...model, vocab: { "\ud83d": 0 } } }),
    small({ model: { ...model, merges: 7 } }),
    small({ model: { ...model, merges: [7] } }),
    small({ model: { ...model, merges: ["a b", ["a", "b"]] } }),
    small({ model: { ...model, merges: ["ab"] } }),
    small({ model: { ...model, unk_token: 7 } }),
    small({ model: { ...model, byte_fallback: "yes" } }),
    small({ added_tokens: {} }),
    small({ added_tokens: [null] }),
    small({ added_tokens: [{ id: "0", content: "a" }] }),
    small({ added_tokens: [{ id: 3, content: "\ud83d" }] }),
    small({ added_tokens: [{ id: 3, content: "x".repeat(2000) }] }),
    small({ pre_tokenizer: { type: "Sequence" } }),
    small({ pre_tokenizer: { type: "Split", pattern: { Regex: "(" }, behavior: "Isolated" } }),
    small({ pre_tokenizer: { type: "Split", pattern: { String: "a" }, behavior: "Isolated" } }),
    small({ pre_tokenizer: 7 }),
    small({ normalizer: "NFC" }),
    small({ decoder: { type: "Sequence", decoders: 7 } }),
    small({ decoder: { type: "Strip", content: "", start: 1, stop: 0 } }),
    small({ decoder: { type: "Strip", content: " ", start: -1, stop: 0 } }),
    JSON.stringify(small({ decoder: { type: "Strip", content: " ", start: "S", stop: 0 } })).replace('"S"', "1e999"),
    small({ post_processor: { type: "Nothing" } }),
    small({ post_processor: 7 }),
  ];
  await inTemporary((directory) => {
    for (const file of files) {
      const text = typeof file === "string" ? file : JSON.stringify(file);
      write(directory, { "tokenizer.json": text });
      const error = assertThrows(() => loadTokenizer(directory, "encode"), CheckpointError, undefined, text);
      assert(error.message.startsWith(`${directory}/tokenizer.json: `) && !error.message.includes("\n"), error.message);
    }
  });
});

Deno.test("ids that the model lacks are refused when the tokenizer is loaded", async () => {
  await inTemporary((directory) => {
    const cases: [Record<string, unknown>, number, string][] = [
      [small(), 2, 'model.vocab: "ab" has the id 2, but the model\'s vocabulary (config.json) ends at 1'],
      [
        small({ added_tokens: [{ id: 3, content: "x" }] }),
        3,
        'added_tokens: "x" has the id 3, but the model\'s vocabulary (config.json) ends at 2',
      ],
      [
        small({
          post_processor: {
            type: "TemplateProcessing",
            single: [{ SpecialToken: { id: "x" } }, { Sequence: { id: "A" } }],
            special_tokens: { x: { ids: [9] } },
          },
        }),
        3,
        "post_processor.special_tokens.x.ids[0]: the model's vocabulary (config.json) ends at 2",
      ],
    ];
    for (const [file, vocabulary, problem] of cases) {
      write(directory, { "tokenizer.json": JSON.stringify(file) });
      loadTokenizer(directory, "encode", { vocabulary: 10 });
      assertRefused(
        () => loadTokenizer(directory, "encode", { vocabulary }),
        `${directory}/tokenizer.json: ${problem}`,
      );
    }
    // A token that no file gives an id gets the next one, which is refused where a text has it.
    write(directory, {
      "tokenizer.json": JSON.stringify(small()),
      "tokenizer_config.json": JSON.stringify({ pad_token: "<pad>" }),
    });
    const { encode } = loadTokenizer(directory, "encode", { vocabulary: 3 })!;
    assertEquals(encode("ab<pad>"), [2, 3]);
  });
});

Deno.test("what files ask for has an end", async () => {
  const steps = (count: number, step: unknown, list: string) => ({ type: "Sequence", [list]: Array(count).fill(step) });
  const double = { type: "Replace", pattern: { String: "a" }, content: "aa" };
  const slow = { type: "Split", pattern: { Regex: "(?:a|a|aa)+b" }, behavior: "Isolated", invert: false };
  const each = { type: "Split", pattern: { Regex: "." }, behavior: "Isolated", invert: false };
  const encoded: Record<string, unknown>[] = [
    { normalizer: steps(30, double, "normalizers") },
    { normalizer: { type: "Prepend", prepend: "a".repeat(11_000_000) } },
    { pre_tokenizer: slow },
    // Each of the pieces is short.
    { pre_tokenizer: { type: "Sequence", pretokenizers: [each, slow, each] } },
  ];
  await inTemporary((directory) => {
    for (const changes of encoded) {
      write(directory, { "tokenizer.json": JSON.stringify(small(changes)) });
      const { encode } = loadTokenizer(directory, "encode")!;
      try {
        encode("a".repeat(100));
      } catch (error) {
        checkRefusal(error);
        assertMatch((error as Error).message, /tokenizer\.json: .*(this text)/);
      }
    }
    // White space that belongs to many tokens is looked at once.
    const spaces = { added_tokens: [{ id: 3, content: " ", lstrip: true, rstrip: true }] };
    write(directory, { "tokenizer.json": JSON.stringify(small(spaces)) });
    assertEquals(loadTokenizer(directory, "encode")!.encode("a" + " ".repeat(300_000) + "b").length, 3);
    write(directory, { "tokenizer.json": JSON.stringify(small({ decoder: steps(30, double, "decoders") })) });
    const tokenizer = loadTokenizer(directory, "decode")!;
    assertThrows(() => tokenizer.decode([0]), CheckpointError, "the rules make this text too long");
    assertThrows(() => tokenizer.stream().push(0), CheckpointError, "the rules make this text too long");
    // A count that is large takes no longer than the text.
    const strip = { type: "Strip", content: "a", start: 1e10, stop: 0 };
    write(directory, { "tokenizer.json": JSON.stringify(small({ decoder: strip })) });
    assertEquals(loadTokenizer(directory, "decode")!.decode([0, 2, 1]), "bb");
  });
});

Deno.test("replacements are texts", async () => {
  const replace = { type: "Replace", pattern: { String: "x" }, content: "$&$1$$" };
  const vocab = { a: 0, "$": 1, "&": 2, "1": 3, x: 4 };
  await inTemporary((directory) => {
    const file = small({ normalizer: replace, decoder: replace, model: { type: "BPE", vocab, merges: [] } });
    write(directory, { "tokenizer.json": JSON.stringify({ ...file, pre_tokenizer: null }) });
    const tokenizer = loadTokenizer(directory, "encode")!;
    assertEquals(tokenizer.encode("axa"), [0, 1, 2, 1, 3, 1, 1, 0]);
    assertEquals(tokenizer.decode([0, 4, 0]), "a$&$1$$a");
  });
});

Deno.test("tokens above U+FFFF are found in the first text", async () => {
  const bytes = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
  const words = ["<unk>", ...bytes, "▁", "a", "😀", "😀😀"];
  const model = {
    type: "BPE",
    unk_token: "<unk>",
    fuse_unk: true,
    byte_fallback: true,
    vocab: Object.fromEntries(words.map((word, n) => [word, n])),
    merges: [["😀", "😀"]],
  };
  await inTemporary((directory) => {
    write(directory, { "tokenizer.json": JSON.stringify(small({ pre_tokenizer: null, model })) });
    for (
      const [text, tokens] of [["😀", ["😀"]], ["a😀😀a", ["a", "😀😀", "a"]], ["🚀", [
        "<0xF0>",
        "<0x9F>",
        "<0x9A>",
        "<0x80>",
      ]]]
    ) {
      const tokenizer = loadTokenizer(directory, "encode")!;
      assertEquals(tokenizer.encode(text as string), (tokens as string[]).map((token) => tokenizer.idOf(token)));
    }
  });
});

Deno.test("what the vocabulary lacks is dropped, or an unknown token, or an error", async () => {
  const vocab = { a: 0, b: 1, ab: 2, "<unk>": 3 };
  const ids = (directory: string, text: string, changes: Record<string, unknown>) => {
    const model = { type: "BPE", vocab, merges: [["a", "b"]], ...changes };
    write(directory, { "tokenizer.json": JSON.stringify(small({ pre_tokenizer: null, model })) });
    return loadTokenizer(directory, "encode")!.encode(text);
  };
  await inTemporary((directory) => {
    // By tokenizers 0.23.3: what is dropped does not stand between the others.
    assertEquals(ids(directory, "a??b", {}), [2]);
    assertEquals(ids(directory, "a??b", { unk_token: "<unk>" }), [0, 3, 3, 1]);
    assertEquals(ids(directory, "a??b", { unk_token: "<unk>", fuse_unk: true }), [0, 3, 1]);
    assertThrows(
      () => ids(directory, "a?b", { unk_token: "none" }),
      CheckpointError,
      'the vocabulary lacks the unk_token "none", which "?" needs',
    );
  });
});

Deno.test("of vocab.json and merges.txt GPT-2's rules are assumed, which is said", async () => {
  await inTemporary((directory) => {
    assertEquals(loadTokenizer(directory, "encode"), undefined);
    write(directory, {
      "vocab.json": JSON.stringify({ a: 0, b: 1, ab: 2, "Ġ": 3, "#": 4, "##": 5, "<|end|>": 6, "1": 7, "11": 8 }),
    });
    assertEquals(loadTokenizer(directory, "encode"), undefined);
    write(directory, { "merges.txt": "#version: 0.2\r\na b\r\n# #\r\n1 1\r\n" });
    const tokenizer = loadTokenizer(directory, "encode")!;
    assertEquals(tokenizer.encode("ab a##<|end|>111"), [2, 3, 0, 5, 6, 8, 7]);
    assertEquals(tokenizer.decode([2, 3, 0, 5, 6, 8, 7]), "ab a##<|end|>111");
    assert(tokenizer.assumed!.includes("GPT-2"));
    // A class that says how text is split is not assumed; one that does not is refused.
    write(directory, { "tokenizer_config.json": JSON.stringify({ tokenizer_class: "GPT2Tokenizer" }) });
    assertEquals(loadTokenizer(directory, "encode")!.assumed, undefined);
    // The class of a model whose tokenizer_config.json names none: Qwen 2 splits digits one by one.
    write(directory, {
      "tokenizer_config.json": "{}",
      "config.json": JSON.stringify({ model_type: "qwen2" }),
    });
    assertEquals(loadTokenizer(directory, "encode")!.encode("11 a"), [7, 7, 3, 0]);
    assertEquals(loadTokenizer(directory, "encode")!.assumed, undefined);
    write(directory, {
      "tokenizer_config.json": JSON.stringify({ tokenizer_class: "BartTokenizer" }),
      "config.json": JSON.stringify({ model_type: "llama" }),
    });
    assertThrows(
      () => loadTokenizer(directory, "encode"),
      CheckpointError,
      `${directory}/tokenizer_config.json: tokenizer_class: "BartTokenizer" without tokenizer.json is not supported`,
    );
  });
});

Deno.test("vocab.json and merges.txt of a model whose type has a class are split by that class", async () => {
  const plain = (byte: number) => (byte > 32 && byte < 127) || (byte > 160 && byte < 256 && byte !== 173);
  let next = 256;
  const letters = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(plain(byte) ? byte : next++));
  const tokens = [...letters, "ab", "12", "Ġa", "<s>", "</s>", "<unk>", "<|endoftext|>"];
  // By AutoTokenizer of transformers 5.24.0. GPT-2's class merges "12"; Qwen2's splits digits.
  const cases: [Record<string, unknown>, number[]][] = [
    [{ model_type: "qwen2" }, [256, 49, 50, 49, 50, 258, 60, 115, 62, 97, 262, 120]],
    [{ model_type: "qwen3", tokenizer_class: "GPT2Tokenizer" }, [256, 49, 50, 49, 50, 258, 60, 115, 62, 97, 262, 120]],
    [{ model_type: "llama", tokenizer_class: "GPT2Tokenizer" }, [256, 257, 257, 258, 60, 115, 62, 97, 262, 120]],
  ];
  await inTemporary((directory) => {
    write(directory, {
      "vocab.json": JSON.stringify(Object.fromEntries(tokens.map((token, id) => [token, id]))),
      "merges.txt": "#version: 0.2\na b\n1 2\nĠ a\n",
    });
    for (const [config, ids] of cases) {
      write(directory, { "config.json": JSON.stringify(config) });
      const tokenizer = loadTokenizer(directory, "encode")!;
      assertEquals(tokenizer.encode("ab1212 a<s>a<|endoftext|>x"), ids, JSON.stringify(config));
      assertEquals(tokenizer.assumed, undefined);
    }
    write(directory, { "config.json": JSON.stringify({ model_type: "llama", tokenizer_class: "BartTokenizer" }) });
    assertThrows(
      () => loadTokenizer(directory, "encode"),
      CheckpointError,
      `${directory}/config.json: tokenizer_class: "BartTokenizer" without tokenizer.json is not supported`,
    );
  });
});
