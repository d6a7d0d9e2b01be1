/**
 * The parser of the command line, and what the table of commands declares.
 */

import { assert, assertEquals, assertMatch, assertThrows } from "@std/assert";
import { type Arguments, command, type Flags, parse, unknown, valueOf } from "../../../lib/cli/arguments.ts";
import { allCommands } from "../../../lib/cli/commands.ts";
import { UsageError } from "../../../lib/cli/errors.ts";

const COMMANDS = await allCommands();

const FLAGS = {
  count: { type: { kind: "integer", min: 2, max: 9 }, default: 5, help: "" },
  open: { type: { kind: "integer", min: 1 }, help: "" },
  share: { type: { kind: "number", above: 0, max: 1 }, default: 1, help: "" },
  heat: { type: { kind: "number", max: 100 }, help: "" },
  bits: { type: { kind: "choice", of: [4, 8] }, default: 4, help: "" },
  word: { type: { kind: "choice", of: ["one", "two"] }, help: "" },
  file: { type: { kind: "path", of: "file" }, help: "" },
  on: { help: "" },
} as const satisfies Flags;

/** A command with every type of flag, an argument that a flag may give, and one or more others. */
const EVERY = command({
  name: "every",
  summary: "",
  positionals: [
    { name: "FIRST", type: { kind: "path", of: "any" }, alias: "in", help: "" },
    { name: "REST", type: { kind: "path", of: "any" }, many: true, help: "" },
  ],
  flags: FLAGS,
  example: "rabbit every",
  run: () => Promise.resolve(0),
});

function every(...argv: string[]): Arguments {
  return parse(EVERY, argv).args;
}

Deno.test("parse gives values of the declared types, and the defaults where nothing is given", () => {
  assertEquals(every("a", "b").values, {
    ...{ count: 5, open: undefined, share: 1, heat: undefined, bits: 4, word: undefined, file: undefined, on: false },
  });
  const { values, given } = every(
    ...["a", "--count=9", "--open", "9007199254740991", "--share", ".5", "--heat", "1e1", "--bits", "8", "b"],
    ...["--word", "two", "--file", "-", "--on"],
  );
  assertEquals(values, {
    ...{ count: 9, open: 9007199254740991, share: 0.5, heat: 10, bits: 8, word: "two", file: "-", on: true },
  });
  assertEquals([...given], [
    ...[["count", "9"], ["open", "9007199254740991"], ["share", ".5"], ["heat", "1e1"], ["bits", "8"]],
    ...[["word", "two"], ["file", "-"]],
  ]);
});

Deno.test("parse refuses a value that is not of the declared type, and says what would be", () => {
  const wrong: [string, string[], string][] = [
    ["count", ["1", "10", "-3", "2.5", "1e1", "0x5", " 5", "five", "٣"], "a whole number of 2 to 9"],
    ["open", ["0", "-1", "1.5", "x"], "a whole number of at least 1"],
    ["open", ["9007199254740992", "99999999999999999999"], "a whole number of 1 to 9007199254740991"],
    ["share", ["0", "0.0", "1.01", "-1", "NaN", "Infinity", "1e", "."], "a number above 0, to 1"],
    ["heat", ["100.5", "-0", "1e999", "+1"], "a number of 0 to 100"],
    ["bits", ["5", "04", "4.0"], "4 or 8"],
    ["word", ["three", "ONE"], "one or two"],
  ];
  for (const [flag, values, wanted] of wrong) {
    for (const value of values) {
      const { message } = assertThrows(() => every("a", "b", `--${flag}=${value}`), UsageError);
      assertEquals(message, `--${flag} takes ${wanted}, found ${JSON.stringify(value)}`);
    }
  }
});

