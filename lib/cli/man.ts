/**
 * `rabbit man`: prints the manual page.
 *
 * @module
 */

import { type Command, command, COMMON } from "./arguments.ts";
import { argumentRows, ENVIRONMENT, ERROR_KEYS, ERRORS, EXITS, flagRows, PROGRAM, statusOf, usageOf } from "./help.ts";

/**
 * `rabbit man`
 *
 * @param commands loads all commands, including this one
 */
export function manCommand(commands: () => Promise<readonly Command[]>, version: string): Command {
  return command({
    name: "man",
    group: "other",
    summary: "print the manual page, in roff",
    positionals: [],
    flags: {},
    example: "rabbit man | man -l -",
    async run(_args, out) {
      out.text("page", manual(await commands(), version));
      return 0;
    },
  });
}

/** The manual page in the macros of man(7), without a final newline. */
export function manual(commands: readonly Command[], version: string): string {
  return [
    `.TH RABBIT 1 "" "rabbit ${version}" "User Commands"`,
    ".SH NAME",
    ...lines(`rabbit - ${PROGRAM}`),
    ".SH SYNOPSIS",
    ".B rabbit",
    ".I COMMAND",
    "[\\fIOPTIONS\\fR]",
    ".SH DESCRIPTION",
    "Results go to standard output as lines",
    '.IR "NAME key" = value ...',
    "or as one JSON object; progress and errors go to standard error.",
    ...lines(ERRORS),
    ...tagged(ERROR_KEYS),
    ...tagged([
      ["rabbit help COMMAND, rabbit COMMAND --help", "explains a command"],
      ["rabbit --version", "prints the version"],
    ]),
    ".SH COMMANDS",
    ...commands.flatMap(section),
    ".SH OPTIONS OF EVERY COMMAND",
    ...tagged(flagRows(COMMON)),
    ".SH EXIT STATUS",
    ...tagged(EXITS),
    ".SH ENVIRONMENT",
    ...tagged(ENVIRONMENT),
    ".SH EXAMPLES",
    ".nf",
    ...commands.map(({ example }) => roff(example)),
    ".fi",
  ].join("\n");
}

function section(command: Command): string[] {
  const usage = [`rabbit ${command.name}`, ...usageOf(command)];
  return [
    `.SS ${roff(command.name)}`,
    ...lines(command.summary),
    ".P",
    ...usage.map((part) => `.B ${roff(part).replaceAll(" ", "\\ ")}`),
    ...tagged([...argumentRows(command), ...flagRows(command.flags)]),
    ...(command.details ?? []).flatMap((detail) =>
      typeof detail === "string" ? [".P", ...lines(detail)] : tagged(detail)
    ),
    ".P",
    ...lines(`Exit status: ${statusOf(command)}.`),
  ];
}

function tagged(rows: readonly (readonly string[])[]): string[] {
  return rows.flatMap(([tag, text]) => [".TP", `.B ${roff(tag)}`, ...lines(text)]);
}

/** Splits a text into short lines, as is customary in roff. */
function lines(text: string): string[] {
  return text.match(/\S.{0,60}(?=\s|$)|\S+/g)!.map(roff);
}

/** Escapes the characters that are special in roff. */
function roff(text: string): string {
  return text.replaceAll("\\", "\\e").replaceAll("-", "\\-").replace(/^[.']/, "\\&$&").replaceAll('"', "\\(dq");
}
