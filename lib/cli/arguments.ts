/**
 * The command line. Flags and arguments are declared once, with their types and defaults; the parser, its checks, the
 * help, the completions, the manual page and docs/commands.md come from the declaration.
 *
 * @module
 */

import { DEFAULT_THREADS, MAX_THREADS } from "../kernels/workers.ts";
import { parseArgs } from "@std/cli/parse-args";
import { closestString } from "@std/text/closest-string";
import { levenshteinDistance } from "@std/text/levenshtein-distance";
import { quote } from "../errors.ts";
import { UsageError } from "./errors.ts";
import type { Output } from "./output.ts";

/** What a value may be. */
export type Type =
  /** A whole number of `min` or more, to `max`. */
  | { readonly kind: "integer"; readonly min: number; readonly max?: number }
  /** A number of `min` to `max`, or above `above` and up to `max`. */
  | { readonly kind: "number"; readonly min?: number; readonly above?: number; readonly max: number }
  /** One of a few words or numbers. */
  | { readonly kind: "choice"; readonly of: readonly (string | number)[] }
  /** The path of a directory, of a file, or of either. */
  | { readonly kind: "path"; readonly of: "directory" | "file" | "any" }
  /** Any text that is not empty. */
  | { readonly kind: "text" };

/** One option of a command. */
export interface Flag {
  /** What its value may be; absent for a flag that is on or off. */
  readonly type?: Type;
  /** What stands for the value in the help, where the type's own word says too little. */
  readonly value?: string;
  readonly help: string;
  /** The value where the flag is not given. */
  readonly default?: string | number;
  /** What holds where the flag is not given, in words: for the help, where `default` is absent or says too little. */
  readonly unset?: string;
  /** The command is refused without it. */
  readonly required?: boolean;
}

/** Flags by their names. */
export type Flags = Readonly<Record<string, Flag>>;

/** One argument that is not an option. */
export interface Positional {
  readonly name: string;
  readonly type: Type;
  readonly help: string;
  readonly optional?: boolean;
  /** The last one of a command may stand for one argument or more. */
  readonly many?: boolean;
  /** A flag that gives the same argument. */
  readonly alias?: string;
}

/** The value of a type. */
type Given<T extends Type> = T extends { readonly kind: "integer" | "number" } ? number
  : T extends { readonly kind: "choice"; readonly of: readonly (infer C)[] } ? C
  : string;

/** The values of flags by their names: undefined where a flag without a default is not given. */
export type Values<F extends Flags> = {
  readonly [K in keyof F]: F[K] extends { readonly type: infer T extends Type }
    ? Given<T> | (F[K] extends { readonly default: string | number } | { readonly required: true } ? never : undefined)
    : boolean;
};

/** A command as main.ts, the help and the completions know it. */
export interface Command {
  readonly name: string;
  readonly summary: string;
  /** The heading under which the help lists it; absent for what a user of the program needs first. */
  readonly group?: "development" | "other";
  /** The first word of its result lines, if it is not the name in capitals. */
  readonly word?: string;
  readonly positionals: readonly Positional[];
  /** The arguments where none is given at all. */
  readonly absent?: readonly string[];
  readonly flags: Flags;
  readonly example: string;
  /** What the results mean, for the help: paragraphs, and tables of terms and their explanations. */
  readonly details?: readonly Detail[];
  /** What the exit status 0 and 1 mean, where 1 is possible. */
  readonly verdict?: string;
  /** Runs the command and returns its exit status: 0 or 1. */
  run(args: Arguments, out: Output): Promise<number>;
}

/** A paragraph, or rows of a term and what it means. */
export type Detail = string | readonly (readonly [term: string, meaning: string])[];

/** Declares a command; `run` gets the values of the declared flags with their types. */
export function command<const F extends Flags>(
  declared: Omit<Command, "flags" | "run"> & {
    readonly flags: F;
    run(args: Arguments<Values<F>>, out: Output): Promise<number>;
  },
): Command {
  return declared;
}

