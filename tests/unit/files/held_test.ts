import { assertEquals } from "@std/assert";
import { heldText, holdTexts, isHeld } from "../../../lib/files/held.ts";
import { exists, readText } from "../../../lib/files/read.ts";
import { inTemporary, write } from "../../support/files.ts";

Deno.test("the texts of a file are read through its path, however the path is written", async () => {
  await inTemporary((directory) => {
    write(directory, { "m.gguf": "GGUF" });
    const path = `${directory}/m.gguf`;
    holdTexts(`${directory}/./m.gguf`, new Map([["config.json", "{}"]]));
    assertEquals([isHeld(`${path}/config.json`), isHeld(`${path}/vocab.json`), isHeld(path)], [true, false, undefined]);
    assertEquals([exists(`${path}/config.json`), exists(`${path}/vocab.json`), exists(path)], [true, false, true]);
    assertEquals([heldText(`${path}/config.json`), readText(`${path}/config.json`, 10)], ["{}", "{}"]);
  });
});

Deno.test("the texts of a file are not those of a directory that takes its place", async () => {
  await inTemporary((directory) => {
    write(directory, { m: "GGUF" });
    holdTexts(`${directory}/m`, new Map([["config.json", "old"], ["vocab.json", "old"]]));
    Deno.removeSync(`${directory}/m`);
    assertEquals(exists(`${directory}/m/config.json`), false);
    Deno.mkdirSync(`${directory}/m`);
    write(`${directory}/m`, { "config.json": "new" });
    assertEquals([readText(`${directory}/m/config.json`, 10), exists(`${directory}/m/vocab.json`)], ["new", false]);
  });
});
