/**
 * The statement: an in-toto statement of the predicate that OpenSSF's model-signing specification defines, which lists
 * every file of a checkpoint with its digest. What rabbit has derived and measured is one more member of the predicate,
 * `rabbit`, since verifiers of that specification ignore members that it does not define.
 *
 * @module
 */

import { CheckpointError, quote } from "../errors.ts";
import { sha256 } from "../files/write.ts";
import { byCodePoints, COMPANIONS, INDEX_FILE, QUANTIZATION_FILE } from "../format/checkpoint.ts";
import { isObject, JsonFields } from "../format/json_fields.ts";
import { canonical, type Json, type JsonObject, parseStrict } from "./canonical.ts";

const STATEMENT_TYPE = "https://in-toto.io/Statement/v1";
const PREDICATE_TYPE = "https://model_signing/signature/v1.0";

/** The version of the member `rabbit`. */
const VERSION = 1;

/** Files of git, which are no part of a model. */
export const GIT_FILES: readonly string[] = [".git", ".gitattributes", ".github", ".gitignore"];

/** What a statement leaves out: also the record that Hugging Face's tools keep of a download. */
export const LEFT_OUT: readonly string[] = [".cache/huggingface", ...GIT_FILES];

/** A file or a text and its SHA-256. */
export interface NamedDigest {
  /** A path relative to the directory, with slashes; the name alone of what is not in the checkpoint. */
  readonly name: string;
  /** SHA-256 in hexadecimal. */
  readonly sha256: string;
}

/** The program that made a statement. */
export interface Program {
  /** Its name. */
  readonly name: string;
  /** Its version. */
  readonly version: string;
  /** The revision of its sources, if it is known. */
  readonly revision?: string;
}

/** A tensor and the SHA-256 of its bytes. */
export interface AttestedTensor extends NamedDigest {
  /** Its format. */
  readonly dtype: string;
  /** Its shape. */
  readonly shape: readonly number[];
  /** Whether its bytes were derived from the source, and are the same. */
  readonly derived: boolean;
}

/** The figures of a text as `compare` prints them: digits, or a word for what has none. */
export type PrintedFigures = Readonly<Record<string, Readonly<Record<string, string>>>>;

/** What was measured on a text. */
export interface MeasuredText extends NamedDigest {
  /** Number of tokens. */
  readonly tokens: number;
  /** Tokens of a window. */
  readonly window: number;
  /** Tokens from one window to the next. */
  readonly stride: number;
  /** Number of tokens that were predicted. */
  readonly scored: number;
  /** The figures by the words of their lines. */
  readonly figures: PrintedFigures;
}

/** How many answers to the built-in prompts are kept. */
export interface MeasuredAnswers {
  /** SHA-256 of the token ids of the prompts, as little-endian 32-bit numbers. */
  readonly ids: string;
  /** Number of prompts. */
  readonly prompts: number;
  /** Tokens of an answer. */
  readonly steps: number;
  /** Number of prompts whose answer the quantized model keeps. */
  readonly kept: number;
}

/** How the blocks were chosen: a rule of the format, or a method with its parameters. */
export interface StatedMethod {
  /** `absmax` for the format's rule, or a method of quantization.json. */
  readonly name: string;
  /** The version of a method. */
  readonly version?: number;
  /** The parameters of a calibration: those of quantization.json. */
  readonly calibration?: {
    readonly texts: readonly NamedDigest[];
    readonly tokens: number;
    readonly window: number;
    readonly seed: number;
    readonly damping: number;
    readonly ids: string;
  };
}

