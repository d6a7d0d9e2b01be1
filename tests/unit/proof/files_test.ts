import { assertEquals, assertThrows } from "@std/assert";
import { CheckpointError } from "../../../lib/errors.ts";
import { openCheckpoint } from "../../../lib/format/checkpoint.ts";
import { digestsOf, filesIn, pathWithin } from "../../../lib/proof/files.ts";
import { inTemporary, sha256, write } from "../../support/files.ts";
import { TINY, WEIGHTS } from "../../support/fixtures.ts";
import { entriesOf } from "../../support/safetensors.ts";

Deno.test("filesIn lists all files in the order of Python's paths, and leaves out what is ignored", () =>
  inTemporary((directory) => {
    for (const folder of ["a", ".git", "b/.git"]) write(`${directory}/${folder}`, { "x.txt": "" });
    write(directory, { "a.txt": "", "a-b": "", "model.sig": "" });
    // Parts are compared, so a directory comes before a name that it begins.
    assertEquals(filesIn(directory, [".git", "model.sig"]), ["a/x.txt", "a-b", "a.txt", "b/.git/x.txt"]);
  }));

Deno.test("filesIn refuses links, unless those to files are asked for", () =>
  inTemporary((directory) => {
    write(directory, { a: "" });
    Deno.symlinkSync("a", `${directory}/b`);
    assertThrows(() => filesIn(directory, []), CheckpointError, "b: is a link");
    assertEquals(filesIn(directory, [], true), ["a", "b"]);
    Deno.symlinkSync("..", `${directory}/c`);
    assertThrows(() => filesIn(directory, [], true), CheckpointError, "c: is a link");
  }));

Deno.test("pathWithin follows links of directories, and knows paths that do not exist", () =>
  inTemporary((directory) => {
    Deno.mkdirSync(`${directory}/in/sub`, { recursive: true });
    Deno.symlinkSync("in", `${directory}/link`);
    assertEquals(pathWithin(`${directory}/in`, `${directory}/link/sub/new.sig`), "sub/new.sig");
    assertEquals(pathWithin(`${directory}/in`, `${directory}/new.sig`), undefined);
    assertEquals(pathWithin(`${directory}/in`, `${directory}/none/new.sig`), undefined);
  }));

Deno.test("digestsOf hashes files, and each tensor's bytes", async () => {
  const names = ["config.json", WEIGHTS];
  const { files, tensors } = await digestsOf(openCheckpoint(TINY), names, {});
  assertEquals(
    files,
    await Promise.all(names.map(async (name) => ({ name, sha256: await sha256(`${TINY}/${name}`) }))),
  );
  for (const { name, bytes } of entriesOf(Deno.readFileSync(`${TINY}/${WEIGHTS}`))) {
    const wanted = new Uint8Array(await crypto.subtle.digest("SHA-256", new Uint8Array(bytes))).toHex();
    assertEquals(tensors.get(name), wanted, name);
  }
});
