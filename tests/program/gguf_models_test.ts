// GGUF files where commands take a checkpoint to read: what they say is what they say of the file's import.

import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path/join";
import { serializeGguf } from "../../lib/gguf/container.ts";
import { concat } from "../support/bytes.ts";
import { temporary } from "../support/files.ts";
import { fixture, IDS, json, MIXED, ROOT, TINY } from "../support/fixtures.ts";
import { readGguf } from "../support/gguf.ts";
import { quantizeTo, talkingModel } from "../support/models.ts";
import { done, lines, refused, run } from "../support/program.ts";
import { Page } from "../support/report_page.ts";

const SPLIT = `${ROOT}fixtures/gguf/superblocks-00001-of-00003.gguf`;
const DERIVED = `${ROOT}fixtures/gguf/derived.gguf`;

/** The tiny model with a byte-level vocabulary of printable ASCII and the space (Ġ), without merges. */
const VOCABULARY = Array.from({ length: 320 }, (_, n) => n < 94 ? String.fromCharCode(33 + n) : `<unused${n}>`);
VOCABULARY[94] = "Ġ";

const made = temporary();
const FLOAT = talkingModel(join(made, "float"), VOCABULARY);
const Q8 = await quantizeTo(join(made, "q8"), FLOAT, 8);
Deno.copyFileSync(join(FLOAT, "tokenizer.json"), join(Q8, "tokenizer.json"));
const [FLOAT_GGUF, Q8_GGUF] = [`${made}/float.gguf`, `${made}/q8.gguf`];
await done("export", "--quiet", FLOAT, FLOAT_GGUF, "--pre", "gpt-2");
await done("export", "--quiet", Q8, Q8_GGUF, "--pre", "gpt-2");
const TEXT = join(made, "text.txt");
Deno.writeTextFileSync(TEXT, fixture("metrics.json").text.text);

/** The lines without those of sizes and times. */
const answer = (all: readonly string[]) => all.filter((line) => !/^INFER (pinned|mapped|prefill|decode) /.test(line));

Deno.test("rabbit infer of a GGUF file says what it says of its import", async () => {
  for (const [n, path] of [SPLIT, DERIVED, MIXED].entries()) {
    const out = join(made, `import${n}`);
    await run("import", "--quiet", path, out, "--dtype", "f32");
    const args = ["--ids", "3 1 4", "--steps", "6", "--ignore-eos"];
    assertEquals(answer(await lines(0, "infer", path, ...args)), answer(await lines(0, "infer", out, ...args)), path);
  }
  const said = ["--prompt", "Hello, rabbit!", "--steps", "6"];
  for (const [path, checkpoint] of [[FLOAT_GGUF, FLOAT], [Q8_GGUF, Q8]]) {
    const found = await lines(0, "infer", path, ...said);
    assertEquals(answer(found), answer(await lines(0, "infer", checkpoint, ...said)));
    assert(found.some((line) => line.startsWith("INFER text text=")), found.join("\n"));
    const { tensors } = readGguf(path);
    assertEquals(found[0], `INFER pinned bytes=${tensors.reduce((sum, { bytes }) => sum + bytes, 0)}`);
  }
});

Deno.test("rabbit compare of a GGUF file says what it says of the checkpoint", async () => {
  assertEquals(
    await lines(0, "compare", FLOAT, Q8_GGUF, "--prompt", "Hello, rabbit!"),
    await lines(0, "compare", FLOAT, Q8, "--prompt", "Hello, rabbit!"),
  );
  const text = ["--text", TEXT, "--window", "64"];
  const wanted = await lines(0, "compare", FLOAT, Q8, ...text);
  assertEquals(await lines(0, "compare", FLOAT, Q8_GGUF, ...text), wanted);
  assertEquals(await lines(0, "compare", FLOAT_GGUF, Q8_GGUF, ...text), wanted);
  const parts = [];
  for (const part of ["1/2", "2/2"]) {
    const path = join(made, `${part[0]}.jsonl`);
    Deno.writeTextFileSync(path, await done("compare", FLOAT, Q8_GGUF, ...text, "--shard", part));
    parts.push(path);
  }
  assertEquals(await lines(0, "merge", ...parts), wanted);
  const [dry] = await lines(0, "compare", FLOAT, Q8_GGUF, ...text, "--dry-run");
  assert(dry.includes(" dry_run=true "), dry);
});

Deno.test("rabbit report of GGUF files measures the weights, and derives nothing", async () => {
  const file = join(made, "page.html");
  await done("report", TINY, DERIVED, await quantizeTo(join(made, "tiny8"), TINY, 8), "--out", file, ...IDS);
  const { data, errors } = new Page(Deno.readTextFileSync(file));
  assertEquals(errors, []);
  const [derived, q8] = data.quants;
  const { compare } = json(join(TINY, "expected.json")).q8;
  assertEquals([q8.equal, q8.different, q8.match], [20, 0, compare.match]);
  assertEquals([derived.equal, derived.different], [undefined, undefined]);
  assertEquals([derived.format, derived.bytes], ["Q8_0, Q4_0, F16, F32, BF16", Deno.statSync(DERIVED).size]);
  const types = new Map(readGguf(DERIVED).tensors.map(({ name, type, bytes }) => [name, { type: type.name, bytes }]));
  const embedding = data.tensors.find(({ name }) => name === "model.embed_tokens.weight")!;
  const { dtype, bytes, rms } = embedding.quants[0]!;
  assertEquals({ type: dtype, bytes }, types.get("token_embd.weight"));
  // Q8_0 and Q8B32 differ in few levels.
  assert(rms! > 0 && Math.abs(rms! / embedding.quants[1]!.rms! - 1) < 0.01, `${rms}`);
});

