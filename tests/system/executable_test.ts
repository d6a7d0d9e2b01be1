import { assertEquals } from "@std/assert";
import { attestedModel, TIME } from "../support/attested.ts";
import { inTemporary } from "../support/files.ts";
import { ROOT } from "../support/fixtures.ts";
import { EXECUTABLE, needs } from "../support/needs.ts";
import { done, execute } from "../support/program.ts";

needs(
  "the executable writes the statement that the sources write",
  { variables: EXECUTABLE },
  () =>
    inTemporary(async (directory) => {
      const { float, quant, text } = await attestedModel(directory);
      const [own, wanted] = ["own", "wanted"].map((name) => `${directory}/${name}.json`);
      const attest = ["attest", quant, "--against", float, "--text", text, "--time", TIME, "--out"];
      await done(...attest, own);
      const { code, err } = await execute(Deno.execPath(), ["run", "--allow-all", `${ROOT}main.ts`, ...attest, wanted]);
      assertEquals(code, 0, err);
      // The executable may have been built before the last commit.
      const [a, b] = [own, wanted].map((path) => Deno.readTextFileSync(path).replace(/"revision":"[^"]*",/, ""));
      assertEquals(a, b);
    }),
);
