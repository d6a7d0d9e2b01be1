import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { generate } from "../../lib/dev/gen.ts";
import { change, KEYS, TIME } from "../support/attested.ts";
import { sha256, temporary, write } from "../support/files.ts";
import { json, ROOT } from "../support/fixtures.ts";
import { copyModel, quantizeTo } from "../support/models.ts";
import { tokenizerJson } from "../support/tokenizers.ts";
import { done, lines, rabbit, refused, run } from "../support/program.ts";

const directory = temporary();
const [float, quant, text, out] = ["float", "quant", "text.txt", "quant.json"].map((name) => `${directory}/${name}`);
generate(float);
// Without it, every command warns that the rules of the text's division are assumed.
Deno.writeTextFileSync(`${float}/tokenizer.json`, tokenizer(float));
await quantizeTo(quant, float, 8);
write(directory, { "text.txt": Deno.readTextFileSync(`${ROOT}fixtures/opticks.txt`).slice(0, 400) });

/** The vocabulary of a model, without merges, and with the rules that go with it. */
function tokenizer(model: string): string {
  return tokenizerJson(Object.keys(json(`${model}/vocab.json`)));
}

const ATTEST = ["attest", quant, "--against", float, "--time", TIME];

Deno.test("attest prints what is stated, with the figures that compare prints", async () => {
  const printed = await lines(0, ...ATTEST, "--text", text, "--out", out, "--threads", "2");
  const compared = await lines(0, "compare", float, quant, "--text", text);
  const figures = (of: string[]) =>
    of.map((line) => line.replace(/^[A-Z]+ /, "")).filter((line) => /^(perplexity|kl|same_top|prob) /.test(line));
  assertEquals(figures(printed), figures(compared));
  assertEquals(figures(printed).length, 4);
  const stated = json(out).predicate.rabbit;
  for (const [word, figure] of Object.entries(stated.texts[0].figures)) {
    const line = Object.entries(figure as object).map(([key, digits]) => `${key}=${digits}`);
    const found = compared.find((line) => line.startsWith(`COMPARE ${word} `))!.split(" ").slice(2);
    assertEquals(line.toSorted(), found.toSorted());
  }
  assertEquals(printed[0], `ATTEST model=${quant} bytes=5579328 format=rabbit-q8b32 method=absmax`);
  assertMatch(printed[1], /^ATTEST against=\S+ source_files=5 derived=38 not_derived=0 rms=0\.00\d{4}$/);
  assertEquals(printed[2], "ATTEST files total=5 derived=5");
  assertMatch(printed[3], /^ATTEST answers prompts=8 kept=\d tokens=8$/);
  assertEquals(
    printed.at(-1),
    `ATTEST statement file=${out} signed=false bytes=${Deno.statSync(out).size} digest=${await sha256(out)}`,
  );
  assertEquals([stated.program.name, stated.program.version], ["rabbit", json(`${ROOT}deno.json`).version]);
});

Deno.test("verify says what it checked of a statement, and what not", async () => {
  const path = `${directory}/verified.json`;
  await done(...ATTEST, "--text", text, "--out", path);
  const results = async (...more: string[]) =>
    (await lines(0, "verify", quant, "--attestation", path, ...more))
      .map((line) => /^VERIFY (\w+) result=(.*)/.exec(line)?.slice(1).join(" ")).filter((line) => line !== undefined);
  assertEquals(await results(), [
    'signature "not checked: there is none"',
    "files checked equal=5",
    "tensors checked total=38 equal=38",
    'derivation "not checked: give --against"',
    'figures "not checked: give --against and --text"',
  ]);
  assertEquals(await results("--against", float, "--text", text), [
    'signature "not checked: there is none"',
    "files checked equal=5",
    "tensors checked total=38 equal=38",
    "derivation checked stated=true derived=38 not_derived=0",
    "figures checked equal=text.txt",
  ]);
});

