// `rabbit compare` and `rabbit infer`, run as a user runs them. The figures are those of fixtures/tiny/expected.json,
// which an independent implementation computed.

import { assert, assertEquals, assertMatch } from "@std/assert";
import { join } from "@std/path/join";
import { inTemporary, temporary, write } from "../support/files.ts";
import { expected, IDS, json, MODELS, TINY, WEIGHTS } from "../support/fixtures.ts";
import { quantizeTo, variant } from "../support/models.ts";
import { lines, refused, run } from "../support/program.ts";
import { entriesOf, headerText, safetensors, writeShards } from "../support/safetensors.ts";

const PROMPT: number[] = expected.prompt_ids;
const TOLERANCE = 1e-4;

/** Quantized once for all tests. */
const made = temporary();
const Q4 = await quantizeTo(`${made}/q4`, TINY, 4);
const Q8 = await quantizeTo(`${made}/q8`, TINY, 8);

// ---------------------------------------------------------------- compare

for (const [kind, directory, code] of [["q8", Q8, 0], ["q4", Q4, 1]] as const) {
  const { tokens, compare } = expected[kind];

  Deno.test(`rabbit compare prints the figures of ${kind} and exits with ${code}`, async () => {
    const [float, quant, logits, prefill, result, verdict, ...rest] = await lines(
      code,
      "compare",
      TINY,
      directory,
      ...IDS,
    );
    assertEquals(float, `COMPARE tokens_float ${expected.float.tokens.join(" ")}`);
    assertEquals(quant, `COMPARE tokens_quant ${tokens.join(" ")}`);
    assertEquals(verdict, code === 0 ? "COMPARE OK" : "COMPARE DIFFER");
    assertEquals(rest, []);
    const figures = [
      [logits, /^COMPARE logits steps=8 values=2560 max=(\d+\.\d{6}) mean=(\d+\.\d{9})$/, compare.max, compare.mean],
      [prefill, /^COMPARE prefill max=(\d+\.\d{6}) mean=(\d+\.\d{9})$/, compare.prefill_max, compare.prefill_mean],
      [
        result,
        new RegExp(
          `^COMPARE result match=${compare.match} tokens=8 max_diff=(\\d+\\.\\d{6}) mean_diff=(\\d+\\.\\d{9})$`,
        ),
        compare.max,
        compare.mean,
      ],
    ] as const;
    for (const [line, pattern, max, mean] of figures) {
      assertMatch(line, pattern);
      const [, foundMax, foundMean] = pattern.exec(line)!.map(Number);
      assert(Math.abs(foundMax - max) <= TOLERANCE, `${line}: max is ${max}`);
      assert(Math.abs(foundMean - mean) <= TOLERANCE, `${line}: mean is ${mean}`);
    }
  });

  Deno.test(`rabbit compare --json prints what the lines of ${kind} say`, async () => {
    const [, , logits, prefill, result] = await lines(code, "compare", TINY, directory, ...IDS);
    const ran = await run("compare", TINY, directory, ...IDS, "--json");
    assertEquals([ran.code, ran.err, ran.out.split("\n").length], [code, "", 2]);
    const object = JSON.parse(ran.out);
    assertEquals(Object.keys(object), [
      "tokens_float",
      "tokens_quant",
      "logits",
      "prefill",
      "memory",
      "result",
      "verdict",
    ]);
    assertEquals(object.tokens_float, expected.float.tokens);
    assertEquals(object.tokens_quant, tokens);
    assertEquals(object.verdict, code === 0 ? "OK" : "DIFFER");
    assertEquals(Object.keys(object.logits), ["steps", "values", "max", "mean"]);
    assertEquals(Object.keys(object.prefill), ["max", "mean"]);
    assertEquals(Object.keys(object.result), ["match", "tokens", "max_diff", "mean_diff"]);
    assertEquals(object.memory.models, "one-at-a-time");
    const { steps, values, max, mean } = object.logits;
    assertEquals(
      logits,
      `COMPARE logits steps=${steps} values=${values} max=${max.toFixed(6)} mean=${mean.toFixed(9)}`,
    );
    assertEquals(
      prefill,
      `COMPARE prefill max=${object.prefill.max.toFixed(6)} mean=${object.prefill.mean.toFixed(9)}`,
    );
    const { match, max_diff, mean_diff } = object.result;
    assertEquals(
      result,
      `COMPARE result match=${match} tokens=8 max_diff=${max_diff.toFixed(6)} mean_diff=${mean_diff.toFixed(9)}`,
    );
  });
}

