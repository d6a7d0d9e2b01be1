/**
 * `deno task docs`: writes docs/commands.md from the table of commands. With `--check` it writes nothing, and fails if the
 * file is not what the table gives.
 *
 * @module
 */

import { dirname } from "@std/path/dirname";
import { type Command, COMMON, type Detail } from "../lib/cli/arguments.ts";
import { COMMANDS } from "../lib/cli/commands.ts";
import {
  argumentRows,
  ENVIRONMENT,
  ERROR_KEYS,
  ERRORS,
  EXITS,
  flagRows,
  PROGRAM,
  statusOf,
  usage,
} from "../lib/cli/help.ts";

const PATH = `${dirname(import.meta.dirname!)}/docs/commands.md`;

/** Columns of a block of code. */
const COLUMNS = 80;

type Rows = readonly (readonly [string, string])[];

/** A text in a line of Markdown: what is not to be read as markup is escaped. */
function plain(text: string): string {
  return text.replace(/[\\*_<>|[\]]/g, "\\$&");
}

function code(text: string): string {
  return `\`${text.replaceAll("|", "\\|")}\``;
}

function table(head: string, rows: Rows): string {
  return [
    `| ${head} | meaning |`,
    "| --- | --- |",
    ...rows.map(([term, text]) => `| ${code(term)} | ${plain(text)} |`),
  ].join("\n");
}

function block(text: string): string {
  return `\`\`\`\n${text}\n\`\`\``;
}

function sentence(text: string): string {
  return plain(text[0].toUpperCase() + text.slice(1)) + (/[.?]$/.test(text) ? "" : ".");
}

function detail(detail: Detail): string {
  return typeof detail === "string" ? plain(detail) : table("figure", detail);
}

function section(command: Command): string[] {
  const [positionals, flags] = [argumentRows(command), flagRows(command.flags)];
  return [
    `## ${command.name}`,
    sentence(command.summary),
    block(usage(command, COLUMNS)),
    ...positionals.length > 0 ? [table("argument", positionals)] : [],
    ...flags.length > 0 ? [table("option", flags)] : [],
    ...(command.details ?? []).map(detail),
    `Exit status: ${plain(statusOf(command))}. Example:`,
    block(command.example),
  ];
}

/** The page, before it is formatted. */
function page(): string {
  return [
    "<!-- Made by `deno task docs` from the table of commands (lib/cli): do not edit. -->",
    "# Commands",
    `\`rabbit\`: ${PROGRAM}. Results go to standard output, as lines \`NAME key=value …\` or as one JSON object; progress ` +
    "and errors go to standard error. `rabbit help COMMAND` and `rabbit COMMAND --help` explain a command, " +
    "`rabbit --version` prints the version, `rabbit man` the manual page, and `rabbit completions SHELL` a script that " +
    "completes commands and options.",
    ["", ...COMMANDS.map(({ name, summary }) => `- [${name}](#${name}): ${plain(summary)}`)].join("\n"),
    "## Options of every command",
    table("option", flagRows(COMMON)),
    "## Errors",
    plain(ERRORS),
    table("key", ERROR_KEYS),
    "## Exit status",
    table("status", EXITS),
    "## Environment",
    table("variable", ENVIRONMENT),
    ...COMMANDS.flatMap(section),
  ].join("\n\n") + "\n";
}

/** The text as `deno fmt` leaves it. */
async function formatted(markdown: string): Promise<string> {
  const args = ["fmt", "--ext", "md", "--line-width", "120", "-"];
  const child = new Deno.Command(Deno.execPath(), { args, stdin: "piped", stdout: "piped" }).spawn();
  const writer = child.stdin.getWriter();
  await writer.write(new TextEncoder().encode(markdown));
  await writer.close();
  const { success, stdout } = await child.output();
  if (!success) throw new Error("deno fmt failed");
  return new TextDecoder().decode(stdout);
}

function read(path: string): string {
  try {
    return Deno.readTextFileSync(path);
  } catch {
    return "";
  }
}

const made = await formatted(page());
if (!Deno.args.includes("--check")) {
  Deno.mkdirSync(dirname(PATH), { recursive: true });
  Deno.writeTextFileSync(PATH, made);
} else if (read(PATH) !== made) {
  console.error("docs/commands.md is not what the table of commands gives; run `deno task docs`");
  Deno.exitCode = 1;
}
