/**
 * What the executable may do.
 *
 * @module
 */

/**
 * The permissions as flags of `deno compile` and `deno run`: files, and three variables of the environment. No network, no
 * subprocess. startup.ts needs foreign functions to bind those of libc.ts, and then gives the permission up; Deno can't
 * allow one library of the system by its name.
 *
 * @param os in the words of Deno.build
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
