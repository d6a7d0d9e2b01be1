import { assertEquals, assertRejects } from "@std/assert";
import { RabbitError } from "../../../lib/errors.ts";
import { hintOf, publicKeyOf, readPrivateKey, readPublicKey } from "../../../lib/proof/keys.ts";
import { inTemporary, sha256 } from "../../support/files.ts";
import { ROOT } from "../../support/fixtures.ts";

const KEYS = `${ROOT}fixtures/proof/`;

Deno.test("both forms of a private key give the public key that OpenSSL gives, and the hint is its digest", async () => {
  const hint = await sha256(`${KEYS}p256.pub`);
  assertEquals(await hintOf(await readPublicKey(`${KEYS}p256.pub`)), hint);
  for (const name of ["p256.pem", "sec1.pem"]) {
    assertEquals(await hintOf(await publicKeyOf(await readPrivateKey(KEYS + name))), hint, name);
  }
});

Deno.test("a key with lines of Windows, or text around it, is the same key", () =>
  inTemporary(async (directory) => {
    const pem = Deno.readTextFileSync(`${KEYS}p256.pub`);
    for (const text of [pem.replaceAll("\n", "\r\n"), `My key:\n${pem}\n`, pem.trimEnd()]) {
      Deno.writeTextFileSync(`${directory}/key`, text);
      assertEquals(await hintOf(await readPublicKey(`${directory}/key`)), await sha256(`${KEYS}p256.pub`));
    }
  }));

Deno.test("other keys are refused by what they are", async () => {
  const private_: [string, string][] = [
    ["p256.pub", "is a public key; to sign, give the private one"],
    ["p384.pem", "is a key of type "],
    ["secp256k1.pem", "expected a P-256 key"],
    ["rsa.pem", "is a key of type rsa, expected a P-256 key"],
    ["rsa-pkcs1.pem", "is a PEM file of type RSA PRIVATE KEY, expected a P-256 key"],
    ["ed25519.pem", "is a key of type ed25519, expected a P-256 key"],
    ["encrypted.pem", "is encrypted; decrypt it first: openssl pkey"],
    ["encrypted-sec1.pem", "is encrypted; decrypt it first: openssl pkey"],
    ["certificate.pem", "is a PEM file of type CERTIFICATE"],
    ["make.sh", "is not a key in PEM"],
  ];
  for (const [name, problem] of private_) {
    await assertRejects(
      () => readPrivateKey(KEYS + name),
      RabbitError,
      `${name} ${problem}`.replace(/^.* expected/, "expected"),
    );
  }
  const public_: [string, string][] = [
    ["p256.pem", "is a private key, which verification does not need"],
    ["sec1.pem", "is a private key, which verification does not need"],
    ["p384.pub", "is a key of type "],
    ["rsa.pub", "is a key of type rsa, expected a P-256 key"],
    ["certificate.pem", "is a PEM file of type CERTIFICATE"],
    ["make.sh", "is not a key in PEM"],
  ];
  for (const [name, problem] of public_) {
    await assertRejects(() => readPublicKey(KEYS + name), RabbitError, `${name} ${problem}`);
  }
});

Deno.test("a damaged key, two keys and a missing one are refused", () =>
  inTemporary(async (directory) => {
    const pem = Deno.readTextFileSync(`${KEYS}p256.pub`);
    const path = `${directory}/key`;
    const refuse = async (text: string, problem: string) => {
      Deno.writeTextFileSync(path, text);
      await assertRejects(() => readPublicKey(path), RabbitError, problem);
    };
    await refuse(pem.replace(/^M/m, "N"), "is damaged, or a key of an unknown type");
    await refuse(pem + pem, "has 2 blocks of PEM, expected one key");
    await refuse("", "is not a key in PEM");
    await assertRejects(() => readPublicKey(`${directory}/none`), RabbitError, "no such file");
  }));
