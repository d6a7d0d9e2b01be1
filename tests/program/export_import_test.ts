// `rabbit export` and `rabbit import`, run as a user runs them. What the files must hold was computed by
// fixtures/gguf/make_gguf.py, with llama.cpp's Python package and numpy.

import { assert, assertEquals, assertMatch, assertThrows } from "@std/assert";
import { createHash } from "node:crypto";
import { join } from "@std/path/join";
import { loadTokenizer } from "../../lib/text/tokenizer.ts";
import { readVocabulary, vocabularyMetadata } from "../../lib/gguf/vocabulary.ts";
import { CheckpointError } from "../../lib/errors.ts";
import { exportGguf, planTensors } from "../../lib/gguf/export.ts";
import { openCheckpoint } from "../../lib/format/checkpoint.ts";
import { serializeGguf, type Value } from "../../lib/gguf/container.ts";
import { importGguf, planImport } from "../../lib/gguf/import.ts";
import { exactBytes } from "../support/blocks.ts";
import { concat, utf8 } from "../support/bytes.ts";
import { inTemporary, sha256, sizeOf, tree, write } from "../support/files.ts";
import { fixture, json, MIXED, MODELS, ROOT, TINY, WEIGHTS } from "../support/fixtures.ts";
import { rounds, Tally } from "../support/fuzz.ts";
import { readGguf } from "../support/gguf.ts";
import { configOf, copyModel, quantizeTo, variant } from "../support/models.ts";
import { command, lines, pause, refused, run, text } from "../support/program.ts";
import { Random } from "../support/random.ts";
import { container, digestsOf, entriesOf, type Entry, headerText, safetensors } from "../support/safetensors.ts";

const mixed = fixture<{
  f32: Record<string, string>;
  model: string;
  config: Record<string, unknown>;
  vocab: Record<string, number>;
}>("gguf/mixed.json");
const exported = fixture<
  Record<string, {
    metadata: Record<string, string | number>;
    tensors: Record<string, [string, number[], string]>;
    rope_factors?: number[];
  }>
>("gguf/exports.json");

function digest(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** A checkpoint of the tiny model with a byte-level vocabulary of its 320 ids. */
function withTokenizer(directory: string, tokenizer: Record<string, unknown>, from = TINY): string {
  copyModel(from, directory);
  const words = Array.from({ length: 310 }, (_, n) => n < 94 ? String.fromCharCode(33 + n) : `<unused${n}>`);
  words[94] = "Ġ";
  words[95] = "he";
  write(directory, {
    "tokenizer.json": JSON.stringify({
      added_tokens: [{ id: 310, content: "<|end|>", special: true }, { id: 311, content: "<tool>", special: false }],
      pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true },
      normalizer: null,
      post_processor: null,
      decoder: { type: "ByteLevel" },
      model: { type: "BPE", vocab: Object.fromEntries(words.map((w, n) => [w, n])), merges: [["h", "e"]] },
      ...tokenizer,
    }),
  });
  return directory;
}

// ---------------------------------------------------------------- export

for (const [name, { metadata, tensors, rope_factors }] of Object.entries(exported)) {
  Deno.test(`rabbit export of ${name}: the metadata, and every tensor bit for bit`, async () => {
    await inTemporary(async (temporary) => {
      const path = join(temporary, "x.gguf");
      const { code, out, err } = await run("export", "--in", `${ROOT}fixtures/${name}`, "--gguf", path);
      assertEquals(code, 0, err);
      const warning = `${ROOT}fixtures/${name} has no tokenizer, so ${path} has none`;
      assertEquals(err, `rabbit: warning: export: ${warning}\n`);
      const found = readGguf(path);
      assertEquals(out.match(/digest=(\w+)/)![1], await sha256(path));
      assertEquals(out.match(/ bytes=(\d+)/)![1], String(found.data.length));
      for (const [key, wanted] of Object.entries(metadata)) {
        const value = found.metadata.get(key);
        assertEquals(value && "value" in value && value.value, wanted, key);
      }
      const own = [...found.metadata.keys()].filter((key) => key.startsWith(metadata["general.architecture"] + "."));
      assertEquals(own.filter((key) => !(key in metadata)), []);
      assertEquals(found.metadata.get("tokenizer.ggml.model"), { type: "string", value: "none" });
      const actual = found.tensors.map(({ name, type, shape, offset, bytes }) => {
        assertEquals(offset % 32, 0);
        return [name, [type.name, shape, digest(found.data.subarray(offset, offset + bytes))]] as const;
      });
      const { "rope_freqs.weight": rope, ...rest } = Object.fromEntries(actual);
      assertEquals(rest, tensors);
      assertEquals(rope === undefined, rope_factors === undefined);
      if (rope_factors !== undefined) {
        const { offset, bytes } = found.tensors.find(({ name }) => name === "rope_freqs.weight")!;
        const factors = new Float32Array(found.data.slice(offset, offset + bytes).buffer);
        rope_factors.forEach((f, n) => assert(Math.abs(factors[n] / f - 1) < 1e-6, `factor ${n}: ${factors[n]}`));
      }
    });
  });
}

Deno.test("rabbit import of what export wrote gives the same bytes, float and quantized", async () => {
  await inTemporary(async (temporary) => {
    const q4 = await quantizeTo(join(temporary, "q4"), TINY, 4);
    const q8 = await quantizeTo(join(temporary, "q8"), TINY, 8);
    const models = ["qwen2", "qwen3", "rope-llama3", "rope-linear", "rope-parameters", "attention-bias", "head-dim"];
    for (const [n, model] of [TINY, q4, q8, ...models.map((name) => join(MODELS, name))].entries()) {
      const path = join(temporary, `${n}.gguf`);
      const back = join(temporary, `${n}`);
      assertEquals((await run("export", "--in", model, "--gguf", path)).code, 0);
      const same = model === q4 || model === q8 ? ["--dtype", "same"] : [];
      const { code, err } = await run("import", "--gguf", path, "--out", back, ...same);
      assertEquals([code, err], [
        0,
        `rabbit: warning: import: ${path}: its tokenizer ("none") is not a BPE; ${back} gets none, use --ids\n`,
      ]);
      assertEquals(digestsOf(join(back, WEIGHTS)), digestsOf(join(model, WEIGHTS)), model);
      // And the same model, to the last logit.
      const config = json(join(back, "config.json"));
      assertEquals(config.vocab_size, json(join(model, "config.json")).vocab_size);
      const difference = async (float: string, other: string) => {
        const { out } = await run("compare", float, other, "--ids", "5 1 3", "--steps", "4");
        return /^COMPARE logits .*$/m.exec(out)![0];
      };
      if (same.length > 0) assertEquals(await difference(TINY, back), await difference(TINY, model));
      else assertMatch(await difference(model, back), / max=0\.000000 mean=0\.000000000$/);
    }
    assertEquals(await sha256(join(temporary, "1", WEIGHTS)), await sha256(join(q4, WEIGHTS)));
    assertEquals(await sha256(join(temporary, "2", WEIGHTS)), await sha256(join(q8, WEIGHTS)));
  });
});

