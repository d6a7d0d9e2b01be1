import { assert, assertEquals } from "@std/assert";
import { CheckpointError, RabbitError } from "../../../lib/errors.ts";
import { attest } from "../../../lib/proof/attest.ts";
import { canonical, parseStrict } from "../../../lib/proof/canonical.ts";
import { verifyAttestation } from "../../../lib/proof/verify.ts";
import { type AttestedModel, attestedModel, KEYS } from "../../support/attested.ts";
import { utf8 } from "../../support/bytes.ts";
import { damaged, rounds, Tally } from "../../support/fuzz.ts";
import { inTemporary } from "../../support/files.ts";
import { json } from "../../support/fixtures.ts";
import { Random } from "../../support/random.ts";
import { checkRefusal } from "../../support/refusals.ts";

/** A value within a statement: the object or array that holds it, and its key. */
interface Leaf {
  readonly path: string;
  // deno-lint-ignore no-explicit-any
  readonly holder: any;
  readonly key: string | number;
}

// deno-lint-ignore no-explicit-any
function leaves(value: any, path = ""): Leaf[] {
  return Object.entries(value).flatMap(([key, member]): Leaf[] => {
    const at = `${path} ${key}`.trim();
    const own = { path: at, holder: value, key };
    return typeof member === "object" && member !== null ? [own, ...leaves(member, at)] : [own];
  });
}

/** Free text: only a signature protects it. */
const FREE = /^(subject 0 name|predicate rabbit (time|program (name|version|revision)|texts \d+ name))$/;

/** What another value of the same type is. */
function other(value: unknown, random: Random): unknown {
  if (typeof value === "boolean") return !value;
  if (typeof value === "number") return random.pick([value + 1, value - 1, value * 2 + 1, -value - 1, value + 0.5]);
  if (typeof value === "string") {
    const at = random.below(value.length);
    const digit = value[at] === "0" ? "1" : "0";
    return random.pick([
      value.slice(0, at) + digit + value.slice(at + 1),
      value + "0",
      value.slice(1),
      value.toUpperCase() + "X",
    ]);
  }
  if (Array.isArray(value)) {
    return value.length === 0
      ? [0]
      : random.pick([value.slice(1), value.slice(0, -1), [...value, value[0]], [...value, value.at(-1)], [], {}]);
  }
  const members = Object.entries(value as object);
  return random.pick([
    Object.fromEntries(members.slice(1)),
    { ...value as object, extra: 1 },
    { ...value as object, Sha256: "0" },
    [],
    null,
  ]);
}

/** Changes one value of a statement, and repairs the digest of the subject if the files are changed alone. */
function changed(statement: unknown, random: Random): string | undefined {
  const copy = structuredClone(statement);
  const all = leaves(copy).filter(({ path }) => !FREE.test(path));
  const { path, holder, key } = random.pick(all);
  const value = random.below(6) === 0
    ? random.pick([null, 0, "", [], {}, true, "0".repeat(64)])
    : other(holder[key], random);
  if (canonical(value as never) === canonical(holder[key])) return undefined;
  if (random.below(8) > 0) holder[key] = value;
  else if (Array.isArray(holder)) holder.splice(Number(key), 1);
  else delete holder[key];
  // A text is not measured if the statement does not have it: that is no statement on another text.
  if (/ (texts|answers)$/.test(path) && !holder[key]?.length) return undefined;
  return canonical(copy as never);
}

/** A text with one key twice. */
function doubled(text: string, random: Random): string {
  const keys = [...text.matchAll(/(?<=[{,])"[^"]*":(?:"[^"]*"|\d+|true|false)/g)];
  const { 0: member, index } = random.pick(keys);
  return `${text.slice(0, index)}${member},${text.slice(index)}`;
}

