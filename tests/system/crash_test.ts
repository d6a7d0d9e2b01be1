/**
 * What is left when quantize does not come to its end: a signal, a kill, a full disk.
 */

import { assert, assertEquals, assertMatch, assertThrows } from "@std/assert";
import { CheckpointError } from "../../lib/errors.ts";
import { Q4B32 } from "../../lib/format/blocks.ts";
import { openCheckpoint } from "../../lib/format/checkpoint.ts";
import { INCOMPLETE_FILE } from "../../lib/files/new_files.ts";
import { serializeHeader } from "../../lib/format/safetensors.ts";
import { importGguf, planImport } from "../../lib/gguf/import.ts";
import { planQuantize, quantize } from "../../lib/quantize/quantize.ts";
import { inTemporary, sha256, sizeOf, tree } from "../support/files.ts";
import { MIXED, ROOT, TINY, WEIGHTS } from "../support/fixtures.ts";
import { copyModel } from "../support/models.ts";
import { needs } from "../support/needs.ts";
import { command, execute, kill, pause, PROGRAM, rabbit, text } from "../support/program.ts";
import { Random } from "../support/random.ts";

const SIDECARS = ["config.json", "merges.txt", "vocab.json"];

/** The source's matrix: quantizing takes long enough to be killed in the middle, and stays short. */
const ROWS = 24_000;
const COLUMNS = 4_096;

/** Starts a source of one BF16 matrix, and writes its companions. */
function begin(directory: string, rows: number): Deno.FsFile {
  Deno.mkdirSync(directory);
  for (const name of SIDECARS) Deno.writeTextFileSync(`${directory}/${name}`, `${name}\n`);
  const file = Deno.openSync(`${directory}/${WEIGHTS}`, { write: true, create: true });
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
  return await sha256(`${cwd}/out/${WEIGHTS}`);
}

const QUANTIZE = ["quantize", "--in", "in", "--out", "out", "--force"];

/** Resolves when the temporary file of a running quantize is there and has grown to `bytes`. */
async function started(directory: string, bytes = 1 << 20): Promise<void> {
  for (let n = 0; n < 20_000; n++) {
    const there = sizeOf(directory) !== undefined;
    const partial = there && tree(directory).find((name) => isPartial(name) && name.includes(WEIGHTS));
    if (partial && (sizeOf(`${directory}/${partial}`) ?? 0) >= bytes) return;
    await pause(1);
  }
  throw new Error("quantize did not start to write");
}

function isPartial(name: string): boolean {
  return name.endsWith(".partial");
}

for (const [signal, status] of [["SIGHUP", 129], ["SIGINT", 130], ["SIGQUIT", 131], ["SIGTERM", 143]] as const) {
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
      assertEquals(await sha256(`${cwd}/out/${WEIGHTS}`), old);
    }));
}

/** The files of a directory by name, and the digest of each; temporary ones are left out. */
async function contents(directory: string): Promise<Record<string, string>> {
  const names = tree(directory).filter((name) => !/\.(partial|old)$/.test(name));
  const digests = await Promise.all(names.map((name) => sha256(`${directory}/${name}`)));
  return Object.fromEntries(names.map((name, n) => [name, digests[n]]));
}

/** Makes `to` a directory with the files of `from`, and no others but temporary ones. */
function reset(from: string, to: string): void {
  Deno.mkdirSync(to, { recursive: true });
  for (const name of tree(to).filter((name) => !isPartial(name))) Deno.removeSync(`${to}/${name}`);
  for (const name of tree(from)) Deno.copyFileSync(`${from}/${name}`, `${to}/${name}`);
}

