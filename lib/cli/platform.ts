/**
 * The systems that the program supports.
 *
 * @module
 */

/** Why the program does not run on a system, or undefined if it does. @param os in the words of Deno.build */
export function unsupported(os: string): string | undefined {
  if (os === "linux" || os === "darwin") return undefined;
  return os === "windows"
    ? "Windows is not supported; use WSL (the Windows Subsystem for Linux)"
    : `${os} is not supported; rabbit runs on Linux and macOS`;
}