/** Values that `dtype` holds and no narrower one does, and their bytes. */
function vectorOf(dtype: "BF16" | "F16" | "F32", length: number, random: Random): Uint8Array {
  const step = { BF16: 2 ** -7, F16: 2 ** -10, F32: 2 ** -20 }[dtype];
  const values = Float32Array.from({ length }, () => (1 + random.below(100) * step) * random.pick([1, -1]));
  return exactBytes(dtype, values)!;
}

/**
 * A model with its tensors in another order, vectors of several dtypes, and matrices of `dtype`, as PyTorch's stack saves it.
 *
 * @param head a head of its own is added
 */
function shuffled(
  directory: string,
  from: string,
  dtype: "BF16" | "F16" | "F32",
  random: Random,
  head = false,
): string {
  const tensors = entriesOf(Deno.readFileSync(join(from, WEIGHTS))).map(({ name, shape }) => ({ name, shape }));
  const config = json(join(from, "config.json"));
  if (head) {
    tensors.push({ name: "lm_head.weight", shape: [config.vocab_size, config.hidden_size] });
    config.tie_word_embeddings = false;
  }
  const entries = tensors.map(({ name, shape }): Entry => {
    const length = shape.reduce((a, b) => a * b, 1);
    const of = shape.length === 1 ? random.pick(["BF16", "F16", "F32"] as const) : dtype;
    return { name, shape, dtype: of, bytes: vectorOf(of, length, random) };
  });
  for (let n = entries.length - 1; n > 0; n--) {
    const other = random.below(n + 1);
    [entries[n], entries[other]] = [entries[other], entries[n]];
  }
  const plain = safetensors(entries, { format: "pt" });
  const header = headerText(plain);
  write(directory, {
    [WEIGHTS]: container(header.padEnd(Math.ceil(header.length / 8) * 8), ...entries.map(({ bytes }) => bytes)),
    "config.json": JSON.stringify(config),
  });
  return directory;
}

/** Exports a checkpoint and imports it again. */
async function roundTrip(model: string, path: string, back: string): Promise<void> {
  const plan = planTensors(openCheckpoint(model), configOf(model), join(model, "config.json"), undefined);
  await exportGguf(plan, path, { force: false });
  await importGguf(planImport(path, "same"), back, { force: false });
}

Deno.test("export and import --dtype same give back the bytes, whatever the order and the dtypes of vectors", async () => {
  await inTemporary(async (temporary) => {
    const random = new Random(8);
    const models = ["tiny", "tiny with a head", "untied", "qwen2", "qwen3", "attention-bias", "rope-llama3"];
    for (const name of models) {
      for (const dtype of ["BF16", "F16", "F32"] as const) {
        const at = join(temporary, `${name}-${dtype}`);
        const tiny = name.startsWith("tiny");
        const float = shuffled(at, tiny ? TINY : join(MODELS, name), dtype, random, name === "tiny with a head");
        // The columns of the others are no multiple of 32.
        for (const bits of tiny ? [0, 4, 8] : [0]) {
          const model = bits === 0 ? float : await quantizeTo(`${at}-q${bits}`, float, bits);
          const back = `${at}-${bits}-back`;
          await roundTrip(model, `${at}-${bits}.gguf`, back);
          const [found, wanted] = [back, model].map((directory) => Deno.readFileSync(join(directory, WEIGHTS)));
          assertEquals(headerText(found), headerText(wanted), back);
          assertEquals(digest(found), digest(wanted), back);
        }
      }
    }
  });
});

Deno.test("import takes the order and the dtypes of rabbit.tensors as far as they fit, and by name what it lacks", async () => {
  await inTemporary(async (temporary) => {
    const { metadata, tensors, data } = readGguf(MIXED);
    const path = join(temporary, "x.gguf");
    const names = entriesOf(await imported()).map(({ name }) => name);
    assertEquals(names, names.toSorted());
    const [norm, head, embedding] = ["model.norm.weight", "lm_head.weight", "model.embed_tokens.weight"];
    const rest = names.filter((name) => ![norm, head].includes(name));
    const values = [`${norm} F16`, "stranger BF16", `${head} Q4B32`, "", " ", `${norm}`];
    const file = entriesOf(await imported({ type: "string", values }));
    assertEquals(file.map(({ name }) => name), [norm, head, ...rest]);
    // The order is all that it changes: every tensor is what it is without the key.
    assertEquals(file.toSorted((a, b) => a.name < b.name ? -1 : 1), entriesOf(await imported()));
    const some = await imported({ type: "string", values: [`${embedding} BF16`] });
    assertEquals(entriesOf(some)[0].name, embedding);
    write(temporary, { "x.gguf": withKey({ type: "u32", value: 1 }) });
    assertThrows(
      () => planImport(path),
      CheckpointError,
      `${path}: key "rabbit.tensors": expected an array of string, found u32 1`,
    );

    function withKey(value?: Value): Uint8Array {
      const changed = new Map(metadata);
      if (value !== undefined) changed.set("rabbit.tensors", value);
      return concat(serializeGguf(changed, tensors), data.slice(tensors[0].offset));
    }

    async function imported(value?: Value): Promise<Uint8Array> {
      write(temporary, { "x.gguf": withKey(value) });
      const out = join(temporary, "out");
      await importGguf(planImport(path), out, { force: false });
      const bytes = Deno.readFileSync(join(out, WEIGHTS));
      Deno.removeSync(out, { recursive: true });
      return bytes;
    }
  });
});

Deno.test("import --dtype same gives no vector a recorded dtype that does not hold its values", async () => {
  await inTemporary(async (temporary) => {
    const model = shuffled(join(temporary, "m"), TINY, "BF16", new Random(9));
    const path = join(temporary, "x.gguf");
    await roundTrip(model, path, join(temporary, "back"));
    const { metadata, tensors, data } = readGguf(path);
    const wanted = entriesOf(Deno.readFileSync(join(model, WEIGHTS)));
    for (
      const [noted, kept] of [["BF16", ["BF16"]], ["F16", ["BF16", "F16"]], ["F32", []], ["F64", ["BF16"]]] as const
    ) {
      const values = wanted.map(({ name }) => `${name} ${noted}`);
      const changed = new Map(metadata).set("rabbit.tensors", { type: "string", values });
      write(temporary, { "y.gguf": concat(serializeGguf(changed, tensors), data.slice(tensors[0].offset)) });
      const out = join(temporary, noted);
      await importGguf(planImport(join(temporary, "y.gguf"), "same"), out, { force: false });
      for (const [n, { name, dtype, shape }] of entriesOf(Deno.readFileSync(join(out, WEIGHTS))).entries()) {
        assertEquals(name, wanted[n].name);
        if (shape.length === 2) assertEquals(dtype, "BF16");
        // Values that BF16 holds are held by F16 too; nothing is noted with F64, which GGUF does not have.
        else {
          const fits = (kept as readonly string[]).includes(wanted[n].dtype);
          assertEquals([name, dtype], [name, fits ? (noted === "F64" ? "BF16" : noted) : "F32"]);
        }
      }
    }
  });
});