Deno.test("kill -9 at any moment leaves the old checkpoint whole, or the new one", () =>
  inTemporary(async (cwd) => {
    writeSource(`${cwd}/in`);
    await writeOld(cwd);
    Deno.renameSync(`${cwd}/out`, `${cwd}/old`);
    const old = await contents(`${cwd}/old`);
    const start = performance.now();
    assertEquals((await rabbit(cwd, [...QUANTIZE.slice(0, 3), "--out", "whole"])).code, 0);
    const duration = performance.now() - start;
    const whole = await contents(`${cwd}/whole`);
    for (const name of [...SIDECARS, WEIGHTS]) assert(whole[name] !== old[name], name);

    const seen = { old: 0, whole: 0 };
    const random = new Random(20_240_229);
    for (let n = 0; n < 20; n++) {
      reset(`${cwd}/old`, `${cwd}/out`);
      const child = command(QUANTIZE, { cwd }).spawn();
      // A seeded moment between the start and a little after the end.
      const moment = setTimeout(() => kill(child, "SIGKILL"), random.unit() * 1.1 * duration);
      await child.output();
      clearTimeout(moment);
      const found = await contents(`${cwd}/out`);
      if (found[INCOMPLETE_FILE] === undefined) {
        const which = found[WEIGHTS] === old[WEIGHTS] ? "old" : "whole";
        assertEquals(found, which === "old" ? old : whole, `run ${n}`);
        seen[which]++;
      }
      for (const name of tree(`${cwd}/out`).filter(isPartial)) makeOld(`${cwd}/out/${name}`);
    }
    assert(seen.old > 0, "no run was killed in time");

    // The next run ends well and removes what the killed ones left.
    assertEquals((await rabbit(cwd, QUANTIZE)).code, 0);
    assertEquals(await contents(`${cwd}/out`), whole);
    assertEquals(tree(`${cwd}/out`), [...SIDECARS, WEIGHTS].sort());
  }));

/**
 * Runs rabbit with `args` over the files of `old`, in `out`, again and again, killed one call later each time, until it
 * comes to its end. Whatever is left must be the old checkpoint or the new one, or something that nobody can load.
 *
 * @param again the same within this process
 * @returns how often it was killed, and how often what was left can't be loaded
 */
async function killAtEveryCall(
  cwd: string,
  args: string[],
  again: (out: string) => Promise<unknown>,
): Promise<{ kills: number; refused: number }> {
  const old = await contents(`${cwd}/old`);
  const whole = await contents(`${cwd}/whole`);
  let refused = 0;
  for (let kills = 0;; kills++) {
    reset(`${cwd}/old`, `${cwd}/out`);
    const program = ["run", "--allow-all", `${ROOT}tests/support/killed.ts`, String(kills + 1), ...args];
    const { success, signal, stderr } = await new Deno.Command(Deno.execPath(), { args: program, cwd }).output();
    const found = await contents(`${cwd}/out`);
    if (success) {
      assertEquals(found, whole);
      return { kills, refused };
    }
    assertEquals(signal, "SIGKILL", new TextDecoder().decode(stderr));
    const { [INCOMPLETE_FILE]: marker, ...files } = found;
    // Others than rabbit do not know the marker, but need config.json.
    if (marker === undefined || "config.json" in files) {
      assertEquals(files, files[WEIGHTS] === old[WEIGHTS] ? old : whole, `call ${kills + 1}`);
    }
    if (marker !== undefined) {
      refused++;
      for (const path of [`${cwd}/out`, ...WEIGHTS in files ? [`${cwd}/out/${WEIGHTS}`] : []]) {
        assertThrows(() => openCheckpoint(path), CheckpointError, "write it again or remove the directory");
      }
    }
    // Run again, it comes to its end, and leaves nothing but files that may be those of a running process.
    await again(`${cwd}/out`);
    assertEquals(await contents(`${cwd}/out`), whole);
    for (const name of tree(`${cwd}/out`).filter((name) => !(name in whole))) {
      assert(isPartial(name), name);
      Deno.removeSync(`${cwd}/out/${name}`);
    }
  }
}

