import { assertEquals, assertRejects } from "@std/assert";
import { CheckpointError, RabbitError } from "../../../lib/errors.ts";
import { quantize } from "../../../lib/library/quantize.ts";
import { attest } from "../../../lib/proof/attest.ts";
import { verifyAttestation, type VerifyAttestationOptions } from "../../../lib/proof/verify.ts";
import { attestedModel, change, KEYS } from "../../support/attested.ts";
import { inTemporary, write } from "../../support/files.ts";
import { TINY } from "../../support/fixtures.ts";
import { variant } from "../../support/models.ts";

/** Threads end after the test does. */
const test = (name: string, work: (directory: string) => Promise<void>) =>
  Deno.test({ name, sanitizeOps: false, sanitizeResources: false, fn: () => inTemporary(work) });

test("a statement is verified as far as it is asked for", async (directory) => {
  const { float, quant, text, path } = await attestedModel(directory);
  const { signature, derived, measured } = await verifyAttestation(quant, path, { threads: 1 });
  assertEquals([signature, derived, measured], ["none", false, []]);
  const all = await verifyAttestation(quant, path, { against: float, texts: [text], threads: 2 });
  assertEquals([all.derived, all.derivedTensors, all.measured], [true, 20, ["text.txt"]]);
});

test("a signed statement in the checkpoint's directory is verified with the key, and without it not called valid", async (directory) => {
  const { float, quant } = await attestedModel(directory);
  const path = `${quant}/model.sig`;
  const { bytes } = await attest(quant, float, { key: `${KEYS}sec1.pem`, output: path, threads: 1 });
  Deno.writeFileSync(path, bytes);
  // What git and Hugging Face's tools keep is no part of the checkpoint.
  write(quant, { ".gitattributes": "" });
  write(`${quant}/.cache/huggingface/download`, { "config.json.metadata": "" });
  const check = async (options: VerifyAttestationOptions) => (await verifyAttestation(quant, path, options)).signature;
  assertEquals(await check({ publicKey: `${KEYS}p256.pub` }), "valid");
  assertEquals(await check({}), "unchecked");
  // A copy is the same statement; another file of the name that it leaves out is not.
  const copy = `${directory}/copy.sig`;
  Deno.writeFileSync(copy, bytes);
  assertEquals((await verifyAttestation(quant, copy)).signature, "unchecked");
  Deno.writeTextFileSync(path, "x");
  await assertRejects(() => verifyAttestation(quant, copy), CheckpointError, 'leaves out "model.sig", which is not');
  Deno.writeFileSync(path, bytes);
  await assertRejects(
    () => check({ publicKey: `${KEYS}other.pub` }),
    CheckpointError,
    "the signature is another key's",
  );
  await assertRejects(() => check({ publicKey: `${KEYS}p256.pem` }), RabbitError, "is a private key");
});

test("a signature of model_signing is verified, with its digests", async (directory) => {
  const done = await verifyAttestation(TINY, `${KEYS}tiny.sig`, { publicKey: `${KEYS}p256.pub` });
  assertEquals([done.signature, done.statement.derivation, done.derived], ["valid", undefined, false]);
  const model = variant(`${directory}/model`, TINY, {});
  await assertRejects(
    () => verifyAttestation(model, `${KEYS}tiny.sig`),
    CheckpointError,
    'resources "expected.json": is not in',
  );
});

test("a calibrated checkpoint is derived with rederive, whatever its statement says of that", async (directory) => {
  const { float, quant, path } = await attestedModel(directory, { bits: 4, calibrate: "self" });
  const { bytes } = await attest(quant, float, { rederive: true, threads: 1 });
  const strong = `${directory}/strong.json`;
  Deno.writeFileSync(strong, bytes);
  for (const statement of [path, strong]) {
    for (const rederive of [false, true]) {
      const done = await verifyAttestation(quant, statement, { against: float, rederive, threads: 1 });
      assertEquals(done.derivedTensors === 20, rederive);
    }
  }
  change(path, ({ predicate: { rabbit } }) => rabbit.method.calibration.seed++);
  await assertRejects(() => verifyAttestation(quant, path), CheckpointError, "method: is ");
});

test("a statement of another file, another source, another rule or another text is refused by name", async (directory) => {
  const { float, quant, text, path } = await attestedModel(directory);
  const statement = Deno.readTextFileSync(path);
  const restore = () => Deno.writeTextFileSync(path, statement);
  const refuse = (problem: string, model = quant, options: VerifyAttestationOptions = {}) =>
    assertRejects(() => verifyAttestation(model, path, { threads: 1, ...options }), CheckpointError, problem);
  const other = `${directory}/other`;
  await quantize(float, other, { bits: 4, threads: 1 });
  await refuse('resources "model.safetensors": is stated with the SHA-256', other);
  const source = variant(`${directory}/source`, float, {
    tensors: (entries) =>
      entries.map((entry) => ({ ...entry, bytes: entry.bytes.map((byte, n) => n === 0 ? byte ^ 1 : byte) })),
    files: { "tokenizer.json": Deno.readTextFileSync(`${float}/tokenizer.json`) },
  });
  Deno.copyFileSync(`${float}/config.json`, `${source}/config.json`);
  await refuse(`of ${source} has `, quant, { against: source });
  await refuse("it is another source", quant, { against: source });
  change(path, ({ predicate: { rabbit } }) => rabbit.resolvedDependencies[1].digest.sha256 = "0".repeat(64));
  await refuse('resolvedDependencies "model.safetensors": has the SHA-256 000', quant, { against: float });
  restore();
  change(path, ({ predicate: { rabbit } }) => rabbit.method = { name: "signed", version: 1 });
  await refuse('method: is {"name":"signed","version":1}, but the checkpoint was made by {"name":"absmax"}');
  restore();
  write(directory, { "text.txt": "Another text that is long enough." });
  await refuse("the text was changed, or is another one", quant, { against: float, texts: [text] });
  write(directory, { "more.txt": "Another text that is long enough." });
  await refuse("has no figures of", quant, { against: float, texts: [`${directory}/more.txt`] });
  write(quant, { "modeling.py": "" });
  await refuse('resources "modeling.py": is missing');
});
