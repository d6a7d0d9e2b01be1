/**
 * tools/slurm on a real Slurm, with two nodes on this machine.
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { inTemporary, tree, write } from "../support/files.ts";
import { ROOT } from "../support/fixtures.ts";
import { needs } from "../support/needs.ts";
import { execute, PROGRAM, shellLine } from "../support/program.ts";
import { Slurm, SLURM_PROGRAMS } from "../support/slurm.ts";

const SUBMIT = `${ROOT}tools/slurm/submit.sh`;

/** The arguments of submit.sh in the documentation. */
const PAGE = Deno.readTextFileSync(`${ROOT}docs/cluster.md`);
const [QUANTIZE, VERIFY, COMPARE] = PAGE.match(/(?<=^tools\/slurm\/submit\.sh ).*$/gm)!.map((line) => line.split(" "));

const TEXT = Deno.readTextFileSync(`${ROOT}fixtures/opticks.txt`).slice(0, 2400);

/**
 * The program of the tasks. At four bits part 2 stops while its file is being written, but not when it is requeued. At
 * eight bits part 3 is killed the first time.
 */
function program(): string {
  const killed = (call: number) => {
    return shellLine([Deno.execPath(), "run", "--allow-all", `${ROOT}tests/support/killed.ts`, String(call)]);
  };
  return `#!/bin/sh
case "$SLURM_RESTART_COUNT $*" in
" quantize "*" --bits 4 "*" --shard 2/4") exec ${killed(-1)} "$@" ;;
*" quantize "*" --bits 8 "*" --shard 3/4") if mkdir killed 2>/dev/null; then exec ${killed(2)} "$@"; fi ;;
esac
exec ${shellLine(PROGRAM)} "$@"
`;
}

/** The file for the commands and what they print, if any. */
const LOG = Deno.env.get("SLURM_LOG");
if (LOG) Deno.writeTextFileSync(LOG, "");

function log(line: string, printed: string): void {
  if (LOG) Deno.writeTextFileSync(LOG, `$ ${line}\n${printed}`, { append: true });
}

/** The first two lines of a text, as far as they fit. */
function firstLines(text: string): string {
  const lines = text.split("\n").slice(0, 2).filter((line) => line !== "");
  return lines.map((line) => (line.length > 160 ? `${line.slice(0, 160)}...` : line) + "\n").join("");
}

/** A cluster, a directory that its nodes share, and what is run there. */
class Trial {
  constructor(readonly cwd: string, readonly slurm: Slurm) {}

  /** Runs a program that must succeed, and returns what it prints. */
  async run(program: string, ...args: string[]): Promise<string> {
    const env = { ...this.slurm.env, RABBIT: `${this.cwd}/rabbit`, CPUS: "1" };
    const { code, out, err } = await execute(program, args, { cwd: this.cwd, env });
    log([program.replace(/.*\/(?=tools\/|rabbit$)/, ""), ...args].join(" "), out + err);
    assertEquals([code, err], [0, ""], `${program} ${args.join(" ")}`);
    return out;
  }

  /** Runs rabbit, without Slurm. */
  rabbit(...args: string[]): Promise<string> {
    return this.run(`${this.cwd}/rabbit`, ...args, "--quiet");
  }

  /** Submits jobs, and returns their ids. */
  async submit(args: readonly string[]): Promise<string[]> {
    return (await this.run(SUBMIT, ...args)).trim().split("\n");
  }

  /** What a job has printed; nothing on standard error. */
  printed(name: string): string {
    const [out, err] = ["out", "err"].map((kind) => Deno.readTextFileSync(`${this.cwd}/${name}.${kind}`));
    log(`head -n 2 ${name}.out`, firstLines(out));
    assertEquals(err, "", name);
    return out;
  }

  /** What the four tasks of an array have printed. */
  tasks(name: string): string[] {
    return [1, 2, 3, 4].map((part) => this.printed(`${name}_${part}`));
  }

