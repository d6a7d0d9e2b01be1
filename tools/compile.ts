/**
 * `deno task compile`: builds the executable `rabbit` with `deno compile`. Other arguments are passed on, as in
 * `deno task compile --target aarch64-unknown-linux-gnu --output rabbit-arm`. rabbit runs on Linux and macOS.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { dirname } from "@std/path/dirname";
import { unsupported } from "../lib/cli/platform.ts";
import { permissionFlags } from "../lib/cli/permissions.ts";
import { revision } from "../lib/cli/revision.ts";
import { engineFlags, UNCHECKED } from "../lib/kernels/engine_flags.ts";
import { BUILD_ONLY } from "./build_only.ts";
import config from "../deno.json" with { type: "json" };

/** Required by lib/text/deadline.ts to start a worker without permissions. */
const UNSTABLE = ["--unstable-worker-options"];

/** Worker modules, which no module imports. */
const WORKERS = [
  "lib/quantize/chunk_worker.ts",
  "lib/quantize/calibrate/worker.ts",
  "lib/text/chat_worker.ts",
  "lib/kernels/worker.ts",
];

/** The module that is replaced by constants: see lib/cli/revision.ts. */
const REVISION = "rabbit/revision";

/** The time of generated files: the first that ZIP has, as for reproducible archives. */
const EPOCH = new Date("1980-01-01T00:00:00Z");

const root = dirname(import.meta.dirname!);
const { target } = parseArgs(Deno.args, { string: ["target"] });
const problem = unsupported(target?.includes("-windows-") ? "windows" : target === undefined ? Deno.build.os : "linux");
if (problem !== undefined) {
  console.error(`compile: ${problem}`);
  Deno.exit(2);
}
const machine = target === undefined
  ? Deno.build
  : { os: target.includes("-linux-") ? "linux" : "", arch: target.slice(0, target.indexOf("-")) };
// Inside the repository, so that the executable contains no other path of this machine.
const temporary = `${root}/.compile`;
const flags = engineFlags(machine);
Deno.mkdirSync(temporary, { recursive: true });
try {
  const imports = Object.fromEntries(Object.entries(config.imports).filter(([name]) => !BUILD_ONLY.includes(name)));
  imports[REVISION] = "./revision.ts";
  Deno.writeTextFileSync(
    `${temporary}/revision.ts`,
    `/** See lib/cli/revision.ts. */\nexport const revision = (): string | undefined => ${
      JSON.stringify(revision())
    };\nexport const checksAddresses = (): boolean => ${!flags.includes(UNCHECKED)};\n`,
  );
  Deno.writeTextFileSync(`${temporary}/deno.json`, JSON.stringify({ imports }));
  Deno.copyFileSync(`${root}/deno.lock`, `${temporary}/deno.lock`);
  // The executable holds the times of its files: the same checkout gives the same bytes.
  for (const { name } of [...Deno.readDirSync(temporary)]) Deno.utimeSync(`${temporary}/${name}`, EPOCH, EPOCH);
  const output = Deno.args.some((arg) => /^(--output|-o)\b/.test(arg)) ? [] : ["--output", "rabbit"];
  const workers = WORKERS.filter((path) => exists(`${root}/${path}`)).flatMap((path) => ["--include", path]);
  const { code } = await new Deno.Command(Deno.execPath(), {
    args: [
      "compile",
      "--config",
      `${temporary}/deno.json`,
      ...permissionFlags(machine.os),
      ...UNSTABLE,
      `--v8-flags=${flags.join(",")}`,
      ...workers,
      ...output,
      ...Deno.args,
      "main.ts",
    ],
    cwd: root,
  }).spawn().status;
  Deno.exitCode = code;
} finally {
  Deno.removeSync(temporary, { recursive: true });
}

function exists(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
}