Deno.test("rabbit compare prints the same at every number of threads", async () => {
  const one = await lines(1, "compare", TINY, Q4, ...IDS, "--threads", "1");
  for (const threads of ["2", "3", "5"]) {
    assertEquals(await lines(1, "compare", TINY, Q4, ...IDS, "--threads", threads), one);
  }
});

Deno.test("rabbit compare takes a file or a directory, ids with commas, and --steps", async () => {
  // At three steps the answer at four bits is still the float model's.
  const ids = ["--ids", PROMPT.join(","), "--steps", "3"];
  const found = await lines(0, "compare", join(TINY, WEIGHTS), join(Q4, WEIGHTS), ...ids);
  assertEquals(found[0], "COMPARE tokens_float 316 54 54");
  assertEquals(found[1], "COMPARE tokens_quant 316 54 54");
  assertMatch(found[2], /^COMPARE logits steps=3 values=960 /);
  assertMatch(found[4], /^COMPARE result match=true tokens=3 /);
  assertEquals(await lines(0, "compare", TINY, Q4, ...ids), found);
});

Deno.test("rabbit compare of a checkpoint with its copy finds no difference", async () => {
  await inTemporary(async (temporary) => {
    const copy = variant(join(temporary, "copy"), TINY, {});
    assertEquals(await lines(0, "compare", TINY, copy, ...IDS), [
      `COMPARE tokens_float ${expected.float.tokens.join(" ")}`,
      `COMPARE tokens_quant ${expected.float.tokens.join(" ")}`,
      "COMPARE logits steps=8 values=2560 max=0.000000 mean=0.000000000",
      "COMPARE prefill max=0.000000 mean=0.000000000",
      "COMPARE result match=true tokens=8 max_diff=0.000000 mean_diff=0.000000000",
      "COMPARE OK",
    ]);
  });
});

Deno.test("compare and report refuse checkpoints in the wrong order, and one checkpoint twice", async () => {
  const config = join(TINY, "config.json");
  const quantized = `${Q8}/${WEIGHTS}: __metadata__ "format": quantized to Q8B32; ` +
    "the first checkpoint must be the float one";
  for (const quant of [TINY, Q8, Q4]) {
    await refused(quantized, "compare", Q8, quant, ...IDS);
    await refused(quantized, "compare", Q8, quant, "--text", config);
    await refused(quantized, "report", Q8, quant, "--out", `${made}/x.html`, ...IDS);
  }
  await refused(quantized, "compare", Q8, TINY, config, ...IDS);
  await inTemporary(async (temporary) => {
    const link = join(temporary, "link");
    Deno.symlinkSync(TINY, link);
    for (const again of [TINY, `${TINY}/${WEIGHTS}`, link]) {
      const name = again.endsWith(WEIGHTS) ? again : `${again}/${WEIGHTS}`;
      const twice = `${TINY}/${WEIGHTS} and ${name} are the same checkpoint; ` +
        "compare it with one that was made from it";
      await refused(twice, "compare", TINY, again, ...IDS);
      await refused(twice, "compare", TINY, again, "--text", config);
      await refused(twice, "report", TINY, Q8, again, "--out", `${made}/x.html`, ...IDS);
    }
  });
});

Deno.test("rabbit compare reads a sharded float checkpoint as it reads one file", async () => {
  await inTemporary(async (temporary) => {
    const entries = entriesOf(Deno.readFileSync(join(TINY, WEIGHTS)));
    writeShards(temporary, {
      "model-00001-of-00003.safetensors": entries.slice(0, 1),
      "model-00002-of-00003.safetensors": entries.slice(1, 9),
      "model-00003-of-00003.safetensors": entries.slice(9),
    });
    Deno.copyFileSync(join(TINY, "config.json"), join(temporary, "config.json"));
    assertEquals(
      await lines(0, "compare", temporary, Q8, ...IDS),
      await lines(0, "compare", TINY, Q8, ...IDS),
    );
  });
});

