/**
 * The README's commands, run as they stand there, on a built-in model that is called what the README calls its model.
 */

import { assert, assertEquals } from "@std/assert";
import config from "../../deno.json" with { type: "json" };
import { rabbit } from "../support/program.ts";
import { needs } from "../support/needs.ts";

const README = Deno.readTextFileSync(new URL("../../README.md", import.meta.url));

/** Some of the text that the README measures: all of it takes the built-in model a minute. */
const OPTICKS = Deno.readTextFileSync(new URL("../../fixtures/opticks.txt", import.meta.url)).slice(0, 1000);

/** The lines of the README that are rabbit's commands, in their order, without a prompt or a comment. */
const COMMANDS = README.split("\n").map((line) => /^(?:\$ )?rabbit ((?:[a-z]+)\b.*?)(?: +#.*)?$/.exec(line)?.[1])
  .filter((line) => line !== undefined && !line.startsWith("COMMAND"));

/** The arguments of a line, without what the shell makes of the output. */
function words(line: string): string[] {
  line = line.replace(/ 2?[|>].*/, "");
  return [...line.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, plain]) => quoted ?? plain);
}

Deno.test("README: every rabbit command runs, on a model of the same name", async () => {
  const cwd = Deno.makeTempDirSync();
  assertEquals((await rabbit(cwd, ["gen", "--out", "smol"])).code, 0);
  const settings = { chat_template: "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}" };
  Deno.writeTextFileSync(`${cwd}/smol/tokenizer_config.json`, JSON.stringify(settings));
  assert(COMMANDS.length >= 6, `found ${COMMANDS.length} commands`);
  Deno.writeTextFileSync(`${cwd}/opticks.txt`, OPTICKS);
  // The page shows compare first, and only then how its inputs are made.
  const ordered = COMMANDS.toSorted((a, b) => Number(a!.startsWith("compare")) - Number(b!.startsWith("compare")));
  assertEquals((await rabbit(cwd, ["quantize", "--in", "smol", "--out", "smol-q4"])).code, 0);
  for (const line of ordered) {
    const args = words(line!);
    const { code, err } = await rabbit(cwd, args);
    // compare may answer no.
    assert(code === 0 || (args[0] === "compare" && code === 1), `rabbit ${line}: exit ${code}, ${err}`);
  }
  Deno.removeSync(cwd, { recursive: true });
});

const KEYS = "README: the keys of its sample lines are the keys that the program prints";

// It tells the peak of its memory where the system does.
needs(KEYS, { files: ["/proc/self/status"] }, async () => {
  const cwd = Deno.makeTempDirSync();
  await rabbit(cwd, ["gen", "--out", "smol"]);
  const quantized = await rabbit(cwd, ["quantize", "--in", "smol", "--out", "smol-q8", "--bits", "8"]);
  Deno.writeTextFileSync(`${cwd}/opticks.txt`, OPTICKS);
  let printed = quantized.out;
  for (
    const line of ["compare smol smol-q8", "compare smol smol-q8 --text opticks.txt", "advise --in smol"]
  ) printed += (await rabbit(cwd, line.split(" "))).out;
  const drawn = ["infer", "--model", "smol-q8", "--prompt", "a", "--temperature", "1"];
  printed += (await rabbit(cwd, drawn)).out.replace(/^INFER text .*$/m, "INFER text text=");
  // The line of a reference is for prompts that have one.
  const reference = { prompt_ids: [1], tokens: [1] };
  Deno.writeTextFileSync(`${cwd}/reference.json`, JSON.stringify(reference));
  printed += (await rabbit(cwd, ["compare", "smol", "smol-q8", "--ids", "1", "--reference", "reference.json"])).out;
  Deno.removeSync(cwd, { recursive: true });
  const shape = (line: string) =>
    line.replace(/="[^"]*"/g, "=").split(" ").map((word) => word.replace(/=.*/, "=")).filter((w) => !/^\d+$/.test(w));
  const known = new Set(printed.trimEnd().split("\n").map((line) => shape(line).join(" ")));
  const samples = README.split("\n").filter((line) =>
    /^(QUANT|COMPARE|ADVISE|INFER) /.test(line) && !/^COMPARE (OK|DIFFER)$/.test(line)
  );
  assert(samples.length >= 8);
  for (const line of samples) assert(known.has(shape(line).join(" ")), `the program prints no line like: ${line}`);
});

Deno.test("README: the tasks that it names are in deno.json", () => {
  const named = [...README.matchAll(/(?:deno|deno@[\d.]+) task ([a-z]+)/g)].map(([, name]) => name);
  assert(named.includes("demo") && named.includes("test"));
  for (const name of named) assert(name in config.tasks, `no task ${name}`);
});
