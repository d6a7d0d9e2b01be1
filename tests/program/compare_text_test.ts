// `rabbit compare --text` and `rabbit advise`, run as a user runs them. The figures of texts are those of
// fixtures/metrics.json, which an independent decoder and numpy computed.

import { assert, assertEquals, assertMatch } from "@std/assert";
import { join } from "@std/path/join";
import { inTemporary, temporary, tree, write } from "../support/files.ts";
import { fixture, TINY, WEIGHTS } from "../support/fixtures.ts";
import { quantizeTo, talkingModel } from "../support/models.ts";
import { lines, rabbit, refused, run } from "../support/program.ts";
import { entriesOf, f32, headerText, safetensors } from "../support/safetensors.ts";

const { text } = fixture("metrics.json");

/** The tiny model with a byte-level vocabulary of printable ASCII and the space (Ġ), without merges. */
const VOCABULARY = Array.from({ length: 320 }, (_, n) => n < 94 ? String.fromCharCode(33 + n) : `<unused${n}>`);
VOCABULARY[94] = "Ġ";

const made = temporary();
const FLOAT = talkingModel(join(made, "float"), VOCABULARY);
const COPY = talkingModel(join(made, "copy"), VOCABULARY);
const QUANT: Record<string, string> = {
  q4: await quantizeTo(join(made, "q4"), FLOAT, 4),
  q8: await quantizeTo(join(made, "q8"), FLOAT, 8),
};
const FILE = join(made, "text.txt");
Deno.writeTextFileSync(FILE, text.text);

// ---------------------------------------------------------------- compare --text

/** The figures of a measurement under the names that the fixture has for them. */
// deno-lint-ignore no-explicit-any
function figures({ perplexity, kl, same_top, prob }: any): Record<string, number> {
  const { float, float_error, quant, quant_error, ratio, ratio_error } = perplexity;
  return {
    ...{ float, float_error, quant, quant_error, ratio, ratio_error },
    ...{ kl: kl.mean, kl_error: kl.error, kl_median: kl.median, kl_p999: kl.p999, kl_max: kl.max },
    ...{ same_top: same_top.rate, same_top_error: same_top.error, rms: prob.rms, mean: prob.mean },
  };
}

for (const wanted of text.cases) {
  const { window, stride, windows } = wanted;
  for (const kind of ["q4", "q8"]) {
    Deno.test(`rabbit compare --text: ${kind}, windows of ${window}, stride ${stride}, as numpy computes it`, async () => {
      const args = ["compare", FLOAT, QUANT[kind], "--text", FILE, "--window", `${window}`, "--stride", `${stride}`];
      const { code, out, err } = await run(...args, "--json");
      assertEquals([code, err], [0, ""]);
      const found = JSON.parse(out);
      const { scored, ...numbers } = wanted[kind];
      assertEquals(found.text, { file: FILE, tokens: text.tokens, windows, window, stride, scored });
      assertEquals(found.memory.models, "both");
      assertEquals("verdict" in found, false);
      const got = figures(found);
      assertEquals(Object.keys(got).sort(), Object.keys(numbers).sort());
      for (const [key, value] of Object.entries(numbers as Record<string, number>)) {
        // The decoder computes in binary32, the fixture's in binary64.
        const off = Math.abs(got[key] - value);
        assert(off <= 1e-4 * Math.abs(value) + 1e-7, `${key}: ${got[key]}, not ${value}`);
      }
    });
  }
}

Deno.test("rabbit compare --text prints what --json says, at every number of threads", async () => {
  const args = ["compare", FLOAT, QUANT.q8, "--text", FILE, "--window", "64"];
  const { text: t, perplexity: p, kl, same_top, prob } = JSON.parse((await run(...args, "--json")).out);
  const wanted = [
    `COMPARE text file=${FILE} tokens=${t.tokens} windows=4 window=64 stride=64 scored=${t.scored}`,
    `COMPARE perplexity float=${p.float.toFixed(4)} float_error=${p.float_error.toFixed(4)} ` +
    `quant=${p.quant.toFixed(4)} quant_error=${p.quant_error.toFixed(4)} ` +
    `ratio=${p.ratio.toFixed(6)} ratio_error=${p.ratio_error.toFixed(6)}`,
    `COMPARE kl mean=${kl.mean.toFixed(6)} error=${kl.error.toFixed(6)} median=${kl.median.toFixed(6)} ` +
    `p999=${kl.p999.toFixed(6)} max=${kl.max.toFixed(6)}`,
    `COMPARE same_top rate=${same_top.rate.toFixed(6)} error=${same_top.error.toFixed(6)}`,
    `COMPARE prob rms=${prob.rms.toFixed(6)} mean=${prob.mean.toFixed(6)}`,
  ];
  for (const threads of ["1", "3"]) assertEquals(await lines(0, ...args, "--threads", threads), wanted);
});

