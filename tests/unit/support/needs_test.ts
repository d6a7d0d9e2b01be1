/** What `needs` declares, in the words of `deno test`, with and without what a test asks for. */

import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { inTemporary, write } from "../../support/files.ts";
import { ROOT } from "../../support/fixtures.ts";
import { execute, type Ran } from "../../support/program.ts";

/** Runs one test that asks for `what`, on a PATH with nothing but a program `thing` and a `script` that fails. */
async function test(what: string, env: Record<string, string> = {}): Promise<Ran> {
  let ran: Ran | undefined;
  await inTemporary(async (directory) => {
    write(directory, {
      "one_test.ts": `import { needs } from "${ROOT}tests/support/needs.ts";
        needs("one", { ${what} }, () => console.log("RUN"));`,
      thing: "#!/bin/sh\n",
      script: "#!/bin/sh\nexit 1\n",
      "not-executable": "",
    });
    for (const name of ["thing", "script"]) Deno.chmodSync(`${directory}/${name}`, 0o755);
    const all = { PATH: directory, CI: "", ...env };
    const args = ["test", "--no-check", "--allow-all", "--config", `${ROOT}deno.json`, `${directory}/one_test.ts`];
    ran = await execute(Deno.execPath(), args, { env: all });
  });
  return ran!;
}

/** What is asked for, and the words for what is missing. */
const MISSING: [what: string, words: string][] = [
  ['programs: ["thing", "no-such", "not-executable"]', "install no-such, not-executable"],
  ['programs: ["script"]', "install script of util-linux (Debian: bsdutils)"],
  ['variables: { RABBIT_NONE: "a path" }', "set RABBIT_NONE=a path"],
  ['files: ["/dev/none"]', "needs the /dev/none of Linux"],
  ['mounts: true, missing: ["do this"]', "install mount"],
  ['missing: ["do this", "do that"]', "do this; do that"],
];

Deno.test("needs ignores a test that can't be run, and its name says what to do", async () => {
  for (const [what, words] of MISSING) {
    const { code, out } = await test(what);
    assertEquals(code, 0, out);
    assertStringIncludes(out, `one (ignored: ${words}`);
    assertMatch(out, /\nok \| 0 passed \| 0 failed \| 1 ignored /);
  }
});

Deno.test("needs fails a test that can't be run where CI is true, with the same words", async () => {
  for (const [what, words] of MISSING) {
    const { code, out } = await test(what, { CI: "true" });
    assertEquals(code, 1, out);
    assertStringIncludes(out, `CI is true and this test can't run: ${words}`);
    assertMatch(out, /\nFAILED \| 0 passed \| 1 failed /);
  }
});

Deno.test("needs runs a test that has what it needs, and ignores one that no installation helps, also in CI", async () => {
  for (const CI of ["", "true"]) {
    const there = 'programs: ["thing"], variables: { RABBIT_SOME: "" }, files: ["/dev/null"], missing: []';
    const { code, out } = await test(there, { CI, RABBIT_SOME: "x" });
    assertEquals(code, 0, out);
    assertStringIncludes(out, "RUN\n");
    assertMatch(out, /\nok \| 1 passed \| 0 failed /);
    const other = await test('lacks: ["another processor"]', { CI });
    assertMatch(
      other.out,
      /\none \(ignored: another processor\) \.\.\. ignored .*\n\nok \| 0 passed \| 0 failed \| 1 ign/,
    );
  }
});
