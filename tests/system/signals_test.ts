/**
 * Signals at random moments, and ignored signals. RABBIT_SIGNALS=300 sends more of them; RABBIT_BIN=path runs the same
 * tests on the executable.
 */

import { assert, assertEquals } from "@std/assert";
import { inTemporary, tree } from "../support/files.ts";
import { needs } from "../support/needs.ts";
import { command, kill, pause, PROGRAM, rabbit, shellLine, text } from "../support/program.ts";
import { Random } from "../support/random.ts";

/** Each signal with the exit status of a shell for it. */
const SIGNALS = [["SIGHUP", 129], ["SIGINT", 130], ["SIGQUIT", 131], ["SIGTERM", 143]] as const;

/** What writes files, and what each leaves when it comes to its end. */
const COMMANDS: [args: string[], files: string[]][] = [
  [["quantize", "--in", "in", "--out", "new/out"], ["new/out/model.safetensors"]],
  [["export", "--in", "in", "--gguf", "new/out.gguf"], ["new/out.gguf"]],
  [["import", "--gguf", "in.gguf", "--out", "new/out"], ["new/out/model.safetensors"]],
  [["gen", "--out", "new/out"], ["new/out/model.safetensors"]],
  [["report", "in", "q4", "--out", "new/page.html"], ["new/page.html"]],
  [["gate"], []],
  [["verify", "q4", "--against", "in"], []],
  [["quantize", "in", "new/out", "--calibrate", "self", "--tokens", "64", "--window", "32", "-q"], [
    "new/out/model.safetensors",
  ]],
];

/** The command line of the program for a shell, which it replaces. */
function exec(args: readonly string[]): string {
  return `exec ${shellLine([...PROGRAM, ...args])}`;
}

Deno.test("a signal at any moment leaves what was there before, or all that the command writes", () =>
  inTemporary(async (cwd) => {
    for (const args of [["gen", "--out", "in"], COMMANDS[0][0].with(-1, "q4"), COMMANDS[1][0].with(-1, "in.gguf")]) {
      assertEquals((await rabbit(cwd, args)).code, 0);
    }
    Deno.mkdirSync(`${cwd}/tmp`);
    const before = tree(cwd);
    const random = new Random(13);
    const seen = new Map<number, number>();
    const lasts: number[] = [];
    for (let n = 0; n < Number(Deno.env.get("RABBIT_SIGNALS") ?? 28); n++) {
      const which = n % COMMANDS.length;
      const [args, files] = COMMANDS[which];
      const [signal, status] = SIGNALS[random.below(SIGNALS.length)];
      const start = performance.now();
      const child = command(args, { cwd, env: { TMPDIR: `${cwd}/tmp` } }).spawn();
      // A moment between the start and a little after the end, once it is known how long the command takes.
      const timer = lasts[which] &&
        setTimeout(() => kill(child, signal), random.unit() * 1.1 * lasts[which]);
      const ran = text(await child.output());
      clearTimeout(timer);
      if (ran.code === 0) lasts[which] = performance.now() - start;
      const what = `run ${n}: ${signal} to ${args[0]}: status ${ran.code}, ${ran.err}`;
      seen.set(ran.code, (seen.get(ran.code) ?? 0) + 1);
      const left = tree(cwd).filter((path) => !before.includes(path));
      if (ran.code === 0) {
        for (const file of files) assert(left.includes(file), what);
        assertEquals(left.filter((path) => path.includes("partial") || path.startsWith("tmp")), [], what);
      } else {
        assertEquals(ran.code, status, what);
        // A signal that comes before or after the work ends the program without a word.
        const line = `rabbit: ${args[0]}: interrupted by ${signal}; nothing was written\n`;
        assert(ran.err === "" || ran.err === line, what);
        if (ran.err === line || !files.every((file) => left.includes(file))) assertEquals(left, [], what);
      }
      if (left.length > 0) Deno.removeSync(`${cwd}/new`, { recursive: true });
    }
    console.log(`  exit status and runs: ${[...seen].map(([code, runs]) => `${code} ${runs}`).join(", ")}`);
    assert(seen.size > 1, "no run was interrupted");
  }));

/** Of <signal.h>. */
const NUMBERS = { SIGHUP: 1, SIGINT: 2, SIGQUIT: 3 } as const;

needs(
  "a signal that is ignored when the program starts stays ignored, as nohup wants it",
  { files: ["/proc/self/status"] },
  () =>
    inTemporary(async (cwd) => {
      for (const [signal, name] of [["SIGHUP", "HUP"], ["SIGQUIT", "QUIT"], ["SIGINT", "INT"]] as const) {
        const args = ["gate", "--json"];
        const child = new Deno.Command("sh", {
          args: ["-c", `trap '' ${name}; ${exec(args)}`],
          cwd,
          stdout: "piped",
          stderr: "piped",
          env: { NO_COLOR: "1", RABBIT_DEBUG: "" },
        }).spawn();
        while (!listens(child.pid, signal)) await pause(1);
        // Deno's own handlers, which end the program, come first, and the listener of an ignored signal a moment later.
        await pause(200);
        const often = setInterval(() => kill(child, signal), 20);
        const { code, out, err } = text(await child.output());
        clearInterval(often);
        assertEquals([code, err, JSON.parse(out).verdict], [0, "", "OK"], signal);
      }
    }),
);

/** Whether a process has a handler for a signal: the mask SigCgt of proc_pid_status(5). */
function listens(pid: number, signal: keyof typeof NUMBERS): boolean {
  const mask = /^SigCgt:\s*([0-9a-f]+)$/m.exec(Deno.readTextFileSync(`/proc/${pid}/status`))![1];
  return (BigInt(`0x${mask}`) >> BigInt(NUMBERS[signal] - 1) & 1n) === 1n;
}
