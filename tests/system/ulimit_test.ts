/**
 * A limit on the size of files, for the executable that RABBIT_BIN names: it would end the program from its sources while
 * Deno writes its caches.
 */

import { assertEquals, assertMatch } from "@std/assert";
import { inTemporary, tree } from "../support/files.ts";
import { EXECUTABLE, needs } from "../support/needs.ts";
import { execute, PROGRAM, rabbit } from "../support/program.ts";

needs(
  "a file that grows beyond ulimit -f is an error of one line, and nothing is left",
  { variables: EXECUTABLE },
  () =>
    inTemporary(async (cwd) => {
      assertEquals((await rabbit(cwd, ["gen", "--out", "in"])).code, 0);
      const before = tree(cwd);
      for (
        const args of [
          ["quantize", "--in", "in", "--out", "new/out"],
          ["export", "--in", "in", "--gguf", "new/out.gguf"],
          ["gen", "--out", "new/out"],
        ]
      ) {
        const limited = ["-c", 'ulimit -f 100 && exec "$@"', "sh", ...PROGRAM, ...args];
        const ran = await execute("sh", limited, { cwd, env: { RABBIT_DEBUG: "" } });
        assertEquals([ran.code, ran.out], [2, ""], ran.err);
        assertMatch(
          ran.err,
          new RegExp(`^rabbit: ${args[0]}: cannot write [^\\n]* larger than [^\\n]*ulimit -f[^\\n]*\\n$`),
        );
        assertEquals(tree(cwd), before);
      }
    }),
);