Deno.test({
  name: "changed statements and bundles are refused with the reason",
  sanitizeOps: false,
  sanitizeResources: false,
  fn: () =>
    inTemporary(async (directory) => {
      const model = await attestedModel(directory);
      const { float, quant, text, path } = model;
      const statement = json(path);
      const plain = Deno.readTextFileSync(path);
      const { bytes } = await attest(quant, float, { texts: [text], key: `${KEYS}p256.pem`, threads: 1 });
      const signed = new TextDecoder().decode(bytes);
      const random = new Random(18);
      const tally = new Tally("statements and bundles, changed");
      const kinds: (() => [text: string | Uint8Array<ArrayBuffer> | undefined, signed: boolean])[] = [
        () => [changed(statement, random), false],
        () => [changed(statement, random), false],
        () => [doubled(plain, random), false],
        () => [damaged(utf8(signed), random), true],
        () => [doubled(signed, random), true],
        () => [bundled(signed, random), true],
      ];
      for (let tried = 0; tried < rounds(1000);) {
        const [input, key] = random.pick(kinds)();
        if (input === undefined || equal(input, signed)) continue;
        tried++;
        const start = performance.now();
        const content = typeof input === "string" ? utf8(input) : input;
        Deno.writeFileSync(path, content);
        const problem = await refusal(model, path, key, content);
        assert(problem !== undefined, `accepted: ${new TextDecoder().decode(content)}`);
        tally.add(false, start);
      }
      tally.print();
      assertEquals(tally.accepted, 0);
      Deno.writeTextFileSync(path, plain);
      assertEquals(await refusal(model, path, false, utf8(plain)), undefined);
      Deno.writeTextFileSync(path, signed);
      assertEquals(await refusal(model, path, true, utf8(signed)), undefined);
    }),
});

/** A bundle with one value changed, or white space in base64. */
function bundled(signed: string, random: Random): string | undefined {
  const bundle = JSON.parse(signed);
  const { dsseEnvelope } = bundle;
  switch (random.below(4)) {
    case 0: {
      const text = atob(dsseEnvelope.payload);
      const at = random.below(text.length);
      dsseEnvelope.payload = btoa(text.slice(0, at) + String.fromCharCode(random.below(128)) + text.slice(at + 1));
      break;
    }
    case 1: {
      const at = random.below(dsseEnvelope.payload.length);
      dsseEnvelope.payload = `${dsseEnvelope.payload.slice(0, at)}\n${dsseEnvelope.payload.slice(at)}`;
      break;
    }
    case 2: {
      // Other numbers, and other forms of the same ones.
      const der = Uint8Array.from(atob(dsseEnvelope.signatures[0].sig), (c) => c.charCodeAt(0));
      const bytes = random.pick([der.subarray(1), Uint8Array.of(...der, 0), damaged(der, random)]);
      dsseEnvelope.signatures[0].sig = btoa(String.fromCharCode(...bytes));
      break;
    }
    default: {
      const { holder, key } = random.pick(leaves(bundle));
      holder[key] = other(holder[key], random);
    }
  }
  return JSON.stringify(bundle);
}

/** Whether a bundle says the same, in other white space or without what may be left out. */
function equal(input: string | Uint8Array, signed: string): boolean {
  try {
    return meaning(typeof input === "string" ? input : new TextDecoder().decode(input)) === meaning(signed);
  } catch {
    return false;
  }
}

function meaning(text: string): string {
  const bundle = parseStrict("x", text) as never as Record<string, Record<string, object[]>>;
  bundle.verificationMaterial.tlogEntries ??= [];
  bundle.dsseEnvelope.signatures = bundle.dsseEnvelope.signatures.map((signature) => ({ keyid: "", ...signature }));
  return canonical(bundle as never);
}

/** Why a statement is refused; undefined if it is not. */
async function refusal(
  { float, quant, text }: AttestedModel,
  path: string,
  signed: boolean,
  content: Uint8Array,
): Promise<string | undefined> {
  // Nothing is measured for a statement that fails before that.
  const against = { against: float, texts: [text], threads: 1 };
  const publicKey = `${KEYS}p256.pub`;
  try {
    await verifyAttestation(quant, path, { ...against, ...signed && { publicKey } });
    return undefined;
  } catch (error) {
    if (!(error instanceof RabbitError)) throw new Error(new TextDecoder().decode(content), { cause: error });
    if (error instanceof CheckpointError) assertEquals(error.place.path, path);
    checkRefusal(error, RabbitError);
    return error.message;
  }
}
