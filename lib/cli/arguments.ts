/**
 * Parses the command line. Each flag and argument is declared once, with its type and default. The parser, the help,
 * the completions, the manual page and docs/commands.md are derived from the declaration.
 *
 * @module
 */

import { DEFAULT_THREADS, MAX_THREADS } from "../kernels/workers.ts";
import { parseArgs } from "@std/cli/parse-args";
import { closestString } from "@std/text/closest-string";
import { levenshteinDistance } from "@std/text/levenshtein-distance";
import { quote } from "../errors.ts";
import type { Part } from "../quantize/parts.ts";
import { UsageError } from "./errors.ts";
import type { Output } from "./output.ts";

/** The type of a value. */
export type Type =
  /** A whole number from `min` to `max` (default: no limit). */
  | { readonly kind: "integer"; readonly min: number; readonly max?: number }
  /** A number from `min` (default: 0) to `max`, or above `above` and at most `max`. */
  | {
    readonly kind: "number";
    readonly min?: number;
    readonly above?: number;
    readonly max: number;
    /** What it is in messages, if not "a number". */
    readonly noun?: string;
  }
  /** One of several parts, as I/N. */
  | { readonly kind: "part" }
  /** A number of bytes, with a unit or without. */
  | { readonly kind: "size" }
  /** One of several words or numbers. */
  | { readonly kind: "choice"; readonly of: readonly (string | number)[] }
  /** The path of a directory, a file, or either. */
  | { readonly kind: "path"; readonly of: "directory" | "file" | "any" }
  /** A text that is not empty. */
  | { readonly kind: "text" };

/** One option of a command. */
export interface Flag {
  /** The type of its value; undefined for a boolean flag. */
  readonly type?: Type;
  /** The name of the value in the help, if that of the type is too vague. */
  readonly value?: string;
  readonly help: string;
  /** The value if the flag is not given. */
  readonly default?: string | number;
  /** The default in words, for the help, if `default` is undefined or too vague. */
  readonly unset?: string;
  /** Whether the command is refused without it. */
  readonly required?: boolean;
  /** May be given several times; its value is a list. It has no default. */
  readonly many?: boolean;
}

/** Flags by their names. */
export type Flags = Readonly<Record<string, Flag>>;

/** One argument that is not an option. */
export interface Positional {
  readonly name: string;
  readonly type: Type;
  readonly help: string;
  readonly optional?: boolean;
  /** Whether it takes one argument or more; only for the last one. */
  readonly many?: boolean;
  /** A flag that gives the same argument. */
  readonly alias?: string;
}

/** The type of a value in TypeScript. */
type Given<T extends Type> = T extends { readonly kind: "integer" | "number" | "size" } ? number
  : T extends { readonly kind: "part" } ? Part
  : T extends { readonly kind: "choice"; readonly of: readonly (infer C)[] } ? C
  : string;

/** The values of flags by their names; undefined if a flag without a default is not given. */
export type Values<F extends Flags> = {
  readonly [K in keyof F]: F[K] extends { readonly type: infer T extends Type; readonly many: true }
    ? readonly Given<T>[] | undefined
    : F[K] extends { readonly type: infer T extends Type } ?
        | Given<T>
        | (F[K] extends { readonly default: string | number } | { readonly required: true } ? never : undefined)
    : boolean;
};

/** A declared command. */
export interface Command {
  readonly name: string;
  readonly summary: string;
  /** Its heading in the help; undefined for the main commands, which have none. */
  readonly group?: "development" | "other";
  /** The first word of its result lines (default: the name in capitals). */
  readonly word?: string;
  readonly positionals: readonly Positional[];
  /** The arguments to use if none is given. */
  readonly absent?: readonly string[];
  readonly flags: Flags;
  readonly example: string;
  /** An explanation of the results for the help: paragraphs, and tables of terms. */
  readonly details?: readonly Detail[];
  /** The meaning of the exit status 0 and 1, if 1 is possible. */
  readonly verdict?: string;
  /** Runs the command and returns its exit status: 0 or 1. */
  run(args: Arguments, out: Output): Promise<number>;
}

/** A paragraph, or rows of terms and their meanings. */
export type Detail = string | readonly (readonly [term: string, meaning: string])[];

/** Declares a command. `run` gets the values of the flags with their types. */
export function command<const F extends Flags>(
  declared: Omit<Command, "flags" | "run"> & {
    readonly flags: F;
    run(args: Arguments<Values<F>>, out: Output): Promise<number>;
  },
): Command {
  return declared;
}

