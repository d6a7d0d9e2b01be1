/**
 * New files: whole or not there, those of one checkpoint together, and nobody else's in their way.
 */

import { assert, assertEquals, assertInstanceOf, assertMatch, assertThrows } from "@std/assert";
import { SystemError } from "../../../lib/errors.ts";
import { INCOMPLETE_FILE, NewFiles } from "../../../lib/files/new_files.ts";
import { checkOutput } from "../../../lib/format/outputs.ts";
import { utf8 } from "../../support/bytes.ts";
import { inTemporary, tree, write } from "../../support/files.ts";
import { WEIGHTS } from "../../support/fixtures.ts";

const INDEX = "model.safetensors.index.json";

/** The names in a directory, with the random part of temporary ones left out. */
function names(directory: string): string[] {
  return tree(directory).map((name) => name.replace(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/, "*"));
}

/** The names and texts in a directory. */
function texts(directory: string): Record<string, string> {
  return Object.fromEntries(tree(directory).map((name) => [name, Deno.readTextFileSync(`${directory}/${name}`)]));
}

Deno.test("NewFiles.commit gives the files their names, with what was written", () =>
  inTemporary((directory) => {
    const files = new NewFiles(`${directory}/a/b`);
    const { file, partial } = files.create("one", 1);
    file.writeAt(0, utf8("1"));
    files.write("two", utf8("22"));
    assertEquals(names(directory), ["a/", "a/b/", "a/b/.one.*.partial", "a/b/.two.*.partial"]);
    assert(tree(directory).includes(partial.slice(directory.length + 1)));
    files.commit();
    assertEquals(tree(directory), ["a/", "a/b/", "a/b/one", "a/b/two"]);
    assertEquals(["one", "two"].map((name) => Deno.readTextFileSync(`${directory}/a/b/${name}`)), ["1", "22"]);
  }));

Deno.test("NewFiles.commit replaces files; until then the old ones are whole", () =>
  inTemporary((directory) => {
    const olds: Record<string, string>[] = [{ one: "old" }, { one: "old", two: "old", "config.json": "old" }];
    for (const old of olds) {
      write(directory, old);
      const files = new NewFiles(directory);
      for (const name of Object.keys(old)) files.write(name, utf8("new"));
      for (const name of Object.keys(old)) assertEquals(Deno.readTextFileSync(`${directory}/${name}`), "old");
      files.commit();
      assertEquals(texts(directory), Object.fromEntries(Object.keys(old).map((name) => [name, "new"])));
    }
  }));

Deno.test("NewFiles.write leaves a file that has the same bytes, and replaces a link by a file", () =>
  inTemporary((directory) => {
    write(directory, { same: "same", target: "new" });
    Deno.symlinkSync("target", `${directory}/link`);
    const { ino } = Deno.statSync(`${directory}/same`);
    const files = new NewFiles(directory);
    files.write("same", utf8("same"));
    files.write("link", utf8("new"));
    files.commit();
    assertEquals(Deno.statSync(`${directory}/same`).ino, ino);
    assert(Deno.lstatSync(`${directory}/link`).isFile);
    assertEquals(texts(directory), { same: "same", target: "new", link: "new" });
  }));

Deno.test("NewFiles.abort removes the files and the directories that it made, and no others", () =>
  inTemporary((directory) => {
    write(`${directory}/kept`, { one: "old" });
    const made = new NewFiles(`${directory}/kept/x/y/z`);
    made.write("one", utf8("1"));
    made.abort();
    assertEquals(tree(directory), ["kept/", "kept/one"]);
    const there = new NewFiles(`${directory}/kept`);
    there.write("one", utf8("new"));
    there.abort();
    assertEquals(tree(directory), ["kept/", "kept/one"]);
    assertEquals(Deno.readTextFileSync(`${directory}/kept/one`), "old");
  }));

Deno.test("NewFiles.abort leaves a made directory alone when another has put something in it", () =>
  inTemporary((directory) => {
    const files = new NewFiles(`${directory}/x/y`);
    files.write("one", utf8("1"));
    write(`${directory}/x`, { foreign: "" });
    files.abort();
    assertEquals(tree(directory), ["x/", "x/foreign"]);
  }));

Deno.test("NewFiles.commit replaces nothing when one of its targets can't be replaced", () =>
  inTemporary((directory) => {
    write(directory, { one: "old", three: "old" });
    write(`${directory}/two`, { inside: "a directory is in the way" });
    const files = new NewFiles(directory);
    for (const name of ["one", "two", "three"]) files.write(name, utf8("new"));
    const { message } = assertThrows(() => files.commit(), SystemError);
    assertMatch(message, /^cannot rename \S+\/\.two\.\S+\.partial to two: \S+\/two is not a regular file$/);
    files.abort();
    assertEquals(tree(directory), ["one", "three", "two/", "two/inside"]);
    assertEquals([`one`, "three"].map((name) => Deno.readTextFileSync(`${directory}/${name}`)), ["old", "old"]);
  }));

