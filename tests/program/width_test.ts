// A new width is one row: a program whose table has the row of support/five_bits.ts, and nothing else that differs, takes
// a checkpoint through every command. What is expected comes from fixtures/make_width.py.

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { FORMATS } from "../../lib/format/blocks.ts";
import { sha256, temporary, tree } from "../support/files.ts";
import { fixture, ROOT, TINY } from "../support/fixtures.ts";
import { execute, type Ran } from "../support/program.ts";

const { tiny: expected } = fixture<{
  tiny: {
    prompt_ids: number[];
    bytes: number;
    sha256: string;
    errors: Record<string, number>;
    tokens: number[];
    float_tokens: number[];
    logits_max: number;
    logits_mean: number;
  };
}>("width.json");

const directory = temporary();
const QUANT = `${directory}/q5`;
const IDS = ["--ids", expected.prompt_ids.join(" ")];

/**
 * Writes the configuration of a program, workers included, in which another module stands for lib/format/blocks.ts: the
 * same text, with one row more in the table.
 */
function addRow(): string {
  const blocks = `${ROOT}lib/format/blocks.ts`;
  const source = Deno.readTextFileSync(blocks);
  const rows = /^export const FORMATS\b[^]*?byName\(\[[^]*?(?=^\]\);)/m;
  const row = `import { ROW } from "${new URL("../support/five_bits.ts", import.meta.url)}";\n`;
  assertMatch(source, rows);
  const table = row + source.replace(rows, (table) => `${table}  blockFormat(ROW),\n`);
  Deno.writeTextFileSync(`${directory}/blocks.ts`, table.replaceAll('from "./', `from "file://${ROOT}lib/format/`));
  const { imports } = JSON.parse(Deno.readTextFileSync(`${ROOT}deno.json`));
  for (const [name, target] of Object.entries<string>(imports)) {
    if (target.startsWith("./")) imports[name] = `file://${ROOT}${target.slice(2)}`;
  }
  imports[`file://${blocks}`] = "./blocks.ts";
  Deno.writeTextFileSync(`${directory}/deno.json`, JSON.stringify({ imports }));
  return `${directory}/deno.json`;
}

const config = addRow();

/** Runs the program with the row. */
function run(...args: string[]): Promise<Ran> {
  const options = ["run", "--allow-all", "--no-lock", "--config", config, `${ROOT}main.ts`];
  const env = { RABBIT_CHECKED: "", RABBIT_DEBUG: "" };
  return execute(Deno.execPath(), [...options, ...args], { cwd: directory, env });
}

/** Runs a command that must succeed, with --json. */
async function result(...args: string[]) {
  const { code, out, err } = await run(...args, "--json");
  assertEquals(code, 0, err);
  return JSON.parse(out);
}

/** The checkpoint, quantized by the first test that needs it. */
let made: Promise<Record<string, unknown>> | undefined;
function quantized() {
  // Several threads: a worker reads the table too.
  return made ??= result("quantize", "--in", TINY, "--out", QUANT, "--bits", "5", "--threads", "3");
}

Deno.test("the table of this program has no such row", () => {
  assertEquals(FORMATS.has("Q5B32"), false);
});

Deno.test("a new width: quantize writes the file that was computed elsewhere", async () => {
  const { bits, bytes, digest } = await quantized();
  assertEquals({ bits, bytes, digest }, { bits: 5, bytes: expected.bytes, digest: expected.sha256 });
  assertEquals(await sha256(`${QUANT}/model.safetensors`), expected.sha256);
});

Deno.test("a new width: help and the values of flags name it", async () => {
  const helpOf = async (command: string) => (await run(command, "--help")).out.replaceAll(/\s+/g, " ");
  const helps = await Promise.all(["quantize", "infer", "matmul"].map(helpOf));
  assertStringIncludes(helps[0], "--bits 4|5|8");
  assertStringIncludes(helps[0], "5 for the middle (Q5B32)");
  assertStringIncludes(helps[1], "i8 for 5 bits");
  assertStringIncludes(helps[2], "--bits 4|5|8|16");
  assertStringIncludes(helps[2], "Q4B32, Q5B32, Q8B32 or BF16");
});