Deno.test("rabbit compare --text takes the model's context for its window where 512 is more", async () => {
  const [first] = await lines(0, "compare", FLOAT, QUANT.q8, "--text", FILE);
  assertEquals(first, `COMPARE text file=${FILE} tokens=207 windows=1 window=256 stride=256 scored=206`);
});

/** A text of 120 lines, which has other words than FILE. */
const LONG = join(made, "long.txt");
Deno.writeTextFileSync(LONG, Array.from({ length: 120 }, (_, n) => `line ${n * n} of this text`).join(" "));

Deno.test("rabbit compare --text with limits: a line for each, a verdict, and its exit status", async () => {
  const of = (...args: string[]) => ["compare", FLOAT, QUANT.q4, "--text", LONG, ...args];
  const { kl, perplexity, same_top } = JSON.parse((await run(...of("--json"))).out);
  const passed = await lines(0, ...of("--max-kl", "5", "--max-ratio", "3", "--min-same-top", "0.01"));
  assertEquals(passed.slice(0, 5), await lines(0, ...of()));
  const gate = (name: string, limit: number, value: number) =>
    new RegExp(
      `^COMPARE gate=${name} limit=${limit} value=${value.toFixed(6)} lower=[0-9.]+ upper=[0-9.]+ confidence=0.95 ` +
        "detectable=[0-9.]+ verdict=pass$",
    );
  assertMatch(passed[5], gate("max-kl", 5, kl.mean));
  assertMatch(passed[6], gate("max-ratio", 3, perplexity.ratio));
  assertMatch(passed[7], gate("min-same-top", 0.01, same_top.rate));
  assertEquals(passed.slice(8), ["COMPARE PASS"]);

  const failed = await lines(1, ...of("--max-kl", "0.001", "--max-ratio", "3", "--confidence", "0.99"));
  assertMatch(failed[5], /^COMPARE gate=max-kl limit=0.001 .* confidence=0.99 .* verdict=fail$/);
  assertMatch(failed[6], / verdict=pass$/);
  assertEquals(failed.at(-1), "COMPARE FAIL");

  const near = String(kl.mean * 1.001);
  const open = await lines(1, ...of("--max-kl", near));
  assertMatch(open[5], /^COMPARE gate=max-kl .* verdict=undecided tokens_needed=[1-9][0-9]+$/);
  assertEquals(open.at(-1), "COMPARE UNDECIDED");
  const json = await run(...of("--max-kl", near, "--json"));
  const { gates: [found], verdict } = JSON.parse(json.out);
  assertEquals([json.code, verdict, found.gate, found.verdict, found.value], [
    ...[1, "UNDECIDED", "max-kl", "undecided", kl.mean],
  ]);
  assertEquals(found.lower < kl.mean && kl.mean < found.upper && found.tokens_needed > 3000, true);
  // A text of 26 tokens has no bounds.
  const short = join(made, "short.txt");
  Deno.writeTextFileSync(short, "abcdefghijklmnopqrstuvwxyz");
  assertMatch(
    (await lines(1, "compare", FLOAT, QUANT.q8, "--text", short, "--max-kl", "100"))[5],
    /^COMPARE gate=max-kl limit=100 value=[0-9.]+ confidence=0.95 verdict=undecided tokens_needed=200$/,
  );
});

