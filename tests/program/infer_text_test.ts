// The text of `rabbit infer`: prompts, streaming, drawing and chat. The model is fixtures/tiny with a tokenizer whose
// ids 0 to 255 are bytes, so that the ids of a text are its UTF-8.

import { assert, assertEquals, assertMatch, assertNotEquals } from "@std/assert";
import { join } from "@std/path/join";
import { utf8 } from "../support/bytes.ts";
import { inTemporary, write } from "../support/files.ts";
import { expected, IDS, json, ROOT, TINY, WEIGHTS } from "../support/fixtures.ts";
import { copyModel, talkingModel } from "../support/models.ts";
import { needs } from "../support/needs.ts";
import { BINARY, command, execute, onTerminal, PROGRAM, rabbit, type Ran, refused } from "../support/program.ts";
import { LETTERS, tokenizerJson } from "../support/tokenizers.ts";

const START = 300;
const END = 301;
const CHATML = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/** The tiny model with a tokenizer, in which some ids stand for other texts, and other files. */
function model(directory: string, texts: Record<number, string> = {}, files: Record<string, unknown> = {}): string {
  const taken = new Set(Object.values(texts));
  const words = Array.from({ length: 320 }, (_, n) => {
    const letter = LETTERS[n];
    return texts[n] ?? (letter === undefined || taken.has(letter) ? `<unused${n}>` : letter);
  });
  words[START] = "<|im_start|>";
  words[END] = "<|im_end|>";
  const more = Object.entries(files).map(([name, value]) => [name, JSON.stringify(value)]);
  return talkingModel(directory, words, Object.fromEntries(more), [START, END]);
}

function infer(directory: string, ...args: string[]): Promise<Ran> {
  return rabbit(ROOT, ["infer", "--model", directory, ...args]);
}

/** The JSON object of a run that must end well. */
// deno-lint-ignore no-explicit-any
async function result(directory: string, ...args: string[]): Promise<any> {
  const { code, out, err } = await infer(directory, ...args, "--json");
  assertEquals([code, err], [0, ""]);
  return JSON.parse(out);
}

function ids(...parts: (string | number)[]): string {
  return parts.flatMap((part) => typeof part === "number" ? [part] : [...utf8(part)]).join(" ");
}

/** Lines without those that differ from run to run. */
function steady(lines: string): string[] {
  return lines.trimEnd().split("\n").filter((line) => !/ (prefill|decode|rss) /.test(line));
}

Deno.test("rabbit infer encodes --prompt and prints the answer's text", async () => {
  await inTemporary(async (temporary) => {
    // The prompt's answer is what it is for the ids; every byte of it is given a text.
    const directory = model(join(temporary, "m"));
    const byText = await result(directory, "--prompt", "a é😀", "--steps", "6");
    const byIds = await result(directory, "--ids", ids("a é😀"), "--steps", "6");
    assertEquals(byText.tokens, byIds.tokens);
    assertEquals(byText.text, byIds.text);
    assertEquals(byText.prefill.tokens, 8);
    const special = await result(directory, "--prompt", "<|im_start|>a", "--steps", "1");
    assertEquals(special.prefill.tokens, 2);
    assertEquals(special.tokens, (await result(directory, "--ids", ids(START, "a"), "--steps", "1")).tokens);
  });
});

/** The greedy answer to the tiny model's prompt. */
const ANSWER: number[] = expected.float.tokens;
// The answer is 316 54 54 96 269 290 166 4: € in two tokens, a byte that begins nothing, a letter and a smile in two.
const TEXTS = { 316: "âĤ", 54: "¬", 96: "Ġx\u010a", 269: "ðŁĺ", 290: "Ģ", 166: "y", 4: "â" };
const SAID = "€\ufffd x\n😀y\ufffd";

Deno.test("rabbit infer --stream writes the text alone, in whole characters, and the lines to standard error", async () => {
  assertEquals(ANSWER, [316, 54, 54, 96, 269, 290, 166, 4]);
  await inTemporary(async (temporary) => {
    const directory = model(join(temporary, "m"), TEXTS);
    const args = ["--model", directory, ...IDS, "--steps", "8"];
    assertEquals((await result(directory, ...IDS, "--steps", "8")).text.text, SAID);

    const child = command(["infer", ...args, "--stream"]).spawn();
    const errors = new Response(child.stderr).text();
    const chunks: Uint8Array[] = [];
    for await (const chunk of child.stdout) chunks.push(chunk);
    assertEquals((await child.status).code, 0);
    const strict = new TextDecoder("utf-8", { fatal: true });
    assertEquals(chunks.map((chunk) => strict.decode(chunk)).join(""), SAID);
    // The lines are those of a run that does not stream, without the text.
    const plain = await infer(directory, ...IDS, "--steps", "8");
    assertEquals(steady(await errors), steady(plain.out).filter((line) => !line.startsWith("INFER text ")));
    assertEquals(JSON.parse(/^INFER text text=(.*)$/m.exec(plain.out)![1]), SAID);

    const both = await infer(directory, ...IDS, "--steps", "8", "--stream", "--json");
    assertEquals(both.out, SAID);
    assertEquals(JSON.parse(both.err).tokens, ANSWER);
    assertEquals("text" in JSON.parse(both.err), false);
  });
});