Deno.test("rabbit export writes the tokenizer, and import gives it back", async () => {
  await inTemporary(async (temporary) => {
    const model = withTokenizer(join(temporary, "model"), {
      post_processor: {
        type: "TemplateProcessing",
        single: [{ SpecialToken: { id: "<|end|>", type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }],
        special_tokens: { "<|end|>": { id: "<|end|>", ids: [310], tokens: ["<|end|>"] } },
      },
    });
    write(model, {
      "tokenizer_config.json": JSON.stringify({ eos_token: { content: "<|end|>" }, chat_template: "old" }),
      "chat_template.jinja": "{{ messages }}",
    });
    const path = join(temporary, "x.gguf");
    const [line] = await lines(0, "export", "--in", model, "--gguf", path);
    assert(line.endsWith(" type=BF16 architecture=llama tokenizer=gpt-2"), line);
    const { metadata } = readGguf(path);
    const value = (key: string) => {
      const found = metadata.get(key);
      return found && ("values" in found ? Array.from(found.values) : found.value);
    };
    const tokens = value("tokenizer.ggml.tokens") as string[];
    const types = value("tokenizer.ggml.token_type") as number[];
    assertEquals([tokens.length, types.length], [320, 320]);
    assertEquals(tokens.slice(309), [
      "<unused309>",
      "<|end|>",
      "<tool>",
      ...[...Array(8).keys()].map((n) => `[PAD${312 + n}]`),
    ]);
    assertEquals(types.slice(308), [1, 1, 3, 4, 5, 5, 5, 5, 5, 5, 5, 5]);
    assertEquals(value("tokenizer.ggml.merges"), ["h e"]);
    assertEquals([value("tokenizer.ggml.model"), value("tokenizer.ggml.pre")], ["gpt2", "gpt-2"]);
    assertEquals([value("tokenizer.ggml.add_bos_token"), value("tokenizer.ggml.add_eos_token")], [true, false]);
    const { bos_token_id, eos_token_id } = json(join(TINY, "config.json"));
    assertEquals(value("tokenizer.ggml.bos_token_id"), bos_token_id);
    assertEquals([value("tokenizer.ggml.eos_token_id"), value("tokenizer.ggml.eot_token_id")], [310, eos_token_id]);
    assertEquals(value("tokenizer.chat_template"), "{{ messages }}");

    const back = join(temporary, "back");
    await lines(0, "import", "--gguf", path, "--out", back);
    const texts = ["Hello 123, the\n\n  world's end", "<|end|> he <tool>!", "h e"];
    const [a, b] = [(await loadTokenizer(model, "encode"))!, (await loadTokenizer(back, "encode"))!];
    for (const text of texts) {
      assertEquals(b.encode(text), a.encode(text), text);
      assertEquals(b.decode(b.encode(text)), a.decode(a.encode(text)));
    }
    const settings = json(join(back, "tokenizer_config.json"));
    assertEquals([settings.eos_token, settings.chat_template], ["<|end|>", "{{ messages }}"]);
    assertEquals(json(join(back, "config.json")).eos_token_id, [310, eos_token_id]);
  });
});

Deno.test("rabbit export names the splitting of a tokenizer as llama.cpp does", async () => {
  await inTemporary(async (temporary) => {
    const bytes = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false };
    // As Llama 3 and Qwen 2 have them in their tokenizer.json.
    const split = (digits: string) => ({
      type: "Sequence",
      pretokenizers: [{
        type: "Split",
        pattern: {
          Regex:
            `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|` +
            "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        },
        behavior: "Isolated",
        invert: false,
      }, bytes],
    });
    const digits = {
      type: "Sequence",
      pretokenizers: [{ type: "Digits", individual_digits: true }, { ...bytes, use_regex: true }],
    };
    const model = (more: object) => ({ type: "BPE", vocab: { a: 0, b: 1 }, merges: [], ...more });
    const cases: [string, Record<string, unknown>][] = [
      ["smollm", { pre_tokenizer: digits, model: model({}) }],
      ["llama-bpe", { pre_tokenizer: split("\\p{N}{1,3}"), model: model({ ignore_merges: true }) }],
      ["smaug-bpe", { pre_tokenizer: split("\\p{N}{1,3}"), model: model({ ignore_merges: false }) }],
      ["qwen2", { pre_tokenizer: split("\\p{N}"), normalizer: { type: "NFC" }, model: model({}) }],
    ];
    for (const [name, tokenizer] of cases) {
      const path = join(temporary, `${name}.gguf`);
      const directory = withTokenizer(join(temporary, name), { added_tokens: [], ...tokenizer });
      const [line] = await lines(0, "export", "--in", directory, "--gguf", path);
      assert(line.endsWith(` tokenizer=${name}`), line);
    }
    const odd = withTokenizer(join(temporary, "odd"), { pre_tokenizer: split("\\p{N}{1,2}") });
    const { code, err } = await run("export", "--in", odd, "--gguf", join(temporary, "odd.gguf"));
    assertEquals(code, 2);
    assert(
      err.includes(`${odd}/tokenizer.json: pre_tokenizer: llama.cpp has no known name for "Split`),
      err,
    );
    assert(err.endsWith("if it has one, give it with --pre\n"), err);
    const named = await run("export", "--in", odd, "--gguf", join(temporary, "odd.gguf"), "--pre", "grok-2");
    assertMatch(named.out, / tokenizer=grok-2\n/);
    const warning = (doubt: string) => `rabbit: warning: export: pre-tokenizer ${doubt}\n`;
    const unknown = "rabbit has no name for the tokenizer's";
    const refuses = "rabbit does not know this name, and import refuses it";
    assertEquals(named.err, warning(`"grok-2": ${unknown}; ${refuses}`));
    const usual = withTokenizer(join(temporary, "usual"), { added_tokens: [], ...cases[0][1] });
    const [own, other] = ["smollm", "qwen2"];
    const risk = "llama.cpp may divide texts into other tokens";
    for (
      const [directory, pre, err] of [
        [odd, other, warning(`"${other}": ${unknown}; ${risk}`)],
        [usual, other, warning(`"${other}": the tokenizer's is ${own}; ${risk}`)],
        [usual, "foo", warning(`"foo": the tokenizer's is ${own}; ${refuses}`)],
        [usual, own, ""],
      ]
    ) {
      const path = join(temporary, "doubt.gguf");
      const ran = await run("export", "--in", directory, "--gguf", path, "--pre", pre, "--force");
      assertEquals([ran.code, ran.err], [0, err]);
    }
    // Which import does not know, so that it brings the weights alone.
    const back = join(temporary, "back");
    const imported = await run("import", "--gguf", join(temporary, "odd.gguf"), "--out", back);
    assertEquals([imported.code, tree(back)], [0, ["config.json", WEIGHTS]]);
    assert(imported.err.includes('its pre-tokenizer ("grok-2") is not supported'), imported.err);
  });
});

/** SentencePiece's order of a small vocabulary: what is merged earlier has the higher score. */
const PIECES = [
  "<unk>",
  "<s>",
  "</s>",
  "<0x0A>",
  "<0x21>",
  "\u2581a",
  "ab",
  "\u2581ab",
  "abc",
  "\u2581",
  "a",
  "b",
  "c",
];
const MERGES = ["\u2581 a", "a b", "\u2581 ab", "\u2581a b", "ab c"];

function sentencePiece(directory: string, changes: Record<string, unknown> = {}, merges = MERGES): string {
  const bos = { SpecialToken: { id: "<s>", type_id: 0 } };
  const template = [bos, { Sequence: { id: "A", type_id: 0 } }];
  const replace = (from: string, content: string) => ({ type: "Replace", pattern: { String: from }, content });
  return withTokenizer(directory, {
    added_tokens: PIECES.slice(0, 3).map((content, id) => ({ id, content, special: true })),
    normalizer: {
      type: "Sequence",
      normalizers: [{ type: "Prepend", prepend: "\u2581" }, replace(" ", "\u2581")],
    },
    pre_tokenizer: null,
    post_processor: {
      type: "TemplateProcessing",
      single: template,
      pair: template,
      special_tokens: { "<s>": { id: "<s>", ids: [1], tokens: ["<s>"] } },
    },
    decoder: {
      type: "Sequence",
      decoders: [
        replace("\u2581", " "),
        { type: "ByteFallback" },
        { type: "Fuse" },
        { type: "Strip", content: " ", start: 1, stop: 0 },
      ],
    },
    model: {
      type: "BPE",
      unk_token: "<unk>",
      fuse_unk: true,
      byte_fallback: true,
      vocab: Object.fromEntries(PIECES.map((piece, id) => [piece, id])),
      merges,
    },
    ...changes,
  });
}

Deno.test("rabbit export writes SentencePiece's BPE with scores, and import gives its merges back", async () => {
  await inTemporary(async (temporary) => {
    const model = sentencePiece(join(temporary, "model"));
    const path = join(temporary, "x.gguf");
    const [line] = await lines(0, "export", "--in", model, "--gguf", path);
    assert(line.endsWith(" tokenizer=llama"), line);
    const { metadata } = readGguf(path);
    const list = (key: string) => {
      const value = metadata.get(`tokenizer.ggml.${key}`);
      return value && ("values" in value ? Array.from(value.values).slice(0, PIECES.length) : value.value);
    };
    assertEquals([list("model"), list("add_space_prefix"), list("add_bos_token")], ["llama", true, true]);
    assertEquals(list("tokens"), PIECES);
    assertEquals(list("token_type"), [2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1, 1, 1]);
    const scores = list("scores") as number[];
    // The products in the order of their merges, before all that nothing gives.
    const order = ["\u2581a", "ab", "\u2581ab", "abc"].map((piece) => scores[PIECES.indexOf(piece)]);
    assertEquals(order, order.toSorted((a, b) => b - a));
    assertEquals(new Set(order).size, 4);
    assert(scores.slice(9).every((score) => score < order[3]));
    assertEquals(metadata.has("tokenizer.ggml.merges"), false);

    const back = join(temporary, "back");
    await lines(0, "import", "--gguf", path, "--out", back);
    assertEquals(tree(back), ["config.json", WEIGHTS, "tokenizer.json", "tokenizer_config.json"]);
    const tokenizer = json(join(back, "tokenizer.json"));
    assertEquals(tokenizer.model.merges.toSorted(), MERGES.toSorted());
    assertEquals([tokenizer.model.byte_fallback, tokenizer.model.unk_token], [true, "<unk>"]);
    const { encode, decode } = (await loadTokenizer(back, "encode"))!;
    // By hand: the space in front, the earliest merges first, a byte where no token is.
    assertEquals(encode("ab abc!\n"), [7, 7, 12, 4, 3]);
    assertEquals(decode([7, 7, 12, 4, 3]), "ab abc!\n");
  });
});

Deno.test("rabbit export refuses merges and normalizers that SentencePiece does not have", async () => {
  await inTemporary(async (temporary) => {
    const out = ["--gguf", join(temporary, "x.gguf")];
    const cases: [string, Record<string, unknown>, string[] | undefined, string][] = [
      [
        "apart",
        {},
        ["\u2581 ab", "ab c", "\u2581a b", "a b", "\u2581 a"],
        'merges: those that give "\u2581ab" are not adjacent, as SentencePiece\'s are',
      ],
      ["less", {}, MERGES.slice(0, 4), 'merges: none gives "abc", which SentencePiece would merge'],
      ["odd", {}, ["\u2581 a b"], 'merges: expected two words, found "\\"\u2581 a b\\""'],
      [
        "lower",
        { normalizer: { type: "Lowercase" } },
        undefined,
        'normalizer: llama.cpp has no equivalent of "{\\"type\\":\\"Lowercase\\"}"; ' +
        "move the tokenizer's files elsewhere to export the weights",
      ],
      ["spaces", { normalizer: null }, undefined, "normalizer: spaces are not replaced; llama.cpp replaces them"],
    ];
    for (const [name, changes, merges, message] of cases) {
      const model = sentencePiece(join(temporary, name), changes, merges);
      await refused(`${model}/tokenizer.json: ${message}`, "export", "--in", model, ...out);
    }
    const newer = sentencePiece(join(temporary, "newer"), {
      normalizer: null,
      pre_tokenizer: { type: "Metaspace", replacement: "\u2581", prepend_scheme: "never", split: false },
    });
    await lines(0, "export", "--in", newer, ...out);
    const { metadata } = readGguf(out[1]);
    assertEquals(metadata.get("tokenizer.ggml.add_space_prefix"), { type: "bool", value: false });
  });
});

Deno.test("rabbit export refuses what llama.cpp could not run, or would run otherwise", async () => {
  await inTemporary(async (temporary) => {
    const out = ["--gguf", join(temporary, "x.gguf")];
    const llama3 = variant(join(temporary, "llama3"), `${MODELS}/qwen2`, {
      config: {
        rope_scaling: {
          rope_type: "llama3",
          factor: 8,
          low_freq_factor: 1,
          high_freq_factor: 4,
          original_max_position_embeddings: 48,
        },
      },
    });
    await refused(
      `${llama3}/config.json: rope_scaling: llama3 is not supported by llama.cpp's qwen2; the model can't be exported`,
      ...["export", "--in", llama3, ...out],
    );
    const deep = variant(join(temporary, "deep"), TINY, { config: { num_hidden_layers: 3 } });
    await refused(
      `${deep}/${WEIGHTS}: tensor "model.layers.2.input_layernorm.weight": missing, although config.json calls for it`,
      ...["export", "--in", deep, ...out],
    );
    const shallow = variant(join(temporary, "shallow"), TINY, { config: { num_hidden_layers: 1 } });
    await refused(
      `${shallow}/${WEIGHTS}: tensor "model.layers.1.input_layernorm.weight": unexpected tensor: the ` +
        "LlamaForCausalLM that config.json calls for does not use it",
      ...["export", "--in", shallow, ...out],
    );
    const unigram = withTokenizer(join(temporary, "unigram"), { model: { type: "Unigram", vocab: [] } });
    await refused(
      `${unigram}/tokenizer.json: model.type: "Unigram" is not supported, only BPE; ` +
        "move the tokenizer's files elsewhere to export the weights alone",
      ...["export", "--in", unigram, ...out],
    );
    const more = Array.from({ length: 11 }, (_, n) => ({ id: 310 + n, content: `<${n}>`, special: true }));
    const long = withTokenizer(join(temporary, "long"), { added_tokens: more });
    await refused(
      `${long}/tokenizer.json: "<10>" has the id 320, but the model's vocabulary (config.json) ends at 319`,
      ...["export", "--in", long, ...out],
    );
    const twice = withTokenizer(join(temporary, "twice"), { added_tokens: [{ id: 319, content: "a", special: true }] });
    await refused(
      `${twice}/tokenizer.json: added_tokens[0]: expected the id 64 (its id elsewhere) for "a", found 319; ` +
        "move the tokenizer's files elsewhere to export the weights alone",
      ...["export", "--in", twice, ...out],
    );
    const q4 = await quantizeTo(join(temporary, "q4"), TINY, 4);
    const file = Deno.readFileSync(join(q4, WEIGHTS));
    const header = headerText(file);
    const name = "model.layers.0.mlp.down_proj.weight";
    const start = 8 + utf8(header).length;
    new DataView(file.buffer).setUint16(
      start + JSON.parse(header)[name].data_offsets[0] + (7 * 4 + 2) * 18,
      0x7c00,
      true,
    );
    Deno.writeFileSync(join(q4, WEIGHTS), file);
    await refused(
      `${q4}/${WEIGHTS}: tensor "${name}": scale: row 7 block 2: the scale is not finite; the file is damaged, make or download it again`,
      ...["export", "--in", q4, ...out],
    );
    const wide = join(temporary, "wide");
    const text = headerText(Deno.readFileSync(join(TINY, WEIGHTS)));
    const size = Deno.statSync(join(TINY, WEIGHTS)).size - 8 - utf8(text).length;
    const doubled = text.replaceAll("BF16", "F64").replace(
      /"data_offsets":\[(\d+), ?(\d+)\]/g,
      (_, a, b) => `"data_offsets":[${4 * a},${4 * b}]`,
    );
    write(wide, {
      [WEIGHTS]: container(doubled, new Uint8Array(4 * size)),
      "config.json": Deno.readTextFileSync(join(TINY, "config.json")),
    });
    await refused(
      `${wide}/${WEIGHTS}: tensor "model.embed_tokens.weight": dtype: llama.cpp has no F64 matrices; ` +
        "convert the checkpoint to BF16, or quantize it",
      ...["export", "--in", wide, ...out],
    );
    assertEquals(tree(temporary).filter((path) => path.includes("gguf") || path.includes("partial")), []);
  });
});

Deno.test("rabbit export replaces a file only with --force, and never its source", async () => {
  await inTemporary(async (temporary) => {
    const path = join(temporary, "x.gguf");
    Deno.writeTextFileSync(path, "old");
    await refused(`${path} exists already; --force replaces it`, "export", "--in", TINY, "--gguf", path);
    const device = join(temporary, "null");
    Deno.symlinkSync("/dev/null", device);
    for (const target of [temporary, device]) {
      await refused(
        `${target} is not a regular file; choose another name`,
        ...["export", "--in", TINY, "--gguf", target, "--force"],
      );
    }
    const model = withTokenizer(join(temporary, "m"), {});
    const own = join(model, WEIGHTS);
    Deno.symlinkSync(own, join(temporary, "link"));
    for (const target of [own, join(temporary, "link")]) {
      await refused(
        `${target} is a file of the checkpoint (${own}), which would be overwritten; choose another name`,
        ...["export", "--in", model, "--gguf", target, "--force"],
      );
    }
    const config = join(model, "config.json");
    const before = Deno.readTextFileSync(config);
    await refused(
      `${config} is a file of the checkpoint, which would be overwritten; choose another name`,
      ...["export", "--in", model, "--gguf", config, "--force"],
    );
    assertEquals(Deno.readTextFileSync(config), before);
    assertEquals(Deno.readTextFileSync(path), "old");
    await lines(0, "export", "--in", model, "--gguf", path, "--force");
    assertEquals(readGguf(path).tensors.length, 20);
  });
});

// ---------------------------------------------------------------- import

Deno.test("rabbit import dequantizes every type to the nearest BF16, and keeps norms that BF16 can't hold", async () => {
  await inTemporary(async (temporary) => {
    const out = join(temporary, "out");
    const [first, second] = await lines(0, "import", "--gguf", MIXED, "--out", out);
    const path = join(out, WEIGHTS);
    assertEquals(
      first,
      `IMPORT model=${path} bytes=${Deno.statSync(path).size} tensors=12 dtype=BF16 architecture=llama files=6`,
    );
    assertEquals(second, `IMPORT digest=${mixed.model}`);
    assertEquals(await sha256(path), mixed.model);
    assertEquals(json(join(out, "config.json")), mixed.config);
    assertEquals(json(join(out, "vocab.json")), mixed.vocab);
    assertEquals(Deno.readTextFileSync(join(out, "merges.txt")), "#version: 0.2\na b\nĠ a\n");
    const tokenizer = json(join(out, "tokenizer.json"));
    assertEquals(tokenizer.model.vocab, mixed.vocab);
    assertEquals(tokenizer.added_tokens.map(({ id, special }: { id: number; special: boolean }) => [id, special]), [
      [0, true],
      [1, true],
      [2, false],
    ]);
    // Added tokens, bytes, single digits, and a merge.
    const { encode } = (await loadTokenizer(out, "encode"))!;
    assertEquals(encode("<tool>ab 12<|im_end|> ab"), [2, 40, 39, 4, 5, 1, 39, 40]);
    const settings = json(join(out, "tokenizer_config.json"));
    assertEquals([settings.bos_token, settings.eos_token, settings.chat_template, settings.add_bos_token], [
      "<|endoftext|>",
      "<|im_end|>",
      "{{ messages }}",
      true,
    ]);
    // The order of the vocabulary is that of the ids, whatever JavaScript does with keys that are numbers.
    assert(
      Deno.readTextFileSync(join(out, "vocab.json")).startsWith('{"<|endoftext|>":0,"<|im_end|>":1,"<tool>":2,"0":3,'),
    );
  });
});

Deno.test("rabbit import --dtype f32 keeps every weight", async () => {
  await inTemporary(async (temporary) => {
    await lines(0, "import", "--gguf", MIXED, "--out", temporary, "--dtype", "f32");
    assertEquals(digestsOf(join(temporary, WEIGHTS)), mixed.f32);
    assertEquals(json(join(temporary, "config.json")).torch_dtype, "float32");
  });
});

Deno.test("planImport refuses a window that is no count", async () => {
  await inTemporary((temporary) => {
    const { metadata, tensors, data } = readGguf(MIXED);
    const path = join(temporary, "x.gguf");
    const values: [Value, string][] = [
      [{ type: "u64", value: 2n ** 64n - 1n }, "u64 18446744073709551615"],
      [{ type: "i64", value: -(2n ** 63n) }, "i64 -9223372036854775808"],
      [{ type: "f32", value: 1.5 }, "f32 1.5"],
      [{ type: "string", value: "4096\n" }, 'string "4096\\n"'],
      [{ type: "bool", value: true }, "bool true"],
    ];
    for (const [value, found] of values) {
      const changed = new Map(metadata).set("llama.attention.sliding_window", value);
      Deno.writeFileSync(path, concat(serializeGguf(changed, tensors), data.slice(tensors[0].offset)));
      const error = assertThrows(() => planImport(path), CheckpointError);
      const key = 'key "llama.attention.sliding_window"';
      assertEquals(error.message, `${path}: ${key}: expected a whole number of at least 1, found ${found}`);
    }
  });
});

Deno.test("planImport refuses SentencePiece tokens that are too long to be put together from every two parts", async () => {
  await inTemporary((temporary) => {
    const { metadata, tensors, data } = readGguf(MIXED);
    const path = join(temporary, "x.gguf");
    const values = Array.from({ length: 48 }, (_, n) => `${n}`);
    const plan = (token: string) => {
      const changed = new Map(metadata)
        .set("tokenizer.ggml.model", { type: "string", value: "llama" })
        .set("tokenizer.ggml.tokens", { type: "string", values: [token, ...values.slice(1)] })
        .set("tokenizer.ggml.scores", { type: "f32", values: new Float32Array(48) });
      Deno.writeFileSync(path, concat(serializeGguf(changed, tensors), data.slice(tensors[0].offset)));
      return planImport(path);
    };
    assertEquals(plan("x".repeat(1000)).files.size, 3);
    assertThrows(
      () => plan("x".repeat(1_000_000)),
      CheckpointError,
      `${path}: key "tokenizer.ggml.tokens": "${"x".repeat(200)}…" has 1000000 characters; the limit is 1000`,
    );
  });
});

Deno.test("rabbit import --dtype same refuses a mixture", async () => {
  await inTemporary(async (temporary) => {
    await refused(
      `${MIXED}: tensor "blk.0.attn_q.weight": type: Q4_1 mixed with Q8_0: the dtype "same" requires matrices that are all Q8_0, ` +
        "all Q4_0, or all floats",
      ...["import", "--gguf", MIXED, "--out", join(temporary, "out"), "--dtype", "same"],
    );
    assertEquals(tree(temporary), []);
  });
});

/** mixed.gguf with `from` replaced by `to`, which has as many bytes. */
function changed(directory: string, from: string, to: string | Uint8Array, more = 0): string {
  const file = Deno.readFileSync(MIXED);
  const text = new TextDecoder("latin1").decode(file);
  const at = text.indexOf(from);
  assert(at > 0, from);
  file.set(typeof to === "string" ? utf8(to) : to, at + more);
  const path = join(directory, "changed.gguf");
  Deno.writeFileSync(path, file);
  return path;
}

Deno.test("rabbit import refuses what the decoder does not know, naming key or tensor", async () => {
  await inTemporary(async (temporary) => {
    const out = ["--out", join(temporary, "out")];
    const u32 = (n: number) => Uint8Array.of(n & 255, n >> 8, 0, 0);
    const after = (key: string) => key.length + 4;
    const cases: [string, string | Uint8Array, number, string][] = [
      [
        "llama\x1a",
        "gemma",
        0,
        'key "general.architecture": "gemma" is not supported; rabbit imports llama, qwen2, qwen3',
      ],
      [
        "llama.block_count",
        u32(2),
        after("llama.block_count"),
        'tensor "blk.1.attn_norm.weight": missing, although the metadata calls for it',
      ],
      ["llama.block_count", "llama.block_curse", 0, 'key "llama.block_count": is missing'],
      [
        "llama.feed_forward_length",
        u32(64),
        after("llama.feed_forward_length"),
        'tensor "blk.0.ffn_gate.weight": shape: [96,64], but the metadata calls for [64,64]',
      ],
      [
        "llama.rope.dimension_count",
        u32(8),
        after("llama.rope.dimension_count"),
        'key "llama.rope.dimension_count": 8, but the heads have 16; the decoder needs them equal',
      ],
      [
        "blk.0.attn_v.weight",
        "blk.0.attn_x.weight",
        0,
        'tensor "blk.0.attn_v.weight": missing, although the metadata calls for it',
      ],
    ];
    for (const [from, to, more, message] of cases) {
      if (from === "llama\x1a") {
        const path = changed(temporary, "general.architecture", to, after("general.architecture") + 8);
        await refused(`${path}: ${message}`, "import", "--gguf", path, ...out);
        continue;
      }
      const path = changed(temporary, from, to, more);
      await refused(`${path}: ${message}`, "import", "--gguf", path, ...out);
    }
    // A type that is known by its size alone: a block of NVFP4 is as long as two of Q4_0.
    const name = "blk.0.attn_output.weight";
    const path = changed(temporary, name, u32(40), name.length + 4 + 16);
    await refused(
      `${path}: tensor "${name}": type: NVFP4 can't be imported (F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, ` +
        "MXFP4, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS can); make one of these with llama-quantize --allow-requantize",
      ...["import", "--gguf", path, ...out],
    );
    await refused(`${TINY}: a directory; give the GGUF file`, "import", "--gguf", TINY, ...out);
    await refused(
      `${TINY}/config.json: not a GGUF file: it begins with "{\\n  "`,
      ...["import", "--gguf", join(TINY, "config.json"), ...out],
    );
    await refused(
      `cannot open ${temporary}/none: no such file or directory`,
      ...["import", "--gguf", join(temporary, "none"), ...out],
    );
    assertEquals(tree(temporary), ["changed.gguf"]);
  });
});

Deno.test("rabbit import refuses a weight that is not finite, or that the dtype can't hold", async () => {
  await inTemporary(async (temporary) => {
    const { tensors } = readGguf(MIXED);
    const out = join(temporary, "out");
    const path = join(temporary, "x.gguf");
    const spoil = (name: string, at: number, bytes: number[]) => {
      const file = Deno.readFileSync(MIXED);
      file.set(bytes, tensors.find((tensor) => tensor.name === name)!.offset + at);
      Deno.writeFileSync(path, file);
    };
    // The second block of row 3 of Q8_0: 2 blocks of 34 bytes a row; its scale is a NaN.
    spoil("token_embd.weight", 3 * 68 + 34, [0, 0x7e]);
    await refused(
      `${path}: tensor "token_embd.weight": row 3 column 32: the weight is not finite; the file is damaged, make or download it again`,
      ...["import", "--gguf", path, "--out", out],
    );
    // Row 1, column 2 of F32: the largest finite value, which is nearer to BF16's infinity.
    spoil("output.weight", 4 * 66, [0xff, 0xff, 0x7f, 0x7f]);
    await refused(
      `${path}: tensor "output.weight": row 1 column 2: 3.4028234663852886e+38 overflows BF16; use --dtype f32`,
      ...["import", "--gguf", path, "--out", out],
    );
    spoil("output.weight", 4 * 66, [0, 0, 0x80, 0x47]);
    await refused(
      `${path}: tensor "output.weight": row 1 column 2: 65536 overflows F16; use --dtype f32`,
      ...["import", "--gguf", path, "--out", out, "--dtype", "f16"],
    );
    assertEquals(tree(temporary), ["x.gguf"]);
  });
});

Deno.test("rabbit import replaces files only with --force, and leaves no tokenizer of another model", async () => {
  await inTemporary(async (temporary) => {
    const vocabulary = join(temporary, "vocab.json");
    Deno.writeTextFileSync(vocabulary, "old");
    await refused(`${vocabulary} exists already; --force replaces it`, "import", "--gguf", MIXED, "--out", temporary);
    assertEquals([tree(temporary), Deno.readTextFileSync(vocabulary)], [["vocab.json"], "old"]);
    const stale = join(temporary, "tokenizer.model");
    Deno.writeTextFileSync(stale, "old");
    await refused(
      `${stale} exists, and the new checkpoint has no such file; remove it first or choose another directory`,
      ...["import", "--gguf", MIXED, "--out", temporary, "--force"],
    );
    Deno.removeSync(stale);
    await lines(0, "import", "--gguf", MIXED, "--out", temporary, "--force");
    assertEquals(await sha256(join(temporary, WEIGHTS)), mixed.model);
    const inside = join(temporary, "source.gguf");
    Deno.renameSync(join(temporary, WEIGHTS), join(temporary, "old"));
    Deno.copyFileSync(MIXED, inside);
    Deno.symlinkSync(inside, join(temporary, WEIGHTS));
    await refused(
      `${temporary}/${WEIGHTS} is the source itself (${inside}), which would be overwritten; choose another directory`,
      ...["import", "--gguf", inside, "--out", temporary, "--force"],
    );
  });
});

Deno.test("rabbit import --force replaces nothing when one file can't be replaced", async () => {
  await inTemporary(async (out) => {
    write(out, { [WEIGHTS]: "old", "vocab.json": "old" });
    Deno.mkdirSync(join(out, "config.json"));
    await refused(
      `${out}/config.json is not a regular file and can't be replaced; choose another directory`,
      ...["import", "--gguf", MIXED, "--out", out, "--force"],
    );
    assertEquals(tree(out), ["config.json/", WEIGHTS, "vocab.json"]);
    assertEquals([WEIGHTS, "vocab.json"].map((name) => Deno.readTextFileSync(join(out, name))), ["old", "old"]);
  });
});

Deno.test("rabbit import of damaged files ends in one line", async () => {
  await inTemporary(async (temporary) => {
    const file = Deno.readFileSync(MIXED);
    const { offset } = readGguf(MIXED).tensors[0];
    const path = join(temporary, "x.gguf");
    for (const [n, at] of [9, 100, 416, 700, 94, offset - 100, offset - 300].entries()) {
      const bytes = n % 2
        ? file.slice(0, at)
        : concat(file.subarray(0, at), Uint8Array.of(0xee), file.subarray(at + 1));
      Deno.writeFileSync(path, bytes);
      const { code, out, err } = await run("import", "--gguf", path, "--out", join(temporary, "out"));
      assertEquals([code, out], [2, ""], `byte ${at}: ${err}`);
      assert(/^rabbit: import: [^\n]+\n$/.test(err) && err.includes(path) && !err.includes("internal"), err);
    }
  });
});

Deno.test("an interrupted export or import leaves nothing behind", async () => {
  await inTemporary(async (temporary) => {
    // One matrix of 1 GB, sparse in the file system: it is there at once, and takes long enough to be met.
    const rows = 8_000_000;
    const model = join(temporary, "m");
    const { num_hidden_layers: _, ...config } = json(join(TINY, "config.json"));
    const shapes: [string, number[]][] = [
      ["model.embed_tokens.weight", [rows, 64]],
      ["model.norm.weight", [64]],
      ["model.layers.0.input_layernorm.weight", [64]],
      ["model.layers.0.post_attention_layernorm.weight", [64]],
      ...["q", "o"].map((p): [string, number[]] => [`model.layers.0.self_attn.${p}_proj.weight`, [64, 64]]),
      ...["k", "v"].map((p): [string, number[]] => [`model.layers.0.self_attn.${p}_proj.weight`, [32, 64]]),
      ...["gate", "up"].map((p): [string, number[]] => [`model.layers.0.mlp.${p}_proj.weight`, [128, 64]]),
      ["model.layers.0.mlp.down_proj.weight", [64, 128]],
    ];
    let at = 0;
    const header = Object.fromEntries(shapes.map(([name, shape]) => {
      const data_offsets = [at, at += 2 * shape.reduce((a, b) => a * b, 1)];
      return [name, { dtype: "BF16", shape, data_offsets }];
    }));
    const start = container(JSON.stringify(header));
    write(model, {
      [WEIGHTS]: start,
      "config.json": JSON.stringify({ ...config, num_hidden_layers: 1, vocab_size: rows }),
    });
    Deno.truncateSync(join(model, WEIGHTS), start.length + at);
    const path = join(temporary, "x.gguf");
    const out = join(temporary, "out");
    const plan = planTensors(openCheckpoint(model), configOf(model), join(model, "config.json"), undefined);
    Deno.writeFileSync(path, plan.header);
    Deno.truncateSync(path, plan.bytes);
    for (
      const [args, directory] of [
        [["export", "--in", model, "--gguf", join(temporary, "y.gguf")], temporary],
        [["import", "--gguf", path, "--out", out], out],
      ] as const
    ) {
      const child = command(args).spawn();
      const partial = () =>
        sizeOf(directory) !== undefined && tree(directory).some((name) => name.endsWith(".partial"));
      let running = true;
      child.status.then(() => running = false);
      while (running && !partial()) await pause(5);
      if (running) child.kill("SIGINT");
      const { code, err } = text(await child.output());
      assertEquals([code, err], [130, `rabbit: ${args[0]}: interrupted by SIGINT; nothing was written\n`]);
    }
    assertEquals(tree(temporary), ["m/", "m/config.json", `m/${WEIGHTS}`, "x.gguf"]);
  });
});

// ---------------------------------------------------------------- files from strangers

/** `json` with one value somewhere in it replaced by another or taken away. */
function mutated(json: unknown, random: Random): unknown {
  const copy = structuredClone(json);
  let at = copy as Record<string, unknown>;
  while (true) {
    const key = random.pick(Object.keys(at));
    const next = at[key];
    const inner = typeof next === "object" && next !== null && Object.keys(next).length > 0;
    if (inner && random.below(4) > 0) {
      at = next as Record<string, unknown>;
      continue;
    }
    const value = random.pick([
      null,
      1,
      -1,
      1e300,
      "x",
      "",
      "a b",
      true,
      [],
      {},
      [null],
      { type: "ByteLevel" },
      undefined,
    ]);
    if (value === undefined) delete at[key];
    else at[key] = value;
    return copy;
  }
}

for (const kind of ["byte-level", "SentencePiece"] as const) {
  Deno.test(`readVocabulary of a damaged ${kind} tokenizer: a vocabulary that can be written, or a CheckpointError`, async () => {
    await inTemporary((temporary) => {
      const directory = join(temporary, "model");
      if (kind === "SentencePiece") sentencePiece(directory);
      else {
        withTokenizer(directory, {
          post_processor: { type: "Sequence", processors: [{ type: "TemplateProcessing", single: [{}, {}] }] },
          pre_tokenizer: {
            type: "Sequence",
            pretokenizers: [{ type: "Digits", individual_digits: true }, { type: "ByteLevel" }],
          },
          normalizer: { type: "Sequence", normalizers: [{ type: "NFC" }] },
        });
      }
      const tokenizer = json(join(directory, "tokenizer.json"));
      const settings = {
        bos_token: { content: "a" },
        eos_token: "b",
        add_bos_token: true,
        chat_template: [{ name: "default", template: "{{ x }}" }],
      };
      const random = new Random(kind.length);
      const tally = new Tally(`tokenizer.json for export (${kind})`);
      for (let round = 0; round < rounds(400); round++) {
        const which = random.below(4);
        write(directory, {
          "tokenizer.json": JSON.stringify(which > 0 ? mutated(tokenizer, random) : tokenizer),
          "tokenizer_config.json": JSON.stringify(which === 0 ? mutated(settings, random) : settings),
        });
        const config = mutated({ eos_token_id: [1, 2], bos_token_id: 0 }, random);
        const start = performance.now();
        let good = true;
        try {
          const vocabulary = readVocabulary(directory, 320, config)!;
          serializeGguf(new Map(vocabularyMetadata(vocabulary)), []);
        } catch (error) {
          if (!(error instanceof CheckpointError)) throw error;
          good = false;
        }
        tally.add(good, start);
      }
      tally.print();
      assert(tally.accepted > 20 && tally.accepted < rounds(400), String(tally.accepted));
    });
  });
}

Deno.test("planImport of changed metadata: a plan, or a CheckpointError", async () => {
  await inTemporary((temporary) => {
    const { metadata, tensors, data } = readGguf(MIXED);
    const random = new Random(3);
    const path = join(temporary, "x.gguf");
    const weights = data.slice(tensors[0].offset);
    const values: Value[] = [
      { type: "u32", value: 0 },
      { type: "u32", value: 3 },
      { type: "i64", value: -1 },
      { type: "u64", value: 2n ** 64n - 1n },
      { type: "f32", value: NaN },
      { type: "f64", value: 1e300 },
      { type: "bool", value: true },
      { type: "string", value: "llama" },
      { type: "string", value: "__proto__" },
      { type: "string", values: [] },
      { type: "i32", values: [1, 2] },
      { type: "string", values: Array.from({ length: 48 }, (_, n) => `${n}`) },
      { type: "f32", values: Array.from({ length: 48 }, () => NaN) },
      { type: "i32", values: Array.from({ length: 48 }, () => 77) },
    ];
    const keys = [
      ...metadata.keys(),
      "tokenizer.ggml.scores",
      "tokenizer.ggml.add_space_prefix",
      "llama.rope.scaling.type",
      "llama.rope.scaling.factor",
      "llama.expert_count",
      "llama.attention.sliding_window",
      "rabbit.tensors",
    ];
    const tally = new Tally("GGUF metadata");
    for (let round = 0; round < rounds(600); round++) {
      const changed = new Map(metadata);
      for (let count = 1 + random.below(2); count > 0; count--) {
        if (random.below(5) === 0) changed.delete(random.pick(keys));
        else changed.set(random.pick(keys), random.pick(values));
      }
      changed.delete("general.alignment");
      Deno.writeFileSync(path, concat(serializeGguf(changed, tensors), weights));
      const start = performance.now();
      let good = true;
      try {
        const { files, header } = planImport(path);
        assert(header.length > 0);
        for (const [name, text] of files) if (name.endsWith(".json")) JSON.parse(text);
      } catch (error) {
        if (!(error instanceof CheckpointError)) throw error;
        good = false;
      }
      tally.add(good, start);
    }
    tally.print();
    assert(tally.accepted > 50 && tally.accepted < rounds(600), String(tally.accepted));
  });
});
