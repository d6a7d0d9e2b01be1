/**
 * The table of commands, in the order of the help.
 *
 * @module
 */

import type { Command } from "./arguments.ts";
import { completionsCommand } from "./completions.ts";
import { manCommand } from "./man.ts";
import { VERSION } from "./version.ts";

/** Each command's module is loaded when it is needed: loading all of them takes longer than many commands do. */
const TABLE: Readonly<Record<string, () => Promise<Command>>> = {
  quantize: async () => (await import("./quantize.ts")).quantizeCommand,
  merge: async () => (await import("./merge.ts")).mergeCommand,
  verify: async () => (await import("./verify.ts")).verifyCommand,
  attest: async () => (await import("./attest.ts")).attestCommand,
  inspect: async () => (await import("./inspect.ts")).inspectCommand,
  compare: async () => (await import("./compare.ts")).compareCommand,
  advise: async () => (await import("./advise.ts")).adviseCommand,
  report: async () => (await import("./report.ts")).reportCommand,
  infer: async () => (await import("./infer.ts")).inferCommand,
  export: async () => (await import("./export.ts")).exportCommand,
  import: async () => (await import("./import.ts")).importCommand,
  gen: async () => (await import("./gen.ts")).genCommand,
  gate: async () => (await import("./gate.ts")).gateCommand,
  matmul: async () => (await import("./matmul.ts")).matmulCommand,
  completions: () => Promise.resolve(completionsCommand(allCommands)),
  man: () => Promise.resolve(manCommand(allCommands, VERSION)),
};

/** The names of all commands. */
export const COMMAND_NAMES: readonly string[] = Object.keys(TABLE);

/** Loads a command by its name, one of {@link COMMAND_NAMES}. */
export function commandOf(name: string): Promise<Command> {
  return TABLE[name]();
}

/** Loads all commands. */
export function allCommands(): Promise<readonly Command[]> {
  return Promise.all(COMMAND_NAMES.map(commandOf));
}
