/**
 * `deno task guest`: boots the executable and one or two checkpoints. The guest's exit status becomes the task's.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { DEFAULT_WIDTH, WIDTHS } from "../../lib/format/blocks.ts";
import { develop, findTools, Image, Missing, pathOf } from "./guest.ts";

const HELP = `deno task guest [--model DIR|FILE]... [--memory MIB] [--kernel VMLINUZ] [-- COMMAND ARGUMENT...]

Boots a guest under QEMU (software emulation) that holds the executable, the libraries it needs, busybox as /init, the
checkpoints and the config.json beside the first, as ${[undefined, ...WIDTHS].map(pathOf).join(", ")}
and /config.json. What follows -- is passed to rabbit by the kernel's command line. Without it the guest runs
\`rabbit compare\` with two checkpoints and \`rabbit infer\` with one. Without --model: the development model and its
${DEFAULT_WIDTH.name}, which keeps its answer. The guest's exit status becomes that of the task.

It needs the executable (deno task compile, or RABBIT_BIN=path), and
  apt-get install qemu-system-x86 busybox-static
and downloads Debian's kernel into ~/.cache/rabbit once, without installing it.`;

async function guest(given: string[]): Promise<number> {
  const args = parseArgs(given, {
    string: ["model", "memory", "kernel"],
    boolean: ["help"],
    collect: ["model"],
    "--": true,
    unknown: (arg: string) => {
      throw new Missing(`unknown argument ${arg}, see --help`);
    },
  });
  if (args.help) {
    console.log(HELP);
    return 0;
  }
  const memory = args.memory === undefined ? undefined : Number(args.memory);
  if (memory !== undefined && !(Number.isSafeInteger(memory) && memory > 0)) {
    throw new Missing(`--memory takes whole MiB, found ${args.memory}`);
  }
  if (args.model.length > 2) throw new Missing(`a guest compares two checkpoints, found ${args.model.length}`);
  const tools = findTools(args.kernel);
  const temporary = Deno.makeTempDirSync({ prefix: "rabbit-guest-" });
  try {
    const image = new Image(
      tools,
      args.model.length > 0 ? args.model : develop(tools.rabbit, temporary, [DEFAULT_WIDTH]),
    );
    try {
      const command = args["--"].length > 0 ? args["--"] : image.command;
      return (await image.boot({ args: command, memory, print: (line) => console.log(line) })).status;
    } finally {
      image.close();
    }
  } finally {
    Deno.removeSync(temporary, { recursive: true });
  }
}

try {
  Deno.exitCode = await guest(Deno.args);
} catch (error) {
  if (!(error instanceof Missing)) throw error;
  console.error(`guest: ${error.message}`);
  Deno.exitCode = 2;
}
