/**
 * The layout of the help for terminals of every width, and the words of errors.
 */

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { COMMANDS } from "../../../lib/cli/commands.ts";
import { Interrupted, NotSound, UsageError } from "../../../lib/cli/errors.ts";
import { commandHelp, list, programHelp } from "../../../lib/cli/help.ts";
import { complaintOf, statusOf } from "../../../lib/cli/messages.ts";
import { unsupported } from "../../../lib/cli/platform.ts";
import { CheckpointError, LimitError, NumericError, Refusal, SystemError } from "../../../lib/errors.ts";

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
    "CHECKPOINT the checkpoint, with config.json in its directory (or --model CHECKPOINT)",
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

Deno.test("complaintOf says kind, place and what to do of every kind of error", () => {
  const bad = new CheckpointError({ path: "a; b", tensor: 'w"; x', field: "shape" }, 'found "; y"; use another');
  assertEquals(complaintOf(bad), {
    kind: "checkpoint",
    file: "a; b",
    tensor: 'w"; x',
    field: "shape",
    message: bad.message,
    advice: "use another",
  });
  assertEquals(complaintOf(new NotSound(bad)), complaintOf(bad));
  const file = { file: "f", tensor: undefined, field: undefined };
  const rest = (error: unknown) => {
    const { kind, file, message, advice } = complaintOf(error);
    return [kind, file, message, advice];
  };
  assertEquals(rest(new CheckpointError({ path: "f" }, "1 overflows F16", "overflow")), [
    ...["checkpoint", file.file, "f: 1 overflows F16; use --dtype f32", "use --dtype f32"],
  ]);
  assertEquals(rest(new Refusal("exists", "f", "f exists already")), [
    ...["output", "f", "f exists already; --force replaces it", "--force replaces it"],
  ]);
  assertEquals(rest(new Refusal("incomplete", "d", "a write was interrupted")).slice(2), [
    ...["a write was interrupted; --force writes it again", "--force writes it again"],
  ]);
  assertEquals(
    rest(new CheckpointError({ path: "d" }, "interrupted; write it again", "incomplete"))[3],
    "write it again",
  );
  assertEquals(rest(new LimitError("too long; use less")), ["limit", undefined, "too long; use less", "use less"]);
  assertEquals(rest(new NumericError("not finite")), ["numeric", undefined, "not finite", undefined]);
  assertEquals(rest(new UsageError("wrong")), ["usage", undefined, "wrong", undefined]);
  assertEquals(rest(new SystemError("cannot open f: no", "f")), ["system", "f", "cannot open f: no", undefined]);
  assertEquals(rest(new Interrupted("SIGINT", 130))[0], "interrupted");
  assertEquals(rest(new TypeError("oops"))[0], "internal");
  assertMatch(complaintOf("thrown").message, /^internal error, please report it: thrown$/);
  // What Deno refuses where nobody said what was tried.
  assertEquals(rest(new Error("x (os error 28)"))[0], "system");
});

Deno.test("statusOf is 1 for the answer no, the shell's status for a signal, and 2 for the rest", () => {
  const bad = new CheckpointError({ path: "f" }, "bad");
  assertEquals(
    [new NotSound(bad), bad, new Interrupted("SIGINT", 130), new UsageError(""), new TypeError(), "x"].map(statusOf),
    [1, 2, 130, 2, 2, 2],
  );
});

Deno.test("Linux and macOS are supported, Windows is pointed to WSL, and other systems are named", () => {
  assertEquals(["linux", "darwin"].map(unsupported), [undefined, undefined]);
  assertMatch(unsupported("windows")!, /^Windows is not supported; use WSL/);
  assertEquals(unsupported("freebsd"), "freebsd is not supported; rabbit runs on Linux and macOS");
});
