/**
 * What reaches a terminal, a pipe and a file: names and texts of files with characters that a terminal would act on.
 * RABBIT_BIN=path runs the same tests on the executable.
 */

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { inTemporary, write } from "../support/files.ts";
import { expected, IDS, json, ROOT, TINY } from "../support/fixtures.ts";
import { talkingModel } from "../support/models.ts";
import { needs } from "../support/needs.ts";
import { onTerminal, rabbit, type Ran } from "../support/program.ts";
import { container, type Entry, safetensors } from "../support/safetensors.ts";
import { byteLevel, tokenizerJson } from "../support/tokenizers.ts";

/** Commands of a terminal, and what reorders, breaks or hides text. */
const EVIL = "\x1b]0;title\x07\x1b[2J\r\x08\x7f\u009b2J\u202eabc\u2066\u2028\u2029\u200b\ufeff\u{e0041}";

/** The same as \uXXXX. */
const TAME = "\\u001b]0;title\\u0007\\u001b[2J\\u000d\\u0008\\u007f\\u009b2J\\u202eabc\\u2066\\u2028\\u2029\\u200b" +
  "\\ufeff\\udb40\\udc41";

/** The same in a JSON string. */
const QUOTED = TAME.replace("\\u000d\\u0008", "\\r\\b");

/** What may not be in the program's output: the categories of such characters, the line feed aside. */
const RAW = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\ufffd]/u;

function tame(ran: Ran): Ran {
  for (const part of [ran.out, ran.err]) assertEquals(RAW.exec(part)?.[0], undefined, JSON.stringify(part));
  return ran;
}

/** Runs a command that must end with 2 and one line on standard error. @returns the line */
async function refusal(args: string[]): Promise<string> {
  const ran = tame(await rabbit(ROOT, args));
  assertEquals({ code: ran.code, out: ran.out }, { code: 2, out: "" }, ran.err);
  assertMatch(ran.err, /^rabbit: [^\n]*\n$/);
  assert(ran.err.length < 13_000, ran.err);
  return ran.err;
}

function empty(name: string): Entry {
  return { name, dtype: "F32", shape: [0], bytes: new Uint8Array(0) };
}

/** The tiny model with a tokenizer of 320 words. */
function model(directory: string, word: (n: number) => string, files: Record<string, string> = {}): string {
  return talkingModel(directory, Array.from({ length: 320 }, (_, n) => word(n)), files);
}

const { tokens } = expected.float;
const PROMPT = [...IDS, "--steps", String(tokens.length), "--ignore-eos"];

Deno.test("result lines and --json show names of tensors and files without what a terminal acts on", () =>
  inTemporary(async (cwd) => {
    const file = `x${EVIL.replaceAll("/", "")} "y=z`;
    const names = [`a${EVIL}`, "b\nINSPECT model=evil digest=00", "c d=e", 'f"g', "h\\u001b", "ж漢😀é"];
    const path = `${cwd}/${file}.safetensors`;
    Deno.writeFileSync(path, safetensors(names.map(empty)));
    const lines = tame(await rabbit(cwd, ["inspect", path]));
    assertEquals([lines.code, lines.err], [0, ""]);
    const values = lines.out.trimEnd().split("\n").map((line) =>
      /^INSPECT \w+=("(?:[^"\\]|\\.)*"|\S+) /.exec(line)![1]
    );
    assertEquals(values.map((value) => value.startsWith('"') ? JSON.parse(value) : value), [path, ...names]);
    assertEquals(values[1], `"a${QUOTED}"`);
    assertEquals(values.slice(-2), ["h\\u001b", "ж漢😀é"]);

    const whole = tame(await rabbit(cwd, ["inspect", path, "--json"]));
    const object = JSON.parse(whole.out);
    assertEquals([object.model, ...object.list.map(({ tensor }: { tensor: string }) => tensor)], [path, ...names]);
    assertStringIncludes(whole.out, QUOTED);
  }));

