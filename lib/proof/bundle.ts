/**
 * Sigstore bundles with a DSSE envelope that is signed by a key, as the OpenSSF model-signing specification has them.
 *
 * @module
 */

import type { KeyObject } from "node:crypto";
import { RabbitError } from "../errors.ts";
import type { JsonFields } from "../format/json_fields.ts";
import { canonical } from "./canonical.ts";
import { hintOf, publicKeyOf } from "./keys.ts";

const MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json";
const PAYLOAD_TYPE = "application/vnd.in-toto+json";

/** What a bundle holds. */
export interface Bundle {
  /** The signed bytes: a statement. */
  readonly payload: Uint8Array<ArrayBuffer>;
  /** The ECDSA signature in DER. */
  readonly signature: Uint8Array<ArrayBuffer>;
  /** The hint to the key: see {@link hintOf}. */
  readonly hint: string;
}

/** The bytes that are signed: DSSE's pre-authentication encoding. */
export function signedBytes(payload: Uint8Array): Uint8Array<ArrayBuffer> {
  const start = new TextEncoder().encode(`DSSEv1 ${PAYLOAD_TYPE.length} ${PAYLOAD_TYPE} ${payload.length} `);
  const bytes = new Uint8Array(start.length + payload.length);
  bytes.set(start);
  bytes.set(payload, start.length);
  return bytes;
}

/** Signs a statement. @returns the bundle's bytes */
export async function signBundle(payload: Uint8Array, key: KeyObject): Promise<Uint8Array<ArrayBuffer>> {
  const { sign } = await import("node:crypto");
  const hint = await hintOf(await publicKeyOf(key));
  // An ECDSA signature of node:crypto is in DER, as DSSE wants it; that of Web Crypto is not.
  const sig = sign("sha256", signedBytes(payload), key);
  const bundle = {
    mediaType: MEDIA_TYPE,
    verificationMaterial: { publicKey: { hint }, tlogEntries: [] },
    dsseEnvelope: {
      payload: toBase64(payload),
      payloadType: PAYLOAD_TYPE,
      signatures: [{ sig: toBase64(sig), keyid: "" }],
    },
  };
  return new TextEncoder().encode(canonical(bundle) + "\n");
}

/**
 * Reads a bundle.
 *
 * @throws {CheckpointError} it is not such a bundle
 * @throws {RabbitError} it is signed in another way than by a key
 */
export function parseBundle(fields: JsonFields): Bundle {
  fields.only(["mediaType", "verificationMaterial", "dsseEnvelope"]).word("mediaType", [MEDIA_TYPE]);
  const material = fields.object("verificationMaterial");
  const other = ["certificate", "x509CertificateChain"].find((name) => material.has(name));
  if (other !== undefined) {
    throw new RabbitError(`${fields.path} is signed with a certificate; only signatures of a key can be checked`);
  }
  material.only(["publicKey", "tlogEntries"]);
  if (material.has("tlogEntries") && material.list("tlogEntries").length > 0) {
    throw material.fail("tlogEntries", "is not empty; entries of a log cannot be checked");
  }
  const key = material.object("publicKey").only(["hint"]);
  const envelope = fields.object("dsseEnvelope").only(["payload", "payloadType", "signatures"]);
  envelope.word("payloadType", [PAYLOAD_TYPE]);
  const signatures = envelope.list("signatures");
  if (signatures.length !== 1) throw envelope.fail("signatures", `expected 1, found ${signatures.length}`);
  const [signature] = signatures;
  signature.only(["sig", "keyid"]);
  if (signature.has("keyid")) signature.word("keyid", [""]);
  return {
    payload: fromBase64(envelope, "payload"),
    signature: fromBase64(signature, "sig"),
    hint: key.digest("hint"),
  };
}

/**
 * Checks the signature of a bundle.
 *
 * @param publicKey the key, and the name of its file
 * @returns the hint to the key
 * @throws {CheckpointError} the bundle is signed by another key, or not what was signed
 */
export async function checkSignature(
  fields: JsonFields,
  { payload, signature, hint }: Bundle,
  publicKey: { readonly name: string; readonly key: KeyObject },
): Promise<string> {
  const { verify } = await import("node:crypto");
  const { name, key } = publicKey;
  const own = await hintOf(key);
  if (hint !== own) {
    throw fields.fail(
      "verificationMaterial publicKey hint",
      `is ${hint}, that of ${name} is ${own}; the signature is another key's`,
    );
  }
  if (!verify("sha256", signedBytes(payload), key, signature)) {
    throw fields.fail("dsseEnvelope", `the signature is not that of ${name} for this content`);
  }
  return own;
}

/** Bytes that are converted at once. */
const PIECE = 1 << 14;

function toBase64(bytes: Uint8Array): string {
  let binary = "";
  for (let at = 0; at < bytes.length; at += PIECE) {
    binary += String.fromCharCode(...bytes.subarray(at, at + PIECE));
  }
  return btoa(binary);
}

/** Decodes a field, of which only one text stands for the bytes: padded, and without white space. */
function fromBase64(fields: JsonFields, field: string): Uint8Array<ArrayBuffer> {
  const text = fields.text(field);
  let binary: string | undefined;
  try {
    binary = atob(text);
  } catch {
    // The message is the same as for other texts.
  }
  if (binary === undefined || btoa(binary) !== text) throw fields.fail(field, "not valid base64");
  return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}