/** Runs `action` with renameSync failing at its call number `fails`, and from there on if `forever`. */
function withFailingRename(fails: number, forever: boolean, action: () => void): void {
  const { renameSync } = Deno;
  let calls = 0;
  Deno.renameSync = (from, to) => {
    calls++;
    if (calls === fails || forever && calls > fails) throw new Error("Device or resource busy (os error 16)");
    renameSync(from, to);
  };
  try {
    action();
  } finally {
    Deno.renameSync = renameSync;
  }
}

Deno.test("NewFiles.commit puts the old files back when a rename fails, whichever it is", () =>
  inTemporary((directory) => {
    const old = { "config.json": "old config", [WEIGHTS]: "old weights", "vocab.json": "old words" };
    // Three old files go and four new ones come.
    for (let fails = 1; fails <= 7; fails++) {
      write(directory, old);
      const files = new NewFiles(directory);
      for (const name of [...Object.keys(old), "merges.txt"]) files.write(name, utf8("new"));
      withFailingRename(fails, false, () => {
        assertThrows(() => files.commit(), SystemError, "Device or resource busy");
      });
      files.abort();
      assertEquals(texts(directory), old, `rename ${fails}`);
    }
    const { syncSync } = Deno.FsFile.prototype;
    let syncs = 0;
    Deno.FsFile.prototype.syncSync = function () {
      // The third file is the marker.
      if (++syncs === 3) throw new Error("No space left on device (os error 28)");
      syncSync.call(this);
    };
    try {
      using full = new NewFiles(directory);
      for (const name of [WEIGHTS, "config.json"]) full.write(name, utf8("new"));
      assertThrows(() => full.commit(), SystemError, "no space left on the device");
    } finally {
      Deno.FsFile.prototype.syncSync = syncSync;
    }
    assertEquals(texts(directory), old);
    const files = new NewFiles(directory);
    files.write(WEIGHTS, utf8("new"));
    files.write("config.json", utf8("new"));
    withFailingRename(2, true, () => {
      assertThrows(() => files.commit(), SystemError, "the old files could not be restored; they are in");
    });
    files.abort();
    assertEquals(names(directory), [".config.json.*.old", INCOMPLETE_FILE, WEIGHTS, "vocab.json"]);
  }));

Deno.test("NewFiles keeps what came into the directory since it was looked at", () =>
  inTemporary((directory) => {
    const file = `${directory}/${WEIGHTS}`;
    const changes: [string, string | undefined, () => void][] = [
      ["a file that comes", undefined, () => Deno.writeTextFileSync(file, "theirs")],
      ["a file that is written to", "old", () => Deno.writeTextFileSync(file, "theirs")],
      ["a file that is replaced", "old", () => {
        Deno.writeTextFileSync(`${directory}/x`, "theirs");
        Deno.renameSync(`${directory}/x`, file);
      }],
      ["an index", "theirs", () => Deno.writeTextFileSync(`${directory}/${INDEX}`, "{}")],
      ["a tokenizer", "theirs", () => Deno.writeTextFileSync(`${directory}/tokenizer.json`, "{}")],
      ["a write that is under way", "theirs", () => Deno.writeTextFileSync(`${directory}/${INCOMPLETE_FILE}`, "")],
    ];
    for (const [what, before, change] of changes) {
      if (before !== undefined) write(directory, { [WEIGHTS]: before });
      using files = new NewFiles(directory, checkOutput(directory, undefined, [WEIGHTS], true));
      files.write(WEIGHTS, utf8("new"));
      change();
      const { message } = assertThrows(() => files.commit(), SystemError);
      assertMatch(
        message,
        /another process has written it in the meantime; nothing was replaced, run the command again$/,
        what,
      );
      assertEquals(Deno.readTextFileSync(file), "theirs", what);
      for (const { name } of Deno.readDirSync(directory)) Deno.removeSync(`${directory}/${name}`);
    }
  }));

Deno.test("NewFiles.commit refuses a temporary file that another process has cut, extended, replaced or removed", () =>
  inTemporary((directory) => {
    const victim = `${directory}/victim`;
    const attacks: ((partial: string) => void)[] = [
      (partial) => Deno.truncateSync(partial, 1),
      (partial) => Deno.writeTextFileSync(partial, "x", { append: true }),
      (partial) => Deno.removeSync(partial),
      (partial) => {
        Deno.removeSync(partial);
        Deno.symlinkSync(victim, partial);
      },
      (partial) => {
        Deno.removeSync(partial);
        Deno.writeTextFileSync(partial, "new");
      },
    ];
    for (const attack of attacks) {
      write(directory, { victim: "old", one: "old" });
      const files = new NewFiles(directory);
      const { file, partial } = files.create("one", 3);
      file.writeAt(0, utf8("new"));
      attack(partial);
      assertThrows(() => files.commit(), SystemError, "another process has removed or changed it");
      files.abort();
      assertEquals(texts(directory), { victim: "old", one: "old" });
    }
  }));

