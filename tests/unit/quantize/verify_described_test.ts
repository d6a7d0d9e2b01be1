// Checkpoints whose blocks are not those of the format's rule: what quantization.json says of them, and what verify makes
// of it.

import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { CheckpointError, Refusal } from "../../../lib/errors.ts";
import { quantize } from "../../../lib/quantize/quantize.ts";
import { verify, verifyAgainst } from "../../../lib/quantize/verify.ts";
import { inTemporary } from "../../support/files.ts";
import { fixture, TINY } from "../../support/fixtures.ts";

const digests = fixture<{ tiny: Record<string, string> }>("signed.json").tiny;

for (const bits of [4, 8]) {
  Deno.test(`quantize by the signed rule to ${bits} bits gives the known file, which verify derives again`, () =>
    inTemporary(async (directory) => {
      const out = `${directory}/out`;
      const done = await quantize(TINY, out, { bits, rule: "signed", threads: 2 });
      assertEquals(done.digest, digests[bits]);
      const said = JSON.parse(Deno.readTextFileSync(`${out}/quantization.json`));
      assertEquals([said.method, said.version, said.digest], ["signed", 1, digests[bits]]);
      assertEquals(said, done.quantization);
      const source = Deno.readFileSync(`${TINY}/model.safetensors`);
      const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", source)).toHex();
      assertEquals(said.source, [{ file: "model.safetensors", sha256: hash }]);
      const found = await verifyAgainst(out, TINY, { threads: 1 });
      assertEquals(found.tensors.filter(({ equal }) => !equal), []);
      assertEquals((await verify(out, { threads: 1 })).quantization?.method, "signed");

      // Without the file nobody knows the rule, and the blocks are not those of the format's.
      Deno.removeSync(`${out}/quantization.json`);
      const plain = await verifyAgainst(out, TINY, { threads: 1 });
      assert(plain.tensors.some(({ equal, rms }) => !equal && rms !== undefined));
    }));
}

Deno.test("quantize by the format's rule writes no quantization.json, and not over one that is there", () =>
  inTemporary(async (directory) => {
    const out = `${directory}/out`;
    await quantize(TINY, out, { bits: 4, threads: 1 });
    assertEquals([...Deno.readDirSync(out)].map(({ name }) => name).sort(), ["config.json", "model.safetensors"]);
    await quantize(TINY, out, { bits: 4, rule: "signed", threads: 1, force: true });
    const error = await assertRejects(() => quantize(TINY, out, { bits: 4, threads: 1, force: true }), Refusal);
    assertStringIncludes(error.message, "quantization.json exists, and the new checkpoint has no such file");
  }));

Deno.test("verify refuses weights that quantization.json does not describe", () =>
  inTemporary(async (directory) => {
    const out = `${directory}/out`;
    await quantize(TINY, out, { bits: 4, rule: "signed", threads: 1 });
    const path = `${out}/quantization.json`;
    const good = JSON.parse(Deno.readTextFileSync(path));
    Deno.writeTextFileSync(path, JSON.stringify({ ...good, digest: "0".repeat(64) }));
    for (const check of [() => verify(out, { threads: 1 }), () => verifyAgainst(out, TINY, { threads: 1 })]) {
      const error = await assertRejects(check, CheckpointError);
      assertStringIncludes(
        error.message,
        `describes weights of the digest ${"0".repeat(64)}; the weights were changed`,
      );
    }
  }));
