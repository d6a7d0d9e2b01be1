/**
 * The V8 flags that make the kernels fast. The executable embeds them; the tasks pass them in DENO_V8_FLAGS. Without
 * them all results are the same, but products of matrices that fit in the processor's cache take two to four times as
 * long (bench/RESULTS.md).
 *
 *     DENO_V8_FLAGS=$(deno run --allow-env=RABBIT_CHECKED lib/kernels/engine_flags.ts) deno run --allow-all main.ts …
 *
 * V8 reads its flags when the process starts. node:v8's setFlagsFromString has no effect later, and an executable
 * ignores DENO_V8_FLAGS.
 *
 * @module
 */

/** A platform, as in Deno.build. */
export interface Machine {
  readonly os: string;
  readonly arch: string;
}

/** The flag that disables bounds checks. */
export const UNCHECKED = "--no-wasm-bounds-checks";

/**
 * The flags for a platform; V8 refuses to start with a flag that it does not know.
 *
 * @param checked whether V8 is to check every address that the kernels use
 */
export function engineFlags(
  { os, arch }: Machine = Deno.build,
  checked = Boolean(Deno.env.get("RABBIT_CHECKED")),
): string[] {
  return [
    // Bounds checks take a third of the time. They catch accesses beyond the end of a memory. Without them such an
    // access ends the process (SIGSEGV), unless the constant offset of the instruction carries it beyond 4 GiB: there
    // it reaches whatever follows the memory, since Deno makes V8 reserve no guard region, with or without this flag.
    // So Pool never allocates the last 64 KiB of the 4 GiB, which is more than any such offset: a kernel that runs past
    // the last area ends the process. Bounds checks don't catch accesses to other areas of the same memory either.
    // Those are ruled out by the layout (pool.ts) and the checks of all sizes and indexes (checks.ts);
    // tests/unit/kernels/pool_fuzz_test.ts tests this with guards around the areas.
    checked ? "--wasm-bounds-checks" : UNCHECKED,
    // With AVX2, V8 merges pairs of 128-bit operations into 256-bit ones. It does so for x86-64 only, and for other
    // systems than Linux not every build knows the flag.
    ...(arch === "x86_64" && os === "linux" ? ["--experimental-wasm-revectorize"] : []),
  ];
}

if (import.meta.main) console.log(engineFlags().join(","));
