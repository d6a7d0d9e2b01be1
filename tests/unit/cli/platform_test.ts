import { assertEquals, assertMatch } from "@std/assert";
import { unsupported } from "../../../lib/cli/platform.ts";

Deno.test("Linux and macOS are supported, Windows is pointed to WSL, and other systems are named", () => {
  assertEquals(["linux", "darwin"].map(unsupported), [undefined, undefined]);
  assertMatch(unsupported("windows")!, /^Windows is not supported; use WSL/);
  assertEquals(unsupported("freebsd"), "freebsd is not supported; rabbit runs on Linux and macOS");
});
