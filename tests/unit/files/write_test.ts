import { assertEquals, assertRejects } from "@std/assert";
import { NewFiles } from "../../../lib/files/new_files.ts";
import { writeParts } from "../../../lib/files/write.ts";
import { utf8 } from "../../support/bytes.ts";
import { inTemporary } from "../../support/files.ts";

Deno.test("writeParts writes the parts in their order, and gives the digest of all", () =>
  inTemporary(async (directory) => {
    using files = new NewFiles(directory);
    const seen: [number, number][] = [];
    const digest = await writeParts(files.create("f", 3), ["a", "", "bc"].map(utf8), 3, {
      progress: (done, total) => seen.push([done, total]),
    });
    files.commit();
    assertEquals(Deno.readTextFileSync(`${directory}/f`), "abc");
    // The example of FIPS 180-2, appendix B.1.
    assertEquals(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assertEquals(seen, [[1, 3], [1, 3], [3, 3]]);
  }));

Deno.test("writeParts ends with the reason of its signal", () =>
  inTemporary(async (directory) => {
    using files = new NewFiles(directory);
    const controller = new AbortController();
    const watch = { signal: controller.signal, progress: () => controller.abort(new Error("enough")) };
    await assertRejects(() => writeParts(files.create("f", 2), ["a", "b"].map(utf8), 2, watch), Error, "enough");
  }));