Deno.test("errors show names and texts of files without what a terminal acts on, in one line of some length", () =>
  inTemporary(async (cwd) => {
    const long = EVIL.repeat(10_000);
    const bad = `${cwd}/bad.safetensors`;
    const header = (value: unknown) => Deno.writeFileSync(bad, container(JSON.stringify(value), new Uint8Array(4)));
    for (const name of [EVIL, long, "a\nb"]) {
      header({ [name]: { dtype: "F32", shape: [2], data_offsets: [0, 4] } });
      await refusal(["inspect", bad]);
      header({ a: { dtype: name, shape: [1], data_offsets: [0, 4] } });
      await refusal(["inspect", bad]);
    }
    header({ [EVIL]: { dtype: "F32", shape: [2], data_offsets: [0, 4] } });
    assertStringIncludes(await refusal(["inspect", bad]), `tensor "${QUOTED}": `);
    Deno.writeFileSync(bad, container(`{${long}`));
    await refusal(["inspect", bad]);

    // The name of a shard comes from the index, and is a part of the path.
    const shard = `m${EVIL}.safetensors`;
    write(`${cwd}/sharded`, {
      "model.safetensors.index.json": JSON.stringify({ weight_map: { a: shard } }),
      [shard]: "x",
    });
    assertStringIncludes(await refusal(["inspect", `${cwd}/sharded`]), `${cwd}/sharded/m${TAME}.safetensors: `);

    const config = (text: string) => model(`${cwd}/model`, (n) => `w${n}`, { "config.json": text });
    const fields = json(`${TINY}/config.json`);
    for (
      const text of [
        `{"a":\r\x1b[2J}`,
        `{"a":${long}}`,
        JSON.stringify({ architectures: [EVIL] }),
        JSON.stringify({ ...fields, hidden_size: [EVIL, "\x9b"] }),
        JSON.stringify({ ...fields, hidden_act: long }),
      ]
    ) await refusal(["infer", "--model", config(text)]);

    const tokenizer = JSON.parse(tokenizerJson(Array.from({ length: 320 }, (_, n) => `w${n}`)));
    for (
      const change of [
        { normalizer: { type: EVIL } },
        { decoder: { type: long } },
        { pre_tokenizer: { type: "Split", pattern: { Regex: `(${EVIL}` }, behavior: "Isolated", invert: false } },
        { pre_tokenizer: { type: "Split", behavior: EVIL } },
      ]
    ) {
      const directory = model(`${cwd}/model`, (n) => `w${n}`, {
        "tokenizer.json": JSON.stringify({ ...tokenizer, ...change }),
      });
      await refusal(["infer", "--model", directory, "--prompt", "a"]);
    }
    for (
      const template of [`{{ raise_exception(${JSON.stringify(long)}) }}`, `{% ${EVIL} %}`, `{{ foo("${EVIL}") }}`]
    ) {
      const directory = model(`${cwd}/model`, (n) => `w${n}`, { "chat_template.jinja": template });
      await refusal(["infer", "--model", directory, "--chat", "--prompt", "a"]);
    }

    const { code, err } = tame(await rabbit(cwd, ["inspect", `${EVIL}\n`], { RABBIT_DEBUG: "1" }));
    assertEquals(code, 2);
    assertMatch(err, /\n {4}at /);
    for (const args of [[EVIL], ["inspect", `--${EVIL}`], ["infer", "--model", "a", "--ids", EVIL.repeat(1000)]]) {
      await refusal(args);
    }
  }));

Deno.test("warnings show texts of files without what a terminal acts on", () =>
  inTemporary(async (cwd) => {
    const tokenizer = JSON.stringify({ ...JSON.parse(tokenizerJson(["a"])), decoder: { type: EVIL } });
    const directory = model(`${cwd}/m${EVIL}`, (n) => `w${n}`, { "tokenizer.json": tokenizer });
    const { code, out, err } = tame(await rabbit(cwd, ["infer", "--model", directory, ...PROMPT]));
    assertEquals(code, 0);
    assertMatch(out, /^INFER tokens /m);
    assertMatch(err, /^rabbit: warning: infer: no text: [^\n]*\n$/);
  }));

Deno.test("a name that a message quotes is cut, and so is a long message, in its middle", () =>
  inTemporary(async (cwd) => {
    const { err } = await rabbit(cwd, ["infer", "--model", `${"x".repeat(200)}/`.repeat(15)]);
    assertMatch(err, /^rabbit: infer: cannot open x{200}\/.* … .*x{200}\/: no such file or directory\n$/);
    assertEquals([...err].length, 2000 + "rabbit:  … \n".length);
  }));

/** Words whose pieces are ordinary text and the worst that there is. */
const WORDS: Record<number, string> = Object.fromEntries(
  tokens.map((id: number) => [id, `a\x1b[2J\x07\u009b\u202e\u200d\n\r`]),
);

/** A model whose answer is every one of WORDS. */
function loud(directory: string): string {
  return model(directory, (n) => n in WORDS ? byteLevel(WORDS[n]) + `${n}` : `<w${n}>`);
}

const ANSWER = tokens.map((id: number) => `${WORDS[id]}${id}`).join("");

Deno.test("infer --stream into a pipe or a file is the text, exactly", () =>
  inTemporary(async (cwd) => {
    const directory = loud(`${cwd}/m`);
    const ran = await rabbit(cwd, ["infer", "--model", directory, ...PROMPT, "--stream"]);
    assertEquals({ code: ran.code, out: ran.out }, { code: 0, out: ANSWER });
    tame({ ...ran, out: "" });
    const lines = tame(await rabbit(cwd, ["infer", "--model", directory, ...PROMPT]));
    assertEquals(JSON.parse(/^INFER text text=(".*")$/m.exec(lines.out)![1]), ANSWER);
  }));

