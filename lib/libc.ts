/**
 * Calls functions of Linux's C library that Deno has no equivalent for. They require --allow-ffi, a permission to do
 * anything, so the command line binds them at the start and then revokes it ({@link keepLibc}). Without the permission,
 * on other systems, and in Node, the functions below do nothing.
 *
 * @module
 */

const SYMBOLS = {
  madvise: { parameters: ["buffer", "usize", "i32"], result: "i32" },
  sigaction: { parameters: ["i32", "pointer", "buffer"], result: "i32" },
  open: { parameters: ["buffer", "i32"], result: "i32" },
  pread: { parameters: ["i32", "buffer", "usize", "i64"], result: "isize" },
  close: { parameters: ["i32"], result: "i32" },
} as const satisfies Deno.ForeignLibraryInterface;

type Library = Deno.DynamicLibrary<typeof SYMBOLS>;

let kept: Library | undefined;

/** Binds the functions until the process ends. They can then be called without the permission. */
export function keepLibc(): void {
  kept = bind();
}

function bind(): Library | undefined {
  if (
    !("Deno" in globalThis) || Deno.build.os !== "linux" ||
    Deno.permissions.querySync({ name: "ffi" }).state !== "granted"
  ) return undefined;
  try {
    return Deno.dlopen("libc.so.6", SYMBOLS);
  } catch {
    // Not glibc: the library may have another name and other constants.
    return undefined;
  }
}

function call<T>(work: (symbols: Library["symbols"]) => T): T | undefined {
  if (kept !== undefined) return work(kept.symbols);
  const library = bind();
  if (library === undefined) return undefined;
  try {
    return work(library.symbols);
  } finally {
    library.close();
  }
}

/** From <sys/mman.h>. */
const MADV_HUGEPAGE = 14;

/**
 * Requests huge pages for a memory, from byte `start` (the beginning of a page) to its end; see madvise(2). They reduce
 * the time to load weights by a third (one page fault instead of 512) and make decoding a tenth faster (fewer page
 * table walks). Results are the same.
 */
export function adviseHugePages(memory: WebAssembly.Memory, start: number): void {
  const bytes = new Uint8Array(memory.buffer, start) as Uint8Array<ArrayBuffer>;
  call(({ madvise }) => madvise(bytes, BigInt(bytes.length), MADV_HUGEPAGE));
}

/** From <signal.h>. */
const SIG_IGN = 1n;

/** At least the size of a struct sigaction, which begins with the handler. */
const SIGACTION_BYTES = 256;

/** Whether the process ignores a signal, see sigaction(2); false if unknown. */
export function signalIsIgnored(signal: number): boolean {
  const action = new BigUint64Array(SIGACTION_BYTES / 8);
  return call(({ sigaction }) => sigaction(signal, null, action)) === 0 && action[0] === SIG_IGN;
}

/** The most bytes of such a text; those of /proc are far shorter. */
const TEXT_BYTES = 1 << 16;

/**
 * The beginning of a file of the system, such as /proc/self/status, see proc_pid_status(5); undefined if it cannot be
 * read. Deno allows reading /proc and /sys only with all permissions. getrusage(2) is no substitute for the status, since
 * its peak memory includes that of the parent process.
 */
export function systemText(path: string): string | undefined {
  return call(({ open, pread, close }) => {
    const file = open(new TextEncoder().encode(`${path}\0`), 0);
    if (file < 0) return undefined;
    const text = new Uint8Array(TEXT_BYTES);
    const length = Number(pread(file, text, BigInt(text.length), 0n));
    close(file);
    return length > 0 ? new TextDecoder().decode(text.subarray(0, length)) : undefined;
  });
}
