/**
 * The command line. A flag is declared once; the parser, the help and the checks come from the declaration.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { closestString } from "@std/text/closest-string";
import { quote } from "../errors.ts";
import { UsageError } from "./errors.ts";
import type { Output } from "./output.ts";

/** One option of a command. */
export interface Flag {
  readonly name: string;
  /**
   * What stands for the value in the help; absent for a flag that is on or off. Words in small letters or figures with |
   * between them are all that it takes; DIR, FILE and what {@link Flag.path} marks are paths.
   */
  readonly value?: string;
  /** The value is a path, although its name does not say so. */
  readonly path?: boolean;
  readonly help: string;
  /** The command is refused without it. */
  readonly required?: boolean;
}

/** One argument that is not an option. */
export interface Positional {
  /** As the value of a flag. */
  readonly name: string;
  readonly path?: boolean;
  readonly help: string;
  readonly optional?: boolean;
  /** The last one of a command may stand for one argument or more. */
  readonly many?: boolean;
}

/** A subcommand: all that the parser, the help and main.ts know of it. */
export interface Command {
  readonly name: string;
  readonly summary: string;
  readonly positionals: readonly Positional[];
  readonly flags: readonly Flag[];
  readonly example: string;
  /** Lines of the help that say what the results mean. */
  readonly details?: readonly string[];
  /** What the exit status 0 and 1 mean, where 1 is possible. */
  readonly verdict?: string;
  /** Runs the command and returns its exit status: 0 or 1. */
  run(args: Arguments, out: Output): Promise<number>;
}

/** `--threads`, of every command that computes. */
export const THREADS: Flag = { name: "threads", value: "N", help: "threads to use (default: one for each processor)" };
/** `--force`, of the commands that write a checkpoint. */
export const FORCE: Flag = { name: "force", help: "replace a checkpoint that is in DIR" };
/** The flags that every command has. */
export const COMMON: readonly Flag[] = [
  { name: "json", help: "print one JSON object instead of lines" },
  { name: "help", help: "print this help, as -h does" },
];

/** The words that a value may be, or none where it may be others. */
export function choicesOf(value: string | undefined): string[] {
  return value !== undefined && /^[a-z0-9-]+(\|[a-z0-9-]+)+$/.test(value) ? value.split("|") : [];
}

/** What a value that is a path may name, or undefined for one that is none. */
export function pathOf(value: string | undefined, path = false): "directory" | "file" | undefined {
  if (value === "DIR") return "directory";
  return path || value?.split("|").includes("FILE") ? "file" : undefined;
}

/** More threads than any machine that this runs on has use for; each costs memory. */
const MAX_THREADS = 256;

/** The arguments of a command, after parsing. */
export class Arguments {
  constructor(
    readonly positionals: readonly string[],
    readonly values: ReadonlyMap<string, string>,
    readonly switches: ReadonlySet<string>,
  ) {}

  /** The value of a required flag. */
  text(flag: string): string {
    return this.values.get(flag)!;
  }

  /** The value of a flag that is a whole number. @throws {UsageError} */
  integer(flag: string, min: number, max: number): number | undefined {
    const text = this.values.get(flag);
    if (text === undefined) return undefined;
    const value = Number(text);
    if (!/^\d+$/.test(text) || value < min || value > max) {
      const range = max === Number.MAX_SAFE_INTEGER ? `${min} or more` : `${min} to ${max}`;
      throw new UsageError(`--${flag} takes a whole number of ${range}, found ${quote(text)}`);
    }
    return value;
  }

  /** The value of a flag that is a number: `min` to `max`, or `above` and up to `max`. @throws {UsageError} */
  number(flag: string, { above, min = above ?? 0, max }: { above?: number; min?: number; max: number }) {
    const text = this.values.get(flag);
    if (text === undefined) return undefined;
    const value = Number(text);
    if (!/^\d*\.?\d+(e[-+]?\d+)?$/i.test(text) || value < min || value === above || value > max) {
      throw this.invalid(
        flag,
        above === undefined ? `a number of ${min} to ${max}` : `a number above ${above}, to ${max}`,
      );
    }
    return value;
  }

  /** The value of a flag that is one of a few words: those that its declaration lists. */
  choice<T extends string>(flag: string, choices: readonly T[]): T | undefined {
    return choices.find((choice) => choice === this.values.get(flag));
  }

  /** The error for a value that fails a check of the command's own. */
  invalid(flag: string, wanted: string): UsageError {
    return new UsageError(`--${flag} takes ${wanted}, found ${quote(this.values.get(flag)!)}`);
  }

  /** `--threads`. @throws {UsageError} */
  threads(): number {
    return this.integer("threads", 1, MAX_THREADS) ?? navigator.hardwareConcurrency;
  }
}

/** Reads the arguments that follow a command's name. @throws {UsageError} */
export function parse(command: Command, argv: readonly string[]): Arguments {
  const lossy = argv.find((argument) => argument.includes("\ufffd"));
  if (lossy !== undefined) {
    // Deno gives U+FFFD for each byte that is not UTF-8: no one can tell what was meant.
    throw new UsageError(`the argument ${quote(lossy)} is not UTF-8, or has U+FFFD, which stands for what is not`);
  }
  const flags = [...command.flags, ...COMMON];
  const valued = flags.filter(({ value }) => value).map(({ name }) => name);
  const switches = flags.filter(({ value }) => !value).map(({ name }) => name);
  const parsed = parseArgs(tieValues(argv, valued, switches), {
    string: [...valued, "_"],
    boolean: switches,
    collect: valued,
    unknown: (token: string, key?: string) => {
      if (key === undefined) return true;
      throw unknown(
        `option`,
        token.replace(/=.*/s, ""),
        flags.map(({ name }) => `--${name}`),
        `rabbit ${command.name} --help`,
      );
    },
  });
  const values = new Map<string, string>();
  for (const name of valued) {
    const given = parsed[name] as string[];
    if (given.length > 1) throw new UsageError(`--${name} is given ${given.length} times`);
    if (given.length === 1) values.set(name, given[0]);
  }
  const on = new Set(switches.filter((name) => parsed[name]));
  const positionals = parsed._.map(String);
  if (!on.has("help")) check(command, positionals, values);
  return new Arguments(positionals, values, on);
}