/** `--threads`, of every command that computes. */
export const THREADS = {
  type: { kind: "integer", min: 1, max: MAX_THREADS },
  help: "threads to use",
  default: DEFAULT_THREADS,
  unset: "one for each processor",
} as const satisfies Flag;
/** `--force`, of the commands that write a checkpoint. */
export const FORCE = { help: "replace a checkpoint that is there" } as const satisfies Flag;
/** A path of a checkpoint. */
export const CHECKPOINT = { kind: "path", of: "any" } as const satisfies Type;
/** A number of tokens. */
export const COUNT = { kind: "integer", min: 1 } as const satisfies Type;
/** A text. */
export const TEXT = { kind: "text" } as const satisfies Type;
/** The path of a directory. */
export const DIRECTORY = { kind: "path", of: "directory" } as const satisfies Type;
/** The path of a file. */
export const FILE = { kind: "path", of: "file" } as const satisfies Type;

/** The flags that every command has. */
export const COMMON = {
  json: { help: "print one JSON object instead of lines, and an error as one JSON object on standard error" },
  quiet: { help: "print no progress and no warnings (or -q)" },
  help: { help: "print this help (or -h)" },
} as const satisfies Flags;

/** Flags of one letter, and what they stand for. */
const SHORT: Readonly<Record<string, string>> = { "-h": "--help", "-q": "--quiet" };

/** What stands for a value in the help. */
export function valueOf({ type, value }: { readonly type?: Type; readonly value?: string }): string | undefined {
  if (value !== undefined || type === undefined) return value;
  if (type.kind === "choice") return type.of.join("|");
  if (type.kind === "path") return { directory: "DIR", file: "FILE", any: "DIR|FILE" }[type.of];
  return { integer: "N", number: "X", text: "TEXT" }[type.kind];
}

/** The arguments of a command, after parsing. */
export class Arguments<V = Readonly<Record<string, unknown>>> {
  /**
   * @param positionals one for each that the command declares, and more of the last one if it may be many
   * @param values of the flags, defaults included
   * @param given the values of flags, as they are on the command line
   */
  constructor(
    readonly positionals: readonly string[],
    readonly values: V,
    readonly given: ReadonlyMap<string, string>,
  ) {}

  /** The error for a value that fails a check of the command's own. */
  invalid(flag: string & keyof V, wanted: string): UsageError {
    return invalid(`--${flag}`, wanted, this.given.get(flag)!);
  }
}

/** What every command is told, whatever it is. */
export interface Common {
  readonly json: boolean;
  readonly quiet: boolean;
  readonly help: boolean;
}

/** Reads the arguments that follow a command's name. @throws {UsageError} */
export function parse(command: Command, argv: readonly string[]): { args: Arguments; common: Common } {
  const lossy = argv.find((argument) => argument.includes("\ufffd"));
  if (lossy !== undefined) {
    // Deno gives U+FFFD for each byte that is not UTF-8: no one can tell what was meant.
    throw new UsageError(`the argument ${quote(lossy)} is not UTF-8, or has U+FFFD, which stands for what is not`);
  }
  const flags: Flags = { ...command.flags, ...COMMON };
  const aliases = command.positionals.flatMap(({ alias }) => alias ?? []);
  const valued = [...aliases, ...Object.keys(flags).filter((name) => flags[name].type)];
  const switches = Object.keys(flags).filter((name) => !flags[name].type);
  const parsed = parseArgs(tieValues(argv, valued, switches), {
    string: [...valued, "_"],
    boolean: switches,
    collect: valued,
    unknown: (token: string, key?: string) => {
      if (key === undefined) return true;
      const known = [...valued, ...switches].map((name) => `--${name}`);
      throw unknown("option", token.replace(/=.*/s, ""), known, `rabbit ${command.name} --help`);
    },
  });
  const common = { json: parsed.json === true, quiet: parsed.quiet === true, help: parsed.help === true };
  if (common.help) return { args: new Arguments([], {}, new Map()), common };
  const given = new Map<string, string>();
  for (const name of valued) {
    const texts = parsed[name] as string[];
    if (texts.length > 1) throw new UsageError(`--${name} is given ${texts.length} times`);
    if (texts.length === 1) given.set(name, texts[0]);
  }
  const positionals = arrange(command, parsed._.map(String), given);
  const values = Object.entries(command.flags).map(([name, flag]) => {
    return [name, flag.type === undefined ? parsed[name] === true : read(command, name, flag, given.get(name))];
  });
  return { args: new Arguments(positionals, Object.fromEntries(values), given), common };
}

