/**
 * What is left when quantize does not come to its end: a signal, a kill, a full disk.
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { serializeHeader } from "../lib/format/safetensors.ts";
import { command, inTemporary, rabbit, sha256, text, tree } from "./program.ts";

const MODEL = "model.safetensors";
const SIDECARS = ["config.json", "merges.txt", "vocab.json"];

/** The source's matrix: quantizing takes long enough to be killed in the middle, and stays short. */
const ROWS = 24_000;
const COLUMNS = 4_096;

/** Starts a source of one BF16 matrix, and writes its companions. */
function begin(directory: string, rows: number): Deno.FsFile {
  Deno.mkdirSync(directory);
  for (const name of SIDECARS) Deno.writeTextFileSync(`${directory}/${name}`, `${name}\n`);
  const file = Deno.openSync(`${directory}/${MODEL}`, { write: true, create: true });
  const bytes = 2 * rows * COLUMNS;
  file.writeSync(serializeHeader({ format: "pt" }, [{ name: "w", dtype: "BF16", shape: [rows, COLUMNS], bytes }]));
  return file;
}

/** A source of 1.6 GB of zeros, sparse in the file system: it is there at once, and no signal comes too late for it. */
function writeZeros(directory: string): void {
  using file = begin(directory, 8 * ROWS);
  file.truncateSync(file.statSync().size + 2 * 8 * ROWS * COLUMNS);
}

/** A source whose weights repeat. */
function writeSource(directory: string): void {
  using file = begin(directory, ROWS);
  const bytes = 2 * ROWS * COLUMNS;
  // Patterns of finite numbers: the exponent's upper bits are those of small weights.
  const row = Uint16Array.from(
    { length: bytes / 2 / 100 },
    (_, n) => 0x3c00 + (n * 2654435761 >>> 0) % 512 ^ n % 2 << 15,
  );
  for (let n = 0; n < 100; n++) file.writeSync(new Uint8Array(row.buffer));
}

/** An older result: quantized from another source, so that it differs from the new one. */
async function writeOld(cwd: string): Promise<string> {
  const { code } = await rabbit(cwd, ["gen", "--out", "small"]);
  assertEquals(code, 0);
  assertEquals((await rabbit(cwd, ["quantize", "--in", "small", "--out", "out"])).code, 0);
  return await sha256(`${cwd}/out/${MODEL}`);
}

const QUANTIZE = ["quantize", "--in", "in", "--out", "out", "--force"];