Deno.test("a new width: verify reads it, alone and against its source", async () => {
  await quantized();
  const [alone, against] = await Promise.all([result("verify", QUANT), result("verify", QUANT, "--against", TINY)]);
  const quantizedTensors = Object.keys(expected.errors).length;
  for (const { format, quantized, digest, verdict } of [alone, against]) {
    assertEquals([format, quantized, digest], ["rabbit-q5b32", quantizedTensors, expected.sha256]);
    assertEquals(verdict, "OK");
  }
  for (const { tensor, equal, rms } of against.list) {
    assert(equal, tensor);
    if (tensor in expected.errors) assert(Math.abs(rms / expected.errors[tensor] - 1) < 1e-9, `${tensor}: ${rms}`);
  }

  const bytes = Deno.readFileSync(`${QUANT}/model.safetensors`);
  bytes[bytes.length - 500] ^= 1;
  Deno.mkdirSync(`${directory}/damaged`);
  Deno.writeFileSync(`${directory}/damaged/model.safetensors`, bytes);
  const found = await run("verify", `${directory}/damaged`, "--against", TINY);
  assertEquals(found.code, 1);
});

Deno.test("a new width: inspect names it", async () => {
  await quantized();
  const { out, code } = await run("inspect", QUANT);
  assertEquals(code, 0);
  assertMatch(out, /rabbit-q5b32/);
  assertMatch(out, /Q5B32/);
});

Deno.test("a new width: infer decodes the tokens that were computed elsewhere, in one thread and in several", async () => {
  await quantized();
  const options = ["infer", "--model", QUANT, ...IDS, "--steps", String(expected.tokens.length), "--ignore-eos"];
  const exact = [...options, "--activations", "f32", "--threads"];
  const [one, three, own] = await Promise.all([result(...exact, "1"), result(...exact, "3"), result(...options)]);
  assertEquals(one.tokens, expected.tokens);
  assertEquals(three.tokens, expected.tokens);
  assertEquals([one.decode.activations, own.decode.activations], ["f32", "i8"]);
});

Deno.test("a new width: compare finds the difference of the logits that was computed elsewhere", async () => {
  await quantized();
  const { code, out } = await run("compare", TINY, QUANT, ...IDS, "--json");
  const found = JSON.parse(out);
  assertEquals(code, 1);
  assertEquals([found.tokens_float, found.tokens_quant], [expected.float_tokens, expected.tokens]);
  assert(Math.abs(found.logits.max - expected.logits_max) < 1e-4, `${found.logits.max}`);
  assert(Math.abs(found.logits.mean - expected.logits_mean) < 1e-5, `${found.logits.mean}`);
});

Deno.test("a new width: gate passes it, and gen writes weights that it holds exactly", async () => {
  const { list, verdict } = await result("gate");
  const own = list.find(({ bits }: { bits: number }) => bits === 5);
  assertEquals([own.match, own.max_diff, own.pass, verdict], [true, 0, true, "OK"]);
});

Deno.test("a new width: advise measures it, and report has a page for it", async () => {
  await quantized();
  const page = `${directory}/page.html`;
  const [advice, report] = await Promise.all([
    result("advise", "--in", TINY),
    run("report", TINY, QUANT, ...IDS, "--out", page),
  ]);
  const width = advice.widths.find(({ bits }: { bits: number }) => bits === 5);
  assertEquals(width.bytes, expected.bytes);
  assertEquals(report.code, 0, report.err);
  assertStringIncludes(Deno.readTextFileSync(page), "Q5B32");
});

Deno.test("a new width: matmul times it", async () => {
  const { format, bytes } = await result("matmul", "--bits", "5", "--rows", "64", "--columns", "64");
  assertEquals([format, bytes], ["Q5B32", 64 * 2 * 22]);
});

Deno.test("a new width without a type of llama.cpp: export refuses it in one line that names it", async () => {
  await quantized();
  const { code, out, err } = await run("export", "--in", QUANT, "--gguf", `${directory}/out.gguf`);
  assertEquals([code, out], [2, ""]);
  assertMatch(
    err,
    /^rabbit: export: .*q5\/model\.safetensors: tensor "[^"]+": dtype: llama\.cpp has no Q5B32 matrices; [^\n]+\n$/,
  );
  assertEquals(tree(directory).filter((path) => path.includes("gguf")), []);
});

Deno.test("without its row a checkpoint of that width is refused", async () => {
  await quantized();
  const args = ["run", "--allow-all", `${ROOT}main.ts`, "infer", "--model", QUANT, ...IDS];
  const ran = await execute(Deno.execPath(), args);
  assertEquals([ran.code, ran.out], [2, ""]);
  assertMatch(ran.err, /^rabbit: infer: [^\n]*"Q5B32"\n$/);
});
