/**
 * The keys of signatures: P-256 (NIST's curve, also called prime256v1 and secp256r1) in PEM files.
 *
 * @module
 */

import type { KeyObject } from "node:crypto";
import { RabbitError } from "../errors.ts";
import { readText } from "../files/read.ts";
import { sha256 } from "../files/write.ts";

/** A longer file is not a key. */
const MAX_BYTES = 100_000;

/** The names of the curve: OpenSSL's, and that of older versions of Deno. */
const CURVES = ["prime256v1", "p256"];

const ENCRYPTED = "is encrypted; decrypt it first: openssl pkey -in KEY -out DECRYPTED";

/**
 * Reads a private key: PKCS#8 (BEGIN PRIVATE KEY) or SEC1 (BEGIN EC PRIVATE KEY).
 *
 * @param name the path of the file
 * @throws {RabbitError} it is another key, encrypted, or none
 * @throws {SystemError} it cannot be read
 */
export async function readPrivateKey(name: string): Promise<KeyObject> {
  const block = blockOf(name, readText(name, MAX_BYTES));
  if (block.label === "PUBLIC KEY") throw new RabbitError(`${name} is a public key; to sign, give the private one`);
  const { createPrivateKey } = await import("node:crypto");
  return keyOf(name, block, ["PRIVATE KEY", "EC PRIVATE KEY"], createPrivateKey);
}

/**
 * Reads a public key (BEGIN PUBLIC KEY).
 *
 * @param name the path of the file
 * @throws {RabbitError} it is another key, or none
 * @throws {SystemError} it cannot be read
 */
export async function readPublicKey(name: string): Promise<KeyObject> {
  const block = blockOf(name, readText(name, MAX_BYTES));
  if (block.label.endsWith("PRIVATE KEY")) {
    throw new RabbitError(
      `${name} is a private key, which verification does not need; openssl pkey -in KEY -pubout writes the public one`,
    );
  }
  const { createPublicKey } = await import("node:crypto");
  return keyOf(name, block, ["PUBLIC KEY"], createPublicKey);
}

/** The public key of a private one. */
export async function publicKeyOf(key: KeyObject): Promise<KeyObject> {
  const { createPublicKey } = await import("node:crypto");
  // The types of Node lack this use, which all its versions have.
  return createPublicKey(key.export({ type: "pkcs8", format: "pem" }));
}

/** The hint that a bundle gives to its key: SHA-256 of the public key as PEM, in hexadecimal. */
export async function hintOf(publicKey: KeyObject): Promise<string> {
  return (await sha256()).update(publicKey.export({ type: "spki", format: "pem" })).digest("hex");
}

interface Block {
  readonly label: string;
  readonly text: string;
}

/** The key of a PEM file; parameters of the curve may come before it. */
function blockOf(name: string, pem: string): Block {
  const blocks = [...pem.matchAll(/^-----BEGIN ([A-Z0-9 ]+)-----\r?\n[^]*?^-----END \1-----\r?$/gm)]
    .map(([text, label]) => ({ label, text: `${text.replaceAll("\r", "")}\n` }))
    .filter(({ label }) => label !== "EC PARAMETERS");
  if (blocks.length === 1) return blocks[0];
  throw new RabbitError(
    blocks.length === 0
      ? `${name} is not a key in PEM, which begins with -----BEGIN`
      : `${name} has ${blocks.length} blocks of PEM, expected one key`,
  );
}

function keyOf(
  name: string,
  { label, text }: Block,
  labels: readonly string[],
  create: (pem: string) => KeyObject,
): KeyObject {
  if (label === "ENCRYPTED PRIVATE KEY" || /^Proc-Type:.*ENCRYPTED/m.test(text)) {
    throw new RabbitError(`${name} ${ENCRYPTED}`);
  }
  const wanted = "expected a P-256 key";
  // An RSA key of the older kind, a certificate, and so on.
  if (!labels.includes(label)) throw new RabbitError(`${name} is a PEM file of type ${label}, ${wanted}`);
  let key: KeyObject;
  try {
    key = create(text);
  } catch {
    throw new RabbitError(`${name} is damaged, or a key of an unknown type; ${wanted}`);
  }
  const { asymmetricKeyType: type, asymmetricKeyDetails: details } = key;
  if (type === "ec" && CURVES.includes(details?.namedCurve ?? "")) return key;
  throw new RabbitError(`${name} is a key of type ${details?.namedCurve ?? type}, ${wanted}`);
}