/**
 * Refuses what parseArgs takes in silence (a flag without its value, a value for a switch, an empty value), and ties
 * values to their flags, so that one that begins with a dash is a value too. -h is --help.
 */
function tieValues(argv: readonly string[], valued: string[], switches: string[]): string[] {
  const tied: string[] = [];
  for (let n = 0; n < argv.length; n++) {
    if (argv[n] === "--") return [...tied, ...argv.slice(n)];
    const [, name, value] = /^--([^=]+)(?:=(.*))?$/s.exec(argv[n]) ?? [];
    if (switches.includes(name) && value !== undefined) throw new UsageError(`--${name} takes no value`);
    if (!valued.includes(name)) {
      tied.push(argv[n] === "-h" ? "--help" : argv[n]);
      continue;
    }
    const given = value ?? argv[++n];
    if (given === undefined || given === "" || (value === undefined && given.startsWith("--"))) {
      throw new UsageError(`--${name} needs a value`);
    }
    tied.push(`--${name}=${given}`);
  }
  return tied;
}

function check(command: Command, positionals: readonly string[], values: ReadonlyMap<string, string>): void {
  const hint = `; see rabbit ${command.name} --help`;
  for (const { name, value, required } of command.flags) {
    if (required && !values.has(name)) throw new UsageError(`--${name} ${value} is missing${hint}`);
    checkChoice(`--${name}`, value, values.get(name));
  }
  const needed = command.positionals.filter(({ optional }) => !optional);
  if (positionals.length < needed.length) throw new UsageError(`${needed[positionals.length].name} is missing${hint}`);
  if (positionals.length > command.positionals.length && !command.positionals.at(-1)?.many) {
    throw new UsageError(`unexpected argument ${quote(positionals[command.positionals.length])}${hint}`);
  }
  command.positionals.forEach(({ name }, n) => checkChoice(`argument ${n + 1}`, name, positionals[n]));
}

function checkChoice(name: string, value: string | undefined, found: string | undefined): void {
  const choices = choicesOf(value);
  if (found !== undefined && choices.length > 0 && !choices.includes(found)) {
    throw new UsageError(`${name} takes ${choices.join(" or ")}, found ${quote(found)}`);
  }
}

/** The error for a word that is none of `known`, with the nearest of them where one is near. */
export function unknown(what: string, word: string, known: readonly string[], help: string): UsageError {
  const nearest = closestString(word, known);
  const near = nearest !== undefined && distance(word, nearest) <= Math.max(2, word.length / 3);
  return new UsageError(`unknown ${what} ${quote(word)}; ${near ? `did you mean ${nearest}?` : `see ${help}`}`);
}

function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, n) => n);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1));
    }
    row = next;
  }
  return row[b.length];
}

/** A flag as it is typed. */
export function spell({ name, value }: Flag): string {
  return value ? `--${name} ${value}` : `--${name}`;
}

/** What follows a command's name, part by part. */
export function usageOf({ flags, positionals }: Command): string[] {
  return [
    ...flags.map((flag) => flag.required ? spell(flag) : `[${spell(flag)}]`),
    ...positionals.map(({ name, optional, many }) => optional ? `[${name}]` : many ? `${name}...` : name),
    "[--json]",
  ];
}

/** What the exit status of a command means. */
export function statusOf({ verdict }: Command): string {
  return `${verdict ?? "0 done"}, 2 trouble`;
}

/** The help of one command. */
export function commandHelp(command: Command): string {
  const flags = [...command.flags, ...COMMON];
  const rows = [
    ...command.positionals.map(({ name, help }) => [name, help]),
    ...flags.map((flag) => [spell(flag), help(flag)]),
  ];
  return [
    `rabbit ${command.name}: ${command.summary}`,
    "",
    `usage: rabbit ${command.name} ${usageOf(command).join(" ")}`,
    "",
    columns(rows),
    "",
    ...(command.details === undefined ? [] : [...command.details, ""]),
    `exit status: ${statusOf(command)}`,
    "",
    `example: ${command.example}`,
  ].join("\n");
}

/** What a flag does. */
export function help(flag: Flag): string {
  return flag.required ? `${flag.help} (required)` : flag.help;
}

/** What the program is. */
export const PROGRAM = "make, check and run quantized checkpoints of Llama-family language models";

/** The help of the program. */
export function programHelp(commands: readonly Command[]): string {
  return [
    `rabbit: ${PROGRAM}`,
    "",
    "usage: rabbit COMMAND [OPTIONS]",
    "",
    columns(commands.map(({ name, summary }) => [name, summary])),
    "",
    "rabbit help COMMAND or rabbit COMMAND --help explains a command, rabbit --version prints the version.",
  ].join("\n");
}

function columns(rows: readonly (readonly string[])[]): string {
  const width = Math.max(...rows.map(([left]) => left.length));
  return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`).join("\n");
}
