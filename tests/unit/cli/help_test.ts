/**
 * The layout of the help for terminals of every width.
 */

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { allCommands } from "../../../lib/cli/commands.ts";
import { commandHelp, list, programHelp } from "../../../lib/cli/help.ts";

const COMMANDS = await allCommands();

/** A text without what wrapping changes. */
function unwrapped(text: string): string {
  return text.replaceAll(/\s+/g, " ");
}

Deno.test("help has the same words at every width, and no line is longer, but for words that are", () => {
  for (
    const [name, help] of [
      ...COMMANDS.map((command) => [command.name, (columns: number) => commandHelp(command, columns)] as const),
      ["", (columns: number) => programHelp(COMMANDS, columns)] as const,
    ]
  ) {
    const wide = help(100_000);
    for (const columns of [1, 20, 40, 60, 80, 120, 200]) {
      const text = help(columns);
      assertEquals(unwrapped(text), unwrapped(wide), `${name} at ${columns}`);
      if (columns < 60) continue;
      for (const line of text.split("\n")) {
        // Terms and the parts of the usage are whole.
        const fits = line.length <= columns || /^example: /.test(line) || /^ {2}\S+( \S+)?$/.test(line);
        assert(fits, `${name} at ${columns}: ${line}`);
        assertEquals(line.trimEnd(), line, `${name} at ${columns}`);
      }
    }
  }
});

Deno.test("help of a command has a row for every argument and flag, with its default and its alias", () => {
  const help = (name: string) => unwrapped(commandHelp(COMMANDS.find((command) => command.name === name)!, 80));
  assertStringIncludes(help("infer"), "--steps N the maximum number of tokens to decode (default 32)");
  assertStringIncludes(
    help("infer"),
    "CHECKPOINT the checkpoint, with config.json in its directory, or a GGUF file (or --model CHECKPOINT)",
  );
  assertStringIncludes(help("infer"), "--threads N threads to use (default: one for each processor)");
  assertStringIncludes(help("compare"), "usage: rabbit compare [FLOAT QUANT [CONFIG]] [--prompt TEXT]");
  assertStringIncludes(help("report"), "usage: rabbit report FLOAT QUANT... --out FILE [--prompt TEXT]");
  assertStringIncludes(
    help("quantize"),
    "--bits 4|8 bits of a weight: 4 for size (Q4B32) or 8 for fidelity (Q8B32) (default 4)",
  );
  // What stands for an argument is not in the usage.
  assert(!/^usage: .*--in/m.test(help("quantize")));
});

Deno.test("list joins words as a sentence does", () => {
  assertEquals([[], ["a"], ["a", "b"], ["a", "b", "c"]].map((words) => list(words)), ["", "a", "a or b", "a, b or c"]);
  assertEquals(list(["a", "b"], "and"), "a and b");
});
