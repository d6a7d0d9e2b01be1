/**
 * `deno task guest`: boots the executable and one or two checkpoints. The exit status is that of the guest.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { DEFAULT_WIDTH, WIDTHS } from "../../lib/format/blocks.ts";
import { develop, findTools, Image, Missing, pathOf } from "./guest.ts";

const HELP = `deno task guest [CHECKPOINT]... [--memory MIB] [--kernel VMLINUZ] [-- COMMAND ARGUMENT...]

Boots a guest under QEMU (software emulation). Its initramfs has the executable and its libraries, busybox as /init, the
checkpoints as ${[undefined, ...WIDTHS].map(pathOf).join(", ")},
and the config.json of the first as /config.json. A checkpoint is a directory or a safetensors file; the default is a
development model and its ${DEFAULT_WIDTH.name}, which keeps its answer. The arguments after -- are passed to rabbit by the
kernel's command line. The default is \`rabbit compare\` for two checkpoints, and \`rabbit infer\` for one. The exit status
is that of the guest.

Required are the executable (deno task compile, or RABBIT_BIN=path), and
  apt-get install qemu-system-x86 busybox-static
Debian's kernel is downloaded into ~/.cache/rabbit once, without being installed.`;

async function guest(given: string[]): Promise<number> {
  const args = parseArgs(given, {
    string: ["memory", "kernel", "_"],
    boolean: ["help"],
    "--": true,
    unknown: (arg: string, key?: string) => {
      if (key === undefined) return true;
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
  const models = args._.map(String);
  if (models.length > 2) throw new Missing(`a guest takes at most two checkpoints, found ${models.length}`);
  const tools = findTools(args.kernel);
  const temporary = Deno.makeTempDirSync({ prefix: "rabbit-guest-" });
  try {
    const image = new Image(tools, models.length > 0 ? models : develop(tools.rabbit, temporary, [DEFAULT_WIDTH]));
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