const TERMINAL = "rabbit infer shows the text on a terminal as it is decoded, and the lines after it";

needs(TERMINAL, { programs: ["script"] }, async () => {
  await inTemporary(async (temporary) => {
    const directory = model(join(temporary, "m"), TEXTS);
    const { code, out } = await onTerminal(temporary, ["infer", "--model", directory, ...IDS, "--steps", "8"]);
    assertEquals(code, 0, out);
    assertEquals(out.slice(0, SAID.length + 1), SAID + "\n");
    const lines = out.slice(SAID.length + 1).trimEnd().split("\n");
    assertEquals(lines.map((line) => line.split(" ")[1]), ["pinned", "mapped", "tokens", "prefill", "decode", "rss"]);
  });
});

Deno.test("rabbit infer leaves out the text of the token that ends the answer, wherever its id is said", async () => {
  await inTemporary(async (temporary) => {
    const config = json(`${TINY}/config.json`);
    const cases: [string, Record<string, unknown>][] = [
      ["config", { "config.json": { ...config, eos_token_id: 96 } }],
      ["generation", {
        "config.json": { ...config, eos_token_id: 7 },
        "generation_config.json": { eos_token_id: [9, 96] },
      }],
    ];
    for (const [name, files] of cases) {
      const directory = model(join(temporary, name), TEXTS, files);
      const { tokens, text } = await result(directory, ...IDS);
      assertEquals([tokens, text.text], [[316, 54, 54, 96], "€\ufffd"]);
      assertEquals((await infer(directory, ...IDS, "--stream")).out, "€\ufffd");
      const on = await result(directory, ...IDS, "--steps", "8", "--ignore-eos");
      assertEquals([on.tokens, on.text.text], [ANSWER, SAID]);
    }
    const silent = model(join(temporary, "silent"), TEXTS, { "config.json": { ...config, eos_token_id: 316 } });
    assertMatch((await infer(silent, ...IDS)).out, /^INFER tokens 316\nINFER text text=""$/m);
    assertEquals((await infer(silent, ...IDS, "--stream")).out, "");
  });
});

Deno.test("rabbit infer says that it assumes GPT-2's rules where only vocab.json and merges.txt are there", async () => {
  await inTemporary(async (temporary) => {
    const directory = model(join(temporary, "m"));
    Deno.removeSync(join(directory, "tokenizer.json"));
    const vocab = Object.fromEntries(LETTERS.map((letter, n) => [letter, n]));
    write(directory, { "vocab.json": JSON.stringify(vocab), "merges.txt": "#version: 0.2\n" });
    const { code, out, err } = await infer(directory, "--prompt", "ab c!", "--steps", "4");
    assertEquals(code, 0);
    assertMatch(
      err,
      /^rabbit: warning: --prompt: vocab\.json and merges\.txt do not say .* GPT-2's rules are assumed[^\n]*\n$/,
    );
    const byIds = await infer(directory, "--ids", ids("ab c!"), "--steps", "4");
    assertEquals(byIds.err, "");
    assertEquals(steady(out), steady(byIds.out));
  });
});

Deno.test("rabbit infer of ids goes on without text where the tokenizer can't be used", async () => {
  await inTemporary(async (temporary) => {
    const directory = model(join(temporary, "m"));
    write(directory, { "tokenizer.json": "junk\n" });
    const { code, out, err } = await infer(directory, ...IDS, "--steps", "8");
    assertEquals(code, 0);
    assertEquals(steady(out).at(-1), `INFER tokens ${ANSWER.join(" ")}`);
    assertMatch(err, /^rabbit: warning: infer: no text: .*tokenizer\.json: not valid JSON: [^\n]*\n$/);
    const prompt = await infer(directory, "--prompt", "a");
    assertEquals([prompt.code, prompt.out], [2, ""]);
    assertMatch(prompt.err, /^rabbit: infer: .*tokenizer\.json: not valid JSON: [^\n]*\n$/);
  });
});