Deno.test("rabbit compare runs both models with CONFIG where it is given, and QUANT with FLOAT's where it has none", async () => {
  await inTemporary(async (temporary) => {
    const bare = join(temporary, "bare.safetensors");
    const other = join(temporary, "other.safetensors");
    Deno.copyFileSync(join(TINY, WEIGHTS), bare);
    Deno.copyFileSync(join(Q8, WEIGHTS), other);
    const wanted = await lines(0, "compare", TINY, Q8, ...IDS);
    assertEquals(await lines(0, "compare", bare, other, join(TINY, "config.json"), ...IDS), wanted);
    assertEquals(await lines(0, "compare", TINY, other, ...IDS), wanted);
    await refused(
      `cannot open ${temporary}/config.json: no such file or directory`,
      "compare",
      bare,
      other,
      ...IDS,
    );
  });
});

// ---------------------------------------------------------------- references

Deno.test("rabbit compare holds both answers against a reference", async () => {
  await inTemporary(async (temporary) => {
    const float = variant(join(temporary, "float"), TINY, {});
    const { tokens } = expected.float;
    const of = async (code: number, reference: unknown, quant = Q8, ...args: string[]) => {
      write(float, { "reference.json": JSON.stringify(reference) });
      return (await lines(code, "compare", float, quant, ...IDS, ...args))[2];
    };
    const says = (float: unknown, quant: unknown) => `COMPARE reference_float=${float} reference_quant=${quant}`;
    assertEquals(await of(0, { prompt_ids: PROMPT, tokens }), says(true, true));
    assertEquals(await of(1, { prompt_ids: PROMPT, tokens }, Q4), says(true, false));
    assertEquals(await of(1, { prompt_ids: PROMPT, tokens: expected.q4.tokens }, Q4), says(false, true));
    // What both have is compared: the reference may be shorter or longer.
    assertEquals(await of(1, { prompt_ids: PROMPT, tokens: tokens.slice(0, 4) }, Q4), says(true, true));
    assertEquals(await of(0, { prompt_ids: PROMPT, tokens: [...tokens, 1, 2] }), says(true, true));
    assertEquals(await of(0, { prompt_ids: PROMPT, tokens }, Q8, "--steps", "2"), says(true, true));
    // One for another prompt says nothing of this one, and the line is left out.
    assertMatch(await of(0, { prompt_ids: [1, 2], tokens }), /^COMPARE logits /);

    // The option comes before the file beside FLOAT.
    const file = join(temporary, "mine.json");
    write(temporary, { "mine.json": JSON.stringify({ prompt_ids: PROMPT, tokens: [0, ...tokens.slice(1)] }) });
    assertEquals(await of(0, { prompt_ids: PROMPT, tokens }, Q8, "--reference", file), says(false, false));
    // With --json they are booleans.
    const { out } = await run("compare", float, Q4, ...IDS, "--json");
    assertEquals([JSON.parse(out).reference_float, JSON.parse(out).reference_quant], [true, false]);
  });
});

Deno.test("rabbit compare refuses a reference that it can't use", async () => {
  await inTemporary(async (temporary) => {
    const file = join(temporary, "r.json");
    const asked = ["compare", TINY, Q8, ...IDS, "--reference", file];
    await refused(`cannot open ${file}: no such file or directory`, ...asked);
    for (
      const [text, message] of [
        ['{"prompt_ids": [1, 2], "tokens": [3]}', `the reference ${file} is for another prompt (1 2)`],
        ['{"tokens": [3]}', `${file}: prompt_ids: expected an array of at least one token id`],
        ['{"prompt_ids": [1.5], "tokens": [3]}', `${file}: prompt_ids: expected an array of at least one token id`],
        ['{"prompt_ids": [1], "tokens": []}', `${file}: tokens: expected an array of at least one token id`],
        ['{"prompt_ids": [1], "tokens": "316"}', `${file}: tokens: expected an array of at least one token id`],
        ["null", `${file}: expected a JSON object`],
      ]
    ) {
      write(temporary, { "r.json": text });
      await refused(message, ...asked);
    }
    write(temporary, { "r.json": "{" });
    const { code, err } = await run(...asked);
    assertEquals(code, 2);
    assertMatch(err, /^rabbit: compare: .*r\.json: not valid JSON: [^\n]+\n$/);
  });
});

