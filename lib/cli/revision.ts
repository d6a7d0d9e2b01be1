/**
 * The git revision of the program, and how it was started. `deno task compile` puts a module with what is known at that
 * moment in this one's place (tools/compile.ts), so that the executable needs neither git nor the repository.
 *
 * @module
 */

import { UNCHECKED } from "../kernels/engine_flags.ts";

/** Whether the engine checks the addresses that the kernels use: see lib/kernels/engine_flags.ts. */
export function checksAddresses(): boolean {
  return !Deno.env.get("DENO_V8_FLAGS")?.split(",").includes(UNCHECKED);
}

/** The revision, `-dirty` behind it where tracked files were changed; undefined where git does not tell. */
export function revision(): string | undefined {
  const directory = import.meta.dirname;
  if (directory === undefined) return undefined;
  const root = `${directory}/../..`;
  try {
    const { success, stdout } = new Deno.Command("git", {
      // This repository and no other that the source may lie in.
      args: ["--git-dir", `${root}/.git`, "--work-tree", root, "describe", "--always", "--dirty", "--exclude=*"],
      env: { GIT_OPTIONAL_LOCKS: "0" },
      stderr: "null",
    }).outputSync();
    return success ? new TextDecoder().decode(stdout).trim() : undefined;
  } catch {
    return undefined;
  }
}
