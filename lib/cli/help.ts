/**
 * The help of the program and of its commands, from the table of commands.
 *
 * @module
 */

import { type Command, COMMON, type Flag, type Flags, type Positional, valueOf } from "./arguments.ts";

/** What the program is. */
export const PROGRAM = "make, check and run quantized checkpoints of Llama-family language models";

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
export function describeArgument({ help, alias }: Positional): string {
  return alias === undefined ? help : `${help} (or --${alias})`;
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

/** The help of one command. */
export function commandHelp(command: Command, columns: number): string {
  const rows = [...argumentRows(command), ...flagRows(command.flags), ...flagRows(COMMON)];
  const usage = `usage: rabbit ${command.name} `;
  return [
    wrap(`rabbit ${command.name}: ${command.summary}`, columns),
    usage + wrapWords(usageOf(command), columns, usage.length),
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
