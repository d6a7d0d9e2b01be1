// `--memory` of `rabbit compare --text`, `rabbit report` and `rabbit advise`: models that do not fit are read one layer at a
// time, and all figures are those of models in memory.

import { assert, assertEquals, assertMatch } from "@std/assert";
import { join } from "@std/path/join";
import { generate } from "../../lib/dev/gen.ts";
import { temporary } from "../support/files.ts";
import { fixture } from "../support/fixtures.ts";
import { quantizeTo } from "../support/models.ts";
import { done, lines, refused, run } from "../support/program.ts";
import { entriesOf, writeShards } from "../support/safetensors.ts";

const made = temporary();
const FILE = join(made, "text.txt");
const { text: { text } } = fixture("metrics.json");
Deno.writeTextFileSync(FILE, text.repeat(6));

/** Models of which most is layers: small matrices, and caches. */
const SHAPE = { hidden: 128, intermediate: 256, layers: 24, heads: 8, vocabulary: 512 };
const MODELS: Record<string, { float: string; quant: string }> = {};
for (const tied of [true, false]) {
  const [float, quant] = ["float", "quant"].map((name) => join(made, `${name}-${tied ? "tied" : "untied"}`));
  generate(float, { shape: { ...SHAPE, tied, kvHeads: tied ? 8 : 4 } });
  await quantizeTo(quant, float, tied ? 4 : 8);
  MODELS[tied ? "a tied head" : "an untied head, in shards"] = { float, quant };
  if (tied) continue;
  const entries = entriesOf(Deno.readFileSync(join(float, "model.safetensors")));
  Deno.removeSync(join(float, "model.safetensors"));
  writeShards(float, { "a.safetensors": entries.slice(0, 90), "b.safetensors": entries.slice(90) });
}

// deno-lint-ignore no-explicit-any
async function json(...args: string[]): Promise<any> {
  return JSON.parse(await done(...args, "--json", "--quiet"));
}

/** Arguments that leave too little memory for all weights: between what they need and what those of a layer need. */
async function tight(args: readonly string[]): Promise<string[]> {
  const { text: { memory, weights } } = await json(...args, "--dry-run", "--memory", "100GB");
  assertEquals(weights, "all");
  const { text: less } = await json(...args, "--dry-run", "--memory", `${memory - 10e6}`);
  assertEquals(less.weights, "one-layer");
  assert(less.memory < memory - 15e6, `${less.memory} of ${memory}`);
  return ["--memory", `${Math.round((less.memory + memory) / 2)}`];
}

for (const [name, { float, quant }] of Object.entries(MODELS)) {
  Deno.test(`rabbit compare --text prints the same lines one layer at a time: ${name}`, async () => {
    const args = ["compare", float, quant, "--text", FILE, "--window", "96", "--stride", "80", "--quiet"];
    const wanted = await lines(0, ...args, "--threads", "2", "--memory", "100GB");
    assertEquals(wanted.length, 5);
    for (const threads of ["1", "2", "3"]) {
      const given = [...args, "--threads", threads];
      assertEquals(await lines(0, ...given, ...await tight(given)), wanted, `${threads} threads`);
    }
    const memory = await tight(args);
    const parts = await Promise.all(["1/2", "2/2"].map(async (part, n) => {
      const path = join(made, `part-${n}.jsonl`);
      Deno.writeTextFileSync(path, await done(...args, "--shard", part, ...n === 0 ? memory : []));
      return path;
    }));
    assertEquals(await lines(0, "merge", ...parts), wanted);
  });
}

Deno.test("a scale that is not finite is named, in whichever layer it is", async () => {
  const { float, quant } = MODELS["a tied head"];
  const broken = join(made, "broken");
  Deno.mkdirSync(broken);
  const file = Deno.readFileSync(join(quant, "model.safetensors"));
  const name = "model.layers.17.self_attn.k_proj.weight";
  const start = 8 + Number(new DataView(file.buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(file.subarray(8, start)));
  new DataView(file.buffer).setUint16(start + header[name].data_offsets[0] + 18 * (4 * 5 + 2), 0x7c00, true);
  Deno.writeFileSync(join(broken, "model.safetensors"), file);
  const args = ["compare", float, broken, "--text", FILE, "--quiet"];
  const wanted = `${broken}/model.safetensors: tensor "${name}": scale: row 5 block 2: the scale is not finite; ` +
    "the file is damaged, make or download it again";
  for (const memory of [["--memory", "100GB"], await tight(args)]) await refused(wanted, ...args, ...memory);
});

Deno.test("rabbit report and rabbit advise find the same with little memory", async () => {
  const { float, quant } = MODELS["a tied head"];
  const memory = await tight(["compare", float, quant, "--text", FILE]);
  const pages = await Promise.all(["100GB", memory[1]].map(async (size, n) => {
    const page = join(made, `page-${n}.html`);
    const { page: _, ...found } = await json(
      "report",
      float,
      quant,
      "--ids",
      "5 6 7",
      "--text",
      FILE,
      "--out",
      page,
      "--memory",
      size,
    );
    return { found, html: Deno.readTextFileSync(page) };
  }));
  assertEquals(pages[1].found, pages[0].found);
  assert(pages[1].html === pages[0].html, "the pages differ");
  // Its answers need the caches of all layers.
  const { err } = await run("advise", float, "--text", FILE, "--memory", "100MB", "--quiet");
  const needed = Number(/ takes (\d+) MB /.exec(err)![1]);
  const advised = await Promise.all(["100GB", `${needed + 6}MB`].map(async (size) => {
    const { memory: _, ...found } = await json("advise", float, "--text", FILE, "--memory", size);
    return found;
  }));
  assertEquals(advised[1], advised[0]);
});

Deno.test("--memory that is no size, that has no text, or that is too little is refused", async () => {
  const { float, quant } = MODELS["a tied head"];
  const args = ["compare", float, quant, "--text", FILE, "--quiet"];
  for (const size of ["much", "0", "-1GB", "1.5.2GB", "12XB", "1e9"]) {
    await refused(`--memory takes a size such as 500MB, 5GB or 4GiB, found "${size}"`, ...args, `--memory=${size}`);
  }
  await refused("--memory is empty", ...args, "--memory=");
  await refused("--memory needs a value", ...args, "--memory");
  await refused("--memory is for --text, which is not given", "compare", float, quant, "--ids", "1", "--memory", "1GB");
  assertEquals((await json(...args, "--dry-run", "--memory", "4096m")).text.weights, "all");
  for (const command of [args, [...args, "--dry-run"], [...args, "--shard", "1/2"]]) {
    const { code, out, err } = await run(...command, "--memory", "100MB");
    assertEquals([code, out], [2, ""]);
    assertMatch(
      err,
      /^rabbit: compare: measuring the text takes \d+ MB with the weights of one layer in memory, and 100 MB may be used; give a larger --memory if there is more\n$/,
    );
  }
  for (
    const command of [["report", float, quant, "--ids", "5 6 7", "--out", join(made, "no.html")], ["advise", float]]
  ) {
    const { code, err } = await run(...command, "--quiet", "--memory", "100MB");
    assertEquals(code, 2);
    assertMatch(
      err,
      /^rabbit: \w+: [a-z ]+ takes \d+ MB with the weights of one layer in memory, and 100 MB may be used; /,
    );
  }
});
