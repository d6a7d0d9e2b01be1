import { assert, assertEquals, assertThrows } from "@std/assert";
import { DENO_SYSTEM, isNotFound, type System } from "../../../lib/files/system.ts";
import { NODE_SYSTEM } from "../../../lib/files/system_node.ts";
import { systemError } from "../../../lib/errors.ts";
import { inTemporary } from "../../support/files.ts";

/** Calls `work`; the reason that an error message gives for what it throws. */
function reasonOf(work: () => unknown): string {
  const cause = assertThrows(work, Error) as Error;
  return systemError("cannot", cause).message;
}

/** What a system does with files of a directory. */
function use(system: System, directory: string): unknown[] {
  const path = (name: string) => `${directory}/${name}`;
  const seen: unknown[] = [];
  system.makeDirectory(path("a/b"));
  {
    using file = system.open(path("a/file"), "create");
    seen.push(file.writeAt(0, Uint8Array.of(1, 2, 3, 4)), file.writeAt(2, Uint8Array.of(9)), file.stat().size);
    file.sync();
  }
  seen.push(reasonOf(() => system.open(path("a/file"), "create")));
  {
    using file = system.open(path("a/file"), "write");
    file.writeAt(1, Uint8Array.of(7));
    file.touch(1_234_567_890_000);
    seen.push(file.stat().mtime?.getTime());
  }
  {
    using file = system.open(path("a/file"), "read");
    const into = new Uint8Array(8);
    seen.push(file.readAt(1, into), [...into], file.readAt(4, into));
    seen.push(file.read(into.subarray(0, 0)), file.stat().isFile);
  }
  Deno.symlinkSync("file", path("a/link"));
  Deno.symlinkSync("nothing", path("a/broken"));
  const info = (system: System, path: string) => {
    const { isFile, isDirectory, isSymlink, size } = system.stat(path);
    const link = system.linkStat(path);
    return [isFile, isDirectory, isSymlink, isFile && size, link.isFile, link.isDirectory, link.isSymlink];
  };
  for (const name of ["a", "a/file", "a/link"]) seen.push(info(system, path(name)));
  seen.push(system.readLink(path("a/link")), system.realPath(path("a/link")) === system.realPath(path("a/file")));
  seen.push(system.list(path("a")).map(({ name, isFile }) => [name, isFile]).sort());
  system.rename(path("a/file"), path("a/other"));
  {
    using file = system.open(path("a"), "read");
    file.sync();
  }
  const missing = [
    () => system.stat(path("a/broken")),
    () => system.linkStat(path("a/file")),
    () => system.open(path("x"), "read"),
    () => system.open(path("x"), "write"),
    () => system.list(path("x")),
    () => system.realPath(path("x")),
    () => system.remove(path("x")),
    () => system.rename(path("x"), path("y")),
  ];
  for (const work of missing) {
    seen.push(reasonOf(work));
    assert(isNotFound(assertThrows(work)));
  }
  seen.push(reasonOf(() => system.open(path("a/other/below"), "read")));
  seen.push(reasonOf(() => system.open(path("a/b"), "write")));
  seen.push(reasonOf(() => system.makeDirectory(path("a/other/below"))));
  seen.push(reasonOf(() => system.open(path("x".repeat(300)), "read")));
  Deno.symlinkSync("loop", path("loop"));
  seen.push(reasonOf(() => system.open(path("loop"), "read")));
  system.remove(path("a/b"));
  for (const name of ["link", "broken", "other"]) system.remove(path(`a/${name}`));
  system.remove(path("a"));
  return seen;
}

Deno.test("the systems of Deno and of Node do the same with files, and their errors have the same words", async () => {
  const seen: unknown[][] = [];
  for (const system of [DENO_SYSTEM, NODE_SYSTEM]) {
    await inTemporary((directory) => void seen.push(use(system, directory)));
  }
  assertEquals(seen[1], seen[0]);
  assertEquals(seen[0].slice(0, 4), [4, 1, 4, "cannot: it exists already"]);
});

Deno.test("both systems know a file by the same numbers", () =>
  inTemporary((directory) => {
    const path = `${directory}/file`;
    Deno.writeTextFileSync(path, "text");
    const [a, b] = [DENO_SYSTEM, NODE_SYSTEM].map((system) => system.stat(path));
    assertEquals([a.dev, a.ino, a.size, a.mtime?.getTime()], [b.dev, b.ino, b.size, b.mtime?.getTime()]);
  }));