/** What rabbit has derived and measured. */
export interface Derivation {
  /** The program. */
  readonly program: Program;
  /** When it was made (RFC 3339). */
  readonly time: string;
  /** The declaration of the width. */
  readonly format: string;
  /** SHA-256 of the checkpoint as one file. */
  readonly digest: string;
  /** How the blocks were chosen. */
  readonly method: StatedMethod;
  /** The files of the source. */
  readonly source: readonly NamedDigest[];
  /** All tensors. */
  readonly tensors: readonly AttestedTensor[];
  /** The files that were derived from the source, and are the same. */
  readonly derived: readonly string[];
  /** The other files. */
  readonly notDerived: readonly string[];
  /** The relative RMS error over all quantized tensors, in digits. */
  readonly rms: string;
  /** The answers, where texts were measured. */
  readonly answers?: MeasuredAnswers;
  /** The texts that were measured. */
  readonly texts: readonly MeasuredText[];
}

/** A statement on a directory. */
export interface Statement {
  /** The name of the model, which means nothing. */
  readonly name: string;
  /** Every file. */
  readonly files: readonly NamedDigest[];
  /** Files and directories that are no part of it, relative to the directory. */
  readonly ignored: readonly string[];
  /** Whether links to files are read as files. */
  readonly links: boolean;
  /** What rabbit says of them; undefined if another program made the statement. */
  readonly derivation?: Derivation;
}

/** SHA-256 over the digests of all files, in their order: the digest of the subject. */
async function rootOf(files: readonly NamedDigest[]): Promise<string> {
  const hash = await sha256();
  for (const file of files) hash.update(file.sha256, "hex");
  return hash.digest("hex");
}

/** The order of files in statements: that of Python's paths, which are compared part by part. */
export function byParts(a: string, b: string): number {
  const [x, y] = [a, b].map((path) => path.split("/"));
  for (let n = 0; n < x.length && n < y.length; n++) if (x[n] !== y[n]) return byCodePoints(x[n], y[n]);
  return x.length - y.length;
}

/** The canonical bytes of a statement. */
export async function serializeStatement(statement: Statement): Promise<Uint8Array<ArrayBuffer>> {
  const { name, files, ignored, links, derivation } = statement;
  const predicate = {
    serialization: {
      method: "files",
      hash_type: "sha256",
      allow_symlinks: links,
      ignore_paths: ignored,
    },
    resources: files.map(({ name, sha256 }) => ({ name, algorithm: "sha256", digest: sha256 })),
    rabbit: derivation && memberOf(derivation),
  };
  const json = {
    _type: STATEMENT_TYPE,
    predicateType: PREDICATE_TYPE,
    subject: [{ name, digest: { sha256: await rootOf(files) } }],
    predicate,
  };
  return new TextEncoder().encode(canonical(json));
}

function memberOf({ source, program, method, answers, texts, tensors, ...rest }: Derivation): JsonObject {
  const described = ({ name, sha256 }: NamedDigest) => ({ name, digest: { sha256 } });
  const { calibration } = method;
  return {
    version: VERSION,
    ...rest,
    program: { ...program },
    method: { ...method, calibration: calibration && { ...calibration, texts: calibration.texts.map(described) } },
    resolvedDependencies: source.map(described),
    tensors: tensors.map(({ name, sha256, dtype, shape, derived }) => {
      return { ...described({ name, sha256 }), dtype, shape, derived };
    }),
    answers: answers && { ...answers },
    texts: texts.map(({ name, sha256, ...measured }) => ({ ...described({ name, sha256 }), ...measured })),
  };
}

/**
 * Reads a statement.
 *
 * @param path of the file it comes from, for messages
 * @throws {CheckpointError} it is not a statement; names the field
 */