Deno.test("a statement that does not hold is the answer no, with the reason", async () => {
  const path = `${directory}/changed.json`;
  await done(...ATTEST, "--text", text, "--out", path);
  const no = async (problem: string, ...more: string[]) => {
    const { code, out, err } = await run("verify", quant, "--attestation", path, ...more);
    assertEquals([code, out], [1, ""], err);
    assertEquals(err.split("\n").length, 2);
    assertStringIncludes(err, problem);
  };
  const statement = Deno.readTextFileSync(path);
  // deno-lint-ignore no-explicit-any
  const changed = async (edit: (rabbit: any) => void, problem: string) => {
    Deno.writeTextFileSync(path, statement);
    change(path, ({ predicate }) => edit(predicate.rabbit));
    await no(problem, "--against", float, "--text", text);
  };
  await changed(
    ({ texts }) => texts[0].figures.kl.mean = "0.000000",
    'rabbit texts "text.txt" kl mean: is 0.000000, but ',
  );
  await changed(({ answers }) => answers.kept = 99, "rabbit answers kept: is 99, but ");
  await changed((rabbit) => rabbit.rms = "0.000000", "rabbit rms: is 0.000000, but ");
  Deno.writeTextFileSync(path, statement);
  await no("is missing: the file is not signed", "--public-key", `${KEYS}p256.pub`);
  Deno.writeTextFileSync(path, statement + "\n");
  await no("is not canonical JSON");
});

Deno.test("a signed statement is verified with the key alone", async () => {
  const path = `${directory}/quant.sig`;
  await done(...ATTEST, "--key", `${KEYS}p256.pem`, "--out", path);
  const signed = await lines(0, "verify", quant, "--attestation", path, "--public-key", `${KEYS}p256.pub`);
  assert(signed.includes(`VERIFY signature result=checked key=${await sha256(`${KEYS}p256.pub`)}`), signed.join("\n"));
  const { code, err } = await run("verify", quant, "--attestation", path, "--public-key", `${KEYS}other.pub`);
  assertEquals(code, 1);
  assertStringIncludes(err, "the signature is another key's");
  assertEquals((await run("verify", quant, "--attestation", path, "--public-key", `${KEYS}rsa.pub`)).code, 2);
  assertEquals((await run("verify", quant, "--attestation", `${directory}/none`)).code, 2);
});

Deno.test("a checkpoint that is not what the source gives has no statement", async () => {
  const other = `${directory}/other`;
  copyModel(quant, other);
  const bytes = Deno.readFileSync(`${other}/model.safetensors`);
  bytes[bytes.length - 600] ^= 1;
  Deno.writeFileSync(`${other}/model.safetensors`, bytes);
  const path = `${directory}/other.json`;
  const { code, out, err } = await run("attest", other, "--against", float, "--out", path);
  assertEquals([code, out], [1, ""]);
  assertMatch(err, /^rabbit: attest: \S+: tensor ".*": .* is not what \S+ gives\n$/);
  assertEquals([...Deno.readDirSync(directory)].some(({ name }) => name === "other.json"), false);
});

Deno.test("an invalid checkpoint is the answer no, an invalid source or text is an error", async () => {
  const bad = `${directory}/bad`;
  write(bad, { "model.safetensors": "not one" });
  const path = `${directory}/valid.json`;
  await done(...ATTEST, "--out", path);
  const status = async (...args: string[]) => (await run(...args)).code;
  assertEquals(await status("attest", bad, "--against", float, "--out", `${directory}/bad.json`), 1);
  assertEquals(await status("attest", quant, "--against", bad, "--out", `${directory}/bad.json`), 2);
  assertEquals(await status("verify", bad, "--attestation", path), 1);
  assertEquals(await status("verify", quant, "--attestation", path, "--against", bad), 2);
  write(directory, { "latin1.txt": Uint8Array.of(0xe9, 0x20) });
  const latin1 = ["--text", `${directory}/latin1.txt`];
  assertEquals(await status("verify", quant, "--attestation", path, "--against", float, ...latin1), 2);
  const { code } = await rabbit(quant, [
    "attest",
    ".",
    "--against",
    "../float",
    "--text",
    "../latin1.txt",
    "--out",
    "../x.json",
  ]);
  assertEquals(code, 2);
  assertEquals((await rabbit(bad, ["verify", ".", "--attestation", path])).code, 1);
});