/** `--threads` of every command that computes. */
export const THREADS = {
  type: { kind: "integer", min: 1, max: MAX_THREADS },
  help: "threads to use",
  default: DEFAULT_THREADS,
  unset: "one for each processor",
} as const satisfies Flag;
/** `--force` of the commands that write a checkpoint. */
export const FORCE = { help: "overwrite an existing checkpoint" } as const satisfies Flag;
/** `--dry-run` of the commands that take long. */
export const DRY_RUN = {
  help: "check the input and print sizes and the memory that is needed, but write nothing",
} as const satisfies Flag;
/** One of several parts. */
export const PART = { kind: "part" } as const satisfies Type;
/** A number of bytes. */
export const SIZE = { kind: "size" } as const satisfies Type;
/** The path of a checkpoint. */
export const CHECKPOINT = { kind: "path", of: "any" } as const satisfies Type;
/** A number of tokens. */
export const COUNT = { kind: "integer", min: 1 } as const satisfies Type;
/** A text. */
export const TEXT = { kind: "text" } as const satisfies Type;
/** The path of a directory. */
export const DIRECTORY = { kind: "path", of: "directory" } as const satisfies Type;
/** The path of a file. */
export const FILE = { kind: "path", of: "file" } as const satisfies Type;

/** The flags of every command. */
export const COMMON = {
  json: { help: "print one JSON object instead of lines, and an error as one JSON object on standard error" },
  quiet: { help: "print no progress and no warnings (or -q)" },
  help: { help: "print this help (or -h)" },
} as const satisfies Flags;

/** The flags of one letter and their long forms. */
const SHORT: Readonly<Record<string, string>> = { "-h": "--help", "-q": "--quiet" };

/** The name of a value in the help. */
export function valueOf({ type, value }: { readonly type?: Type; readonly value?: string }): string | undefined {
  if (value !== undefined || type === undefined) return value;
  if (type.kind === "choice") return type.of.join("|");
  if (type.kind === "path") return { directory: "DIR", file: "FILE", any: "DIR|FILE" }[type.of];
  return { integer: "N", number: "X", size: "SIZE", part: "I/N", text: "TEXT" }[type.kind];
}

/** The arguments of a command, after parsing. */
export class Arguments<V = Readonly<Record<string, unknown>>> {
  /**
   * @param positionals one for each that the command declares; the last one may be repeated if it is `many`
   * @param values the values of the flags, including defaults
   * @param given the values of the flags as they are on the command line
   */
  constructor(
    readonly positionals: readonly string[],
    readonly values: V,
    readonly given: ReadonlyMap<string, string>,
  ) {}

  /** Returns the error for a value that fails a check of the command. */
  invalid(flag: string & keyof V, wanted: string): UsageError {
    return invalid(`--${flag}`, wanted, this.given.get(flag)!);
  }
}

/** The values of the flags of every command. */
export interface Common {
  readonly json: boolean;
  readonly quiet: boolean;
  readonly help: boolean;
}

/** Parses the arguments after the name of a command. @throws {UsageError} */
export function parse(command: Command, argv: readonly string[]): { args: Arguments; common: Common } {
  const lossy = argv.find((argument) => argument.includes("\ufffd"));
  if (lossy !== undefined) {
    // Deno replaces bytes that are not UTF-8 by U+FFFD, so the original argument is unknown.
    throw new UsageError(`the argument ${quote(lossy)} is not UTF-8, or contains U+FFFD, which replaces invalid bytes`);
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
    if (texts.length > 1 && !flags[name]?.many) throw new UsageError(`--${name} is given ${texts.length} times`);
    if (texts.length > 0) given.set(name, texts[0]);
  }
  const positionals = arrange(command, parsed._.map(String), given);
  const values = Object.entries(command.flags).map(([name, flag]) => {
    if (flag.type === undefined) return [name, parsed[name] === true];
    if (!flag.many) return [name, read(command, name, flag, given.get(name))];
    const texts = parsed[name] as string[];
    return [name, texts.length === 0 ? undefined : texts.map((text) => readValue(`--${name}`, flag.type!, text))];
  });
  return { args: new Arguments(positionals, Object.fromEntries(values), given), common };
}

