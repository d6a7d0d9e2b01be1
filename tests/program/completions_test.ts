/**
 * The completion scripts in the shells that they are for, and the manual page in the program that reads it.
 */

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { inTemporary, write } from "../support/files.ts";
import { needs } from "../support/needs.ts";
import { execute, rabbit } from "../support/program.ts";

/** Runs a program, which must end within a minute and say nothing on standard error. */
async function tool(cwd: string, name: string, ...args: string[]): Promise<string> {
  const env = { LC_ALL: "C.UTF-8", HOME: cwd };
  const signal = AbortSignal.timeout(60_000);
  const { out, err } = await execute(name, args, { cwd, env, signal });
  assertEquals(err, "", name);
  return out;
}

/** A directory with a script and some files; the file names have what shells trip over. */
async function withScript(shell: string, test: (directory: string) => Promise<void>): Promise<void> {
  const { code, out, err } = await rabbit(".", ["completions", shell]);
  assertEquals([code, err], [0, ""]);
  await inTemporary(async (directory) => {
    write(`${directory}/model dir`, { "config.json": "" });
    write(directory, { script: out, "model.safetensors": "", "other.json": "" });
    await test(directory);
  });
}

/** What is typed, and what can stand in place of its last word. */
const CASES: [string[], string[]][] = [
  [["ver"], ["verify"]],
  [["--v"], ["--version"]],
  [["quantize", "--b"], ["--bits"]],
  [["quantize", "--bits", ""], ["4", "8"]],
  [["infer", "--act"], ["--activations"]],
  [["infer", "--activations", ""], ["f32", "i16", "i8"]],
  [["infer", "--activations", "i"], ["i16", "i8"]],
  [["infer", "--model", "x", "--s"], ["--seed", "--steps", "--stream", "--system"]],
  [["infer", "--steps", ""], []],
  [["infer", "--prompt", "m"], []],
  [["infer", "--j"], ["--json"]],
  [["infer", "--model", "mod"], ["model dir", "model.safetensors"]],
  [["quantize", "--out", "mod"], ["model dir"]],
  [["verify", "mod"], ["model dir", "model.safetensors"]],
  [["compare", "model.safetensors", "oth"], ["other.json"]],
  [["completions", ""], ["bash", "fish", "zsh"]],
  [["completions", "z"], ["zsh"]],
  [["gate", "--seed"], []],
  [["nothing", "--"], []],
];

needs("bash completes commands, flags, their words and paths", { programs: ["bash"] }, async () => {
  await withScript("bash", async (directory) => {
    const script = `source ./script
COMP_WORDS=(rabbit "$@") COMP_CWORD=$#
_rabbit
((\${#COMPREPLY[@]} == 0)) || printf '%s\\n' "\${COMPREPLY[@]}"`;
    const complete = async (...words: string[]) => {
      const out = await tool(directory, "bash", "--norc", "-c", script, "test", ...words);
      return out.split("\n").filter((line) => line !== "").sort();
    };
    for (const [words, wanted] of CASES) assertEquals(await complete(...words), wanted, words.join(" "));
    // As bash splits --flag=value.
    assertEquals(await complete("infer", "--activations", "="), ["f32", "i16", "i8"]);
    assertEquals(await complete("infer", "--activations", "=", "f"), ["f32"]);
    assertStringIncludes(
      await tool(directory, "bash", "--norc", "-c", "source ./script; complete -p rabbit"),
      "_rabbit",
    );
  });
});

needs("fish completes commands, flags, their words and paths", { programs: ["fish"] }, async () => {
  await withScript("fish", async (directory) => {
    for (const [words, wanted] of CASES) {
      const line = ["rabbit", ...words].join(" ");
      const out = await tool(directory, "fish", "--no-config", "-c", "source script; complete -C $argv[1]", line);
      const found = out.split("\n").filter((text) => text !== "").map((text) => text.split("\t")[0]);
      // fish writes names as they are typed, and a slash after a directory.
      const plain = found.map((name) => name.replaceAll("\\ ", " ").replace(/\/$/, "")).sort();
      assertEquals(plain, wanted, line);
    }
  });
});