Deno.test("rabbit compare of several texts: a line for each, and the mean over all tokens, in one run or merged", async () => {
  const texts = ["--text", FILE, "--text", LONG];
  const measure = ["compare", FLOAT, QUANT.q4, ...texts, "--window", "64"];
  const limits = ["--max-kl", "0.6", "--min-same-top", "0.9"];
  const json = await run(...measure, ...limits, "--json");
  const { memory: _, ...found } = JSON.parse(json.out);
  for (const [n, file] of [FILE, LONG].entries()) {
    const args = ["compare", FLOAT, QUANT.q4, "--text", file, "--window", "64", ...limits, "--json"];
    const one = JSON.parse((await run(...args)).out);
    const { tokens, windows, scored } = one.text;
    const { perplexity, kl, same_top, prob } = one;
    assertEquals(found.texts[n], { file, tokens, windows, scored, perplexity, kl, same_top, prob });
    assertEquals(
      found.text_gates.filter((gate: { file: string }) => gate.file === file),
      one.gates.map((gate: Record<string, unknown>) => ({ file, ...gate })),
    );
  }
  const [a, b] = found.texts;
  const { files, tokens, windows, scored } = found.text;
  assertEquals([files, tokens, windows, scored], [
    ...[2, a.tokens + b.tokens, a.windows + b.windows, a.scored + b.scored],
  ]);
  const mean = (a.kl.mean * a.scored + b.kl.mean * b.scored) / scored;
  assert(Math.abs(found.kl.mean - mean) <= 1e-12 * mean);
  const loss = (key: string) =>
    Math.exp((Math.log(a.perplexity[key]) * a.scored + Math.log(b.perplexity[key]) * b.scored) / scored);
  assert(Math.abs(found.perplexity.ratio / loss("ratio") - 1) < 1e-12);
  assertEquals(found.gates.length, 2);

  const whole = (await run(...measure, ...limits)).out.split("\n").filter((line) => !line.includes("peak_rss"));
  assertEquals(whole.filter((line) => line.startsWith(`COMPARE file=${LONG} `)).length, 3);
  const parts: string[] = [];
  for (const n of [1, 2, 3]) {
    parts.push(join(made, `texts-${n}.jsonl`));
    Deno.writeTextFileSync(parts.at(-1)!, (await run(...measure, "--shard", `${n}/3`)).out);
  }
  assertEquals(await run("merge", ...parts, ...limits), { code: json.code, out: whole.join("\n"), err: "" });
  assertEquals(JSON.parse((await run("merge", ...parts, ...limits, "--json")).out), found);
  assertEquals((await run("merge", ...parts)).code, 0);
});

Deno.test("rabbit compare and rabbit merge refuse limits that they can't judge", async () => {
  const of = (...args: string[]) => ["compare", FLOAT, QUANT.q8, "--text", FILE, ...args];
  for (
    const [flag, values, wanted] of [
      ["max-kl", ["-1", "nan", "NaN", "Infinity", "1001", "2%"], "a number of 0 to 1000"],
      ["max-ratio", ["0.02", "0", "-1"], "a number of 1 to 1000000"],
      ["min-same-top", ["0", "1", "98", "98%"], "a fraction above 0, to 0.9999"],
      ["confidence", ["0", "0.05", "1", "95", "0.99999"], "a fraction of 0.5 to 0.9999"],
    ] as const
  ) {
    for (const value of values) {
      await refused(
        `--${flag} takes ${wanted}, found "${value}"`,
        ...of("--max-kl", "1").slice(0, 5),
        `--${flag}`,
        value,
      );
    }
    await refused(
      `--${flag} is for --text, which is not given`,
      ...["compare", FLOAT, QUANT.q8, "--ids", "1 2", `--${flag}`, flag === "max-ratio" ? "1.1" : "0.9"],
    );
  }
  await refused(
    "--confidence is for --max-kl, --max-ratio or --min-same-top; none is given",
    ...of("--confidence", "0.9"),
  );
  await refused(
    "--max-kl is for the whole text, and --shard for a part; give it to rabbit merge",
    ...of("--max-kl", "1", "--shard", "1/2"),
  );
  await refused(`--max-kl is for lines of compare --text, and ${made} is a directory`, "merge", made, "--max-kl", "1");
  const copy = join(made, "text-copy.txt");
  Deno.copyFileSync(FILE, copy);
  await refused(`${FILE} and ${copy} are the same text; give it once`, ...of("--text", copy));
});

