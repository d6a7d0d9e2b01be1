/**
 * Imports of the build and the tests, 100 MB, which `deno compile` would embed because the configuration lists them.
 *
 * @module
 */

/** Their names in deno.json. */
export const BUILD_ONLY: readonly string[] = [
  "@cyclonedx/cyclonedx-library",
  "assemblyscript/asc",
  "assemblyscript/binaryen",
  "@std/assert",
  "axe-core",
  "fflate",
  "modern-tar",
  "parse5",
  "puppeteer-core",
  "typescript",
];