Deno.test("rabbit infer draws the same tokens from the same seed, at every number of threads", async () => {
  await inTemporary(async (temporary) => {
    const directory = model(join(temporary, "m"));
    const draw = (...args: string[]) => result(directory, ...IDS, "--ignore-eos", "--steps", "12", ...args);
    const one = await draw("--temperature", "1.5", "--top-p", "0.95", "--seed", "7", "--threads", "1");
    assertEquals(one.sampling, { temperature: 1.5, top_p: 0.95, seed: 7 });
    const three = await draw("--temperature", "1.5", "--top-p", "0.95", "--seed", "7", "--threads", "3");
    assertEquals(three.tokens, one.tokens);
    assertNotEquals((await draw("--temperature", "1.5", "--top-p", "0.95", "--seed", "8")).tokens, one.tokens);
    // What was drawn without a seed can be drawn again with the one that is printed.
    const free = await draw("--temperature", "1.5");
    assert(Number.isSafeInteger(free.sampling.seed));
    assertEquals((await draw("--temperature", "1.5", "--seed", String(free.sampling.seed))).tokens, free.tokens);
    const line = await infer(directory, ...IDS, "--temperature", "0.5", "--seed", "3");
    assertMatch(line.out, /^INFER sampling temperature=0\.5 top_p=1 seed=3$/m);
    // The margins of the model are 0.12 and more: cold enough, only the likeliest token is left.
    const cold = await result(directory, ...IDS, "--steps", "8", "--temperature", "0.001", "--seed", "1");
    assertEquals(cold.tokens, ANSWER);
    const few = await result(
      directory,
      ...IDS,
      "--steps",
      "8",
      "--temperature",
      "1",
      "--top-p",
      "1e-9",
      "--seed",
      "1",
    );
    assertEquals(few.tokens, ANSWER);
    assertEquals("sampling" in await result(directory, ...IDS, "--temperature", "0"), false);
  });
});

Deno.test("rabbit infer --chat puts the prompt into the template, and stops at the end of a turn", async () => {
  await inTemporary(async (temporary) => {
    const settings = { chat_template: CHATML, eos_token: "<|im_end|>" };
    const directory = model(join(temporary, "m"), {}, { "tokenizer_config.json": settings });
    const asked = await result(directory, "--chat", "--prompt", "Hi é", "--steps", "5");
    const wanted = ids(START, "user\nHi é", END, "\n", START, "assistant\n");
    const byIds = await result(directory, "--ids", wanted, "--steps", "5");
    assertEquals([asked.prefill.tokens, asked.tokens], [wanted.split(" ").length, byIds.tokens]);
    const system = await result(directory, "--chat", "--system", "Be short.", "--prompt", "Hi", "--steps", "5");
    const whole = ids(START, "system\nBe short.", END, "\n", START, "user\nHi", END, "\n", START, "assistant\n");
    assertEquals(system.tokens, (await result(directory, "--ids", whole, "--steps", "5")).tokens);

    // The second token of the answer as the end of a turn, which only tokenizer_config.json says.
    const [, second] = asked.tokens;
    const turn = { chat_template: CHATML, eos_token: LETTERS[second] ?? `<unused${second}>` };
    write(directory, { "tokenizer_config.json": JSON.stringify(turn) });
    assertEquals(
      (await result(directory, "--chat", "--prompt", "Hi é", "--steps", "5")).tokens,
      asked.tokens.slice(0, 2),
    );
    assertEquals((await result(directory, "--ids", wanted, "--steps", "5")).tokens, asked.tokens);
  });
});

/** What is said of an argument that is not UTF-8. */
const NOT_UTF8 = 'the argument "a\ufffd" is not UTF-8, or contains U+FFFD, which replaces invalid bytes';

Deno.test("rabbit infer refuses an argument with the character that replaces what is not UTF-8", async () => {
  await refused(NOT_UTF8, "infer", "--model", TINY, "--prompt", "a\ufffd");
});

needs(
  "rabbit infer refuses an argument that is not UTF-8",
  { lacks: BINARY ? ["deno compile's runtime ends at such an argument before the program runs"] : [] },
  async () => {
    const script = `exec "$@" infer --model ${TINY} --prompt "$(printf 'a\\377')"`;
    const { code, err } = await execute("sh", ["-c", script, "sh", ...PROGRAM]);
    // Older Denos refuse such an argument themselves, before they run a program.
    if (/invalid UTF-8 was detected/.test(err)) return assertEquals(code, 1);
    assertEquals([code, err], [2, `rabbit: infer: ${NOT_UTF8}\n`]);
  },
);