for (const count of [1, 2, 4]) {
  Deno.test(`rabbit merge of ${count} parts prints the lines of rabbit compare --text, to the digit`, async () => {
    const measure = ["compare", FLOAT, QUANT.q4, "--text", FILE, "--window", "32", "--stride", "20"];
    const whole = (await run(...measure)).out.split("\n").filter((line) => !line.includes("peak_rss"));
    const files: string[] = [];
    for (let n = count; n > 0; n--) {
      const threads = ["--threads", String(1 + n % 2)];
      const { code, out, err } = await run(
        ...measure,
        "--shard",
        `${n}/${count}`,
        ...threads,
        ...n > 1 ? [] : ["--json"],
      );
      assertEquals([code, err], [0, ""]);
      files.push(join(made, `part${n}-of-${count}.jsonl`));
      Deno.writeTextFileSync(files.at(-1)!, out);
    }
    assertEquals(await run("merge", ...files), { code: 0, out: whole.join("\n"), err: "" });
    const { memory: _, ...json } = JSON.parse((await run(...measure, "--json")).out);
    assertEquals(JSON.parse((await run("merge", ...files, "--json")).out), json);
    if (count === 1) return;
    const missing = await run("merge", ...files.slice(1));
    assertEquals([missing.code, missing.out], [2, ""]);
    assertMatch(missing.err, /^rabbit: merge: [^\n]* is in none of the files; [^\n]*\n$/);
    // A part of another model.
    const other = await run(...measure.with(2, QUANT.q8), "--shard", `1/${count}`);
    Deno.writeTextFileSync(files.at(-1)!, other.out);
    const mixed = await run("merge", ...files);
    assertEquals([mixed.code, mixed.out], [2, ""]);
    assertMatch(mixed.err, /line 1: another quantized model than in [^\n]*\n$/);
  });
}

Deno.test("rabbit merge says how the blocks were chosen, as rabbit compare --text does", async () => {
  const signed = join(made, "signed");
  assertEquals((await run("quantize", FLOAT, signed, "--rule", "signed", "--quiet")).code, 0);
  const measure = ["compare", FLOAT, signed, "--text", FILE, "--window", "64"];
  const whole = (await run(...measure)).out.split("\n").filter((line) => !line.includes("peak_rss"));
  assertMatch(whole[0], /^COMPARE quantization method=signed /);
  const part = join(made, "signed.jsonl");
  Deno.writeTextFileSync(part, (await run(...measure, "--shard", "1/1")).out);
  assertEquals((await run("merge", part)).out, whole.join("\n"));
});

Deno.test("rabbit compare --shard and rabbit merge refuse what they can't do", async () => {
  const prompt = [FLOAT, QUANT.q4, "--ids", "1"];
  await refused("--shard is for --text, which is not given", "compare", ...prompt, "--shard", "1/2");
  await refused(`--single is for a directory, and ${FILE} is a file`, "merge", FILE, "--single");
  await refused(`${made} is a directory, which is merged alone; give only that`, "merge", FILE, made);
  const broken = "not a whole line of JSON; was the part interrupted? Measure it again";
  await refused(`${FILE}: line 1: ${broken}`, "merge", FILE);
});

Deno.test("rabbit compare --text of a checkpoint with itself finds no difference", async () => {
  const found = await lines(0, "compare", FLOAT, COPY, "--text", FILE);
  assertMatch(found[1], / ratio=1\.000000 ratio_error=0\.000000$/);
  assertEquals(found.slice(2), [
    "COMPARE kl mean=0.000000 error=0.000000 median=0.000000 p999=0.000000 max=0.000000",
    "COMPARE same_top rate=1.000000 error=0.000000",
    "COMPARE prob rms=0.000000 mean=0.000000",
  ]);
});

Deno.test("rabbit compare --text: one scored token has figures, but no error", async () => {
  await inTemporary(async (directory) => {
    write(directory, { "two.txt": "ab" });
    const found = await lines(0, "compare", FLOAT, QUANT.q8, "--text", `${directory}/two.txt`);
    assertMatch(found[0], / tokens=2 windows=1 window=256 stride=256 scored=1$/);
    assertEquals(found.join(" ").includes("error"), false);
    assertEquals(found.join(" ").includes("NaN"), false);
  });
});