// ---------------------------------------------------------------- refusals

Deno.test("rabbit compare refuses a prompt that the model can't take", async () => {
  const compare = (...args: string[]) => ["compare", TINY, Q8, ...args];
  await refused("the prompt has the id 320, the vocabulary ends at 319", ...compare("--ids", "1 319 320"));
  // The published prompt is for a larger vocabulary.
  await refused("the default prompt has the id 504, the vocabulary ends at 319; give --ids", ...compare());
  await refused("the prompt is empty", ...compare("--ids", " "));
  await refused('--ids takes whole numbers, found "x"', ...compare("--ids", "1 x"));
  await refused('--ids takes whole numbers, found "-1"', ...compare("--ids", "-1"));
  await refused('--ids takes whole numbers, found "1.5"', ...compare("--ids", "1.5"));
  await refused("--ids and --prompt exclude each other", ...compare("--ids", "1", "--prompt", "a"));
  await refused(
    `--prompt needs tokenizer.json, or vocab.json and merges.txt, in ${TINY}; use --ids`,
    ...compare("--prompt", "a"),
  );
  await refused(
    "261 tokens are more than the model's context of 256 (max_position_embeddings); use a shorter prompt or fewer steps",
    ...compare(...IDS, "--steps", "256"),
  );
  await refused('--steps takes a whole number of at least 1, found "0"', ...compare(...IDS, "--steps", "0"));
});

Deno.test("rabbit compare refuses models of different architectures", async () => {
  await inTemporary(async (temporary) => {
    const float = join(TINY, WEIGHTS);
    const cases: [Record<string, unknown>, string][] = [
      [
        { architectures: ["MistralForCausalLM"], model_type: "mistral" },
        'architecture: "LlamaForCausalLM" and "MistralForCausalLM"',
      ],
      [{ vocab_size: 352 }, "vocabulary: 320 and 352"],
      [{ num_hidden_layers: 1 }, "layers: 2 and 1"],
      [{ rms_norm_eps: 1e-6 }, "normEps: 0.00001 and 0.000001"],
      [{ num_key_value_heads: 4 }, "kvHeads: 2 and 4"],
    ];
    for (const [n, [changes, difference]] of cases.entries()) {
      const quant = variant(join(temporary, `${n}`), Q8, { config: changes });
      await refused(
        `${float} and ${quant}/${WEIGHTS} are not of one architecture: their config.json differ in ${difference}`,
        "compare",
        TINY,
        quant,
        ...IDS,
      );
    }
    // What ends a text changes no logits.
    const quant = variant(join(temporary, "eos"), Q8, { config: { eos_token_id: 7 } });
    assertEquals(await lines(0, "compare", TINY, quant, ...IDS), await lines(0, "compare", TINY, Q8, ...IDS));
  });
});

Deno.test("rabbit compare refuses a checkpoint that lacks a tensor or has another shape, whichever it is", async () => {
  await inTemporary(async (temporary) => {
    const lost = "model.layers.1.mlp.up_proj.weight";
    const tall = "model.norm.weight";
    const float = join(temporary, "float");
    const taller = join(temporary, "taller");
    const config = Deno.readTextFileSync(join(TINY, "config.json"));
    const entries = entriesOf(Deno.readFileSync(join(TINY, WEIGHTS)));
    write(float, { [WEIGHTS]: safetensors(entries.filter(({ name }) => name !== lost)), "config.json": config });
    write(taller, {
      [WEIGHTS]: safetensors(entries.map((entry) => entry.name !== tall ? entry : { ...entry, shape: [64, 1] })),
      "config.json": config,
    });
    for (
      const [directory, message] of [
        [float, `${float}/${WEIGHTS}: tensor "${lost}": missing, although config.json calls for it`],
        [taller, `${taller}/${WEIGHTS}: tensor "${tall}": shape: [64,1], but config.json calls for [64]`],
      ]
    ) {
      await refused(message, "compare", directory, Q8, ...IDS);
      await refused(message, "compare", TINY, directory, ...IDS);
      await refused(message, "infer", "--model", directory, ...IDS);
    }
  });
});

