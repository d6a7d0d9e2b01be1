/**
 * Huge pages for the memories: weights are loaded in two thirds of the time (one page fault for 512) and decode a tenth
 * faster (fewer walks through page tables). Linux gives them to those who ask by madvise(2), which Deno only offers as a
 * foreign function. Without the permission for those (--allow-ffi), or elsewhere, nothing is asked; results are the same.
 *
 * @module
 */

/** The advice, of <sys/mman.h>. */
const MADV_HUGEPAGE = 14;

/** Asks for huge pages for a memory, from byte `start` (at the begin of a page) to its end. */
export function adviseHugePages(memory: WebAssembly.Memory, start: number): void {
  if (Deno.build.os !== "linux" || Deno.permissions.querySync({ name: "ffi" }).state !== "granted") return;
  let library;
  try {
    library = Deno.dlopen("libc.so.6", { madvise: { parameters: ["pointer", "usize", "i32"], result: "i32" } });
  } catch {
    // Another C library: it may be called otherwise, and take other numbers.
    return;
  }
  const bytes = new Uint8Array(memory.buffer, start) as Uint8Array<ArrayBuffer>;
  library.symbols.madvise(Deno.UnsafePointer.of(bytes), BigInt(bytes.length), MADV_HUGEPAGE);
  library.close();
}