needs("zsh completes commands, flags, their words and paths", { programs: ["zsh"] }, async () => {
  await withScript("zsh", async (directory) => {
    // A shell on a terminal of its own, where rabbit prints its arguments: what is typed, Tab, and the end of the line.
    const script = `zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PS1= PS2= RPS1=; unsetopt zle_bracketed_paste; autoload -U compinit; compinit -u -D; source ./script'
zpty -w shell 'rabbit() { print -r -- "RAN<\${(j:,:)@}>" }; print READY-\$((40 + 2))'
zpty -r shell text '*READY-42*'
for line in "$@"; do
  zpty -w -n shell "$line"$'\\t\\n'
  zpty -r shell text '*RAN<*>*'
  print -r -- "\${\${text##*RAN<}%%>*}"
done
zpty -d shell`;
    // zsh takes the = or / that it has added back at the end of the line.
    const typed: [string, string][] = [
      ["rabbit ver", "verify"],
      ["rabbit quantize --bi", "quantize,--bits"],
      ["rabbit infer --activations f", "infer,--activations,f32"],
      ["rabbit infer --activations=f", "infer,--activations=f32"],
      ["rabbit infer --ste", "infer,--steps"],
      ["rabbit infer --model x --se", "infer,--model,x,--seed"],
      ["rabbit infer --prompt mod", "infer,--prompt,mod"],
      ["rabbit infer --model oth", "infer,--model,other.json"],
      ["rabbit quantize --out mod", "quantize,--out,model dir"],
      ["rabbit verify oth", "verify,other.json"],
      ["rabbit compare a oth", "compare,a,other.json"],
      ["rabbit completions z", "completions,zsh"],
    ];
    const lines = typed.map(([line]) => line);
    const out = await tool(directory, "zsh", "-f", "-c", script, "test", ...lines);
    assertEquals(out.trimEnd().split("\n"), typed.map(([, wanted]) => wanted));
  });
});

Deno.test("rabbit completions of another shell is refused, and --json has the script", async () => {
  assertEquals(await rabbit(".", ["completions", "tcsh"]), {
    code: 2,
    out: "",
    err: 'rabbit: completions: SHELL takes bash or zsh or fish, found "tcsh"\n',
  });
  const script = (await rabbit(".", ["completions", "bash"])).out;
  assertEquals(JSON.parse((await rabbit(".", ["completions", "bash", "--json"])).out), { script: script.slice(0, -1) });
});

needs("rabbit man is a manual page with every command and flag", { programs: ["mandoc"] }, async () => {
  const { code, out, err } = await rabbit(".", ["man"]);
  assertEquals([code, err], [0, ""]);
  await inTemporary(async (directory) => {
    write(directory, { "rabbit.1": out });
    // The page has no date: it would change with the day that it is printed.
    const { out: lint } = await execute("mandoc", ["-Tlint", "rabbit.1"], { cwd: directory });
    assertEquals(lint, 'mandoc: rabbit.1:1:14: WARNING: missing date, using "": TH\n');
    // Bold letters are struck twice.
    const struck = await tool(directory, "mandoc", "-Tascii", "-O", "width=200", "rabbit.1");
    // deno-lint-ignore no-control-regex
    const page = struck.replaceAll(/.\u{8}/gu, "");
    const help = (await rabbit(".", ["--help"])).out;
    const commands = [...help.matchAll(/^ {2}([a-z]+) /gm)].map(([, name]) => name);
    assert(commands.length >= 10 && commands.includes("man"));
    for (const name of commands) {
      const text = (await rabbit(".", [name, "--help"])).out;
      assertStringIncludes(page, `\n   ${name}\n`);
      const section = page.split(`\n   ${name}\n`)[1].split(/\n {3}[a-z]+\n|\n[A-Z]/)[0];
      for (const [, flag] of text.matchAll(/^ {2}(--[a-z0-9-]+)/gm)) {
        assertStringIncludes(["--json", "--help"].includes(flag) ? page : section, flag, name);
      }
      assertStringIncludes(page, /^example: (.*)$/m.exec(text)![1]);
    }
  });
});
