/**
 * The table of commands, in the order of the help.
 *
 * @module
 */

import { adviseCommand } from "./advise.ts";
import { attestCommand } from "./attest.ts";
import type { Command } from "./arguments.ts";
import { compareCommand } from "./compare.ts";
import { completionsCommand } from "./completions.ts";
import { exportCommand } from "./export.ts";
import { gateCommand } from "./gate.ts";
import { genCommand } from "./gen.ts";
import { importCommand } from "./import.ts";
import { inferCommand } from "./infer.ts";
import { inspectCommand } from "./inspect.ts";
import { manCommand } from "./man.ts";
import { matmulCommand } from "./matmul.ts";
import { mergeCommand } from "./merge.ts";
import { quantizeCommand } from "./quantize.ts";
import { reportCommand } from "./report.ts";
import { verifyCommand } from "./verify.ts";
import { VERSION } from "./version.ts";

const table: Command[] = [
  quantizeCommand,
  mergeCommand,
  verifyCommand,
  attestCommand,
  inspectCommand,
  compareCommand,
  adviseCommand,
  reportCommand,
  inferCommand,
  exportCommand,
  importCommand,
  genCommand,
  gateCommand,
  matmulCommand,
];
table.push(completionsCommand(table), manCommand(table, VERSION));

/** All commands. */
export const COMMANDS: readonly Command[] = table;
