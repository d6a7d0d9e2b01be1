/**
 * The memory of the process, and what the machine and its control groups let it use.
 *
 * @module
 */

import { systemText } from "../libc.ts";
import { IN_DENO } from "./system.ts";
import { builtin } from "./system_node.ts";

/** A file of the system as text; undefined if it cannot be read. */
export type ReadSystem = (path: string) => string | undefined;

function read(path: string): string | undefined {
  if (IN_DENO) return systemText(path);
  try {
    return builtin("fs").readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}

/** A field of /proc/self/status or /proc/meminfo in bytes. */
function fieldOf(text: string | undefined, name: string): number | undefined {
  const kilobytes = new RegExp(`^${name}:\\s*(\\d+) kB$`, "m").exec(text ?? "")?.[1];
  return kilobytes === undefined ? undefined : Number(kilobytes) * 1024;
}

/** The peak and the current resident memory of the process, in bytes. The peak is known only on Linux. */
export function memory(): { peak?: number; now: number } {
  const status = read("/proc/self/status");
  return { peak: fieldOf(status, "VmHWM"), now: fieldOf(status, "VmRSS") ?? residentBytes() };
}

function residentBytes(): number {
  if (IN_DENO) return Deno.memoryUsage().rss;
  return (globalThis as unknown as { process: { memoryUsage(): { rss: number } } }).process.memoryUsage().rss;
}

/**
 * The memory that the process may use, in bytes: what it has and what is free, but no more than the limits of its
 * control groups. Infinity if the system does not say it.
 */
export function availableMemory(from: ReadSystem = read): number {
  const free = fieldOf(from("/proc/meminfo"), "MemAvailable");
  const own = fieldOf(from("/proc/self/status"), "VmRSS") ?? 0;
  return Math.min(free === undefined ? Infinity : free + own, ...groupLimits(from));
}

/**
 * The limits of the process's control group and of those that contain it, in version 2 (cgroups(7)) or version 1 of the
 * memory controller. A group with a limit need not be the innermost: batch systems limit a job, and its steps are groups
 * in it. In a container the path may be that of the host, but the root is the container's.
 */
function* groupLimits(from: ReadSystem): Generator<number> {
  for (const line of (from("/proc/self/cgroup") ?? "").split("\n")) {
    const [, controllers, path] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
    if (path === undefined || (controllers !== "" && !controllers.split(",").includes("memory"))) continue;
    const [root, file] = controllers === "" ? ["/sys/fs/cgroup", "memory.max"] : [
      "/sys/fs/cgroup/memory",
      "memory.limit_in_bytes",
    ];
    const names = path.split("/").filter((name) => name !== "");
    for (let depth = names.length; depth >= 0; depth--) {
      const limit = from([root, ...names.slice(0, depth), file].join("/"))?.trim() ?? "";
      // Without a limit the file says "max", or a number beyond any memory.
      if (/^\d+$/.test(limit)) yield Number(limit);
    }
  }
}

/** What a command takes beyond its data once it works: the engine's heap, buffers of files, and each thread. */
const WORK_BYTES = 100_000_000;
const THREAD_BYTES = 16_000_000;

/** What the program had taken when its first work was planned. */
let planning: number | undefined;

/** The memory that planned work needs, in bytes: that of the program until then, and what the work takes. */
export function memoryFor(work: number, threads = 1): number {
  if (planning === undefined) {
    const { peak, now } = memory();
    planning = peak ?? now;
  }
  return planning + WORK_BYTES + threads * THREAD_BYTES + work;
}
