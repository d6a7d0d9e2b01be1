// The functions of the C library. Whether the kernel takes the advice is its own account of the mapping
// (proc_pid_smaps(5)).

import { assert, assertEquals } from "@std/assert";
import { exists } from "../../lib/files/read.ts";
import { adviseHugePages, signalIsIgnored, systemText } from "../../lib/libc.ts";
import { inTemporary, write } from "../support/files.ts";
import { ROOT } from "../support/fixtures.ts";
import { needs } from "../support/needs.ts";
import { execute } from "../support/program.ts";

const SETTING = "/sys/kernel/mm/transparent_hugepage/enabled";

/** The flags of the mapping that holds an address. */
function flagsAt(address: bigint): string[] {
  let inside = false;
  for (const line of Deno.readTextFileSync("/proc/self/smaps").split("\n")) {
    const range = /^([0-9a-f]+)-([0-9a-f]+) /.exec(line);
    if (range) inside = BigInt(`0x${range[1]}`) <= address && address < BigInt(`0x${range[2]}`);
    if (inside && line.startsWith("VmFlags:")) return line.split(/\s+/).slice(1);
  }
  throw new Error(`no mapping holds ${address}`);
}

needs(
  "adviseHugePages asks for the part of a memory that begins at `start`, and for no other",
  { lacks: exists(SETTING) ? [] : [`the kernel has no huge pages: no ${SETTING}`] },
  () => {
    const memory = new WebAssembly.Memory({ initial: 256, maximum: 256, shared: true });
    const whole = new Uint8Array(memory.buffer) as Uint8Array<ArrayBuffer>;
    const address = BigInt(Deno.UnsafePointer.value(Deno.UnsafePointer.of(whole)));
    const half = 128 * 65536;
    adviseHugePages(memory, half);
    assert(flagsAt(address + BigInt(half)).includes("hg"));
    assert(flagsAt(address + BigInt(whole.length - 1)).includes("hg"));
    assert(!flagsAt(address).includes("hg"));
  },
);

Deno.test("adviseHugePages does nothing, and asks nobody, without the permission", async () => {
  const script = `
    import { adviseHugePages } from "${new URL("../../lib/libc.ts", import.meta.url)}";
    adviseHugePages(new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true }), 0);
    console.log("went on");
  `;
  await inTemporary(async (directory) => {
    write(directory, { "advise.ts": script });
    const args = ["run", "--no-check", "--config", `${ROOT}deno.json`, `${directory}/advise.ts`];
    assertEquals(await execute(Deno.execPath(), args), { code: 0, out: "went on\n", err: "" });
  });
});

needs("systemText reads /proc/self/status", { files: ["/proc/self/status"] }, () => {
  const lines = (text: string) => text.split("\n").filter((line) => /^(Name|Pid|Uid|Cpus_allowed|SigIgn):/.test(line));
  const found = lines(systemText("/proc/self/status")!);
  assertEquals(found.length, 5);
  assertEquals(found, lines(Deno.readTextFileSync("/proc/self/status")));
  // SIGPIPE is what Deno ignores.
  assertEquals([1, 2, 13, 15].map(signalIsIgnored), [false, false, true, false]);
});
