/** PyPI's model_signing, the reference implementation of OpenSSF's model-signing specification, and rabbit verify each other's signatures. */

import { assertEquals, assertStringIncludes } from "@std/assert";
import { dirname } from "@std/path/dirname";
import { attestedModel, KEYS } from "../support/attested.ts";
import { inTemporary, write } from "../support/files.ts";
import { needs } from "../support/needs.ts";
import { done, execute, run } from "../support/program.ts";

const MODEL_SIGNING = Deno.env.get("MODEL_SIGNING");
const what = {
  variables: { MODEL_SIGNING: "path of the program model_signing (pip install model_signing==1.1.1 pyOpenSSL)" },
  sanitizeOps: false,
  sanitizeResources: false,
};

const model_signing = (...args: string[]) => execute(MODEL_SIGNING!, args);

needs(
  "model_signing verifies what rabbit signs, within the checkpoint's directory and outside",
  what,
  () =>
    inTemporary(async (directory) => {
      const { float, quant } = await attestedModel(directory);
      write(`${quant}/a`, { "b.txt": "" });
      write(quant, { "a.txt": "", ".gitignore": "" });
      write(`${quant}/.cache/huggingface`, { ".gitignore": "*" });
      for (const path of [`${directory}/quant.sig`, `${quant}/model.sig`]) {
        for (const key of ["p256.pem", "sec1.pem"]) {
          await done("attest", quant, "--against", float, "--key", KEYS + key, "--out", path, "--force");
          const verify = ["verify", "key", "--signature", path, quant, "--public_key"];
          const { code, out, err } = await model_signing(...verify, `${KEYS}p256.pub`);
          assertEquals([code, out], [0, "Verification succeeded\n"], err);
          const other = await model_signing(...verify, `${KEYS}other.pub`);
          assertEquals(other.code, 1);
          assertStringIncludes(other.err, "Key mismatch");
        }
        Deno.removeSync(path);
      }
    }),
);

needs(
  "rabbit verifies what model_signing signs, and refuses what was changed afterwards",
  what,
  () =>
    inTemporary(async (directory) => {
      const { quant } = await attestedModel(directory);
      const path = `${quant}/model.sig`;
      const { code, err } = await model_signing(
        "sign",
        "key",
        "--private_key",
        `${KEYS}p256.pem`,
        "--signature",
        path,
        quant,
      );
      assertEquals(code, 0, err);
      const verify = ["verify", quant, "--attestation", path, "--public-key", `${KEYS}p256.pub`];
      assertStringIncludes(await done(...verify), "VERIFY signature result=checked");
      write(quant, { "README.md": "" });
      const changed = await run(...verify);
      assertEquals(changed.code, 1);
      assertStringIncludes(changed.err, 'resources "README.md": is missing');
    }),
);

needs("rfc8785, a library of Python, writes a statement as rabbit does", what, () =>
  inTemporary(async (directory) => {
    const { path } = await attestedModel(directory);
    const program =
      "import json, rfc8785, sys; text = open(sys.argv[1], 'rb').read(); assert rfc8785.dumps(json.loads(text)) == text";
    const { code, err } = await execute(`${dirname(MODEL_SIGNING!)}/python`, ["-c", program, path]);
    assertEquals(code, 0, err);
  }));
