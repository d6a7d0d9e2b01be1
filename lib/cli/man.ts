import { type Command, command, COMMON } from "./arguments.ts";
import { argumentRows, flagRows, PROGRAM, statusOf, usageOf } from "./help.ts";

/**
 * `rabbit man`
 *
 * @param commands all commands, this one too: read when the command runs
 */
export function manCommand(commands: readonly Command[], version: string): Command {
  return command({
    name: "man",
    group: "other",
    summary: "print the manual page, in roff",
    positionals: [],
    flags: {},
    example: "rabbit man | man -l -",
    run(_args, out) {
      out.text("page", manual(commands, version));
      return Promise.resolve(0);
    },
  });
}

/** The manual page in the macros of man(7), without a line's end after the last one. */
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
    ...tagged([
      ["rabbit help COMMAND, rabbit COMMAND --help", "explains a command"],
      ["rabbit --version", "prints the version"],
    ]),
    ".SH COMMANDS",
    ...commands.flatMap(section),
    ".SH OPTIONS OF EVERY COMMAND",
    ...tagged(flagRows(COMMON)),
    ".SH EXIT STATUS",
    ...tagged([
      ["0", "yes, or done"],
      ["1", "the answer is no"],
      ["2", "trouble: wrong usage, input that can't be read or is refused, a full disk"],
      ["129, 130, 131, 143", "interrupted by SIGHUP, SIGINT, SIGQUIT, SIGTERM; nothing is left behind"],
    ]),
    ".SH ENVIRONMENT",
    ...tagged([
      ["RABBIT_DEBUG", "adds the stack trace to an error, where it is set and not empty"],
      ["TERM", "progress is shown where it is set, not empty and not dumb"],
      [
        "RABBIT_CHECKED",
        "where it is set and not empty, rabbit refuses to run without the engine's checks of addresses",
      ],
    ]),
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

/** A text as lines of source, which are short by custom. */
function lines(text: string): string[] {
  return text.match(/\S.{0,60}(?=\s|$)|\S+/g)!.map(roff);
}

/** A line of text: what roff would read otherwise is escaped. */
function roff(text: string): string {
  return text.replaceAll("\\", "\\e").replaceAll("-", "\\-").replace(/^[.']/, "\\&$&").replaceAll('"', "\\(dq");
}