Deno.test("rabbit compare --text refuses texts that it can't measure", async () => {
  await inTemporary(async (directory) => {
    const of = (name: string, ...args: string[]) => {
      return ["compare", FLOAT, QUANT.q8, "--text", join(directory, name), ...args];
    };
    const short = (name: string, count: number) =>
      `${directory}/${name}: expected at least 2 tokens, found ${count}; the first one of a window is not scored`;
    write(directory, { "empty.txt": "", "one.txt": "a", "latin.txt": Uint8Array.of(0x61, 0xe9, 0x61) });
    await refused(short("empty.txt", 0), ...of("empty.txt"));
    await refused(short("one.txt", 1), ...of("one.txt"));
    await refused(`${directory}/latin.txt: not valid UTF-8`, ...of("latin.txt"));
    await refused(`cannot open ${directory}/none.txt: no such file or directory`, ...of("none.txt"));
    await refused(
      `cannot read ${directory}/.: it is a directory`,
      "compare",
      FLOAT,
      QUANT.q8,
      "--text",
      `${directory}/.`,
    );
  });
});

Deno.test("rabbit compare --text refuses windows and strides that it can't have", async () => {
  const of = (...args: string[]) => ["compare", FLOAT, QUANT.q8, "--text", FILE, ...args];
  await refused('--window takes a whole number of at least 2, found "1"', ...of("--window", "1"));
  await refused('--window takes a whole number of at least 2, found "1.5"', ...of("--window", "1.5"));
  await refused('--stride takes a whole number of at least 1, found "0"', ...of("--stride", "0"));
  await refused(
    "--window 257 is more than the model's context of 256 (max_position_embeddings); use a smaller one",
    ...of("--window", "257"),
  );
  await refused(
    "--stride 65 is more than the window of 64: tokens between would be left out",
    ...of("--window", "64", "--stride", "65"),
  );
});

Deno.test("rabbit compare: a text and a prompt exclude each other", async () => {
  for (const [flag, value] of [["ids", "1 2"], ["prompt", "a"], ["steps", "3"], ["reference", FILE]]) {
    await refused(
      `--text and --${flag} exclude each other: a text is not a prompt`,
      ...["compare", FLOAT, QUANT.q8, "--text", FILE, `--${flag}`, value],
    );
  }
  for (const flag of ["window", "stride"]) {
    await refused(
      `--${flag} is for --text, which is not given`,
      ...["compare", FLOAT, QUANT.q8, "--ids", "1 2", `--${flag}`, "64"],
    );
  }
});

Deno.test("rabbit compare --text and rabbit advise --text need a tokenizer", async () => {
  const missing = `--text needs tokenizer.json, or vocab.json and merges.txt, in ${TINY}`;
  await refused(`${missing}; copy them there`, "compare", TINY, QUANT.q8, "--text", FILE);
  await refused(`${missing}; leave it out`, "advise", "--in", TINY, "--text", FILE);
});

Deno.test("rabbit compare --text refuses a token that the vocabulary of the model lacks", async () => {
  await inTemporary(async (directory) => {
    const words = [...VOCABULARY.map((word) => word === "x" ? "<moved>" : word), "x"];
    const model = talkingModel(join(directory, "wide"), words);
    write(directory, { "x.txt": "axa" });
    await refused(
      `${model}/tokenizer.json: model.vocab: "x" has the id 320, but the model's vocabulary (config.json) ends at 319; ` +
        "leave --text out",
      ...["compare", model, QUANT.q8, "--text", `${directory}/x.txt`],
    );
  });
});

// ---------------------------------------------------------------- advise

/** The files of a directory and their sizes. */
function filesOf(directory: string): string[] {
  return tree(directory).map((name) => `${name} ${Deno.statSync(join(directory, name)).size}`);
}