Deno.test("arguments that exclude each other, and outputs that would replace something, are refused", async () => {
  const path = `${directory}/refused.json`;
  const attest = [...ATTEST.slice(0, 4), "--out", path];
  await refused(
    "--time takes a time of RFC 3339, such as 2026-01-31T12:00:00Z, found today",
    ...attest,
    "--time",
    "today",
  );
  await refused("--calibrate is for --rederive, which is not given", ...attest, "--calibrate", "self");
  await refused(
    `${KEYS}p256.pub is a public key; to sign, give the private one`,
    ...attest,
    "--key",
    `${KEYS}p256.pub`,
  );
  await refused("--out FILE is missing; see rabbit attest --help", "attest", quant, "--against", float);
  write(directory, { "refused.json": "" });
  await refused(`${path} exists already; --force replaces it`, ...attest);
  await done(...attest, "--force");
  const config = `${quant}/config.json`;
  await refused(
    `${config} is a file of the checkpoint, which would be overwritten; choose another name`,
    ...attest.slice(0, 5),
    config,
    "--force",
  );
  const key = `${directory}/key.pem`;
  Deno.copyFileSync(`${KEYS}p256.pem`, key);
  Deno.symlinkSync("key.pem", `${directory}/link.pem`);
  for (
    const [flag, out, input] of [["--text", text, text], ["--key", key, key], ["--key", `${directory}/link.pem`, key]]
  ) {
    await refused(
      `${out} is read by this command (${input}), and would be overwritten; choose another name`,
      ...attest.slice(0, 5),
      out,
      "--force",
      flag,
      input,
    );
  }
  const long = await rabbit(directory, [...attest.slice(0, 5), "o".repeat(250), "--key", "none.pem"]);
  assertEquals([long.code, long.err.startsWith("rabbit: attest: cannot create ")], [2, true], long.err);
  const verify = ["verify", quant];
  await refused("--public-key is for --attestation, which is not given", ...verify, "--public-key", path);
  await refused("--text is for --attestation, which is not given", ...verify, "--text", text);
  // A pipe would be empty when it is read again, and has no name.
  const pipe = `${directory}/pipe`;
  assertEquals(new Deno.Command("mkfifo", { args: [pipe] }).outputSync().code, 0);
  const unread = `${pipe} is not a regular file; a statement names its texts, so give a file`;
  await refused(unread, ...attest, "--force", "--text", pipe);
  await refused(unread, ...verify, "--attestation", path, "--against", float, "--text", pipe);
  const gguf = `${directory}/file.gguf`;
  write(directory, { "file.gguf": "GGUF" });
  for (const file of [gguf, `${quant}/model.safetensors`]) {
    await refused(
      `${file} is a file; a statement is of all files of a directory, so give the directory`,
      ...["verify", file, "--attestation", path],
    );
  }
  const attested = [...verify, "--attestation", path];
  await refused("--text needs the float model; give it with --against", ...attested, "--text", text);
  await refused(
    "--attestation and --shard exclude each other: a statement is of the whole",
    ...attested,
    "--shard",
    "1/2",
  );
});

Deno.test("with --json the results are one object", async () => {
  const { code, out: printed } = await rabbit(directory, [
    ...["attest", "quant", "--against", "float", "--text", "text.txt", "--out", "json.json", "--json"],
  ]);
  const { bytes, files, texts, statement, answers } = JSON.parse(printed);
  assertEquals([code, bytes, files], [0, 5579328, { total: 5, derived: 5, not_derived: [] }]);
  assertEquals([statement.file, texts.length, answers.prompts], ["json.json", 1, 8]);
  assertEquals(statement.bytes, Deno.statSync(`${directory}/json.json`).size);
  const verified = await rabbit(directory, ["verify", "quant", "--attestation", "json.json", "--json"]);
  const { verdict, tensors, figures } = JSON.parse(verified.out);
  assertEquals([verified.code, verdict, tensors], [0, "OK", { result: "checked", total: 38, equal: 38 }]);
  assertEquals(figures, { result: "not checked: give --against and --text", equal: [], not_checked: [] });
});
