/**
 * Runs rabbit, and prints the peak of its memory in bytes as the last line on standard error:
 *
 *     deno run --allow-all tests/support/peak.ts rabbit's arguments…
 *
 * @module
 */

globalThis.addEventListener("unload", () => {
  const [, peak] = /^VmHWM:\s*(\d+) kB$/m.exec(Deno.readTextFileSync("/proc/self/status"))!;
  console.error(1024 * Number(peak));
});
await import("../../main.ts");
