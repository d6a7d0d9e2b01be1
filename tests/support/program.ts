/**
 * Runs the real program for tests: main.ts, or the executable that RABBIT_BIN names.
 *
 * @module
 */

import { dirname } from "@std/path/dirname";

/** The repository, with a slash at its end. */
export const ROOT = `${dirname(dirname(import.meta.dirname!))}/`;

const binary = Deno.env.get("RABBIT_BIN");

/** The program and the arguments that come before its own. */
export const PROGRAM: readonly [string, ...string[]] = binary
  ? [Deno.realPathSync(binary)]
  : [Deno.execPath(), "run", "--allow-all", `${ROOT}main.ts`];

/** What came of a run. */
export interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** A command of the program, not yet started. */
export function command(args: readonly string[], options: Deno.CommandOptions = {}): Deno.Command {
  const [path, ...before] = PROGRAM;
  return new Deno.Command(path, {
    args: [...before, ...args],
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
    ...options,
    env: { NO_COLOR: "1", RABBIT_CHECKED: "", RABBIT_DEBUG: "", ...options.env },
  });
}

/** Runs the program in `cwd` to its end. */
export async function rabbit(cwd: string, args: readonly string[], env: Record<string, string> = {}): Promise<Ran> {
  return text(await command(args, { cwd, env }).output());
}

/**
 * Runs the program with a terminal of its own, by script(1); `out` is all that it sends there, errors included. From its
 * sources it runs without Deno's cache of code, since Deno tells a terminal of trouble with that.
 *
 * @param columns of the terminal, by stty(1); without them it has none to tell
 */
export async function onTerminal(
  cwd: string,
  args: readonly string[],
  env: Record<string, string> = {},
  columns?: number,
): Promise<Ran> {
  const [path, ...before] = PROGRAM;
  const words = [path, ...before.flatMap((word) => word === "run" ? [word, "--no-code-cache"] : [word]), ...args];
  const size = columns === undefined ? "" : `stty cols ${columns} && `;
  const line = size + words.map((word) => `'${word}'`).join(" ");
  const options = { cwd, stdin: "null", env: { NO_COLOR: "1", RABBIT_DEBUG: "", TERM: "xterm", ...env } } as const;
  const ran = text(await new Deno.Command("script", { args: ["-qec", line, "/dev/null"], ...options }).output());
  return { ...ran, out: ran.out.replaceAll("\r\n", "\n") };
}

/** The output of a finished command as text. */
export function text({ code, stdout, stderr }: Deno.CommandOutput): Ran {
  const decode = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  return { code, out: decode(stdout), err: decode(stderr) };
}

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