Deno.test("rabbit advise says what --json says, writes nothing, and gives a width's figures as compare does", async () => {
  const before = filesOf(FLOAT);
  const found = await lines(0, "advise", "--in", FLOAT, "--text", FILE);
  const { code, out, err } = await run("advise", "--in", FLOAT, "--text", FILE, "--json");
  assertEquals([code, err], [0, ""]);
  assertEquals(filesOf(FLOAT), before);
  const object = JSON.parse(out);
  assertEquals(Object.keys(object), [
    ...["model", "bytes", "prompts", "steps", "text", "scored", "perplexity"],
    ...["widths", "memory", "use", "why", "try"],
  ]);
  assertEquals([object.model, object.bytes, object.text, object.scored], [FLOAT, 191128, FILE, 206]);
  assertEquals(object.widths.map(({ bits, bytes }: { bits: number; bytes: number }) => [bits, bytes]), [
    [4, Deno.statSync(join(QUANT.q4, "model.safetensors")).size],
    [8, Deno.statSync(join(QUANT.q8, "model.safetensors")).size],
  ]);
  const wanted = text.cases.find(({ window }: { window: number }) => window === 256);
  for (const [n, kind] of ["q4", "q8"].entries()) {
    const width = object.widths[n];
    const numbers = figures(width);
    for (const key of ["quant", "ratio", "ratio_error", "kl", "kl_error", "same_top"]) {
      const value = wanted[kind][key];
      assert(Math.abs(numbers[key] - value) <= 1e-4 * value + 1e-7, `${kind} ${key}: ${numbers[key]}, not ${value}`);
    }
    const fixed = (value: number, digits: number) => value.toFixed(digits);
    assertEquals(
      found[1 + n].slice(found[1 + n].indexOf("perplexity=")).split(" suffices=")[0],
      `perplexity=${fixed(numbers.quant, 4)} perplexity_ratio=${fixed(numbers.ratio, 6)} ` +
        `perplexity_ratio_error=${fixed(numbers.ratio_error, 6)} kl=${fixed(numbers.kl, 6)} ` +
        `kl_error=${fixed(numbers.kl_error, 6)} same_top=${fixed(numbers.same_top, 6)}`,
    );
    assertEquals(Object.keys(width), [
      ...["bits", "bytes", "ratio", "answers_kept", "max_diff", "mean_diff", "perplexity", "kl", "same_top", "prob"],
      "suffices",
      ...(width.suffices ? [] : ["fails"]),
      ...(width.undecided ? ["undecided"] : []),
    ]);
  }
  // numpy's ratio at four bits is 1.115, its divergence 0.37 nats.
  assertEquals(object.widths[0].suffices, false);
  assertMatch(object.widths[0].fails, /perplexity,kl$/);
  assertEquals(found.length, 4);
  assertEquals(
    found[0].startsWith(`ADVISE model=${FLOAT} bytes=191128 prompts=8 steps=8 text=${FILE} scored=206 `),
    true,
  );
  assertMatch(found[1], /^ADVISE bits=4 .* suffices=false fails=[a-z,]+( undecided=[a-z,]+)?$/);
  assertMatch(found[2], /^ADVISE bits=8 /);
  const next = `rabbit advise ${FLOAT} --calibrate self`;
  assertEquals(object.try, next);
  assertEquals(found[3], `ADVISE use=${object.use} why=${JSON.stringify(object.why)} try="${next}"`);
});

Deno.test("rabbit advise asks ids of a model without a tokenizer", async () => {
  const one = await lines(0, "advise", "--in", TINY, "--threads", "1");
  assertMatch(one[0], / prompts=8 steps=8 text=answers scored=64 /);
  // What fixtures/tiny/expected.json says of the published prompt too: eight bits keep the answer, four do not.
  assertMatch(one.at(-1)!, /^ADVISE use=8 /);
  assertEquals(await lines(0, "advise", "--in", TINY, "--threads", "2"), one);
});

Deno.test("rabbit advise: weights that a width holds exactly need no more", async () => {
  await inTemporary(async (directory) => {
    for (const bits of ["4", "8"]) {
      const model = join(directory, bits);
      await rabbit(directory, ["gen", "--exact", bits, "--out", model]);
      // A built-in model has vocab.json and merges.txt, which leave something to assume.
      const { code, out, err } = await run("advise", "--in", model, "--text", FILE);
      assertEquals(code, 0);
      assertMatch(err, /^rabbit: warning: --text: vocab\.json and merges\.txt do not say [^\n]*\n$/);
      const plain = await run("advise", "--in", model);
      assertEquals([plain.code, plain.err], [0, err.replace("--text", "advise")]);
      const found = out.trimEnd().split("\n").filter((line) => !line.includes(" memory "));
      const own = found.find((line) => line.startsWith(`ADVISE bits=${bits} `))!;
      assertMatch(own, / answers_kept=8 max_diff=0\.000000 mean_diff=0\.000000000 .* kl=0\.000000 .* suffices=true$/);
      assertMatch(found.at(-1)!, new RegExp(`^ADVISE use=${bits} why=`));
    }
  });
});