Deno.test("parse puts arguments in their places, whether a flag gives one or not", () => {
  const places: [string[], string[]][] = [
    [["a", "b"], ["a", "b"]],
    [["a", "b", "c", "d"], ["a", "b", "c", "d"]],
    [["--in", "a", "b"], ["a", "b"]],
    [["b", "--in=a", "c"], ["a", "b", "c"]],
    [["a", "--", "--on", "-q"], ["a", "--on", "-q"]],
    [["--in", "-a", "b"], ["-a", "b"]],
  ];
  for (const [argv, wanted] of places) assertEquals(every(...argv).positionals, wanted, argv.join(" "));
  for (
    const [argv, problem] of [
      [[], "FIRST is missing; see rabbit every --help"],
      [["a"], "REST is missing; see rabbit every --help"],
      [["--in", "a"], "REST is missing; see rabbit every --help"],
      [["a", "b", "--in", "c", "--in", "d"], "--in is given 2 times"],
      [["a", "b", "--on=1"], "--on takes no value"],
      [["a", "b", "--file", "--on"], "--file needs a value"],
      [["a", "b", "--ouch"], 'unknown option "--ouch"; see rabbit every --help'],
      [["a", "b", "--cuont", "3"], 'unknown option "--cuont"; did you mean --count?'],
    ] as [string[], string][]
  ) assertEquals(assertThrows(() => every(...argv), UsageError).message, problem, argv.join(" "));
});

Deno.test("parse reads the common flags, long and short, and checks nothing when help is wanted", () => {
  assertEquals(parse(EVERY, ["a", "b", "-q", "--json"]).common, { json: true, quiet: true, help: false });
  assertEquals(parse(EVERY, ["--count", "x", "-h"]).common.help, true);
  // A value that looks like one is a value.
  assertEquals(parse(EVERY, ["a", "b", "--file", "-q"]).common.quiet, false);
});

Deno.test("unknown suggests a word that is near, and no other", () => {
  const near = (word: string) => unknown("command", word, ["verify", "gen"], "HELP").message;
  assertMatch(near("verfy"), /did you mean verify\?$/);
  assertMatch(near("gne"), /did you mean gen\?$/);
  assertMatch(near("xyzzyx"), /see HELP$/);
});

Deno.test("every command: defaults are values that it takes, choices are not empty, names do not meet", () => {
  assert(COMMANDS.length >= 14);
  for (const declared of COMMANDS) {
    const aliases = declared.positionals.flatMap(({ alias }) => alias ?? []);
    const words = declared.positionals.map(({ type }) => type.kind === "choice" ? String(type.of[0]) : "x");
    for (const [name, flag] of Object.entries(declared.flags)) {
      const what = `${declared.name} --${name}`;
      assert(!aliases.includes(name), what);
      assert(flag.type?.kind !== "choice" || flag.type.of.length > 1, what);
      assert(flag.type !== undefined || (flag.default === undefined && !flag.required), `${what} is on or off`);
      assert(!flag.required || flag.default === undefined, what);
      if (flag.default === undefined) continue;
      const required = Object.entries(declared.flags).filter(([, { required }]) => required).map(([name]) =>
        `--${name}=x`
      );
      const { args } = parse(declared, [...words, ...required, `--${name}=${flag.default}`]);
      assertEquals(args.values[name], flag.default, what);
      assertEquals(parse(declared, [...words, ...required]).args.values[name], flag.default, what);
    }
    // An argument may be left out, or be many, at the end only.
    const { positionals } = declared;
    positionals.forEach(({ optional, many }, n) => {
      assert(!many || n === positionals.length - 1, declared.name);
      assert(!optional || positionals.slice(n).every(({ optional }) => optional), declared.name);
    });
    assert(declared.absent === undefined || declared.absent.length <= positionals.length, declared.name);
  }
});

Deno.test("valueOf says what stands for a value", () => {
  assertEquals(Object.values(FLAGS as Flags).map(valueOf), ["N", "N", "X", "X", "4|8", "one|two", "FILE", undefined]);
  assertEquals(valueOf({ type: { kind: "text" }, value: "IDS" }), "IDS");
});
