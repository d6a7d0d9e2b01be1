/**
 * The flags of the engine with which the kernels are fast. The executable has them built in, the tasks pass them in
 * DENO_V8_FLAGS. Without them every result is the same, and products take two to four times as long in the cache
 * (bench/RESULTS.md).
 *
 *     DENO_V8_FLAGS=$(deno run --allow-env=RABBIT_CHECKED lib/kernels/engine_flags.ts) deno run --allow-all main.ts …
 *
 * V8 reads its flags when the process starts, and they count for all of it: node:v8's setFlagsFromString changes nothing
 * later on, and an executable ignores DENO_V8_FLAGS.
 *
 * @module
 */

/** What decides which flags there are, in the words of Deno.build. */
export interface Machine {
  readonly os: string;
  readonly arch: string;
}

/** The flag that leaves the checks of addresses out. */
export const UNCHECKED = "--no-wasm-bounds-checks";

/**
 * The flags for an engine on `machine`; V8 refuses to start with one that it does not know.
 *
 * @param checked whether V8 is to check every address of the kernels
 */
export function engineFlags(
  { os, arch }: Machine = Deno.build,
  checked = Boolean(Deno.env.get("RABBIT_CHECKED")),
): string[] {
  return [
    // V8's checks take a third of the time. What they would find is an address beyond the end of a memory: without them it
    // ends the process (SIGSEGV), or, if the offset that is part of a kernel's instruction carries it beyond 4 GiB, it
    // meets whatever lies behind the memory, since Deno has V8 reserve no guard region there, with or without this flag.
    // Pool never hands out the last 64 KiB of those 4 GiB, more than any such offset, so that a kernel that runs over the
    // end of the last area ends the process. An address in the memory that belongs to another area is found neither with
    // the checks nor without. That there is none follows from the layout (pool.ts) and from the checks of all sizes and
    // indexes that go into it (checks.ts); tests/unit/kernels/fuzz_test.ts tries it, with guards around the areas.
    checked ? "--wasm-bounds-checks" : UNCHECKED,
    // Pairs of 128-bit operations become one of 256 bits where the processor has AVX2. V8 has it for x86-64 only, and not
    // in every build for other systems than Linux.
    ...(arch === "x86_64" && os === "linux" ? ["--experimental-wasm-revectorize"] : []),
  ];
}

if (import.meta.main) console.log(engineFlags().join(","));