Deno.test("rabbit compare refuses a configuration that the decoder does not know, or none", async () => {
  await inTemporary(async (temporary) => {
    const float = variant(join(temporary, "yarn"), TINY, {
      config: { rope_scaling: { rope_type: "yarn", factor: 2 } },
    });
    const message = `${float}/config.json: rope_scaling rope_type: "yarn" is not supported; ` +
      "the decoder knows default, linear, dynamic, llama3";
    await refused(message, "compare", float, Q8, ...IDS);
    await refused(message, "compare", TINY, float, ...IDS);
    await refused(message, "infer", "--model", float, ...IDS);

    const bare = join(temporary, "bare");
    Deno.mkdirSync(bare);
    Deno.copyFileSync(join(TINY, WEIGHTS), join(bare, WEIGHTS));
    const missing = `cannot open ${bare}/config.json: no such file or directory`;
    await refused(missing, "compare", bare, Q8, ...IDS);
    await refused(missing, "infer", "--model", bare, ...IDS);
    await refused(`cannot open ${temporary}/none: no such file or directory`, "compare", `${temporary}/none`, Q8);
  });
});

Deno.test("rabbit compare refuses a scale that is not finite", async () => {
  await inTemporary(async (temporary) => {
    const directory = variant(join(temporary, "broken"), Q8, {});
    const path = join(directory, WEIGHTS);
    const file = Deno.readFileSync(path);
    const header = JSON.parse(headerText(file));
    const name = "model.layers.0.mlp.down_proj.weight";
    const start = 8 + Number(new DataView(file.buffer).getBigUint64(0, true)) + header[name].data_offsets[0];
    // Row 7, block 2 of 4.
    new DataView(file.buffer).setUint16(start + (7 * 4 + 2) * 34, 0xfc00, true);
    Deno.writeFileSync(path, file);
    const message = `${path}: tensor "${name}": scale: row 7 block 2: the scale is not finite; ` +
      "the file is damaged, make or download it again";
    await refused(message, "compare", TINY, directory, ...IDS);
    await refused(message, "infer", "--model", directory, ...IDS);
  });
});

// ---------------------------------------------------------------- infer

const NUMBER = String.raw`\d+\.\d`;

for (
  const [model, kind, threads, asked, activations] of [
    [TINY, "float", "1", undefined, "f32"],
    [TINY, "float", "3", "f32", "f32"],
    [Q8, "q8", "2", undefined, "i16"],
    [Q8, "q8", "1", "f32", "f32"],
    [Q8, "q8", "3", "i16", "i16"],
    [Q8, "q8", "2", "i8", "i8"],
    [Q4, "q4", "2", undefined, "i8"],
    [Q4, "q4", "2", "f32", "f32"],
    [Q4, "q4", "2", "i16", "i16"],
    [Q4, "q4", "1", "i8", "i8"],
  ] as const
) {
  Deno.test(`rabbit infer of ${kind} with ${asked ?? "the default"} activations`, async () => {
    const args = ["infer", "--model", model, ...IDS, "--steps", "8", "--threads", threads];
    if (asked) args.push("--activations", asked);
    const { code, out, err } = await run(...args);
    assertEquals([code, err], [0, ""]);
    const found = out.split("\n");
    const { size } = Deno.statSync(join(model, WEIGHTS));
    // Of the file, what is not header: the length field, the header and the data are all there is.
    const header = 8 + Number(new DataView(Deno.readFileSync(join(model, WEIGHTS)).buffer).getBigUint64(0, true));
    assertEquals(found[0], `INFER pinned bytes=${size - header}`);
    assertEquals(found[1], `INFER mapped bytes=${4096 * Math.floor(size / 4096)}`);
    // The margins of expected.json are 0.12 and more; 16-bit activations move no logit by a hundredth of that.
    if (activations !== "i8") assertEquals(found[2], `INFER tokens ${expected[kind].tokens.join(" ")}`);
    else assertMatch(found[2], /^INFER tokens 316( \d+){7}$/);
    assertMatch(found[3], new RegExp(`^INFER prefill tokens=5 ms=${NUMBER} tokens_per_s=${NUMBER}$`));
    assertMatch(
      found[4],
      new RegExp(
        `^INFER decode tokens=7 ms=${NUMBER} tokens_per_s=${NUMBER} threads=${threads} activations=${activations}$`,
      ),
    );
    assertMatch(found[5], /^INFER rss bytes=\d+( peak=\d+)?$/);
    assertEquals(found.slice(6), [""]);
  });
}

