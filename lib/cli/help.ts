/**
 * The help of the program and of its commands, from the table of commands.
 *
 * @module
 */

import { type Command, COMMON, type Flag, type Flags, type Positional, valueOf } from "./arguments.ts";

/** What the program is. */
export const PROGRAM = "make, check and run quantized checkpoints of Llama-family language models";

/** What the exit status means. */
export const EXITS: readonly (readonly [string, string])[] = [
  ["0", "yes, or done"],
  ["1", "the answer is no"],
  ["2", "trouble: wrong usage, input that can't be read or is refused, a full disk"],
  ["129, 130, 131, 143", "interrupted by SIGHUP, SIGINT, SIGQUIT, SIGTERM; nothing is left behind"],
];

/** The variables of the environment that the program reads. */
export const ENVIRONMENT: readonly (readonly [string, string])[] = [
  ["RABBIT_DEBUG", "adds the stack trace to an error, if it is set and not empty"],
  ["TERM", "progress is shown if it is set, not empty and not dumb"],
  ["RABBIT_CHECKED", "if it is set and not empty, rabbit refuses to run without the engine's checks of addresses"],
];

/** How errors are reported. */
export const ERRORS =
  "An error is one line on standard error. With --json errors and warnings are JSON objects, one a " +
  "line, of which all but kind and message may be absent:";

/** The keys of an error's object: see messages.ts. */
export const ERROR_KEYS: readonly (readonly [string, string])[] = [
  [
    "kind",
    "usage, checkpoint (a file is not what it should be), output (what would be overwritten), system (such as a full disk), " +
    "limit (more than the model or the memory has room for), numeric (a value is not finite), interrupted, internal, or warning",
  ],
  ["file", "the file or directory"],
  ["tensor", "the tensor in the file"],
  ["field", "the field of the file"],
  ["message", "the whole message, in one line"],
  ["advice", "what to do, or what is needed: the end of the message"],
];

/** The terms of a table are in a column of their own, but for longer ones. */
const MAX_TERM = 26;

/** The fewest columns that are left for what stands beside the terms. */
const MIN_COLUMNS = 20;

/** Words as a sentence lists them. */
export function list(words: readonly string[], conjunction = "or"): string {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} ${conjunction} ${words.at(-1)}`;
}

/** A flag as it is typed. */
export function spell(name: string, flag: Flag): string {
  const value = valueOf(flag);
  return value === undefined ? `--${name}` : `--${name} ${value}`;
}

/** What a flag does, and what holds without it. */
export function describe({ help, required, unset, default: value }: Flag): string {
  if (required) return `${help} (required)`;
  if (unset !== undefined) return `${help} (default: ${unset})`;
  return value === undefined ? help : `${help} (default ${value})`;
}

/** What an argument is. */
export function describeArgument({ name, help, alias }: Positional): string {
  return alias === undefined ? help : `${help} (or --${alias} ${name})`;
}

/** What follows a command's name, part by part. */
export function usageOf({ flags, positionals, absent }: Command): string[] {
  const names = positionals.map(({ name, optional, many }) => optional ? `[${name}]` : many ? `${name}...` : name);
  return [
    ...absent === undefined ? names : [`[${names.join(" ")}]`],
    ...Object.entries(flags).map(([name, flag]) => flag.required ? spell(name, flag) : `[${spell(name, flag)}]`),
    "[--json]",
    "[--quiet]",
  ];
}

/** What the exit status of a command means. */
export function statusOf({ verdict }: Command): string {
  return `${verdict ?? "0 done"}, 2 trouble`;
}

/** The rows of a table of flags. */
export function flagRows(flags: Flags): [string, string][] {
  return Object.entries(flags).map(([name, flag]) => [spell(name, flag), describe(flag)]);
}

/** The rows of a table of arguments. */
export function argumentRows({ positionals }: Command): [string, string][] {
  return positionals.map((positional) => [positional.name, describeArgument(positional)]);
}

/** A command with all that may follow it, after a word; the lines are at most `columns` long. */
export function usage(command: Command, columns: number, before = ""): string {
  const head = `${before}rabbit ${command.name} `;
  return head + wrapWords(usageOf(command), columns, head.length);
}

/** The help of one command. */
export function commandHelp(command: Command, columns: number): string {
  const rows = [...argumentRows(command), ...flagRows(command.flags), ...flagRows(COMMON)];
  return [
    wrap(`rabbit ${command.name}: ${command.summary}`, columns),
    usage(command, columns, "usage: "),
    table(rows, columns),
    ...(command.details ?? []).map((detail) =>
      typeof detail === "string" ? wrap(detail, columns) : table(detail, columns)
    ),
    wrap(`exit status: ${statusOf(command)}`, columns),
    `example: ${command.example}`,
  ].join("\n\n");
}

/** The help of the program. */
export function programHelp(commands: readonly Command[], columns: number): string {
  const width = Math.max(...commands.map(({ name }) => name.length));
  const rows = (group: Command["group"]) =>
    table(
      commands.filter((command) => command.group === group).map(({ name, summary }) => [name, summary]),
      columns,
      width,
    );
  return [
    wrap(`rabbit: ${PROGRAM}`, columns),
    "usage: rabbit COMMAND [OPTIONS]",
    rows(undefined),
    `development:\n${rows("development")}`,
    `other:\n${rows("other")}`,
    wrap("rabbit help COMMAND, or rabbit COMMAND --help, explains a command.", columns) + "\n" +
    wrap("rabbit --version prints the version.", columns),
  ].join("\n\n");
}

/** Rows of a term and a text beside it; below it where the term is long, or the columns are few. */
function table(rows: readonly (readonly [string, string])[], columns: number, least = 0): string {
  const widths = rows.map(([term]) => term.length).filter((width) => width <= MAX_TERM);
  const width = Math.max(least, ...widths);
  const indent = columns - width - 4 < MIN_COLUMNS ? 4 : width + 4;
  return rows.map(([term, text]) => {
    const beside = term.length + 4 <= indent;
    const body = wrap(text, columns, indent);
    return beside ? `  ${term.padEnd(indent - 2)}${body}` : `  ${term}\n${" ".repeat(indent)}${body}`;
  }).join("\n");
}

/** A text in lines of at most `columns`, all but the first of which are indented, as the first is already. */
function wrap(text: string, columns: number, indent = 0): string {
  return wrapWords(text.split(" "), columns, indent);
}

/** The same of words that are kept whole, although they may have spaces. */
function wrapWords(words: readonly string[], columns: number, indent: number): string {
  let line = "";
  const lines: string[] = [];
  for (const word of words) {
    if (line !== "" && indent + line.length + 1 + word.length > columns) {
      lines.push(line);
      line = word;
    } else line += line === "" ? word : ` ${word}`;
  }
  return [...lines, line].join("\n" + " ".repeat(indent));
}