needs(
  "infer on a terminal shows lines and letters of the text, and the rest as escapes",
  { programs: ["script"] },
  () =>
    inTemporary(async (cwd) => {
      const directory = loud(`${cwd}/m`);
      const shown = ANSWER.replaceAll("\x1b", "\\u001b").replaceAll("\x07", "\\u0007").replaceAll("\x9b", "\\u009b")
        .replaceAll("\u202e", "\\u202e").replaceAll("\r", "\\u000d");
      for (const more of [[], ["--stream"]]) {
        const { code, out } = await onTerminal(cwd, ["infer", "--model", directory, ...PROMPT, ...more]);
        assertEquals(code, 0);
        assertEquals(out.slice(0, shown.length + 1), shown + "\n");
        assertMatch(out.slice(shown.length + 1), /^(INFER [^\p{Cc}\p{Cf}]*\n)+$/u);
      }
    }),
);

needs(
  "progress is shown on a terminal that knows escape sequences, and leaves its settings alone",
  { programs: ["script"] },
  () =>
    inTemporary(async (cwd) => {
      assertEquals((await rabbit(cwd, ["gen", "--out", "in"])).code, 0);
      const quantize = (env: Record<string, string>) =>
        onTerminal(cwd, ["quantize", "--in", "in", "--out", "o", "--force"], env);
      const { code, out } = await quantize({ TERM: "xterm" });
      assertEquals(code, 0);
      assertStringIncludes(out, "quantize [");
      // The cursor stays visible (DECTCEM) and lines are wrapped (DECAWM), also where the program is killed.
      assertEquals(["?25l", "?7l"].filter((setting) => out.includes(`\x1b[${setting}`)), []);
      for (const TERM of ["dumb", ""]) {
        const plain = await quantize({ TERM });
        assertMatch(plain.out, /^QUANT [^\n]*\nQUANT [^\n]*\n$/);
        tame(plain);
      }
      const quiet = await onTerminal(cwd, ["quantize", "in", "o", "--force", "--quiet"], { TERM: "xterm" });
      assertMatch(quiet.out, /^QUANT [^\n]*\nQUANT [^\n]*\n$/);
    }),
);

Deno.test("nothing but output.ts writes to the terminal", () => {
  // Programs of their own, which print for those who build.
  const builds = ["lib/kernels/wasm/build.ts", "lib/kernels/engine_flags.ts"];
  const sources = ["main.ts", ...modules("lib")].filter((path) =>
    path !== "lib/cli/output.ts" && !builds.includes(path)
  );
  assert(sources.length > 50);
  for (const path of sources) {
    const code = Deno.readTextFileSync(ROOT + path).split("\n").filter((line) => !/^\s*(\*|\/\/|\/\*)/.test(line)).join(
      "\n",
    );
    const found = /\bconsole\b|\b(Deno|process)\.std(out|err)\b|\b(alert|confirm|prompt)\(/.exec(code)?.[0];
    assertEquals(found, undefined, path);
  }
});

function modules(directory: string): string[] {
  return [...Deno.readDirSync(ROOT + directory)].flatMap(({ name, isDirectory }) => {
    const path = `${directory}/${name}`;
    return isDirectory ? modules(path) : /(?<!\.as)\.ts$/.test(name) ? [path] : [];
  });
}

needs(
  "the peak of the memory is that of the program, not of what started it",
  { files: ["/proc/self/status"] },
  async () => {
    // getrusage(2) would tell these.
    const held = new Uint8Array(600_000_000).fill(1);
    const { code, out } = await rabbit(ROOT, ["infer", "--model", TINY, ...PROMPT, "--json"]);
    assertEquals(code, 0);
    const { bytes, peak } = JSON.parse(out).rss;
    assert(bytes > 20_000_000 && bytes <= peak && peak < held.length, `${bytes} ${peak}`);
  },
);

needs(
  "help is as wide as the terminal, and 80 columns where it says nothing",
  { programs: ["script", "stty"] },
  async () => {
    const widest = (text: string) => Math.max(...text.split("\n").map((line) => line.length));
    const piped = await rabbit(ROOT, ["--help"]);
    for (const [columns, least] of [[60, 50], [110, 90]]) {
      const { code, out } = await onTerminal(ROOT, ["--help"], {}, columns);
      assertEquals(code, 0, out);
      assert(widest(out) <= columns && widest(out) > least, out);
    }
    assertEquals((await onTerminal(ROOT, ["--help"])).out, piped.out);
  },
);