export async function parseStatement(path: string, text: string): Promise<Statement> {
  const json = parseStrict(path, text);
  if (!isObject(json)) throw new CheckpointError({ path }, "expected a statement, which is an object of JSON");
  const fields = new JsonFields(path, json);
  fields.word("_type", [STATEMENT_TYPE]);
  fields.word("predicateType", [PREDICATE_TYPE]);
  const predicate = fields.object("predicate");
  const own = predicate.has("rabbit");
  if (own) {
    fields.only(["_type", "predicateType", "subject", "predicate"]);
    predicate.only(["serialization", "resources", "rabbit"]);
    if (canonical(json as Json) !== text) {
      throw new CheckpointError({ path }, "is not canonical JSON (RFC 8785), as rabbit writes it");
    }
  }
  const subjects = fields.list("subject");
  if (subjects.length !== 1) throw fields.fail("subject", `expected 1, found ${subjects.length}`);
  const [subject] = subjects;
  const files = unique(predicate, "resources", "file", (resource) => {
    resource.only(["name", "algorithm", "digest"]).word("algorithm", ["sha256"]);
    return { name: relative(resource, "name", resource.text("name")), sha256: resource.digest("digest") };
  });
  const stated = subject.only(["name", "digest"]).object("digest").only(["sha256"]).digest("sha256");
  const root = await rootOf(files);
  if (stated !== root) {
    throw subject.fail("digest sha256", `is ${stated}, but the resources have the digest ${root}`);
  }
  const statement = { name: subject.text("name"), files, ...serializationOf(predicate) };
  if (own) checkUsual(predicate.object("serialization"), statement);
  return own ? { ...statement, derivation: derivationOf(predicate.object("rabbit"), statement) } : statement;
}

function serializationOf(predicate: JsonFields): Pick<Statement, "ignored" | "links"> {
  const fields = predicate.object("serialization");
  fields.only(["method", "hash_type", "allow_symlinks", "ignore_paths"]);
  fields.word("method", ["files"]);
  fields.word("hash_type", ["sha256"]);
  const ignored = fields.has("ignore_paths") ? fields.texts("ignore_paths") : [];
  if (new Set(ignored).size < ignored.length) throw fields.fail("ignore_paths", "has a path twice");
  for (const name of ignored) {
    const [first] = relative(fields, "ignore_paths", name).split("/");
    if (/\.safetensors$/.test(first) || [...COMPANIONS, INDEX_FILE, QUANTIZATION_FILE].includes(first)) {
      throw fields.fail("ignore_paths", `has ${quote(name)}, which belongs to a checkpoint`);
    }
  }
  return { ignored, links: fields.flag("allow_symlinks") };
}

/** Checks that a statement of rabbit leaves out nothing but {@link LEFT_OUT} and itself. */
function checkUsual(fields: JsonFields, { ignored, links }: Pick<Statement, "ignored" | "links">): void {
  if (links) throw fields.fail("allow_symlinks", "expected false");
  if (ignored.length > LEFT_OUT.length + 1 || LEFT_OUT.some((name, n) => name !== ignored[n])) {
    throw fields.fail("ignore_paths", `expected ${LEFT_OUT.join(", ")}, and at most the statement itself`);
  }
}

/** Refuses a path out of the directory, or of the directory itself. */
function relative(fields: JsonFields, field: string, path: string): string {
  const parts = path.split("/");
  if (parts.every((part) => !["", ".", ".."].includes(part)) && !path.includes("\0")) return path;
  throw fields.fail(field, `expected a path within the directory, found ${quote(path)}`);
}

/** Reads a list of what has a name, and refuses one that is there twice. */
function unique<T extends { readonly name: string }>(
  fields: JsonFields,
  field: string,
  what: string,
  read: (entry: JsonFields) => T,
): T[] {
  const names = new Set<string>();
  return fields.list(field).map((entry) => {
    const value = read(entry);
    if (names.has(value.name)) throw entry.fail("name", `duplicate ${what} ${quote(value.name)}`);
    names.add(value.name);
    return value;
  });
}

function described(entry: JsonFields, others: readonly string[] = []): NamedDigest {
  entry.only(["name", "digest", ...others]);
  return { name: entry.text("name"), sha256: entry.object("digest").only(["sha256"]).digest("sha256") };
}

const MEMBERS = ["version", "program", "time", "format", "digest", "method", "resolvedDependencies", "tensors"];
const MORE = ["derived", "notDerived", "rms", "answers", "texts"];

/** The digits of a figure, or the words for what has none. */
const FIGURE = /^(-?\d+\.\d+|overflow|undefined)$/;

