/**
 * A Slurm of two nodes on this machine, of Debian's packages, without root's configuration or a database.
 *
 * @module
 */

import { join } from "@std/path/join";
import { sizeOf } from "./files.ts";
import { execute, kill, pause } from "./program.ts";

/** The programs of Debian's slurmctld, slurmd and slurm-client, and where Debian has the daemons. */
export const SLURM_PROGRAMS = ["slurmctld", "slurmd", "sbatch"];

/** How long the daemons may take to begin, and jobs to end. */
const DEADLINE = 120_000;

/** A port that nobody listens at. */
function freePort(): number {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  return listener.addr.port;
}

/** A running cluster. */
export class Slurm {
  readonly #daemons: Deno.ChildProcess[] = [];
  readonly env: Readonly<Record<string, string>>;

  private constructor(readonly directory: string) {
    this.env = { SLURM_CONF: join(directory, "slurm.conf") };
  }

  /** Starts a controller and two nodes with one processor each, which keep all their files in `directory`. */
  static async start(directory: string): Promise<Slurm> {
    const slurm = new Slurm(directory);
    try {
      await slurm.#start();
      return slurm;
    } catch (error) {
      await slurm.stop();
      throw error;
    }
  }

  async #start(): Promise<void> {
    const [host, user] = [Deno.hostname().split(".")[0], (await execute("id", ["-un"])).out.trim()];
    const [controller, first, second] = [freePort(), freePort(), freePort()];
    const path = (name: string) => join(this.directory, name);
    Deno.mkdirSync(path("state"), { recursive: true });
    const node = (name: string, port: number) => {
      return `NodeName=${name} NodeHostname=${host} NodeAddr=127.0.0.1 Port=${port} CPUs=1 RealMemory=4000`;
    };
    Deno.writeTextFileSync(
      this.env.SLURM_CONF,
      `ClusterName=rabbit
SlurmctldHost=${host}(127.0.0.1)
SlurmctldPort=${controller}
AuthType=auth/none
CredType=cred/none
SlurmUser=${user}
SlurmdUser=${user}
StateSaveLocation=${path("state")}
SlurmdSpoolDir=${path("spool-%n")}
SlurmctldPidFile=${path("slurmctld.pid")}
SlurmdPidFile=${path("slurmd-%n.pid")}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
KillWait=1
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
${node("node1", first)}
${node("node2", second)}
PartitionName=main Nodes=node1,node2 Default=YES MaxTime=INFINITE State=UP
`,
    );
    this.#daemon("slurmctld", ["-D"]);
    for (const name of ["node1", "node2"]) this.#daemon("slurmd", ["-D", "-N", name]);
    await this.until("the nodes are idle", async () => {
      return /^idle 2$/m.test((await execute("sinfo", ["-h", "-o", "%T %D"], { env: this.env })).out);
    });
  }

  #daemon(program: string, args: string[]): void {
    const log = join(this.directory, `${program}${this.#daemons.length}.log`);
    const command = new Deno.Command(program, {
      args: [...args, "-L", log],
      env: this.env,
      stdin: "null",
      stdout: "null",
      stderr: "null",
    });
    this.#daemons.push(command.spawn());
  }

  /** Waits. @throws after a deadline, with what the daemons say */
  async until(what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
    const end = Date.now() + DEADLINE;
    while (!await holds()) {
      if (Date.now() > end) throw new Error(`not after ${DEADLINE} ms: ${what}\n${this.#logs()}`);
      await pause(200);
    }
  }

  #logs(): string {
    const names = [...Deno.readDirSync(this.directory)].map(({ name }) => name).filter((name) => name.endsWith(".log"));
    const last = (name: string) => Deno.readTextFileSync(join(this.directory, name)).split("\n").slice(-20).join("\n");
    return names.filter((name) => sizeOf(join(this.directory, name))).map((name) => `${name}:\n${last(name)}`).join(
      "\n",
    );
  }

  /** Waits until no job is left, whatever came of them. */
  async idle(): Promise<void> {
    await this.until("all jobs have ended", async () => {
      const { code, out } = await execute("squeue", ["-h"], { env: this.env });
      return code === 0 && out === "";
    });
  }

  /** Ends the jobs that are left, and the daemons. */
  async stop(): Promise<void> {
    const user = (await execute("id", ["-un"])).out.trim();
    await execute("scancel", ["--user", user], { env: this.env });
    await this.idle();
    for (const daemon of this.#daemons.toReversed()) {
      kill(daemon, "SIGTERM");
      await daemon.status;
    }
  }
}
