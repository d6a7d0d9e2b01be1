/**
 * The flags of the engine with which the kernels are fast. The executable has them built in, the tasks pass them in
 * DENO_V8_FLAGS. Without them every result is the same, and products take two to four times as long in the cache
 * (bench/RESULTS.md).
 *
 *     DENO_V8_FLAGS=$(deno run lib/kernels/flags.ts) deno run --allow-all main.ts …
 *
 * @module
 */

/** What decides which flags there are, in the words of Deno.build. */
export interface Machine {
  readonly os: string;
  readonly arch: string;
}

/** The flags for an engine on `machine`; V8 refuses to start with one that it does not know. */
export function engineFlags({ os, arch }: Machine = Deno.build): string[] {
  return [
    // A kernel's addresses come from the layout of the pool and of nobody else, and a shared memory reserves all that a
    // 32-bit address can name (wasm.ts), so that a wrong one meets no other data. V8's checks take a third of the time.
    "--no-wasm-bounds-checks",
    // Pairs of 128-bit operations become one of 256 bits where the processor has AVX2. V8 has it for x86-64 only, and not
    // in every build for other systems than Linux.
    ...(arch === "x86_64" && os === "linux" ? ["--experimental-wasm-revectorize"] : []),
  ];
}

if (import.meta.main) console.log(engineFlags().join(","));
