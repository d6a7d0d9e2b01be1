/**
 * Runs the real program for tests, main.ts or the executable that RABBIT_BIN names, and other programs.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { ROOT } from "./fixtures.ts";

/** The executable that is tested instead of main.ts, if any. */
export const BINARY: string | undefined = Deno.env.get("RABBIT_BIN") || undefined;

/** The program and the arguments that come before its own. */
export const PROGRAM: readonly [string, ...string[]] = BINARY
  ? [Deno.realPathSync(BINARY)]
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

/** Runs the program in the repository. */
export function run(...args: string[]): Promise<Ran> {
  return rabbit(ROOT, args);
}

/** Runs the program in the repository; it must end with 0 and say nothing on standard error. @returns what it prints */
export async function done(...args: string[]): Promise<string> {
  const { code, out, err } = await run(...args);
  assertEquals([code, err], [0, ""], `${args.join(" ")}\n${out}`);
  return out;
}

/**
 * Runs the program in the repository; it must end with `code` and say nothing on standard error.
 *
 * @returns its lines, without those of the memory that it took
 */
export async function lines(code: number, ...args: string[]): Promise<string[]> {
  const { code: status, out, err } = await run(...args);
  assertEquals([status, err, out.slice(-1)], [code, "", "\n"], `${args.join(" ")}\n${out}`);
  return out.slice(0, -1).split("\n").filter((line) => !/^[A-Z]+ (memory|rss) /.test(line));
}

/** Runs the program in the repository; it must end with 2 and print nothing but `line`, after the command's name. */
export async function refused(line: string, ...args: string[]): Promise<void> {
  assertEquals(await run(...args), { code: 2, out: "", err: `rabbit: ${args[0]}: ${line}\n` }, args.join(" "));
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
  const line = size + shellLine(words);
  const options = { cwd, stdin: "null", env: { NO_COLOR: "1", RABBIT_DEBUG: "", TERM: "xterm", ...env } } as const;
  const ran = await execute("script", ["-qec", line, "/dev/null"], options);
  return { ...ran, out: ran.out.replaceAll("\r\n", "\n") };
}

/** Words as a line of a POSIX shell; none has a quotation mark. */
export function shellLine(words: readonly string[]): string {
  return words.map((word) => `'${word}'`).join(" ");
}

/** Runs a program to its end, with nothing on standard input. */
export async function execute(path: string, args: readonly string[], options: Deno.CommandOptions = {}): Promise<Ran> {
  const env = { NO_COLOR: "1", ...options.env };
  return text(await new Deno.Command(path, { stdin: "null", ...options, args: [...args], env }).output());
}

/** The output of a finished command as text. */
export function text({ code, stdout, stderr }: Deno.CommandOutput): Ran {
  const decode = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  return { code, out: decode(stdout), err: decode(stderr) };
}

/** Sends a signal; the child may have ended on its own. */
export function kill(child: Deno.ChildProcess, signal: Deno.Signal): void {
  try {
    child.kill(signal);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
  }
}

/** Waits. */
export function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
