import { assert, assertEquals, assertRejects } from "@std/assert";
import { CheckpointError, RabbitError, SystemError } from "../../../lib/errors.ts";
import { compareText } from "../../../lib/library/compare.ts";
import { quantize } from "../../../lib/library/quantize.ts";
import { attest } from "../../../lib/proof/attest.ts";
import { attestedModel, KEYS, TIME } from "../../support/attested.ts";
import { inTemporary, sha256, write } from "../../support/files.ts";
import { json, TINY, WEIGHTS } from "../../support/fixtures.ts";

/** Threads end after the test does. */
const test = (name: string, work: (directory: string) => Promise<void>) =>
  Deno.test({ name, sanitizeOps: false, sanitizeResources: false, fn: () => inTemporary(work) });

test("a statement says what the checkpoint is, what it was made from, and what was measured", async (directory) => {
  const { float, quant, text, path } = await attestedModel(directory);
  const { predicate, ...rest } = json(path);
  const files = ["config.json", "model.safetensors", "tokenizer.json"];
  const digests = async (of: string) => await Promise.all(files.map((name) => sha256(`${of}/${name}`)));
  const found = await digests(quant);
  // The digest of the subject as model_signing defines it.
  const root = new Uint8Array(await crypto.subtle.digest("SHA-256", Uint8Array.fromHex(found.join("")))).toHex();
  assertEquals(rest, {
    _type: "https://in-toto.io/Statement/v1",
    predicateType: "https://model_signing/signature/v1.0",
    subject: [{ name: "rabbit-q8b32", digest: { sha256: root } }],
  });
  assertEquals(predicate.resources, files.map((name, n) => ({ name, algorithm: "sha256", digest: found[n] })));
  const { tensors, texts, answers, ...said } = predicate.rabbit;
  const sources = await digests(float);
  assertEquals(said, {
    version: 1,
    program: { name: "rabbit", version: "" },
    time: TIME,
    format: "rabbit-q8b32",
    digest: found[1],
    method: { name: "absmax" },
    resolvedDependencies: files.map((name, n) => ({ name, digest: { sha256: sources[n] } })),
    derived: files,
    notDerived: [],
    rms: said.rms,
  });
  assertEquals(tensors.length, 20);
  // deno-lint-ignore no-explicit-any
  assert(tensors.every(({ derived }: any) => derived));
  assertEquals([answers.prompts, answers.steps, answers.kept <= 8], [8, 8, true]);
  const [{ figures, ...measured }] = texts;
  const tokens = Deno.statSync(text).size;
  assertEquals(measured, {
    name: "text.txt",
    digest: { sha256: await sha256(text) },
    tokens,
    window: measured.window,
    stride: measured.window,
    scored: measured.scored,
  });
  const { kl, ratio } = await compareText(float, quant, Deno.readTextFileSync(text), { threads: 1 });
  assertEquals(figures.kl.mean, kl.value.toFixed(6));
  assertEquals(
    [figures.perplexity.ratio, figures.perplexity.ratio_error],
    [ratio.value, ratio.error].map((x) => x.toFixed(6)),
  );
});

test("a statement is the same from other directories and with other numbers of threads", async (directory) => {
  const first = await attestedModel(`${directory}/a`);
  const second = await attestedModel(`${directory}/b/c`, { bits: 8 }, { threads: 3 });
  assertEquals(Deno.readTextFileSync(first.path), Deno.readTextFileSync(second.path));
});

test("a calibrated checkpoint's matrices are derived only when that is asked for", async (directory) => {
  const { float, quant, path } = await attestedModel(directory, { bits: 4, calibrate: "self" });
  const { rabbit } = json(path).predicate;
  assertEquals(rabbit.notDerived, ["model.safetensors", "quantization.json"]);
  const described = json(`${quant}/quantization.json`);
  assertEquals(rabbit.method, {
    name: "self-calibrated",
    version: described.version,
    calibration: described.calibration,
  });
  // deno-lint-ignore no-explicit-any
  const flags = (tensors: any[]) => tensors.map(({ dtype, derived }) => derived || dtype);
  assertEquals(new Set(flags(rabbit.tensors)), new Set(["Q4B32", true]));
  const { statement } = await attest(quant, float, { rederive: true, threads: 1 });
  assertEquals(statement.derivation.notDerived, []);
  assert(statement.derivation.tensors.every(({ derived }) => derived));
});

