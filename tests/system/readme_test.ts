/**
 * The commands of README and docs, run as they stand there, on a built-in model that is called what the README calls its model.
 */

import { assert, assertEquals } from "@std/assert";
import config from "../../deno.json" with { type: "json" };
import { KEYS as PEM } from "../support/attested.ts";
import { inTemporary, removeIfThere } from "../support/files.ts";
import { needs } from "../support/needs.ts";
import { rabbit } from "../support/program.ts";

/** README and the pages of docs; docs/commands.md is generated from the program, and checked so. */
const PAGES = [
  "README.md",
  ...[
    "calibration",
    "cluster",
    "gguf",
    "guest",
    "install",
    "library",
    "measuring",
    "performance",
    "proof",
    "text",
    "transformers",
  ].map((
    name,
  ) => `docs/${name}.md`),
]
  .map((path) => ({ path, text: Deno.readTextFileSync(new URL(`../../${path}`, import.meta.url)) }));
const ALL = PAGES.map(({ text }) => text).join("\n");

/** The text that the README measures, and some of it: all of it takes the built-in model a minute. */
const TEXT = Deno.readTextFileSync(new URL("../../fixtures/opticks.txt", import.meta.url));
const OPTICKS = TEXT.slice(0, 1000);

/** A calibration with the default number of tokens takes the built-in model minutes. */
const FEW_TOKENS = ["--tokens", "1024"];

/** The lines of a page's code blocks that are rabbit's commands, in their order, without a prompt or a comment. */
function commandsOf(page: string): string[] {
  return page.split("```").filter((_, n) => n % 2 === 1).join("\n").split("\n").map((line) =>
    /^(?:\$ )?rabbit ((?:[a-z]+)\b.*?)(?: +#.*)?$/.exec(line)?.[1]
  )
    .filter((line) => line !== undefined);
}

/** The arguments of a line, without what the shell makes of the output. */
function words(line: string): string[] {
  line = line.replace(/ 2?[|>].*/, "");
  return [...line.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain);
}

/** A line of the first of several parts, once for each of them. */
function partsOf(line: string): string[] {
  const parts = Number(/ --shard 1\/(\d+)/.exec(line)?.[1] ?? 1);
  return Array.from({ length: parts }, (_, n) => {
    return line.replace("--shard 1/", `--shard ${n + 1}/`).replace("> part1", `> part${n + 1}`);
  });
}

/** Where a command writes. */
function outputOf(args: readonly string[]): string | undefined {
  for (const flag of ["--out", "--compressed-tensors"]) if (args.includes(flag)) return args[args.indexOf(flag) + 1];
  const paths = args.slice(1).filter((word, n) => !word.startsWith("--") && !args[n].startsWith("--"));
  return { quantize: paths[1], import: paths[1], export: paths[1], gen: paths[0] }[args[0]];
}

for (const { path, text } of PAGES) {
  const commands = commandsOf(text);
  if (commands.length === 0) continue;
  Deno.test(`${path}: every rabbit command runs, on a model of the same name`, () =>
    inTemporary(async (cwd) => {
      assertEquals((await rabbit(cwd, ["gen", "smol"])).code, 0);
      const settings = { chat_template: "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}" };
      Deno.writeTextFileSync(`${cwd}/smol/tokenizer_config.json`, JSON.stringify(settings));
      Deno.writeTextFileSync(`${cwd}/opticks.txt`, OPTICKS);
      for (const key of ["pem", "pub"]) Deno.copyFileSync(`${PEM}p256.${key}`, `${cwd}/key.${key}`);
      for (const bits of ["4", "8"]) {
        assertEquals((await rabbit(cwd, ["quantize", "smol", `smol-q${bits}`, "--bits", bits])).code, 0);
      }
      for (const file of ["SmolLM2-135M-Instruct.Q4_1.gguf", "smol-Q8_0.gguf", "smol-Q4_K_M.gguf"]) {
        assertEquals((await rabbit(cwd, ["export", "smol", file])).code, 0);
      }
      Deno.writeTextFileSync(`${cwd}/text.txt`, TEXT.slice(1000, 9000));
      for (const first of commands) {
        const output = outputOf(words(first));
        if (output !== undefined) removeIfThere(`${cwd}/${output}`);
        for (const line of partsOf(first)) {
          const args = words(line);
          if (args[0] === "quantize" && args.includes("--calibrate")) args.push(...FEW_TOKENS);
          const { code, out, err } = await rabbit(cwd, args);
          // compare may answer no.
          assert(code === 0 || (args[0] === "compare" && code === 1), `rabbit ${line}: exit ${code}, ${err}`);
          const file = / > ([^~\s]+)/.exec(line)?.[1];
          if (file !== undefined) Deno.writeTextFileSync(`${cwd}/${file}`, out);
        }
      }
    }));
}

const KEYS = "README: the keys of its sample lines are the keys that the program prints";

// It tells the peak of its memory where the system does.
needs(KEYS, { files: ["/proc/self/status"] }, () =>
  inTemporary(async (cwd) => {
    await rabbit(cwd, ["gen", "--out", "smol"]);
    const quantized = await rabbit(cwd, ["quantize", "--in", "smol", "--out", "smol-q8", "--bits", "8"]);
    Deno.writeTextFileSync(`${cwd}/opticks.txt`, OPTICKS);
    let printed = quantized.out;
    for (
      const line of ["compare smol smol-q8", "compare smol smol-q8 --text opticks.txt", "advise smol"]
    ) printed += (await rabbit(cwd, line.split(" "))).out;
    // One limit that is far away, and one that is next to the value.
    const limits = ["--max-kl", "10", "--max-ratio", "1", "--confidence", "0.9999"];
    printed += (await rabbit(cwd, ["compare", "smol", "smol-q8", "--text", "opticks.txt", ...limits])).out;
    const drawn = ["infer", "--model", "smol-q8", "--prompt", "a", "--temperature", "1"];
    printed += (await rabbit(cwd, drawn)).out.replace(/^INFER text .*$/m, "INFER text text=");
    // The line of a reference is for prompts that have one.
    const reference = { prompt_ids: [1], tokens: [1] };
    Deno.writeTextFileSync(`${cwd}/reference.json`, JSON.stringify(reference));
    printed += (await rabbit(cwd, ["compare", "smol", "smol-q8", "--ids", "1", "--reference", "reference.json"])).out;
    const shape = (line: string) =>
      line.replace(/="[^"]*"/g, "=").split(" ").map((word) => word.replace(/=.*/, "=")).filter((w) => !/^\d+$/.test(w));
    const known = new Set(printed.trimEnd().split("\n").map((line) => shape(line).join(" ")));
    const samples = ALL.split("\n").filter((line) =>
      /^(QUANT|COMPARE|ADVISE|INFER) /.test(line) && !/^COMPARE (OK|DIFFER|PASS|UNDECIDED)$/.test(line)
    );
    assert(samples.length >= 8);
    for (const line of samples) assert(known.has(shape(line).join(" ")), `the program prints no line like: ${line}`);
  }));

Deno.test("README: the tasks that it names are in deno.json", () => {
  const named = [...ALL.matchAll(/(?:deno|deno@[\d.]+) task ([a-z]+)/g)].map(([, name]) => name);
  assert(named.includes("demo") && named.includes("test"));
  for (const name of named) assert(name in config.tasks, `no task ${name}`);
});
