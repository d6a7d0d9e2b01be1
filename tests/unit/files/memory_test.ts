// What the system says of memory: the limits of control groups, as cgroups(7) and the kernel's documentation of version 1
// describe their files.

import { assert, assertEquals } from "@std/assert";
import { availableMemory, memory, memoryFor } from "../../../lib/files/memory.ts";
import { needs } from "../../support/needs.ts";

const MEMINFO = "MemTotal:       24000000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\n";
const STATUS = "Name:\tdeno\nVmHWM:\t  200000 kB\nVmRSS:\t  100000 kB\n";
/** What is free, and what the process has. */
const MACHINE = 8_100_000 * 1024;

const MACHINES: Record<string, [files: Record<string, string>, bytes: number]> = {
  "a machine without control groups": [{}, MACHINE],
  "a group of version 2 without a limit": [{
    "/proc/self/cgroup": "0::/user.slice/session-1.scope\n",
    "/sys/fs/cgroup/user.slice/session-1.scope/memory.max": "max\n",
    "/sys/fs/cgroup/user.slice/memory.max": "max\n",
  }, MACHINE],
  "a job whose step has no limit of its own": [{
    "/proc/self/cgroup": "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n",
    "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/memory.max": "max\n",
    "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/memory.max": "2147483648\n",
    "/sys/fs/cgroup/system.slice/memory.max": "4294967296\n",
  }, 2 ** 31],
  "a container of version 2": [{
    "/proc/self/cgroup": "0::/\n",
    "/sys/fs/cgroup/memory.max": "1073741824\n",
  }, 2 ** 30],
  "a group of version 1": [{
    "/proc/self/cgroup": "5:devices:/\n4:cpu,memory:/a:b/c\n1:name=systemd:/x\n0::/\n",
    "/sys/fs/cgroup/memory/a:b/c/memory.limit_in_bytes": "9223372036854771712\n",
    "/sys/fs/cgroup/memory/a:b/memory.limit_in_bytes": "536870912\n",
    "/sys/fs/cgroup/devices/memory.limit_in_bytes": "1\n",
  }, 2 ** 29],
  "a container of version 1, which sees the path of the host": [{
    "/proc/self/cgroup": "4:memory:/docker/0123\n",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes": "536870912\n",
  }, 2 ** 29],
  "a limit beyond what is free": [{
    "/proc/self/cgroup": "0::/\n",
    "/sys/fs/cgroup/memory.max": "99999999999999\n",
  }, MACHINE],
  "files that say something else": [{
    "/proc/self/cgroup": "nonsense\n0::\n\n7:memory\n",
    "/sys/fs/cgroup/memory.max": "12 apples\n",
  }, MACHINE],
};

for (const [name, [files, bytes]] of Object.entries(MACHINES)) {
  Deno.test(`availableMemory of ${name}`, () => {
    const all: Record<string, string> = { "/proc/meminfo": MEMINFO, "/proc/self/status": STATUS, ...files };
    assertEquals(availableMemory((path) => all[path]), bytes);
  });
}

Deno.test("availableMemory is unlimited where the system says nothing", () => {
  assertEquals(availableMemory(() => undefined), Infinity);
});

needs("memory and availableMemory of this machine", { files: ["/proc/self/status", "/proc/meminfo"] }, () => {
  const { peak, now } = memory();
  assert(now > 20e6 && peak! >= now && now < 20e9);
  const total = 1024 * Number(/^MemTotal:\s*(\d+)/m.exec(Deno.readTextFileSync("/proc/meminfo"))![1]);
  assert(availableMemory() > 20e6 && availableMemory() <= total);
  assert(memoryFor(1e9, 2) > 1e9 + now && memoryFor(1e9, 3) > memoryFor(0, 1));
});
