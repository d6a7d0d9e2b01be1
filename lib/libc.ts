/**
 * The functions of Linux's C library that rabbit calls, because Deno has none of its own for what they do. Foreign
 * functions need the permission --allow-ffi, with which a program can do anything; the command line therefore binds these
 * few and then gives the permission up ({@link keepLibc}). Without the permission, on other
 * systems, and in Node, nothing is called.
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

/** Binds the functions until the process ends, so that they can be called without the permission from here on. */
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
    // Another C library: it may be called otherwise, and take other numbers.
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

/** The advice of <sys/mman.h>. */
const MADV_HUGEPAGE = 14;

/**
 * Asks for huge pages for a memory, from byte `start` (the start of a page) to its end; see madvise(2). With huge pages
 * weights are loaded in two thirds of the time (one page fault instead of 512), and decoding is a tenth faster (fewer walks
 * through page tables). Results are the same.
 */
export function adviseHugePages(memory: WebAssembly.Memory, start: number): void {
  const bytes = new Uint8Array(memory.buffer, start) as Uint8Array<ArrayBuffer>;
  call(({ madvise }) => madvise(bytes, BigInt(bytes.length), MADV_HUGEPAGE));
}

/** The handler SIG_IGN of <signal.h>. */
const SIG_IGN = 1n;

/** More than a struct sigaction, which begins with the handler. */
const SIGACTION_BYTES = 256;

/** Whether the process ignores this signal, see sigaction(2); false where that can't be found out. */
export function signalIsIgnored(signal: number): boolean {
  const action = new BigUint64Array(SIGACTION_BYTES / 8);
  return call(({ sigaction }) => sigaction(signal, null, action)) === 0 && action[0] === SIG_IGN;
}

/** More than /proc/self/status has. */
const STATUS_BYTES = 1 << 16;

/**
 * The text of /proc/self/status, see proc_pid_status(5), or undefined where it can't be read. Deno itself reads it only for
 * a program with all permissions. getrusage(2) is no substitute: its peak of the memory includes that of the process that
 * started this one.
 */
export function processStatus(): string | undefined {
  return call(({ open, pread, close }) => {
    const file = open(new TextEncoder().encode("/proc/self/status\0"), 0);
    if (file < 0) return undefined;
    const text = new Uint8Array(STATUS_BYTES);
    const length = Number(pread(file, text, BigInt(text.length), 0n));
    close(file);
    return length > 0 ? new TextDecoder().decode(text.subarray(0, length)) : undefined;
  });
}