/** Resolves when the temporary file of a running quantize is there and has grown to `bytes`. */
async function started(directory: string, bytes = 1 << 20): Promise<void> {
  for (let n = 0; n < 20_000; n++) {
    const partial = exists(directory) && tree(directory).find(isPartial);
    if (partial && size(`${directory}/${partial}`) >= bytes) return;
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  throw new Error("quantize did not start to write");
}

function isPartial(name: string): boolean {
  return name.endsWith(".partial");
}

function exists(path: string): boolean {
  return size(path) >= 0;
}

/** The size of a file, or -1 when it is not there. */
function size(path: string): number {
  try {
    return Deno.statSync(path).size;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return -1;
    throw error;
  }
}

for (const [signal, status] of [["SIGINT", 130], ["SIGTERM", 143]] as const) {
  Deno.test(`${signal} during quantize ends it with status ${status}, and nothing is left`, () =>
    inTemporary(async (cwd) => {
      writeZeros(`${cwd}/in`);
      const before = tree(cwd);
      const interrupt = async () => {
        const child = command(QUANTIZE, { cwd }).spawn();
        await started(`${cwd}/out`);
        child.kill(signal);
        const ran = text(await child.output());
        const err = `rabbit: quantize: interrupted by ${signal}; nothing was written\n`;
        assertEquals(ran, { code: status, out: "", err });
      };
      await interrupt();
      assertEquals(tree(cwd), before, "an output that was not there is not there");

      const old = await writeOld(cwd);
      const withOld = tree(cwd);
      await interrupt();
      assertEquals(tree(cwd), withOld);
      assertEquals(await sha256(`${cwd}/out/${MODEL}`), old);
    }));
}

Deno.test("kill -9 at any moment leaves the old file whole, or the new one", () =>
  inTemporary(async (cwd) => {
    writeSource(`${cwd}/in`);
    const old = await writeOld(cwd);
    Deno.copyFileSync(`${cwd}/out/${MODEL}`, `${cwd}/old`);
    const start = performance.now();
    assertEquals((await rabbit(cwd, [...QUANTIZE.slice(0, 3), "--out", "whole"])).code, 0);
    const duration = performance.now() - start;
    const whole = await sha256(`${cwd}/whole/${MODEL}`);
    assert(whole !== old);

    const seen = { old: 0, whole: 0 };
    let random = 20_240_229;
    for (let n = 0; n < 20; n++) {
      Deno.copyFileSync(`${cwd}/old`, `${cwd}/out/${MODEL}`);
      const child = command(QUANTIZE, { cwd }).spawn();
      // A seeded moment between the start and a little after the end.
      random = Math.imul(random, 1664525) + 1013904223 >>> 0;
      const moment = setTimeout(() => quietly(() => child.kill("SIGKILL")), random / 2 ** 32 * 1.1 * duration);
      await child.output();
      clearTimeout(moment);
      const digest = await sha256(`${cwd}/out/${MODEL}`);
      assert(digest === old || digest === whole, `run ${n}: neither the old file nor the new one`);
      seen[digest === old ? "old" : "whole"]++;
      const rest = tree(`${cwd}/out`).filter((name) => !isPartial(name));
      assertEquals(rest, [...SIDECARS, MODEL].sort());
      for (const name of tree(`${cwd}/out`).filter(isPartial)) makeOld(`${cwd}/out/${name}`);
    }
    assert(seen.old > 0, "no run was killed in time");

    // The next run ends well and removes what the killed ones left.
    assertEquals((await rabbit(cwd, QUANTIZE)).code, 0);
    assertEquals(await sha256(`${cwd}/out/${MODEL}`), whole);
    // Deno 2.9 lets no executable of limited permissions look into /proc, so that nothing is removed there.
    if (!Deno.env.get("RABBIT_BIN")) assertEquals(tree(`${cwd}/out`), [...SIDECARS, MODEL].sort());
  }));

/** Sets a file's time back, so that it counts as left behind. */
function makeOld(path: string): void {
  const hourAgo = new Date(Date.now() - 3_600_000);
  Deno.utimeSync(path, hourAgo, hourAgo);
}

/** The child may have ended on its own. */
function quietly(action: () => void): void {
  try {
    action();
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
  }
}

Deno.test("a full disk is an error of one line, and nothing is left", () =>
  inTemporary(async (cwd) => {
    writeSource(`${cwd}/in`);
    Deno.mkdirSync(`${cwd}/disk`);
    const mount = text(
      new Deno.Command("mount", { args: ["-t", "tmpfs", "-o", "size=20m", "tmpfs", `${cwd}/disk`] }).outputSync(),
    );
    if (mount.code !== 0) {
      console.error(`\n*** NOT TESTED: a full disk. A tmpfs can't be mounted here: ${mount.err.trim()} ***`);
      assert(Deno.env.get("CI") !== "true", "CI must be able to mount a tmpfs");
      return;
    }
    try {
      for (const out of ["disk", "disk/deep/er"]) {
        const ran = await rabbit(cwd, ["quantize", "--in", "in", "--out", out]);
        assertEquals({ code: ran.code, out: ran.out }, { code: 2, out: "" });
        assertMatch(ran.err, /^rabbit: quantize: cannot write disk[^\n]*: no space left on the device; [^\n]*\n$/);
        assertEquals(tree(`${cwd}/disk`), []);
      }
      // An older result on the full disk stays.
      Deno.writeTextFileSync(`${cwd}/disk/${MODEL}`, "old");
      const { code } = await rabbit(cwd, ["quantize", "--in", "in", "--out", "disk", "--force"]);
      assertEquals(code, 2);
      assertEquals(tree(`${cwd}/disk`), [MODEL]);
      assertEquals(Deno.readTextFileSync(`${cwd}/disk/${MODEL}`), "old");
      // Not even the header fits.
      const fill = new Uint8Array(20 << 20);
      try {
        Deno.writeFileSync(`${cwd}/disk/filler`, fill);
      } catch {
        // That it does not fit is the point.
      }
      const { err } = await rabbit(cwd, ["quantize", "--in", "in", "--out", "disk", "--force"]);
      assertMatch(err, /^rabbit: quantize: cannot write disk[^\n]*: no space left on the device; [^\n]*\n$/);
      assertEquals(tree(`${cwd}/disk`), ["filler", MODEL]);
    } finally {
      const { success } = new Deno.Command("umount", { args: [`${cwd}/disk`] }).outputSync();
      assert(success, "the tmpfs can't be unmounted");
    }
  }));
