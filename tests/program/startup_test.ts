/**
 * The foreign function interface is closed before the program runs with the permissions of the executable.
 */

import { assert, assertEquals } from "@std/assert";
import { permissionFlags } from "../../lib/cli/permissions.ts";
import { inTemporary, write } from "../support/files.ts";
import { ROOT } from "../support/fixtures.ts";
import { needs } from "../support/needs.ts";
import { execute, type Ran, shellLine } from "../support/program.ts";

const LIB = new URL("../../lib", import.meta.url).href;

/** Tries all that Deno has for calling into a library. */
const ATTEMPTS = `
  const attempts = {
    dlopen: () => Deno.dlopen("libc.so.6", { system: { parameters: ["buffer"], result: "i32" } }),
    pointer: () => Deno.UnsafePointer.of(new Uint8Array(1)),
    addon: () => process.dlopen({ exports: {} }, "/lib/addon.node"),
    request() {
      if (Deno.permissions.requestSync({ name: "ffi" }).state !== "granted") throw new Deno.errors.NotCapable();
    },
  };
  const found = Object.entries(attempts).map(([name, attempt]) => {
    try {
      attempt();
      return name + " works";
    } catch (error) {
      return name + " " + error.name;
    }
  }).join(", ");
`;
const REFUSED = "dlopen NotCapable, pointer NotCapable, addon NotCapable, request NotCapable";

/** Runs a module, with nothing on standard input that could answer a question for permission. */
function probe(flags: readonly string[], directory: string, source: string, args: string[] = []): Promise<Ran> {
  write(directory, { "probe.ts": source });
  return execute(Deno.execPath(), ["run", "--no-check", "--frozen", "--config", `${ROOT}deno.json`, ...flags, ...args]);
}

const EXECUTABLE = permissionFlags(Deno.build.os);

Deno.test("with the executable's permissions the program closes the foreign function interface, also for workers", () =>
  inTemporary(async (directory) => {
    const flags = EXECUTABLE;
    const file = `${directory}/probe.ts`;
    // When it ends, the program itself is asked.
    const unload = `import process from "node:process";
        globalThis.addEventListener("unload", () => { ${ATTEMPTS} console.log(found); });`;
    const program = await probe(flags, directory, unload, ["--preload", file, `${ROOT}main.ts`, "gate"]);
    assertEquals([program.code, program.err], [0, ""]);
    assertEquals(program.out.split("\n").slice(-3), ["GATE OK", REFUSED, ""]);

    const worker = `import process from "node:process"; ${ATTEMPTS} postMessage(found);`;
    const main = `import "${LIB}/cli/startup.ts"; import process from "node:process"; ${ATTEMPTS} console.log(found);
        const worker = new Worker(${
      JSON.stringify(`data:text/javascript,${encodeURIComponent(worker)}`)
    }, { type: "module" });
        worker.onmessage = ({ data }) => { console.log(data); worker.terminate(); };`;
    const both = await probe(flags, directory, main, [file]);
    assertEquals(both, { code: 0, out: `${REFUSED}\n${REFUSED}\n`, err: "" });
  }));

for (const [name, flags] of [["all permissions", ["--allow-all"]], ["those of the executable", EXECUTABLE]] as const) {
  needs(
    `with ${name} the functions that were bound before still work`,
    { files: ["/proc/self/smaps"] },
    () =>
      inTemporary(async (directory) => {
        const source = `import "${LIB}/cli/startup.ts";
          import { adviseHugePages, signalIsIgnored, systemText } from "${LIB}/libc.ts";
          const memory = new WebAssembly.Memory({ initial: 256, maximum: 256, shared: true });
          adviseHugePages(memory, 0);
          const peak = /^VmHWM:\\s*(\\d+) kB$/m.exec(systemText("/proc/self/status"))[1];
          console.log([1, 2, 3, 15].map(signalIsIgnored).join(" "), Number(peak) * 1024 >= 20e6);
          Deno.stdin.readSync(new Uint8Array(1));`;
        write(directory, { "probe.ts": source });
        const args = [
          "run",
          "--no-check",
          "--frozen",
          "--config",
          `${ROOT}deno.json`,
          ...flags,
          `${directory}/probe.ts`,
        ];
        // A shell that ignores a signal leaves it ignored, as nohup does.
        const line = `exec ${shellLine([Deno.execPath(), ...args])}`;
        const child = new Deno.Command("sh", {
          args: ["-c", `trap '' HUP QUIT; ${line}`],
          stdin: "piped",
          stdout: "piped",
          env: { NO_COLOR: "1" },
        }).spawn();
        const reader = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
        assertEquals((await reader.read()).value, "true false true false true\n");
        await reader.cancel();
        const taken = /^VmFlags:.* hg\b/m.test(Deno.readTextFileSync(`/proc/${child.pid}/smaps`));
        await child.stdin.close();
        assertEquals((await child.status).code, 0);
        assertEquals(taken, hugePagesAreKnown(), "the kernel took the advice about huge pages");
      }),
  );
}

function hugePagesAreKnown(): boolean {
  try {
    return Deno.statSync("/sys/kernel/mm/transparent_hugepage").isDirectory;
  } catch {
    return false;
  }
}

Deno.test("on Windows the program says in one line what to do, whatever it is asked", () =>
  inTemporary(async (directory) => {
    const source = `Object.defineProperty(Deno, "build", { value: { ...Deno.build, os: "windows" } });`;
    for (const args of [["--version"], ["gate"], []]) {
      const preload = ["--preload", `${directory}/probe.ts`, `${ROOT}main.ts`, ...args];
      const { code, out, err } = await probe(EXECUTABLE, directory, source, preload);
      assertEquals([code, out], [2, ""]);
      assert(/^rabbit: (gate: )?Windows is not supported; use WSL [^\n]*\n$/.test(err), err);
    }
  }));

Deno.test("a file that Deno lets no program of limited permissions use is an error of one line", () =>
  inTemporary(async (directory) => {
    for (const args of [["gen", "--out", "/dev/new"], ["inspect", "/proc/self/mem"]]) {
      const { code, out, err } = await probe(EXECUTABLE, directory, "", [`${ROOT}main.ts`, ...args]);
      assertEquals([code, out], [2, ""]);
      assert(/^rabbit: [^\n]*\n$/.test(err) && !err.includes("--allow"), err);
    }
  }));

needs("with all permissions the files of /dev/shm can be used", { files: ["/dev/shm"] }, async () => {
  const directory = Deno.makeTempDirSync({ dir: "/dev/shm" });
  const all = ["run", "--no-check", "--allow-all", `${ROOT}main.ts`];
  try {
    const gen = await execute(Deno.execPath(), [...all, "gen", "--out", `${directory}/m`]);
    assertEquals([gen.code, gen.err], [0, ""]);
    assertEquals((await execute(Deno.execPath(), [...all, "verify", `${directory}/m`])).code, 0);
  } finally {
    Deno.removeSync(directory, { recursive: true });
  }
});
