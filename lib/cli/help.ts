/**
 * Prints the help of the program and of its commands from the table of commands.
 *
 * @module
 */

import { type Command, COMMON, type Flag, type Flags, type Positional, valueOf } from "./arguments.ts";

/** The purpose of the program. */
export const PROGRAM = "make, check and run quantized checkpoints of Llama-family language models";

/** The meanings of the exit status. */
export const EXITS: readonly (readonly [string, string])[] = [
  ["0", "yes, or done"],
  ["1", "the answer is no"],
  ["2", "trouble: invalid usage, input that cannot be read or is refused, a full disk"],
  ["129, 130, 131, 143", "interrupted by SIGHUP, SIGINT, SIGQUIT, SIGTERM; no unfinished file is left"],
];

/** The environment variables that the program reads. */
export const ENVIRONMENT: readonly (readonly [string, string])[] = [
  ["RABBIT_DEBUG", "if set and not empty, errors include a stack trace"],
  ["TERM", "if set, not empty and not dumb, progress is shown"],
  ["RABBIT_CHECKED", "if set and not empty, rabbit refuses to run without the engine's bounds checks"],
];

/** How errors are reported. */
export const ERRORS =
  "An error is one line on standard error. With --json each error and each warning is a JSON object on one line. All keys " +
  "but kind and message are optional:";

/** The keys of the object of an error: see messages.ts. */
export const ERROR_KEYS: readonly (readonly [string, string])[] = [
  [
    "kind",
    "usage, checkpoint (a file is invalid), output (a file would be overwritten), system (for example a full disk), limit " +
    "(the model or the memory is too small), numeric (a value is not finite), interrupted, internal, or warning",
  ],
  ["file", "the file or directory"],
  ["tensor", "the tensor in the file"],
  ["field", "the field of the file"],
  ["message", "the whole message, on one line"],
  ["advice", "what to do, or what is required: the end of the message"],
];

/** The widest column of terms; a longer term has a line of its own. */
const MAX_TERM = 26;

/** The minimum number of columns for the text next to the terms. */
const MIN_COLUMNS = 20;

/** Joins words as in a sentence: a, b or c. */
export function list(words: readonly string[], conjunction = "or"): string {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} ${conjunction} ${words.at(-1)}`;
}

/** A flag and its value, as typed. */
export function spell(name: string, flag: Flag): string {
  const value = valueOf(flag);
  return value === undefined ? `--${name}` : `--${name} ${value}`;
}

/** The help of a flag, with its default. */
export function describe({ help, required, unset, default: value }: Flag): string {
  if (required) return `${help} (required)`;
  if (unset !== undefined) return `${help} (default: ${unset})`;
  return value === undefined ? help : `${help} (default ${value})`;
}

/** The help of an argument, with its alias. */
export function describeArgument({ name, help, alias }: Positional): string {
  return alias === undefined ? help : `${help} (or --${alias} ${name})`;
}

/** The parts of a command's usage after its name. */
export function usageOf({ flags, positionals, absent }: Command): string[] {
  const names = positionals.map(({ name, optional, many }) => optional ? `[${name}]` : many ? `${name}...` : name);
  return [
    ...absent === undefined ? names : [`[${names.join(" ")}]`],
    ...Object.entries(flags).map(([name, flag]) => {
      return flag.required ? spell(name, flag) : `[${spell(name, flag)}]${flag.many ? "..." : ""}`;
    }),
    "[--json]",
    "[--quiet]",
  ];
}

/** The meanings of the exit status of a command. */
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

/** The usage of a command, wrapped to `columns`. */
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

/**
 * Formats rows of a term and a text. The text is next to the term, or below it if the term is long or columns are few.
 */
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

/** Wraps a text to `columns`. `indent` is that of every line; the caller indents the first. */
function wrap(text: string, columns: number, indent = 0): string {
  return wrapWords(text.split(" "), columns, indent);
}

/** The same for words, which are not broken even if they contain spaces. */
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