/**
 * Refuses what parseArgs takes in silence (a flag without its value, a value for a switch, an empty value), and ties
 * values to their flags, so that one that begins with a dash is a value too. Flags of one letter become long ones.
 */
function tieValues(argv: readonly string[], valued: string[], switches: string[]): string[] {
  const tied: string[] = [];
  for (let n = 0; n < argv.length; n++) {
    if (argv[n] === "--") return [...tied, ...argv.slice(n)];
    const [, name, value] = /^--([^=]+)(?:=(.*))?$/s.exec(argv[n]) ?? [];
    if (switches.includes(name) && value !== undefined) throw new UsageError(`--${name} takes no value`);
    if (!valued.includes(name)) {
      tied.push(SHORT[argv[n]] ?? argv[n]);
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

/** The arguments in the places that the command declares for them, those that a flag gives included. */
function arrange(command: Command, words: readonly string[], given: ReadonlyMap<string, string>): string[] {
  const { name, positionals, absent } = command;
  const hint = `see rabbit ${name} --help`;
  const aliased = positionals.filter(({ alias }) => alias !== undefined && given.has(alias));
  if (words.length === 0 && aliased.length === 0 && absent !== undefined) return [...absent];
  const left = [...words];
  const arranged = positionals.flatMap((positional) => {
    if (aliased.includes(positional)) return [given.get(positional.alias!)!];
    const taken = left.splice(0, positional.many ? left.length : 1);
    if (taken.length === 0 && !positional.optional) throw new UsageError(`${positional.name} is missing; ${hint}`);
    for (const word of taken) readValue(positional.name, positional.type, word);
    return taken;
  });
  if (left.length > 0) {
    const [first] = aliased;
    const why = first === undefined ? hint : `${first.name} is given by --${first.alias} already`;
    throw new UsageError(`unexpected argument ${quote(left[0])}; ${why}`);
  }
  return arranged;
}

/** The value of a flag: what is given, or its default. @throws {UsageError} */
function read(command: Command, name: string, flag: Flag, text: string | undefined): string | number | undefined {
  if (text !== undefined) return readValue(`--${name}`, flag.type!, text);
  if (!flag.required) return flag.default;
  throw new UsageError(`--${name} ${valueOf(flag)} is missing; see rabbit ${command.name} --help`);
}

/** @throws {UsageError} it is none of the type */
function readValue(name: string, type: Type, text: string): string | number {
  switch (type.kind) {
    case "integer": {
      const { min, max = Number.MAX_SAFE_INTEGER } = type;
      const value = Number(text);
      if (/^\d+$/.test(text) && value >= min && value <= max) return value;
      const range = type.max === undefined && !(value > max) ? `${min} or more` : `${min} to ${max}`;
      throw invalid(name, `a whole number of ${range}`, text);
    }
    case "number": {
      const { above, min = above ?? 0, max } = type;
      const value = Number(text);
      const good = /^\d*\.?\d+(e[-+]?\d+)?$/i.test(text) && value >= min && value !== above && value <= max;
      if (good) return value;
      throw invalid(
        name,
        above === undefined ? `a number of ${min} to ${max}` : `a number above ${above}, to ${max}`,
        text,
      );
    }
    case "choice": {
      const choice = type.of.find((choice) => String(choice) === text);
      if (choice !== undefined) return choice;
      throw invalid(name, type.of.join(" or "), text);
    }
    default:
      return text;
  }
}

function invalid(name: string, wanted: string, found: string): UsageError {
  return new UsageError(`${name} takes ${wanted}, found ${quote(found)}`);
}

/** The error for a word that is none of `known`, with the nearest of them where one is near. */
export function unknown(what: string, word: string, known: readonly string[], help: string): UsageError {
  const nearest = closestString(word, known);
  const near = nearest !== undefined && levenshteinDistance(word, nearest) <= Math.max(2, word.length / 3);
  return new UsageError(`unknown ${what} ${quote(word)}; ${near ? `did you mean ${nearest}?` : `see ${help}`}`);
}
