/**
 * The executable that RABBIT_BIN names, in a root directory that has nothing else: what a guest's initramfs will hold.
 */

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { libraries } from "../../tools/guest/guest.ts";
import { inTemporary, tree } from "../support/files.ts";
import { EXECUTABLE, needs } from "../support/needs.ts";
import { execute, PROGRAM, rabbit, type Ran } from "../support/program.ts";

function inSystem(program: string, ...args: string[]): Promise<Ran> {
  return execute(program, args, { clearEnv: true, env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" } });
}

needs(
  "rabbit compare without arguments needs its libraries, /proc, and the three files",
  { programs: ["ldd"], variables: EXECUTABLE, mounts: true },
  async () => {
    await inTemporary(async (directory) => {
      for (
        const args of [["gen", "--exact", "4", "--out", "dev"], [
          "quantize",
          "--in",
          "dev",
          "--out",
          "dev-q4",
          "--bits",
          "4",
        ]]
      ) assertEquals((await rabbit(directory, args)).code, 0);

      const root = `${directory}/root`;
      const needed = libraries(PROGRAM[0]);
      assert(needed.length > 0, "ldd names the libraries of the executable");
      const files: [string, string][] = [
        [PROGRAM[0], "/rabbit"],
        ...needed.map((path): [string, string] => [path, path]),
        [`${directory}/dev/model.safetensors`, "/model.safetensors"],
        [`${directory}/dev-q4/model.safetensors`, "/model-q4.safetensors"],
        [`${directory}/dev/config.json`, "/config.json"],
      ];
      Deno.mkdirSync(`${root}/proc`, { recursive: true });
      for (const [from, to] of files) {
        Deno.mkdirSync(`${root}${to}`.replace(/\/[^/]*$/, ""), { recursive: true });
        Deno.copyFileSync(from, root + to);
      }
      const before = tree(root);
      assertEquals(before.filter((path) => !path.endsWith("/")), files.map(([, to]) => to.slice(1)).sort());

      assertEquals(await inSystem("mount", "-t", "proc", "proc", `${root}/proc`), { code: 0, out: "", err: "" });
      try {
        const { code, out, err } = await inSystem("chroot", root, "/rabbit", "compare");
        assertEquals({ code, err }, { code: 0, err: "" });
        assertStringIncludes(out, "COMPARE result match=true tokens=8 max_diff=0.000000");
        assertMatch(out, /^COMPARE memory models=one-at-a-time peak_rss=\d{8,}$/m);
        assertEquals(out.trimEnd().split("\n").at(-1), "COMPARE OK");
      } finally {
        assertEquals((await inSystem("umount", `${root}/proc`)).code, 0);
      }
      assertEquals(tree(root), before);
    });
  },
);