/**
 * Refuses what parseArgs accepts silently: a flag without its value, a value for a boolean flag. Joins
 * values to their flags, so that a value may begin with a dash, and replaces flags of one letter by their long forms.
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
    if (given === undefined || (value === undefined && given.startsWith("--"))) {
      throw new UsageError(`--${name} needs a value`);
    }
    tied.push(`--${name}=${given}`);
  }
  return tied;
}

/** The positional arguments in the order of their declaration, including those given by their alias. */
function arrange(command: Command, words: readonly string[], given: ReadonlyMap<string, string>): string[] {
  const { positionals, absent } = command;
  const hint = `see rabbit ${command.name} --help`;
  const aliased = positionals.filter(({ alias }) => alias !== undefined && given.has(alias));
  if (words.length === 0 && aliased.length === 0 && absent !== undefined) return [...absent];
  const left = [...words];
  const arranged = positionals.flatMap((positional) => {
    const { name, type, alias, many, optional } = positional;
    if (aliased.includes(positional)) return [String(readValue(`--${alias}`, type, given.get(alias!)!))];
    const taken = left.splice(0, many ? left.length : 1);
    if (taken.length === 0 && !optional) throw new UsageError(`${name} is missing; ${hint}`);
    for (const word of taken) readValue(name, type, word);
    return taken;
  });
  if (left.length > 0) {
    const [first] = aliased;
    const why = first === undefined ? hint : `${first.name} is given by --${first.alias} already`;
    throw new UsageError(`unexpected argument ${quote(left[0])}; ${why}`);
  }
  return arranged;
}

/** The value of a flag: the given one, or the default. @throws {UsageError} */
function read(
  command: Command,
  name: string,
  flag: Flag,
  text: string | undefined,
): string | number | Part | undefined {
  if (text !== undefined) return readValue(`--${name}`, flag.type!, text);
  if (!flag.required) return flag.default;
  throw new UsageError(`--${name} ${valueOf(flag)} is missing; see rabbit ${command.name} --help`);
}

/** The units of a size, in capitals: powers of 1000, as Hugging Face's tools have them, and of 1024, as Slurm has M. */
const UNITS: ReadonlyMap<string, number> = new Map([
  ["", 1],
  ...["", "K", "M", "G", "T"].map((prefix, n): [string, number] => [`${prefix}B`, 1000 ** n]),
  ...["K", "M", "G", "T"].flatMap((prefix, n): [string, number][] => {
    return ["", "IB"].map((suffix) => [prefix + suffix, 1024 ** (n + 1)]);
  }),
]);

/** Parses a value. @throws {UsageError} it is empty, or not of the type */
function readValue(name: string, type: Type, text: string): string | number | Part {
  // An empty path would be the current directory.
  if (text === "") throw new UsageError(`${name} is empty`);
  switch (type.kind) {
    case "integer": {
      const { min, max = Number.MAX_SAFE_INTEGER } = type;
      const value = Number(text);
      if (/^\d+$/.test(text) && value >= min && value <= max) return value;
      const range = type.max === undefined && !(value > max) ? `at least ${min}` : `${min} to ${max}`;
      throw invalid(name, `a whole number of ${range}`, text);
    }
    case "number": {
      const { above, min = above ?? 0, max, noun = "a number" } = type;
      const value = Number(text);
      const good = /^\d*\.?\d+(e[-+]?\d+)?$/i.test(text) && value >= min && value !== above && value <= max;
      if (good) return value;
      throw invalid(
        name,
        above === undefined ? `${noun} of ${min} to ${max}` : `${noun} above ${above}, to ${max}`,
        text,
      );
    }
    case "part": {
      const [, number, count] = /^(\d{1,5})\/(\d{1,5})$/.exec(text)?.map(Number) ?? [];
      if (number >= 1 && number <= count) return { number, count };
      throw invalid(name, "I/N: the number of a part, from 1 on, and of all parts, at most 99999", text);
    }
    case "size": {
      const [, number, unit] = /^(\d+(?:\.\d+)?)([A-Za-z]*)$/.exec(text) ?? [];
      const bytes = Math.floor(Number(number) * (UNITS.get((unit ?? "").toUpperCase()) ?? NaN));
      if (bytes >= 1 && bytes <= Number.MAX_SAFE_INTEGER) return bytes;
      throw invalid(name, "a size such as 500MB, 5GB or 4GiB", text);
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

/** Returns the error for an unknown word, with the nearest known word if it is similar. */
export function unknown(what: string, word: string, known: readonly string[], help: string): UsageError {
  const nearest = closestString(word, known);
  const near = nearest !== undefined && levenshteinDistance(word, nearest) <= Math.max(2, word.length / 3);
  return new UsageError(`unknown ${what} ${quote(word)}; ${near ? `did you mean ${nearest}?` : `see ${help}`}`);
}
