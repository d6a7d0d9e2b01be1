/**
 * The permissions of the executable.
 *
 * @module
 */

/**
 * The permissions as flags of `deno compile` and `deno run`: files and three environment variables, no network, no
 * subprocesses. startup.ts binds the foreign functions of libc.ts and then revokes --allow-ffi, which Deno cannot
 * restrict to the C library.
 *
 * @param os a value of Deno.build.os
 */
export function permissionFlags(os: string): string[] {
  return [
    "--allow-read",
    "--allow-write",
    "--allow-env=RABBIT_CHECKED,RABBIT_DEBUG,TERM",
    "--no-prompt",
    ...(os === "linux" ? ["--allow-ffi"] : []),
  ];
}