Deno.test("rabbit inspect lists the tensors of all parts of a GGUF file", async () => {
  const [first, ...found] = await lines(0, "inspect", SPLIT);
  const paths = [1, 2, 3].map((n) => SPLIT.replace("00001", `0000${n}`));
  const files = paths.map((path) => ({ path, ...readGguf(path) }));
  const shown = (path: string) => path.includes(" ") ? JSON.stringify(path) : path;
  const bytes = files.reduce((sum, { data }) => sum + data.length, 0);
  assertEquals(first, `INSPECT model=${shown(SPLIT)} bytes=${bytes} files=3 format=GGUF tensors=12 parameters=99072`);
  assertEquals(
    found,
    files.flatMap(({ path, tensors }) =>
      tensors.map(({ name, type, shape, bytes, offset }) =>
        `INSPECT tensor=${name} dtype=${type.name} shape=[${shape}] bytes=${bytes} offset=${offset} file=${shown(path)}`
      )
    ),
  );
});

Deno.test("commands refuse GGUF files as import does, in one line", async () => {
  const second = SPLIT.replace("00001", "00002");
  const cut = join(made, "cut.gguf");
  Deno.writeFileSync(cut, Deno.readFileSync(DERIVED).slice(0, -100));
  const { metadata, tensors, data } = readGguf(DERIVED);
  const changed = (name: string, key: string, value?: string) => {
    const path = join(made, name);
    const pairs = new Map(metadata);
    if (value === undefined) pairs.delete(key);
    else pairs.set(key, { type: "string", value });
    Deno.writeFileSync(path, concat(serializeGguf(pairs, tensors), data.subarray(tensors[0].offset)));
    return path;
  };
  const other = changed("other.gguf", "general.architecture", "gemma");
  const less = changed("less.gguf", "llama.block_count");
  for (const path of [second, cut, other, less]) {
    const { code, err } = await run("import", path, join(made, "never"));
    assertEquals(code, 2);
    const says = err.replace("rabbit: import: ", "").trimEnd();
    await refused(says, "infer", path, ...IDS);
    await refused(says, "compare", TINY, path, ...IDS);
    await refused(says, "report", TINY, path, ...IDS, "--out", join(made, "no.html"));
  }
});

Deno.test("commands that need a checkpoint's own bytes say what to do with a GGUF file", async () => {
  const says = `${DERIVED}: not a safetensors file but a GGUF file; convert it to a checkpoint with rabbit import`;
  const no = join(made, "no");
  await refused(says, "quantize", DERIVED, no);
  await refused(says, "export", DERIVED, `${no}.gguf`);
  await refused(says, "advise", DERIVED);
  await refused(
    `${Q8_GGUF}: type: quantized to Q8_0; the first checkpoint must be the float one`,
    ...["compare", Q8_GGUF, FLOAT],
  );
  await refused(
    `${FLOAT_GGUF} and ${FLOAT_GGUF} are the same checkpoint; compare it with one that was made from it`,
    ...["compare", FLOAT_GGUF, FLOAT_GGUF],
  );
  await refused(
    `${made}: no checkpoint, but "cut.gguf"; give that where a GGUF file can be read, or convert it with rabbit import`,
    ...["infer", made],
  );
});

Deno.test("commands say why a GGUF file has no tokenizer, no template and no activations of a width", async () => {
  const plain = join(made, "plain.gguf");
  await done("export", "--quiet", TINY, plain);
  const why = `${DERIVED}: its tokenizer ("none") is not a BPE`;
  await refused(`--prompt needs a tokenizer; ${why}; use --ids`, "infer", DERIVED, "--prompt", "a");
  await refused(`--stream needs a tokenizer; ${why}; leave --stream out`, "infer", DERIVED, ...IDS, "--stream");
  await refused(
    `--text needs a tokenizer; ${plain}: its tokenizer ("none") is not a BPE; leave --text out`,
    ...["compare", plain, Q8_GGUF, "--text", TEXT],
  );
  await refused(
    `--chat needs a chat template, and ${Q8_GGUF} has none`,
    ...["infer", Q8_GGUF, "--chat", "--prompt", "a"],
  );
  await refused(
    "--activations i8 is for files with matrices of one kind of blocks; Q8_0, Q4_0, F16, F32, BF16 are multiplied in f32",
    ...["infer", DERIVED, ...IDS, "--activations", "i8"],
  );
});
