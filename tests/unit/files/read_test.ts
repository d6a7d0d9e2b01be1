import { assert, assertEquals, assertThrows } from "@std/assert";
import { CheckpointError, SystemError } from "../../../lib/errors.ts";
import { exists, openFile, readAt, readText, sameFile } from "../../../lib/files/read.ts";
import { inTemporary, write } from "../../support/files.ts";
import { assertRefused } from "../../support/refusals.ts";

Deno.test("readAt refuses a file that has become shorter", () =>
  inTemporary((directory) => {
    const path = `${directory}/f`;
    Deno.writeFileSync(path, new Uint8Array(10));
    using file = openFile(path);
    readAt(file, path, 2, new Uint8Array(8));
    const error = assertThrows(() => readAt(file, path, 4, new Uint8Array(8)), CheckpointError);
    assertEquals(
      error.message,
      `${path}: unexpected end of file at byte 10, expected 12; did it change while it was being read?`,
    );
  }));

Deno.test("readText reads UTF-8 up to the limit", () =>
  inTemporary((directory) => {
    const path = `${directory}/f`;
    Deno.writeTextFileSync(path, "\u00e9\n");
    assertEquals(readText(path, 3), "\u00e9\n");
    assertRefused(() => readText(path, 2), `${path}: 3 bytes, the limit is 2`);
    Deno.writeFileSync(path, Uint8Array.from([0xff]));
    assertRefused(() => readText(path, 9), `${path}: not valid UTF-8`);
    assertRefused(() => readText(`${path}x`, 9), `cannot open ${path}x: no such file or directory`, SystemError);
  }));

Deno.test("readText reads a pipe to its end, and no more than the limit of what never ends", async () => {
  await inTemporary(async (directory) => {
    const path = `${directory}/pipe`;
    assert((await new Deno.Command("mkfifo", { args: [path] }).output()).success);
    // The shell waits until the reader opens the pipe.
    const writer = new Deno.Command("sh", { args: ["-c", `printf 'h\\303\\251' > ${path}`] }).spawn();
    assertEquals(readText(path, 3), "h\u00e9");
    await writer.status;
    assertRefused(() => readText("/dev/zero", 200_000), "/dev/zero: more than 200000 bytes, the limit");
  });
});

Deno.test("exists and sameFile follow links, and know what is not there", () =>
  inTemporary((directory) => {
    write(directory, { a: "", b: "" });
    Deno.symlinkSync("a", `${directory}/link`);
    Deno.linkSync(`${directory}/a`, `${directory}/hard`);
    Deno.symlinkSync("none", `${directory}/broken`);
    const at = (name: string) => `${directory}/${name}`;
    assertEquals(["a", "link", "hard", "broken", "none", "."].map((name) => exists(at(name))), [
      true,
      true,
      true,
      false,
      false,
      true,
    ]);
    assertEquals(["a", "link", "hard", "./x/../a", "b", "none", "broken"].map((name) => sameFile(at("a"), at(name))), [
      true,
      true,
      true,
      false, // there is no x
      false,
      false,
      false,
    ]);
  }));
