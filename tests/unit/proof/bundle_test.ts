import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { bundleFromJSON, isBundleWithPublicKey } from "@sigstore/bundle";
import { dsse } from "@sigstore/core";
import { CheckpointError, RabbitError } from "../../../lib/errors.ts";
import { JsonFields } from "../../../lib/format/json_fields.ts";
import { checkSignature, parseBundle, signBundle, signedBytes } from "../../../lib/proof/bundle.ts";
import { readPrivateKey, readPublicKey } from "../../../lib/proof/keys.ts";
import { utf8 } from "../../support/bytes.ts";
import { json, ROOT } from "../../support/fixtures.ts";

const KEYS = `${ROOT}fixtures/proof/`;
const PAYLOAD = utf8('{"_type":"https://in-toto.io/Statement/v1","subject":[],"predicateType":"x"}');

async function signed(): Promise<Record<string, unknown>> {
  return JSON.parse(new TextDecoder().decode(await signBundle(PAYLOAD, await readPrivateKey(`${KEYS}p256.pem`))));
}

const key = async (name: string) => ({ name, key: await readPublicKey(KEYS + name) });

Deno.test("signedBytes is DSSE's encoding: the lengths are of bytes", () => {
  const text = new TextDecoder().decode(signedBytes(utf8("hé")));
  assertEquals(text, "DSSEv1 28 application/vnd.in-toto+json 3 hé");
});

Deno.test("sigstore-js reads a bundle, and has the same bytes to sign", async () => {
  const bundle = bundleFromJSON(await signed());
  const { content } = bundle;
  assert(isBundleWithPublicKey(bundle));
  if (content.$case !== "dsseEnvelope") throw new Error(content.$case);
  const { payload, payloadType, signatures } = content.dsseEnvelope;
  assertEquals(new Uint8Array(payload), PAYLOAD);
  assertEquals(signatures.length, 1);
  assertEquals(new Uint8Array(dsse.preAuthEncoding(payloadType, payload)), signedBytes(PAYLOAD));
});

Deno.test("Web Crypto verifies a signature after DER is converted to r and s", async () => {
  const pem = Deno.readTextFileSync(`${KEYS}p256.pub`).replace(/-----.*-----|\s/g, "");
  const spki = Uint8Array.from(atob(pem), (c) => c.charCodeAt(0));
  const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };
  const publicKey = await crypto.subtle.importKey("spki", spki, algorithm, false, ["verify"]);
  // Enough for r and s with and without a leading zero, and shorter than 32 bytes.
  const privateKey = await readPrivateKey(`${KEYS}p256.pem`);
  for (let n = 0; n < 300; n++) {
    const payload = utf8(`payload ${n}`);
    const bytes = await signBundle(payload, privateKey);
    const { signature } = parseBundle(new JsonFields("x", JSON.parse(new TextDecoder().decode(bytes))));
    assert(await crypto.subtle.verify(algorithm, publicKey, raw(signature), signedBytes(payload)), String(n));
  }
});

/** r and s of 32 bytes each. */
function raw(der: Uint8Array): Uint8Array<ArrayBuffer> {
  assertEquals([der[0], der[1]], [0x30, der.length - 2]);
  const out = new Uint8Array(64);
  let at = 2;
  for (const end of [32, 64]) {
    assertEquals(der[at], 2);
    const number = der.subarray(at + 2, at + 2 + der[at + 1]);
    const digits = number[0] === 0 ? number.subarray(1) : number;
    out.set(digits, end - digits.length);
    at += 2 + der[at + 1];
  }
  assertEquals(at, der.length);
  return out;
}

Deno.test("the signature of model_signing is verified, and that of another key is not", async () => {
  const fields = new JsonFields("tiny.sig", json(`${KEYS}tiny.sig`));
  const bundle = parseBundle(fields);
  assertEquals(await checkSignature(fields, bundle, await key("p256.pub")), bundle.hint);
  await assertRejects(
    async () => checkSignature(fields, bundle, await key("other.pub")),
    CheckpointError,
    "is another key's",
  );
  const other = { ...bundle, hint: await signedHint("other.pub") };
  await assertRejects(
    async () => checkSignature(fields, other, await key("other.pub")),
    CheckpointError,
    "is not that of other.pub",
  );
});

async function signedHint(name: string): Promise<string> {
  const bytes = new Uint8Array(await crypto.subtle.digest("SHA-256", Deno.readFileSync(KEYS + name)));
  return bytes.toHex();
}

// deno-lint-ignore no-explicit-any
type Change = (bundle: any) => void;

Deno.test("bundles of other kinds are refused by the field", async () => {
  const bundle = await signed();
  const parse = (change: Change) => {
    const changed = structuredClone(bundle);
    change(changed);
    return () => parseBundle(new JsonFields("x.sig", changed));
  };
  const cases: [Change, string][] = [
    [(b) => b.mediaType = "application/vnd.dev.sigstore.bundle+json;version=0.2", "mediaType: expected"],
    [(b) => b.extra = 1, '"extra": unknown field'],
    [(b) => b.verificationMaterial.tlogEntries = [{}], "tlogEntries: is not empty"],
    [(b) => b.verificationMaterial.certificate = {}, "is signed with a certificate"],
    [(b) => delete b.verificationMaterial.publicKey, "publicKey: expected an object"],
    [(b) => b.verificationMaterial.publicKey.hint = "", "publicKey hint: expected 64 hexadecimal digits"],
    [(b) => b.dsseEnvelope.payloadType = "text/plain", "payloadType: expected application/vnd.in-toto+json"],
    [(b) => b.dsseEnvelope.signatures = [], "signatures: expected 1, found 0"],
    [(b) => b.dsseEnvelope.signatures.push(b.dsseEnvelope.signatures[0]), "signatures: expected 1, found 2"],
    [(b) => b.dsseEnvelope.signatures[0].keyid = "x", 'keyid: expected ""'],
    [(b) => b.dsseEnvelope.payload += "\n", "payload: not valid base64"],
    [(b) => b.dsseEnvelope.payload = b.dsseEnvelope.payload.replace("=", ""), "payload: not valid base64"],
    [(b) => b.dsseEnvelope.signatures[0].sig = "AB==", "sig: not valid base64"],
    [(b) => b.dsseEnvelope.signatures[0].sig = "-_8=", "sig: not valid base64"],
  ];
  for (const [change, problem] of cases) assertThrows(parse(change), RabbitError, problem);
});
