import { assertEquals, assertRejects } from "@std/assert";
import { CheckpointError } from "../../../lib/errors.ts";
import { isTime, parseStatement } from "../../../lib/proof/statement.ts";
import { json, ROOT } from "../../support/fixtures.ts";

/** The statement that model_signing signed for the tiny model. */
const SIGNED = atob(json(`${ROOT}fixtures/proof/tiny.sig`).dsseEnvelope.payload);

Deno.test("parseStatement reads that of model_signing, and ignores members of its predicate that it does not know", async () => {
  const statement = await parseStatement("tiny.sig", SIGNED);
  assertEquals(statement.files.map(({ name }) => name), ["config.json", "expected.json", "model.safetensors"]);
  assertEquals(statement.ignored.toSorted(), [".git", ".gitattributes", ".github", ".gitignore"]);
  assertEquals([statement.name, statement.links, statement.derivation], ["tiny", false, undefined]);
  const changed = JSON.parse(SIGNED);
  changed.predicate.card = { license: "MIT" };
  assertEquals(await parseStatement("tiny.sig", JSON.stringify(changed)), statement);
});

Deno.test("parseStatement refuses what is not a statement, by the field", async () => {
  // deno-lint-ignore no-explicit-any
  const cases: [(json: any) => void, string][] = [
    [(s) => s._type = "https://in-toto.io/Statement/v0.1", "_type: expected https://in-toto.io/Statement/v1"],
    [(s) => s.predicateType = "https://slsa.dev/provenance/v1", "predicateType: expected https://model_signing"],
    [(s) => s.subject.push(s.subject[0]), "subject: expected 1, found 2"],
    [(s) => s.subject[0].digest.sha256 = "0".repeat(64), "but the resources have the digest"],
    [(s) => s.subject[0].digest = { sha512: "00" }, 'subject 0 digest "sha512": unknown field'],
    [(s) => s.predicate.resources.push(s.predicate.resources[0]), 'duplicate file "config.json"'],
    [(s) => s.predicate.resources[0].algorithm = "blake3", "algorithm: expected sha256"],
    [(s) => s.predicate.resources[0].name = "../config.json", "expected a path within the directory"],
    [(s) => s.predicate.resources[0].name = "/etc/passwd", "expected a path within the directory"],
    [(s) => s.predicate.resources.pop(), "but the resources have the digest"],
    [(s) => s.predicate.serialization.method = "shards", "method: expected files"],
    [(s) => s.predicate.serialization.hash_type = "blake2", "hash_type: expected sha256"],
    [(s) => s.predicate.serialization.ignore_paths = ["."], "expected a path within the directory"],
    [(s) => s.predicate.serialization.ignore_paths = ["tokenizer.json"], "which belongs to a checkpoint"],
    [(s) => s.predicate.serialization.ignore_paths = ["x.safetensors"], "which belongs to a checkpoint"],
    [(s) => s.predicate.rabbit = {}, "is not canonical JSON"],
  ];
  for (const [change, problem] of cases) {
    const statement = JSON.parse(SIGNED);
    change(statement);
    await assertRejects(() => parseStatement("x.json", JSON.stringify(statement)), CheckpointError, problem);
  }
  for (const text of ["[]", "1", "{}", SIGNED.replace("{", '{"_type":1,')]) {
    await assertRejects(() => parseStatement("x.json", text), CheckpointError, "x.json: ");
  }
});

Deno.test("isTime takes RFC 3339", () => {
  for (const time of ["2026-01-31T12:00:00Z", "2024-02-29T23:59:59.123+02:00"]) assertEquals(isTime(time), true, time);
  for (
    const time of ["2026-01-31", "2026-02-29T12:00:00Z", "2026-01-31T25:00:00Z", "2026-01-31 12:00:00Z", "now", ""]
  ) {
    assertEquals(isTime(time), false, time);
  }
});
