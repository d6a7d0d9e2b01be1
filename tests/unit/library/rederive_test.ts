import { assertEquals, assertRejects } from "@std/assert";
import { quantize } from "../../../lib/library/quantize.ts";
import { rederive } from "../../../lib/library/rederive.ts";
import { CheckpointError, RabbitError } from "../../../lib/errors.ts";
import { inTemporary, sha256, write } from "../../support/files.ts";
import { TINY } from "../../support/fixtures.ts";

Deno.test({
  name: "rederive finds a block that differs, and refuses another source, version or text",
  sanitizeOps: false,
  sanitizeResources: false,
  fn: () =>
    inTemporary(async (directory) => {
      const out = `${directory}/out`;
      await quantize(TINY, out, { calibrate: "self", tokens: 128, window: 64, threads: 1 });
      const path = `${out}/quantization.json`;
      const said = JSON.parse(Deno.readTextFileSync(path));
      const saying = (changes: object) => write(out, { "quantization.json": JSON.stringify({ ...said, ...changes }) });

      saying({ version: 2 });
      await assertRejects(() => rederive(out, TINY), RabbitError, "was calibrated by version 2 of the method");
      saying({ source: [{ file: "model.safetensors", sha256: "0".repeat(64) }] });
      await assertRejects(() => rederive(out, TINY), CheckpointError, "was made from a file with the SHA-256 0000");
      saying({});
      await assertRejects(() => rederive(out, TINY, { calibrate: ["a.txt"] }), RabbitError, "sampled from the model");

      const model = `${out}/model.safetensors`;
      const bytes = Deno.readFileSync(model);
      // In the last matrix of the file: two rows of 64 columns from its end, but the norm (128 bytes).
      bytes[bytes.length - 128 - 36] ^= 1;
      Deno.writeFileSync(model, bytes);
      saying({ digest: await sha256(model) });
      const { difference } = await rederive(out, TINY, { threads: 1 });
      assertEquals(difference !== undefined, true);
    }),
});