Deno.test("rabbit infer names a vocabulary that it does not read, and what makes a tokenizer.json of it", async () => {
  await inTemporary(async (directory) => {
    copyModel(TINY, directory);
    write(directory, { "tokenizer.model": "x" });
    await refused(
      `--prompt needs tokenizer.json, or vocab.json and merges.txt, in ${directory} (tokenizer.model is not supported; ` +
        `create tokenizer.json from it with transformers: AutoTokenizer.from_pretrained("${directory}")` +
        `.save_pretrained("${directory}")); use --ids`,
      ...["infer", "--model", directory, "--prompt", "a"],
    );
  });
});

Deno.test("rabbit infer gives the tokens of every file their ids", async () => {
  await inTemporary(async (directory) => {
    const words = [...LETTERS];
    const plain = {
      content: "<|y|>",
      lstrip: false,
      rstrip: false,
      normalized: false,
      single_word: false,
      special: true,
    };
    write(directory, {
      "model.safetensors": Deno.readFileSync(join(TINY, WEIGHTS)),
      "config.json": Deno.readTextFileSync(join(TINY, "config.json")),
      "tokenizer.json": tokenizerJson(words),
      "added_tokens.json": JSON.stringify({ "<|x|>": 256 }),
      "special_tokens_map.json": JSON.stringify({ eos_token: "<|x|>", bos_token: plain }),
      "chat_template.jinja": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
    });
    const expected = (await result(directory, "--ids", ids(257, "Hi", 256))).tokens;
    assertEquals((await result(directory, "--prompt", "<|y|>Hi<|x|>")).tokens, expected);
    assertEquals((await result(directory, "--chat", "--prompt", "Hi")).tokens, expected);
  });
});

Deno.test("rabbit infer --date is the date of a template that asks for one, and is printed", async () => {
  await inTemporary(async (temporary) => {
    const template = "{{ strftime_now('%d %b %Y %H:%M') }} {{ messages[0].content }}";
    const directory = model(join(temporary, "m"), {}, { "tokenizer_config.json": { chat_template: template } });
    const chat = ["--chat", "--prompt", "Hi", "--steps", "4"];
    const asked = await result(directory, ...chat, "--date", "2024-02-29");
    assertEquals(asked.chat, { date: "2024-02-29" });
    assertEquals(
      [asked.prefill.tokens, asked.tokens],
      [20, (await result(directory, "--ids", ids("29 Feb 2024 00:00 Hi"), "--steps", "4")).tokens],
    );
    const { out } = await infer(directory, ...chat);
    assertMatch(out, /^INFER chat date=\d{4}-\d\d-\d\d$/m);
    write(directory, { "tokenizer_config.json": JSON.stringify({ chat_template: CHATML }) });
    assertEquals((await result(directory, ...chat, "--date", "2024-02-29")).chat, undefined);
    for (const bad of ["2023-02-29", "2024-2-29", "24-02-29", "0999-01-01", "today", "2024-13-01", "2024-00-10"]) {
      await refused(
        `--date takes a day of the calendar as YYYY-MM-DD, found "${bad}"`,
        "infer",
        "--model",
        directory,
        ...chat,
        "--date",
        bad,
      );
    }
    await refused("--date needs --chat", "infer", "--model", directory, "--date", "2024-02-29", "--prompt", "Hi");
  });
});