Deno.test("kill -9 at every call that renames leaves the old checkpoint, the new one, or what can't be loaded", () =>
  inTemporary(async (cwd) => {
    for (const [name, from] of [["in", "new"], ["old", "old"]]) {
      copyModel(TINY, `${cwd}/${name}`);
      for (const file of ["vocab.json", "merges.txt"]) {
        Deno.writeTextFileSync(`${cwd}/${name}/${file}`, `${from} ${file}`);
      }
    }
    Deno.writeTextFileSync(`${cwd}/in/config.json`, "\n", { append: true });
    assertEquals((await rabbit(cwd, ["quantize", "--in", "in", "--out", "whole"])).code, 0);
    const plan = planQuantize(openCheckpoint(`${cwd}/in`), Q4B32);
    const quantized = await killAtEveryCall(cwd, QUANTIZE, (out) => quantize(plan, out, { threads: 1, force: true }));
    // Four files and the marker are created, four go, four come, the marker goes, the old ones go.
    assert(quantized.kills >= 4 + 1 + 4 + 4 + 1 + 4, `${quantized.kills} kills`);
    assert(quantized.refused >= 9 && quantized.refused < quantized.kills - 4, `${quantized.refused} refused`);
    const infer = ["infer", "--model", "out", "--ids", "1 2 3", "--steps", "1"];
    assertEquals((await rabbit(cwd, infer)).code, 0);
    Deno.writeTextFileSync(`${cwd}/out/${INCOMPLETE_FILE}`, "");
    for (
      const args of [infer, ["verify", "out"], ["compare", "in", "out"], ["quantize", "--in", "out", "--out", "x"]]
    ) {
      const { code, out, err } = await rabbit(cwd, args);
      assertEquals([code, out], [args[0] === "verify" ? 1 : 2, ""]);
      assertMatch(err, /^rabbit: \w+: out: a write of this checkpoint was interrupted[^\n]*\n$/);
    }

    for (const name of ["old", "whole", "out"]) Deno.removeSync(`${cwd}/${name}`, { recursive: true });
    Deno.mkdirSync(`${cwd}/old`);
    const gguf = planImport(MIXED);
    await importGguf(gguf, `${cwd}/whole`, { force: false });
    const args = ["import", "--gguf", gguf.path, "--out", "out", "--force"];
    const imported = await killAtEveryCall(cwd, args, (out) => importGguf(gguf, out, { force: true }));
    assert(imported.refused >= 3, `${imported.refused} refused`);
  }));

Deno.test("kill -9 at every call of a calibration that renames leaves the old checkpoint, the new one, or none", () =>
  inTemporary(async (cwd) => {
    copyModel(TINY, `${cwd}/in`);
    const calibrate = ["quantize", "in", "out", "--force", "--calibrate", "self", "--tokens", "32", "--window", "32"];
    assertEquals((await rabbit(cwd, ["quantize", "in", "old", "--rule", "signed", "--bits", "4"])).code, 0);
    // Another config.json, which is replaced too.
    Deno.writeTextFileSync(`${cwd}/in/config.json`, "\n", { append: true });
    assertEquals((await rabbit(cwd, calibrate.with(2, "whole"))).code, 0);
    const { kills, refused } = await killAtEveryCall(cwd, calibrate, async () => {
      assertEquals((await rabbit(cwd, calibrate)).code, 0);
    });
    // Three files and the marker are created, three go, three come, the marker goes, the old ones go.
    assert(kills >= 3 + 1 + 3 + 3 + 1 + 3, `${kills} kills`);
    assert(refused > 0 && refused < kills - 4, `${refused} refused`);
  }));

Deno.test("two processes that write one directory leave one of the two checkpoints, and its digest is printed", () =>
  inTemporary(async (cwd) => {
    writeSource(`${cwd}/in`);
    const runs = ["4", "8"].map((bits) => command([...QUANTIZE, "--bits", bits], { cwd }).output());
    const results = (await Promise.all(runs)).map(text);
    const digest = await sha256(`${cwd}/out/${WEIGHTS}`);
    const printed = results.filter(({ code }) => code === 0).map(({ out }) => /digest=(\w+)/.exec(out)?.[1]);
    assert(printed.includes(digest), JSON.stringify(results));
    // Where the one begins when the other has ended, both end well.
    for (const { err } of results.filter(({ code }) => code !== 0)) {
      assertMatch(
        err,
        /^rabbit: quantize: [^\n]*another process has written it in the meantime; nothing was replaced[^\n]*\n$/,
      );
    }
    assertEquals(tree(`${cwd}/out`), [...SIDECARS, WEIGHTS].sort());
  }));

Deno.test("too many open files are an error of one line, and nothing is left", () =>
  inTemporary(async (cwd) => {
    writeSource(`${cwd}/in`);
    const before = tree(cwd);
    let named = 0;
    // With still fewer Deno does not start, and with a few more its threads do not.
    for (let files = 18; files <= 25; files++) {
      const args = ["-c", `ulimit -n ${files} && exec "$@"`, "sh", ...PROGRAM, ...QUANTIZE];
      const { code, out, err } = await execute("sh", args, { cwd, env: { RABBIT_DEBUG: "" } });
      assert(!err.includes("internal error"), err);
      if (!err.startsWith("rabbit: ")) continue;
      named++;
      assertEquals([code, out], [2, ""], err);
      assertMatch(err, /^rabbit: quantize: [^\n]*: too many open files; raise the limit \(ulimit -n\)\n$/);
      assertEquals(tree(cwd), before);
    }
    assert(named > 0, "the limit was never met");
  }));