  /** The jobs that have not ended. */
  queue(): Promise<string> {
    return this.run("squeue", "-o", "%i %T %M %N %r");
  }

  /** The files of a checkpoint, without those that are being written. */
  files(directory: string): string[] {
    return tree(this.cwd).filter((name) => name.startsWith(`${directory}/`) && !name.includes("/."));
  }
}

needs(
  "on Slurm, parts of quantize, verify and compare give what one run gives, though tasks are killed and run again",
  { programs: SLURM_PROGRAMS },
  () =>
    inTemporary(async (cwd) => {
      write(cwd, { rabbit: program(), "opticks.txt": TEXT });
      Deno.chmodSync(`${cwd}/rabbit`, 0o755);
      const slurm = await Slurm.start(`${cwd}/slurm`);
      const trial = new Trial(cwd, slurm);
      try {
        await trial.rabbit("gen", "smol");
        const digestOf = async (...args: string[]) =>
          /^\w+ (?:ratio=\S+ )?(digest=\w+)$/m.exec(await trial.rabbit(...args))![1];
        const digest = await digestOf("quantize", "smol", "one", "--bits", "4");

        const [quantize, merge] = await trial.submit(QUANTIZE);
        const record = (part: number) => `smol-q4/model-0000${part}-of-00004.part.json`;
        await slurm.until("the other parts are finished", () => {
          const files = trial.files("smol-q4");
          return [1, 3, 4].every((part) => files.includes(record(part)));
        });
        assert(!trial.files("smol-q4").includes(record(2)));
        await trial.queue();
        await trial.run("scontrol", "requeue", `${quantize}_2`);
        await slurm.until("the task is requeued", async () => {
          const { out } = await execute("squeue", ["-h", "-t", "PENDING", "-o", "%r"], { env: slurm.env });
          return out.includes("BeginTime");
        });
        await trial.queue();
        // Slurm would wait for two minutes.
        await trial.run("scontrol", "update", `JobId=${quantize}_2`, "StartTime=now");
        await slurm.idle();
        trial.tasks(`quantize-${quantize}`);
        assertMatch(trial.printed(`merge-${merge}`), new RegExp(`^MERGE ${digest}$`, "m"));
        assertEquals(await digestOf("verify", "smol-q4"), digest);

        const [verify] = await trial.submit(VERIFY);
        await slurm.idle();
        for (const [n, lines] of trial.tasks(`verify-${verify}`).entries()) {
          assertMatch(lines, new RegExp(`^VERIFY model=smol-q4 shard=${n + 1}/4 [^]* different=0 [^]*\nVERIFY OK\n$`));
        }

        const [compare, lines] = await trial.submit(COMPARE);
        await slurm.idle();
        trial.tasks(`compare-${compare}`);
        const whole = await trial.rabbit("compare", "smol", "one", "--text", "opticks.txt");
        assertEquals(trial.printed(`merge-${lines}`), whole.replace(/^COMPARE memory .*\n/m, ""));

        const eight = ["4", "quantize", "smol", "smol-q8", "--bits", "8"];
        const [, cancelled] = await trial.submit(eight);
        await slurm.idle();
        assert(!trial.files("smol-q8").some((name) => name.includes("00003-of") || name.includes("index")));
        assert(!tree(cwd).includes(`merge-${cancelled}.out`));
        const [again, merged] = await trial.submit(eight);
        await slurm.idle();
        const skipped = trial.tasks(`quantize-${again}`).map((lines) => lines.includes(" skipped=true "));
        assertEquals(skipped, [true, true, false, true]);
        const digest8 = await digestOf("quantize", "smol", "one8", "--bits", "8");
        assertMatch(trial.printed(`merge-${merged}`), new RegExp(`^MERGE ${digest8}$`, "m"));
      } finally {
        await slurm.stop();
      }
    }),
);