Deno.test("rabbit infer --json has the keys of the lines", async () => {
  const { code, out, err } = await run("infer", "--model", Q8, ...IDS, "--steps", "2", "--threads", "1", "--json");
  assertEquals([code, err], [0, ""]);
  const object = JSON.parse(out);
  assertEquals(Object.keys(object), ["pinned", "mapped", "tokens", "prefill", "decode", "rss"]);
  assertEquals(object.tokens, expected.q8.tokens.slice(0, 2));
  assertEquals(Object.keys(object.prefill), ["tokens", "ms", "tokens_per_s"]);
  assertEquals(Object.keys(object.decode), ["tokens", "ms", "tokens_per_s", "threads", "activations"]);
  assertEquals([object.prefill.tokens, object.decode.tokens, object.decode.threads], [5, 1, 1]);
});

Deno.test("rabbit infer stops at an end-of-text token, unless it is told to ignore it", async () => {
  await inTemporary(async (temporary) => {
    // The answer is 316 54 54 96 …
    for (const [eos, answer] of [[54, "316 54"], [316, "316"], [[9, 96], "316 54 54 96"], [5, "316 54 54 96 269"]]) {
      const model = variant(join(temporary, String(eos)), TINY, { config: { eos_token_id: eos } });
      const args = ["infer", "--model", model, ...IDS, "--steps", "5"];
      assertEquals((await lines(0, ...args))[2], `INFER tokens ${answer}`);
      assertEquals((await lines(0, ...args, "--ignore-eos"))[2], "INFER tokens 316 54 54 96 269");
    }
    // compare runs on.
    const model = variant(join(temporary, "compare"), TINY, { config: { eos_token_id: 54 } });
    assertEquals((await lines(0, "compare", model, Q8, ...IDS))[0], "COMPARE tokens_float 316 54 54 96 269 290 166 4");
  });
});

Deno.test("rabbit infer decodes the models of fixtures/models", async () => {
  for (const name of ["qwen2", "qwen3", "rope-llama3", "mistral"]) {
    const { prompt_ids, tokens } = json(`${MODELS}/${name}/expected.json`);
    const args = [
      "infer",
      "--model",
      `${MODELS}/${name}`,
      "--ids",
      prompt_ids.join(" "),
      "--steps",
      "6",
      "--ignore-eos",
    ];
    assertEquals((await lines(0, ...args))[2], `INFER tokens ${tokens.join(" ")}`, name);
  }
});

Deno.test("rabbit infer refuses what it can't do", async () => {
  for (const activations of ["i8", "i16"]) {
    await refused(
      `--activations ${activations} is for quantized checkpoints; a float one is multiplied in f32`,
      ...["infer", "--model", TINY, ...IDS, "--activations", activations],
    );
  }
  await refused(
    '--activations takes f32 or i16 or i8, found "f16"',
    ...["infer", "--model", Q8, ...IDS, "--activations", "f16"],
  );
  await refused("the prompt is empty", "infer", "--model", Q8, "--ids", ",");
  await refused("the prompt has the id 999, the vocabulary ends at 319", "infer", "--model", Q8, "--ids", "999");
  await refused(
    "300 tokens are more than the model's context of 256 (max_position_embeddings); use a shorter prompt or fewer steps",
    ...["infer", "--model", Q8, ...IDS, "--steps", "295"],
  );
});
