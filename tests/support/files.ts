/**
 * Files and directories of tests.
 *
 * @module
 */

import { join } from "@std/path/join";
import { utf8 } from "./bytes.ts";

/** A directory for what the tests of a file share; it is removed after the last. */
export function temporary(): string {
  const directory = Deno.makeTempDirSync({ prefix: "rabbit-test-" });
  globalThis.addEventListener("unload", () => Deno.removeSync(directory, { recursive: true }));
  return directory;
}

/** Calls `test` with a directory of its own, which is removed afterwards. */
export async function inTemporary(test: (directory: string) => void | Promise<void>): Promise<void> {
  const directory = Deno.makeTempDirSync({ prefix: "rabbit-test-" });
  try {
    await test(directory);
  } finally {
    Deno.removeSync(directory, { recursive: true });
  }
}

/** Writes files to `directory`, which is made. */
export function write(directory: string, files: Record<string, string | Uint8Array>): void {
  Deno.mkdirSync(directory, { recursive: true });
  for (const [name, content] of Object.entries(files)) {
    Deno.writeFileSync(join(directory, name), typeof content === "string" ? utf8(content) : content);
  }
}

/** Every file and directory below `directory`, sorted; directories end in a slash. */
export function tree(directory: string): string[] {
  const list = (path: string): string[] =>
    [...Deno.readDirSync(`${directory}/${path}`)].flatMap(({ name, isDirectory }) =>
      isDirectory ? [`${path}${name}/`, ...list(`${path}${name}/`)] : [path + name]
    );
  return list("").sort();
}

/** SHA-256 of a file in hexadecimal. */
export async function sha256(path: string): Promise<string> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", Deno.readFileSync(path))).toHex();
}

/** The size of a file, or undefined where there is none. */
export function sizeOf(path: string): number | undefined {
  try {
    return Deno.statSync(path).size;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

/** Removes a file or a directory, where there is one. */
export function removeIfThere(path: string): void {
  try {
    Deno.removeSync(path, { recursive: true });
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}