Deno.test("NewFiles.create takes no name that is there, and gives none twice", () =>
  inTemporary((directory) => {
    const { randomUUID } = crypto;
    const uuid = "00000000-0000-4000-8000-000000000000";
    write(directory, { victim: "old" });
    Deno.symlinkSync("victim", `${directory}/.one.${uuid}.partial`);
    using files = new NewFiles(directory);
    crypto.randomUUID = () => uuid;
    try {
      assertThrows(() => files.create("one", 3), SystemError, "it exists already");
    } finally {
      crypto.randomUUID = randomUUID;
    }
    assertEquals(Deno.readTextFileSync(`${directory}/victim`), "old");
    assert(files.create("one", 0).partial !== files.create("one", 0).partial);
  }));

Deno.test("NewFiles refuses a directory that can't be made, and leaves nothing", () =>
  inTemporary((directory) => {
    write(directory, { file: "" });
    assertInstanceOf(assertThrows(() => new NewFiles(`${directory}/file/x`)), SystemError);
    assertInstanceOf(assertThrows(() => new NewFiles(`${directory}/file`)), SystemError);
    assertEquals(tree(directory), ["file"]);
  }));

Deno.test("NewFiles writes to a directory that it can't list", () =>
  inTemporary((directory) => {
    const { readDirSync } = Deno;
    Deno.readDirSync = () => {
      throw new Error("Too many open files (os error 24)");
    };
    try {
      const files = new NewFiles(directory);
      files.write("one", utf8("1"));
      files.commit();
    } finally {
      Deno.readDirSync = readDirSync;
    }
    assertEquals(tree(directory), ["one"]);
  }));

Deno.test("NewFiles removes the temporary files that killed processes left, and no others", () =>
  inTemporary((directory) => {
    const hour = Date.now() / 1000 - 3600;
    const minute = Date.now() / 1000 - 60;
    const uuid = "01234567-89ab-4cde-8f01-23456789abcd";
    const files: [name: string, time: number, stays: boolean][] = [
      [`.${WEIGHTS}.${uuid}.partial`, hour, false],
      [`.config.json.${uuid}.partial`, hour, false],
      [`.config.json.${uuid}.old`, minute, false],
      [`.young.${uuid}.partial`, minute, true],
      [`visible.${uuid}.partial`, hour, true],
      [".no-number.partial", hour, true],
      [`.other.${uuid}.part`, hour, true],
      [`.other.${uuid}.partial.txt`, hour, true],
      [WEIGHTS, hour, true],
    ];
    const put = () => {
      for (const [name, time] of files) {
        write(directory, { [name]: "x" });
        Deno.utimeSync(`${directory}/${name}`, time, time);
      }
    };
    const left = (also: string[]) => [...files.filter(([, , stays]) => stays).map(([name]) => name), ...also].sort();
    put();
    new NewFiles(directory).abort();
    assertEquals(tree(directory), left([]));
    // After an interrupted commit the old files stay until another one has come to its end.
    put();
    write(directory, { [INCOMPLETE_FILE]: "" });
    const next = new NewFiles(directory);
    assertEquals(tree(directory), left([INCOMPLETE_FILE, `.config.json.${uuid}.old`]));
    next.write("one", utf8("1"));
    next.commit();
    assertEquals(tree(directory), left(["one"]));
  }));

Deno.test("NewFiles keeps its temporary files young while it computes, on a made-up clock", () =>
  inTemporary((directory) => {
    const { setInterval, clearInterval } = globalThis;
    const { now } = Date;
    const timers = new Map<number, { tick: () => void; interval: number; next: number }>();
    let time = now();
    let made = 0;
    /** Lets time pass, with its ticks. */
    const pass = (minutes: number) => {
      const end = time + minutes * 60_000;
      for (;;) {
        const next = [...timers.values()].filter(({ next }) => next <= end).sort((a, b) => a.next - b.next)[0];
        if (next === undefined) break;
        time = next.next;
        next.next += next.interval;
        next.tick();
      }
      time = end;
    };
    Date.now = () => time;
    Object.assign(globalThis, {
      setInterval: (tick: () => void, interval: number) => {
        timers.set(++made, { tick, interval, next: time + interval });
        return made;
      },
      clearInterval: (id: number) => void timers.delete(id),
    });
    try {
      const files = new NewFiles(directory);
      files.write("one", utf8("1"));
      // Nothing is written for five hours, and other processes write here meanwhile.
      for (let n = 0; n < 10; n++) {
        pass(30);
        new NewFiles(directory).abort();
      }
      files.commit();
      assertEquals([tree(directory), timers.size], [["one"], 0]);

      const killed = new NewFiles(directory);
      killed.write("two", utf8("2"));
      pass(1);
      timers.clear();
      pass(9);
      new NewFiles(directory).abort();
      assertEquals(tree(directory).length, 2);
      pass(2);
      new NewFiles(directory).abort();
      assertEquals(tree(directory), ["one"]);
      killed.abort();
    } finally {
      Object.assign(globalThis, { setInterval, clearInterval });
      Date.now = now;
    }
  }));
