/**
 * The program: parses the arguments, runs the command, and exits with 0 (yes or done), 1 (no) or 2 (trouble).
 *
 * @module
 */

// Imported first, so that the program drops permissions before any other module is loaded.
import "./lib/cli/startup.ts";
import { type Command, parse, unknown } from "./lib/cli/arguments.ts";
import { allCommands, COMMAND_NAMES, commandOf } from "./lib/cli/commands.ts";
import { ClosedPipe, UsageError } from "./lib/cli/errors.ts";
import { commandHelp, programHelp } from "./lib/cli/help.ts";
import { complaintOf, statusOf } from "./lib/cli/messages.ts";
import { columns, complain, Output, printError, printText, speak, variable } from "./lib/cli/output.ts";
import { unsupported } from "./lib/cli/platform.ts";
import { VERSION } from "./lib/cli/version.ts";
import { quote } from "./lib/errors.ts";
import { checksAddresses, revision } from "rabbit/revision";

/** The words that ask for help instead of a command. */
const HELP = ["help", "--help", "-h"];

/** Options that come after a command. */
const LATER = ["--json", "--quiet", "-q"];

function find(word: string): Promise<Command> {
  if (COMMAND_NAMES.includes(word)) return commandOf(word);
  if (word.startsWith("-")) {
    const own = word.replace(/=.*/s, "");
    if (LATER.includes(own)) throw new UsageError(`${own} is an option of commands; give it after the command`);
    throw unknown("option", own, ["--help", "--version"], "rabbit --help");
  }
  throw unknown("command", word, [...COMMAND_NAMES, "help"], "rabbit --help");
}

function refuseMore([argument]: readonly string[]): void {
  if (argument !== undefined) throw new UsageError(`unexpected argument ${quote(argument)}; see rabbit --help`);
}

/** The help of the program, or of a command. */
async function helpOf([topic, ...more]: readonly string[]): Promise<string> {
  refuseMore(more);
  return topic === undefined || HELP.includes(topic)
    ? programHelp(await allCommands(), columns())
    : commandHelp(await find(topic), columns());
}

async function run([word, ...rest]: readonly string[]): Promise<number> {
  const problem = unsupported(Deno.build.os);
  if (problem !== undefined) throw new UsageError(problem);
  // Set before parsing, so that errors in the arguments are JSON objects too. An argument after -- is not a flag.
  speak({ json: rest.slice(0, [...rest, "--"].indexOf("--")).includes("--json"), quiet: false });
  if (word === undefined || HELP.includes(word)) {
    printText(await helpOf(rest));
    return word === undefined ? 2 : 0;
  }
  if (word === "--version") {
    refuseMore(rest);
    const built = revision();
    printText(`rabbit ${VERSION}${built === undefined ? "" : ` (${built})`}`);
    return 0;
  }
  if (Deno.env.get("RABBIT_CHECKED") && !checksAddresses()) {
    throw new UsageError(
      "RABBIT_CHECKED is set, but this program runs without bounds checks; " +
        "run `deno task rabbit`, or compile it again with RABBIT_CHECKED=1 in the environment",
    );
  }
  const command = await find(word);
  const { args, common } = parse(command, rest);
  if (common.help) {
    printText(commandHelp(command, columns()));
    return 0;
  }
  speak(common);
  const out = new Output(command.word ?? command.name.toUpperCase(), common.json);
  const status = await command.run(args, out);
  out.finish();
  return status;
}

function report(thrown: unknown): number {
  if (thrown instanceof ClosedPipe) return statusOf(thrown);
  const command = COMMAND_NAMES.includes(Deno.args[0]) ? `${Deno.args[0]}: ` : "";
  complain(command, complaintOf(thrown));
  if (variable("RABBIT_DEBUG") !== "") printError(Deno.inspect(thrown));
  return statusOf(thrown);
}

// An error that no caller catches is reported like any other.
globalThis.addEventListener("error", (event) => {
  event.preventDefault();
  Deno.exit(report(event.error));
});
globalThis.addEventListener("unhandledrejection", (event) => {
  event.preventDefault();
  Deno.exit(report(event.reason));
});

Deno.exit(await run(Deno.args).catch(report));