/** Sets a file's time back, so that it counts as left behind. */
function makeOld(path: string): void {
  const hourAgo = new Date(Date.now() - 3_600_000);
  Deno.utimeSync(path, hourAgo, hourAgo);
}

needs("a full disk is an error of one line, and nothing is left", { mounts: true }, () =>
  inTemporary(async (cwd) => {
    writeSource(`${cwd}/in`);
    Deno.mkdirSync(`${cwd}/disk`);
    const mount = ["-t", "tmpfs", "-o", "size=20m", "tmpfs", `${cwd}/disk`];
    assert(new Deno.Command("mount", { args: mount }).outputSync().success, "a tmpfs can't be mounted");
    try {
      for (const out of ["disk", "disk/deep/er"]) {
        const ran = await rabbit(cwd, ["quantize", "--in", "in", "--out", out]);
        assertEquals({ code: ran.code, out: ran.out }, { code: 2, out: "" });
        assertMatch(ran.err, /^rabbit: quantize: cannot write disk[^\n]*: no space left on the device; [^\n]*\n$/);
        assertEquals(tree(`${cwd}/disk`), []);
      }
      // An older result on the full disk stays.
      Deno.writeTextFileSync(`${cwd}/disk/${WEIGHTS}`, "old");
      const { code } = await rabbit(cwd, ["quantize", "--in", "in", "--out", "disk", "--force"]);
      assertEquals(code, 2);
      assertEquals(tree(`${cwd}/disk`), [WEIGHTS]);
      assertEquals(Deno.readTextFileSync(`${cwd}/disk/${WEIGHTS}`), "old");
      // Not even the header fits.
      const fill = new Uint8Array(20 << 20);
      try {
        Deno.writeFileSync(`${cwd}/disk/filler`, fill);
      } catch {
        // That it does not fit is the point.
      }
      const { err } = await rabbit(cwd, ["quantize", "--in", "in", "--out", "disk", "--force"]);
      assertMatch(err, /^rabbit: quantize: cannot write disk[^\n]*: no space left on the device; [^\n]*\n$/);
      assertEquals(tree(`${cwd}/disk`), ["filler", WEIGHTS]);
    } finally {
      const { success } = new Deno.Command("umount", { args: [`${cwd}/disk`] }).outputSync();
      assert(success, "the tmpfs can't be unmounted");
    }
  }));

needs(
  "a disk that fills at the end of a calibration is an error of one line, and nothing is left",
  { mounts: true },
  () =>
    inTemporary(async (cwd) => {
      copyModel(TINY, `${cwd}/in`);
      Deno.mkdirSync(`${cwd}/disk`);
      const mount = ["-t", "tmpfs", "-o", "size=1m", "tmpfs", `${cwd}/disk`];
      assert(new Deno.Command("mount", { args: mount }).outputSync().success, "a tmpfs can't be mounted");
      try {
        const args = ["quantize", "in", "disk/out", "--calibrate", "self", "--tokens", "32", "--window", "32"];
        assertEquals((await rabbit(cwd, args)).code, 0);
        const pages = (name: string) => Math.ceil(sizeOf(`${cwd}/disk/out/${name}`)! / 4096);
        const written = pages(WEIGHTS) + pages("config.json");
        const described = pages("quantization.json");
        Deno.removeSync(`${cwd}/disk/out`, { recursive: true });
        // What is free holds the weights; of quantization.json, which comes last, a page is missing.
        Deno.writeFileSync(`${cwd}/disk/filler`, new Uint8Array(4096 * (256 - written - described + 1)));
        for (const out of ["disk/out", "disk"]) {
          const ran = await rabbit(cwd, args.with(2, out));
          assertEquals({ code: ran.code, out: ran.out }, { code: 2, out: "" });
          assertMatch(
            ran.err.split("\n").filter((line) => !line.includes("warning: ")).join("\n"),
            /^rabbit: quantize: cannot write disk\S*\.quantization\.json\.\S*: no space left on the device; [^\n]*\n$/,
          );
          assertEquals(tree(`${cwd}/disk`), ["filler"]);
        }
      } finally {
        const { success } = new Deno.Command("umount", { args: [`${cwd}/disk`] }).outputSync();
        assert(success, "the tmpfs can't be unmounted");
      }
    }),
);
