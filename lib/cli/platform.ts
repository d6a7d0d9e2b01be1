/**
 * The systems that the program supports.
 *
 * @module
 */

/** Why a system is unsupported; undefined if it is supported. @param os a value of Deno.build.os */
export function unsupported(os: string): string | undefined {
  if (os === "linux" || os === "darwin") return undefined;
  return os === "windows"
    ? "Windows is not supported; use WSL (the Windows Subsystem for Linux)"
    : `${os} is not supported; rabbit runs on Linux and macOS`;
}
