// What is replaced and what is not.

import { assert, assertEquals, assertThrows } from "@std/assert";
import { Refusal, SystemError } from "../../../lib/errors.ts";
import { INCOMPLETE_FILE, NewFiles } from "../../../lib/files/new_files.ts";
import { exists } from "../../../lib/files/read.ts";
import { COMPANIONS, openCheckpoint } from "../../../lib/format/checkpoint.ts";
import { checkOutput, checkOutputFile } from "../../../lib/format/outputs.ts";
import { utf8 } from "../../support/bytes.ts";
import { inTemporary, write } from "../../support/files.ts";
import { WEIGHTS } from "../../support/fixtures.ts";
import { f32, safetensors, writeShards } from "../../support/safetensors.ts";

const A = f32("a", [2, 32], (n) => n);
const B = f32("b", [3], (n) => -n);

const ONE = "model-00001-of-00002.safetensors";
const INDEX = "model.safetensors.index.json";

function outputRefused(directory: string, source: string, force: boolean, message: string): void {
  const error = assertThrows(() => checkOutput(directory, openCheckpoint(source), [WEIGHTS], force), Refusal);
  assertEquals(error.message, message);
}

Deno.test("checkOutput takes a directory that is not there, is empty, or holds other files", () =>
  inTemporary((directory) => {
    write(`${directory}/in`, { [WEIGHTS]: safetensors([A]) });
    write(`${directory}/other`, { "README.md": "", "settings.json": "{}" });
    const source = openCheckpoint(`${directory}/in`);
    for (const force of [false, true]) {
      for (const out of ["none", "none/deeper", "other"]) checkOutput(`${directory}/${out}`, source, [WEIGHTS], force);
      checkOutput(`${directory}/none`, undefined, [WEIGHTS], force);
    }
  }));

Deno.test("checkOutput refuses the source's directory by any name, with --force too", () =>
  inTemporary((directory) => {
    write(`${directory}/in`, { [WEIGHTS]: safetensors([A]), "other.safetensors": safetensors([B]) });
    Deno.symlinkSync("in", `${directory}/link`);
    for (const source of ["in", `in/${WEIGHTS}`, "in/other.safetensors", "link"]) {
      for (const name of ["in", "./in/", "link", "in/../link"]) {
        const out = `${directory}/${name}`;
        const message = `${out} is the directory of the source, which would be overwritten; choose another directory`;
        for (const force of [false, true]) outputRefused(out, `${directory}/${source}`, force, message);
      }
    }
  }));

Deno.test("checkOutput refuses an output whose model.safetensors is the source, by a link", () =>
  inTemporary((directory) => {
    const source = `${directory}/in/${WEIGHTS}`;
    write(`${directory}/in`, { [WEIGHTS]: safetensors([A]) });
    for (const [name, link] of [["soft", Deno.symlinkSync], ["hard", Deno.linkSync]] as const) {
      const out = `${directory}/${name}`;
      Deno.mkdirSync(out);
      link(source, `${out}/${WEIGHTS}`);
      const message = `${out}/${WEIGHTS} is the source itself (${source}), which would be overwritten; ` +
        "choose another directory";
      for (const force of [false, true]) outputRefused(out, `${directory}/in`, force, message);
    }
  }));

Deno.test("checkOutput refuses to replace a checkpoint unless it is forced, and a sharded one always", () =>
  inTemporary((directory) => {
    write(`${directory}/in`, { [WEIGHTS]: safetensors([A]) });
    write(`${directory}/out`, { [WEIGHTS]: safetensors([B]) });
    const source = openCheckpoint(`${directory}/in`);
    outputRefused(
      `${directory}/out`,
      `${directory}/in`,
      false,
      `${directory}/out/${WEIGHTS} exists already`,
    );
    assertThrows(() => checkOutput(`${directory}/out`, undefined, [WEIGHTS], false), Refusal);
    checkOutput(`${directory}/out`, source, [WEIGHTS], true);
    writeShards(`${directory}/out`, { [ONE]: [B] });
    for (const force of [false, true]) {
      outputRefused(
        `${directory}/out`,
        `${directory}/in`,
        force,
        `${directory}/out holds a sharded checkpoint (${INDEX}); choose another directory or remove it first`,
      );
    }
    assert(exists(`${directory}/out/${WEIGHTS}`));
  }));

Deno.test("checkOutput refuses files of a checkpoint that the new one has not, and those that it would replace unasked", () =>
  inTemporary((out) => {
    for (const name of COMPANIONS) {
      const path = `${out}/${name}`;
      Deno.writeTextFileSync(path, "theirs");
      for (const force of [false, true]) {
        const { message } = assertThrows(() => checkOutput(out, undefined, [WEIGHTS], force), Refusal);
        const problem = "exists, and the new checkpoint has no such file; remove it first or choose another directory";
        assertEquals(message, `${path} ${problem}`);
      }
      const { message } = assertThrows(() => checkOutput(out, undefined, [WEIGHTS, name], false), Refusal);
      assertEquals(message, `${path} exists already`);
      checkOutput(out, undefined, [WEIGHTS, name], true);
      Deno.removeSync(path);
      Deno.mkdirSync(path);
      const kind = assertThrows(() => checkOutput(out, undefined, [WEIGHTS, name], true), Refusal);
      assertEquals(kind.message, `${path} is not a regular file and can't be replaced; choose another directory`);
      Deno.removeSync(path);
    }
    write(out, { [INCOMPLETE_FILE]: "" });
    const { message } = assertThrows(() => checkOutput(out, undefined, [WEIGHTS], false), Refusal);
    assertEquals(message, `a write of ${out} was interrupted (${INCOMPLETE_FILE})`);
    checkOutput(out, undefined, [WEIGHTS], true);
  }));

Deno.test("checkOutputFile says what is there, and NewFiles replaces nothing else", () =>
  inTemporary((directory) => {
    const path = `${directory}/x.gguf`;
    for (const before of [undefined, "old"]) {
      if (before !== undefined) write(directory, { "x.gguf": before });
      using files = new NewFiles(directory, checkOutputFile(path, [], true));
      files.write("x.gguf", utf8("new"));
      Deno.writeTextFileSync(path, "theirs");
      assertThrows(() => files.commit(), SystemError, "another process has written it in the meantime");
      assertEquals(Deno.readTextFileSync(path), "theirs");
      Deno.removeSync(path);
    }
  }));