Deno.test("a perplexity that overflows is a word in lines, JSON, advice and reports", async () => {
  await inTemporary(async (directory) => {
    // Logits that are 16384 times as large: the right token has no chance.
    const float = join(directory, "float");
    const entries = entriesOf(Deno.readFileSync(join(FLOAT, "model.safetensors")));
    const loud = entries.map((entry) => {
      return entry.name === "model.norm.weight" ? f32(entry.name, [64], () => 16384) : entry;
    });
    write(float, { "model.safetensors": safetensors(loud, { format: "pt" }) });
    for (const name of ["config.json", "tokenizer.json"]) Deno.copyFileSync(join(FLOAT, name), join(float, name));
    const quant = await quantizeTo(join(directory, "q8"), float, 8);

    const compare = ["compare", float, quant, "--text", FILE];
    const printed = await lines(0, ...compare);
    assertMatch(printed[1], / float=overflow float_error=overflow quant=overflow quant_error=overflow ratio=/);
    const compared = await run(...compare, "--json");
    const { perplexity } = JSON.parse(compared.out);
    assertEquals([perplexity.float, perplexity.quant, perplexity.float_error], ["overflow", "overflow", "overflow"]);

    const advised = await run("advise", "--in", float, "--text", FILE, "--json");
    const advice = JSON.parse(advised.out);
    assertEquals(advice.perplexity, { float: "overflow", float_error: "overflow" });
    for (const { perplexity, fails } of advice.widths) {
      assertEquals([perplexity.quant, /perplexity/.test(fails)], ["overflow", true]);
    }
    assertMatch(advice.why, /^Q4B32 [^;]*cannot be judged by the perplexity, since the float model's overflows/);

    const page = join(directory, "page.html");
    const reported = await run("report", float, quant, "--text", FILE, "--out", page, "--ids", "5 6 7", "--json");
    assertEquals(JSON.parse(reported.out).text.perplexity.float, "overflow");
    const html = Deno.readTextFileSync(page);
    for (const output of [...printed, compared.out, advised.out, reported.out, html]) {
      assertEquals(/Infinity|NaN|:null/.test(output), false, output);
    }
    assertEquals(html.includes(">overflow<"), true);
  });
});

Deno.test("rabbit advise refuses what can't be quantized or run", async () => {
  await refused(
    `${QUANT.q4}/model.safetensors: __metadata__ "format": already quantized to Q4B32; ` +
      "give the float checkpoint that it was made from",
    ...["advise", "--in", QUANT.q4],
  );
  await refused("FLOAT is missing; see rabbit advise --help", "advise");
  await inTemporary(async (directory) => {
    await refused(`cannot open ${directory}/none: no such file or directory`, "advise", "--in", `${directory}/none`);
    write(directory, { "empty.txt": "" });
    await refused(
      `${directory}/empty.txt: expected at least 2 tokens, found 0; the first one of a window is not scored`,
      ...["advise", "--in", FLOAT, "--text", `${directory}/empty.txt`],
    );
    // A weight that is not finite, in the last matrix of the file.
    const model = join(directory, "nan");
    Deno.mkdirSync(model);
    const file = Deno.readFileSync(join(TINY, WEIGHTS));
    const header = JSON.parse(headerText(file));
    const name = "model.layers.1.mlp.up_proj.weight";
    const start = 8 + Number(new DataView(file.buffer).getBigUint64(0, true)) + header[name].data_offsets[0];
    new DataView(file.buffer).setUint16(start + 2 * (3 * 64 + 40), 0x7f80, true);
    write(model, { "model.safetensors": file, "config.json": Deno.readTextFileSync(join(TINY, "config.json")) });
    await refused(
      `${model}/model.safetensors: tensor "${name}": row 3 column 40 (block 1): weight is Infinity; ` +
        "only finite weights can be quantized",
      ...["advise", "--in", model],
    );
  });
});
