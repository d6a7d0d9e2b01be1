/**
 * Parts of a checkpoint, and merges, that do not come to their end: a kill, a full disk.
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { inTemporary, sha256, tree } from "../support/files.ts";
import { fixture, ROOT, TINY, WEIGHTS } from "../support/fixtures.ts";
import { needs } from "../support/needs.ts";
import { execute, rabbit } from "../support/program.ts";

const DIGEST = fixture<Record<string, { sha256: string }>>("tiny/expected.json").q8.sha256;

/** Names and digests of the files of a directory, without temporary ones. */
async function contents(directory: string): Promise<Record<string, string>> {
  const names = tree(directory).filter((name) => !name.startsWith("."));
  return Object.fromEntries(
    await Promise.all(names.map(async (name) => [name, await sha256(`${directory}/${name}`)])),
  );
}

function copy(from: string, to: string): void {
  Deno.mkdirSync(to, { recursive: true });
  for (const name of tree(to)) Deno.removeSync(`${to}/${name}`);
  for (const name of tree(from)) Deno.copyFileSync(`${from}/${name}`, `${to}/${name}`);
}

/** Runs a command that is killed at every `step`-th call that names files, and calls `check` after each kill. */
async function killed(
  cwd: string,
  args: string[],
  reset: () => void,
  check: () => Promise<void>,
  step = 1,
): Promise<number> {
  for (let kills = 0;; kills++) {
    reset();
    const program = ["run", "--allow-all", `${ROOT}tests/support/killed.ts`, String(1 + kills * step), ...args];
    const { success, signal, stderr } = await new Deno.Command(Deno.execPath(), { args: program, cwd }).output();
    if (success) return kills;
    assertEquals(signal, "SIGKILL", new TextDecoder().decode(stderr));
    await check();
  }
}

Deno.test("a part that is killed at any call and run again ends in the same files", () =>
  inTemporary(async (cwd) => {
    const args = (out: string) => ["quantize", TINY, out, "--bits", "8", "--shard", "1/2", "--quiet"];
    assertEquals((await rabbit(cwd, args("whole"))).code, 0);
    const whole = await contents(`${cwd}/whole`);
    Deno.mkdirSync(`${cwd}/empty`);
    const kills = await killed(cwd, args("out"), () => copy(`${cwd}/empty`, `${cwd}/out`), async () => {
      // What has its final name is whole.
      for (const [name, digest] of Object.entries(await contents(`${cwd}/out`))) {
        assertEquals(digest, whole[name], name);
      }
      const { code, err } = await rabbit(cwd, args("out"));
      assertEquals([code, err], [0, ""]);
      assertEquals(await contents(`${cwd}/out`), whole);
    });
    assert(kills >= 6, String(kills));
  }));

Deno.test("a merge that is killed at any call loses nothing, and run again it ends in the same files", () =>
  inTemporary(async (cwd) => {
    for (const [count, step, more] of [[2, 1, ["--single"]], [2, 1, []], [7, 4, []]] as const) {
      const parts = `${cwd}/parts${count}`;
      for (let number = 1; number <= count; number++) {
        const part = ["--shard", `${number}/${count}`, "--bits", "8", "--quiet"];
        assertEquals((await rabbit(cwd, ["quantize", TINY, parts, ...part])).code, 0);
      }
      copy(parts, `${cwd}/whole`);
      assertEquals((await rabbit(cwd, ["merge", "whole", ...more])).code, 0);
      const whole = await contents(`${cwd}/whole`);
      let cleaning = 0;
      const kills = await killed(cwd, ["merge", "out", ...more], () => copy(parts, `${cwd}/out`), async () => {
        const ran = await rabbit(cwd, ["merge", "out", ...more]);
        if (ran.code === 0) return assertEquals(await contents(`${cwd}/out`), whole);
        // The checkpoint was finished, and some parts removed.
        assertMatch(ran.err, /^rabbit: merge: out: (no parts of a checkpoint|part \d of \d is missing)[^\n]*\n$/);
        const { out } = await rabbit(cwd, ["verify", "out"]);
        assert(out.includes(`VERIFY digest=${DIGEST}\nVERIFY OK`), ran.err);
        cleaning++;
      }, step);
      assert(kills >= 2, String(kills));
      assert(cleaning < kills, `${cleaning} of ${kills}`);
    }
  }));

needs(
  "a full disk stops a part or a merge in one line, and nothing is lost",
  { mounts: true },
  () =>
    inTemporary(async (cwd) => {
      assertEquals((await rabbit(cwd, ["gen", "--out", "in"])).code, 0);
      const part = (number: number) => ["quantize", "in", "disk/out", "--shard", `${number}/2`, "--quiet"];
      const { out } = await rabbit(cwd, [...part(1), "--dry-run"]);
      const bytes = Number(/ bytes=(\d+)/.exec(out)![1]);
      Deno.mkdirSync(`${cwd}/disk`);
      // Room for both parts and the files beside them, but not for their copy.
      const companions = tree(`${cwd}/in`).filter((name) => name !== WEIGHTS).reduce((sum, name) => {
        return sum + Deno.statSync(`${cwd}/in/${name}`).size;
      }, 0);
      const size = Math.ceil((2.5 * bytes + companions) / 4096) * 4096 + 65536;
      const mount = ["-t", "tmpfs", "-o", `size=${size}`, "tmpfs", `${cwd}/disk`];
      assert((await execute("mount", mount, {})).code === 0, "a tmpfs can't be mounted");
      try {
        assertEquals((await rabbit(cwd, part(1))).code, 0);
        const filler = `${cwd}/disk/filler`;
        Deno.writeFileSync(filler, new Uint8Array(bytes));
        const before = await contents(`${cwd}/disk/out`);
        const full = /^rabbit: (quantize|merge): cannot write disk[^\n]*: no space left on the device; [^\n]*\n$/;
        const stopped = await rabbit(cwd, part(2));
        assertEquals([stopped.code, stopped.out], [2, ""]);
        assertMatch(stopped.err, full);
        assertEquals(await contents(`${cwd}/disk/out`), before);
        Deno.removeSync(filler);
        assertEquals((await rabbit(cwd, part(2))).code, 0);
        const parts = await contents(`${cwd}/disk/out`);
        const merge = await rabbit(cwd, ["merge", "disk/out", "--single"]);
        assertEquals([merge.code, merge.out], [2, ""]);
        assertMatch(merge.err, full);
        assertEquals(tree(`${cwd}/disk/out`).filter((name) => name.startsWith(".")), []);
        assertEquals(await contents(`${cwd}/disk/out`), parts);
        assertEquals((await rabbit(cwd, ["merge", "disk/out"])).code, 0);
      } finally {
        assert((await execute("umount", [`${cwd}/disk`], {})).code === 0, "the tmpfs can't be unmounted");
      }
    }),
);