test("files that the source does not determine are listed, and not said to be derived", async (directory) => {
  const { float, quant } = await attestedModel(directory, { bits: 4, rule: "signed" });
  write(quant, { "README.md": "# Model" });
  const { derivation } = (await attest(quant, float, { threads: 1, output: `${quant}/model.sig` })).statement;
  assertEquals(derivation.notDerived, ["README.md"]);
  assertEquals(derivation.method, { name: "signed", version: 1 });
});

test("shards are derived, and their index", async (directory) => {
  const quant = `${directory}/quant`;
  await quantize(TINY, quant, { bits: 8, maxShardBytes: 20_000, threads: 1 });
  const { derivation, files } = (await attest(quant, TINY, { threads: 1 })).statement;
  assert(files.length > 4);
  assertEquals(derivation.notDerived, []);
});

test("what the source does not give has no statement", async (directory) => {
  const { float, quant } = await attestedModel(directory);
  const refuse = (problem: string) =>
    assertRejects(() => attest(quant, float, { threads: 1 }), CheckpointError, problem);
  const restoring = async (name: string, change: () => void, work: () => Promise<unknown>) => {
    const bytes = Deno.readFileSync(`${quant}/${name}`);
    change();
    await work();
    Deno.writeFileSync(`${quant}/${name}`, bytes);
  };
  const edit = (name: string, at: number) => () => {
    const bytes = Deno.readFileSync(`${quant}/${name}`);
    bytes[bytes.length + at] ^= 1;
    Deno.writeFileSync(`${quant}/${name}`, bytes);
  };
  // The last tensor is a norm of 128 bytes, the one before it a matrix.
  await restoring(WEIGHTS, edit(WEIGHTS, -130), () => refuse("row 31, block 1 is not what"));
  await restoring(WEIGHTS, edit(WEIGHTS, -127), () => refuse("byte 1 is not what"));
  await restoring("config.json", edit("config.json", -5), () => refuse("config.json: "));
  await restoring("tokenizer.json", () => Deno.removeSync(`${quant}/tokenizer.json`), () => refuse("is missing"));
  write(quant, { "chat_template.jinja": "" });
  await refuse("has no such file");
  Deno.removeSync(`${quant}/chat_template.jinja`);
  // More metadata are no other weights, but not what quantizing writes.
  await restoring(WEIGHTS, () => {
    const bytes = Deno.readFileSync(`${quant}/${WEIGHTS}`);
    const length = new DataView(bytes.buffer).getUint32(0, true);
    const header = new TextDecoder().decode(bytes.subarray(8, 8 + length)).trimEnd();
    const more = new TextEncoder().encode(
      header.replace('"scale":"f16"', '"scale":"f16","by":"me"').padEnd(length + 40),
    );
    const out = new Uint8Array(bytes.length + more.length - length);
    new DataView(out.buffer).setUint32(0, more.length, true);
    out.set(more, 8);
    out.set(bytes.subarray(8 + length), 8 + more.length);
    Deno.writeFileSync(`${quant}/${WEIGHTS}`, out);
  }, () => refuse("header: is not the one that quantizing the source writes"));
  const plain = "is not a calibrated checkpoint";
  await assertRejects(() => attest(quant, float, { threads: 1, rederive: true }), RabbitError, plain);
  assertEquals((await attest(quant, float, { threads: 1 })).statement.derivation.notDerived, []);
});

test("arguments that cannot be used are refused", async (directory) => {
  const { float, quant, text } = await attestedModel(directory);
  const refuse = (options: object, kind: new (...args: never[]) => Error, problem: string) =>
    assertRejects(() => attest(quant, float, options), kind, problem);
  await refuse({ time: "yesterday" }, RangeError, "expected RFC 3339");
  await refuse({ key: `${KEYS}p256.pub` }, RabbitError, "is a public key");
  await refuse({ key: `${KEYS}none` }, SystemError, "no such file");
  await refuse({ texts: [text, text] }, RabbitError, "given twice");
  await refuse({ text }, TypeError, 'unknown option "text"');
  await assertRejects(() => attest(`${quant}/${WEIGHTS}`, float), RabbitError, "give the directory");
  await assertRejects(() => attest(float, float), RabbitError, "declares no width");
});
