/**
 * The git revision of the program, and whether the engine checks addresses. `deno task compile` (tools/compile.ts)
 * replaces this module by constants, so that the executable needs neither git nor the repository.
 *
 * @module
 */

import { UNCHECKED } from "../kernels/engine_flags.ts";

/** Whether the engine checks the addresses of the kernels: see lib/kernels/engine_flags.ts. */
export function checksAddresses(): boolean {
  return !Deno.env.get("DENO_V8_FLAGS")?.split(",").includes(UNCHECKED);
}

/** The revision, with `-dirty` if tracked files are modified; undefined if unknown. */
export function revision(): string | undefined {
  const directory = import.meta.dirname;
  if (directory === undefined) return undefined;
  const root = `${directory}/../..`;
  try {
    const { success, stdout } = new Deno.Command("git", {
      // Only this repository, not another that contains it.
      args: ["--git-dir", `${root}/.git`, "--work-tree", root, "describe", "--always", "--dirty", "--exclude=*"],
      env: { GIT_OPTIONAL_LOCKS: "0" },
      stderr: "null",
    }).outputSync();
    return success ? new TextDecoder().decode(stdout).trim() : undefined;
  } catch {
    return undefined;
  }
}