function derivationOf(fields: JsonFields, { files }: Pick<Statement, "files">): Derivation {
  const version = fields.whole("version");
  if (version !== VERSION) throw fields.fail("version", `is ${version}, this program knows ${VERSION}`);
  fields.only([...MEMBERS, ...MORE]);
  const program = fields.object("program").only(["name", "version", "revision"]);
  const time = fields.text("time");
  if (!isTime(time)) throw fields.fail("time", "expected a time of RFC 3339, such as 2026-01-31T12:00:00Z");
  const [derived, notDerived] = ["derived", "notDerived"].map((field) => fields.texts(field));
  const both = [...derived, ...notDerived].sort(byParts);
  if (canonical(both) !== canonical(files.map(({ name }) => name).sort(byParts))) {
    throw fields.fail("derived", "does not have, with notDerived, every file once");
  }
  const rms = fields.text("rms");
  if (!FIGURE.test(rms)) throw fields.fail("rms", "expected digits");
  return {
    program: {
      name: program.text("name"),
      version: program.text("version"),
      ...program.has("revision") && { revision: program.text("revision") },
    },
    time,
    format: fields.text("format"),
    digest: fields.digest("digest"),
    method: methodOf(fields.object("method")),
    source: unique(fields, "resolvedDependencies", "file", described),
    tensors: unique(fields, "tensors", "tensor", (tensor) => ({
      ...described(tensor, ["dtype", "shape", "derived"]),
      dtype: tensor.text("dtype"),
      shape: tensor.wholes("shape"),
      derived: tensor.flag("derived"),
    })),
    derived,
    notDerived,
    rms,
    ...fields.has("answers") && { answers: answersOf(fields.object("answers")) },
    texts: unique(fields, "texts", "text", textOf),
  };
}

function methodOf(fields: JsonFields): StatedMethod {
  const name = fields.only(["name", "version", "calibration"]).text("name");
  const version = fields.has("version") ? { version: fields.whole("version") } : {};
  if (!fields.has("calibration")) return { name, ...version };
  const calibration = fields.object("calibration").only(["texts", "tokens", "window", "seed", "damping", "ids"]);
  return {
    name,
    ...version,
    calibration: {
      texts: calibration.list("texts").map((text) => described(text)),
      tokens: calibration.whole("tokens"),
      window: calibration.whole("window"),
      seed: calibration.whole("seed"),
      damping: calibration.number("damping"),
      ids: calibration.digest("ids"),
    },
  };
}

function answersOf(fields: JsonFields): MeasuredAnswers {
  fields.only(["ids", "prompts", "steps", "kept"]);
  return {
    ids: fields.digest("ids"),
    prompts: fields.whole("prompts", 1),
    steps: fields.whole("steps", 1),
    kept: fields.whole("kept"),
  };
}

function textOf(fields: JsonFields): MeasuredText {
  const text = described(fields, ["tokens", "window", "stride", "scored", "figures"]);
  const figures = fields.object("figures");
  const words = Object.keys(figures.json).map((word): [string, Readonly<Record<string, string>>] => {
    const group = figures.object(word);
    return [
      word,
      Object.fromEntries(
        Object.keys(group.json).map((key) => {
          const figure = group.text(key);
          if (!FIGURE.test(figure)) throw group.fail(key, `expected digits, found ${quote(figure)}`);
          return [key, figure];
        }),
      ),
    ];
  });
  return {
    ...text,
    tokens: fields.whole("tokens", 2),
    window: fields.whole("window", 2),
    stride: fields.whole("stride", 1),
    scored: fields.whole("scored", 1),
    figures: Object.fromEntries(words),
  };
}

/** Whether a text is a time of RFC 3339. */
export function isTime(text: string): boolean {
  const pattern = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/;
  if (!pattern.test(text) || Number.isNaN(Date.parse(text))) return false;
  // Date.parse takes the 31st of February for the 3rd of March.
  const day = text.slice(0, 10);
  return new Date(`${day}T00:00:00Z`).toISOString().startsWith(day);
}