Deno.test("rabbit infer refuses options of text that it can't follow", async () => {
  await inTemporary(async (temporary) => {
    const directory = model(join(temporary, "m"));
    const prompt = ["--prompt", "a"];
    await refused(
      `--chat needs a chat template: chat_template in tokenizer_config.json, or chat_template.jinja, in ${directory}`,
      ...["infer", "--model", directory, "--chat", ...prompt],
    );
    await refused("--chat needs --prompt", "infer", "--model", directory, "--chat");
    await refused("--system needs --chat", "infer", "--model", directory, "--system", "x", ...prompt);
    await refused(
      "--seed needs --temperature above 0: greedy decoding samples nothing",
      "infer",
      "--model",
      directory,
      "--seed",
      "1",
    );
    await refused(
      "--top-p needs --temperature above 0: greedy decoding samples nothing",
      ...["infer", "--model", directory, "--top-p", "0.5", "--temperature", "0"],
    );
    for (const bad of ["-1", "x", "101", "Infinity", "NaN", "0x1", "1,5"]) {
      await refused(
        `--temperature takes a number of 0 to 100, found "${bad}"`,
        "infer",
        "--model",
        directory,
        "--temperature",
        bad,
      );
    }
    for (const bad of ["0", "1.01", "-0.5", "all"]) {
      await refused(
        `--top-p takes a number above 0, to 1, found "${bad}"`,
        "infer",
        "--model",
        directory,
        "--top-p",
        bad,
        "--temperature",
        "1",
      );
    }
    await refused(
      '--seed takes a whole number of at least 0, found "1.5"',
      ...["infer", "--model", directory, "--seed", "1.5", "--temperature", "1"],
    );
    // The largest integer up to which binary64 has all.
    await refused(
      '--seed takes a whole number of 0 to 9007199254740991, found "9007199254740992"',
      ...["infer", "--model", directory, "--seed", "9007199254740992", "--temperature", "1"],
    );
    await refused(
      `--stream needs tokenizer.json, or vocab.json and merges.txt, in ${TINY}; copy them there`,
      ...["infer", "--model", TINY, "--stream", ...IDS],
    );
    await refused("--prompt is empty", "infer", "--model", directory, "--prompt", "");
    write(directory, { "chat_template.jinja": "{{ raise_exception('no system here') }}" });
    await refused(
      `${directory}/chat_template.jinja: chat template: no system here`,
      "infer",
      "--model",
      directory,
      "--chat",
      ...prompt,
    );
    write(directory, { "chat_template.jinja": "{{" });
    const broken = await infer(directory, "--chat", ...prompt);
    assertEquals([broken.code, broken.out], [2, ""]);
    assertMatch(broken.err, /^rabbit: infer: .*chat_template\.jinja: chat template: [^\n]+\n$/);
  });
});

Deno.test("without a prompt it is the published text in the model's own tokens, where tokenizer.json has them", async () => {
  await inTemporary(async (temporary) => {
    const text = "The capital of France is";
    const directory = model(join(temporary, "m"));
    const copy = model(join(temporary, "copy"));
    const of = async (...args: string[]) => {
      const { tokens, text } = await result(directory, ...args, "--steps", "3");
      return { tokens, text };
    };
    assertEquals(await of(), await of("--ids", ids(text)));
    assertEquals(await of(), await of("--prompt", text));
    const compare = async (...args: string[]) => {
      const { code, out, err } = await rabbit(ROOT, ["compare", directory, copy, "--steps", "3", ...args]);
      assertEquals([code, err], [0, ""]);
      return steady(out).filter((line) => !line.startsWith("COMPARE memory "));
    };
    assertEquals(await compare(), await compare("--ids", ids(text)));
    // vocab.json and merges.txt do not say how a text becomes tokens: then the ids are those of SmolLM2.
    Deno.removeSync(join(directory, "tokenizer.json"));
    write(directory, { "vocab.json": "{}", "merges.txt": "" });
    const line = "the default prompt has the id 504, the vocabulary ends at 319; give --ids";
    await refused(line, "infer", "--model", directory);
  });
});

Deno.test("rabbit compare prints both answers as text where there is a tokenizer", async () => {
  await inTemporary(async (temporary) => {
    const directory = model(join(temporary, "m"), TEXTS);
    const copy = model(join(temporary, "copy"), TEXTS);
    const compare = (...args: string[]) => rabbit(ROOT, ["compare", directory, copy, ...IDS, ...args]);
    const { code, out, err } = await compare();
    assertEquals([code, err], [0, ""]);
    const [float, quant, ...rest] = out.split("\n");
    assertEquals([float, quant], ["float", "quant"].map((which) => `COMPARE tokens_${which} ${ANSWER.join(" ")}`));
    for (const [n, which] of ["float", "quant"].entries()) {
      const said = new RegExp(`^COMPARE text_${which} text=(".*")$`).exec(rest[n])![1];
      assertEquals(JSON.parse(said), SAID);
    }
    const object = JSON.parse((await compare("--json")).out);
    assertEquals([object.text_float, object.text_quant], [{ text: SAID }, { text: SAID }]);
    // The ids are right without a tokenizer.
    write(directory, { "tokenizer.json": "{" });
    const broken = await compare();
    assertEquals([broken.code, broken.out.includes("text_")], [0, false]);
    assertMatch(broken.err, /^rabbit: warning: compare: no text: .*tokenizer\.json: not valid JSON: [^\n]*\n$/);
  });
});
