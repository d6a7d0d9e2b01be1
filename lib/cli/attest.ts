/**
 * `rabbit attest`: states what a checkpoint is made of, what it was derived from, and what was measured.
 *
 * @module
 */

import { basename } from "@std/path/basename";
import { dirname } from "@std/path/dirname";
import { NewFiles } from "../files/new_files.ts";
import { sha256 } from "../files/write.ts";
import { bytesOf, type Checkpoint, openCheckpoint } from "../format/checkpoint.ts";
import { checkOutputFile, tryOutputFile } from "../format/outputs.ts";
import { openModel } from "../model/load.ts";
import { attestIn, openDirectory } from "../proof/attest.ts";
import { readGivenText } from "../proof/measure.ts";
import type { Phase } from "../proof/phase.ts";
import { isTime, type MeasuredAnswers, type MeasuredText, type Program } from "../proof/statement.ts";
import { revision } from "rabbit/revision";
import {
  type Arguments,
  CHECKPOINT,
  command,
  FILE,
  type Flags,
  FORCE,
  TEXT,
  THREADS,
  type Values,
} from "./arguments.ts";
import { CALIBRATE, sourcesOf, warnOfOverlap } from "./calibrate.ts";
import { answering, UsageError } from "./errors.ts";
import { tokenizerFor } from "./model.ts";
import { type Output, tokensPerSecond, withBar } from "./output.ts";
import { VERSION } from "./version.ts";

/** Bars for the phases of a statement. */
export function phasesOf(label: string): Phase {
  return (name, total, unit, work) => {
    const rate = { bytes: undefined, tokens: tokensPerSecond, parts: () => "" }[unit];
    return withBar(`${label}: ${name}`, total, work, rate);
  };
}

const FLAGS = {
  against: {
    type: CHECKPOINT,
    value: "SOURCE",
    required: true,
    help: "the float checkpoint it was made from: every file is derived again before anything is stated",
  },
  text: {
    type: FILE,
    many: true,
    help: "measure how well both models predict a text (UTF-8), or several, and how many answers are kept",
  },
  rederive: { help: "run the calibration of a calibrated checkpoint again, and compare every block" },
  calibrate: {
    ...CALIBRATE,
    unset: "text that is sampled from the model",
    help: "with --rederive: the texts that the checkpoint was calibrated with, in their order",
  },
  key: {
    type: FILE,
    help: "sign the statement with this private key (P-256, PEM); the file is then a Sigstore bundle",
  },
  time: { type: TEXT, unset: "now", help: "the time of the statement (RFC 3339), such as 2026-01-31T12:00:00Z" },
  out: { type: FILE, required: true, help: "the new file" },
  force: { ...FORCE, help: "overwrite an existing file" },
  threads: THREADS,
} as const satisfies Flags;

/** `rabbit attest` */
export const attestCommand = command({
  name: "attest",
  summary: "write a statement of what a checkpoint was derived from and what was measured, signed or not",
  positionals: [{
    name: "CHECKPOINT",
    type: { kind: "path", of: "directory" },
    help: "the directory of the quantized checkpoint",
  }],
  flags: FLAGS,
  verdict: "0 written, 1 the checkpoint is not what the source gives, and nothing is written",
  details: [
    "The file is an in-toto statement in canonical JSON (RFC 8785), or with --key a Sigstore bundle with it, which PyPI's " +
    "model_signing verifies too. rabbit verify --attestation checks it. docs/proof.md says what it proves.",
  ],
  example: "rabbit attest SmolLM2-135M-q8 --against SmolLM2-135M --out SmolLM2-135M-q8.json",
  async run(args, out) {
    const { positionals: [path], values: { against } } = args;
    return await answering([path], [against], () => run(args, path, out));
  },
});

async function run(
  { values, given }: Arguments<Values<typeof FLAGS>>,
  path: string,
  out: Output,
): Promise<number> {
  const { against, text: texts = [], rederive, calibrate, key, time, out: file, force, threads } = values;
  if (calibrate && !rederive) throw new UsageError("--calibrate is for --rederive, which is not given");
  if (time !== undefined && !isTime(time)) {
    throw new UsageError(`--time takes a time of RFC 3339, such as 2026-01-31T12:00:00Z, found ${given.get("time")}`);
  }
  const [checkpoint, source] = [openDirectory(path), openCheckpoint(against)];
  const inputs = [...texts, ...calibrate ?? [], ...key === undefined ? [] : [key]];
  const seen = checkOutputFile(file, [checkpoint, source], force, inputs);
  tryOutputFile(file);
  await checkTexts(texts, against, checkpoint);
  const options = {
    texts,
    rederive,
    ...calibrate && { calibrate: sourcesOf(calibrate) },
    ...time !== undefined && { time },
    ...key !== undefined && { key },
    output: file,
    threads,
    program: program(),
  };
  const { statement, bytes } = await attestIn(phasesOf("attest"), path, against, options);
  using files = new NewFiles(dirname(file), seen);
  files.write(basename(file), bytes);
  files.commit();
  const { files: all, derivation: { format, method, tensors, source: materials, derived, notDerived, rms } } =
    statement;
  const count = tensors.filter(({ derived }) => derived).length;
  out.line({ model: path, bytes: bytesOf(checkpoint), format, method: method.name });
  out.line({ against, source_files: materials.length, derived: count, not_derived: tensors.length - count, rms });
  out.group(
    "files",
    { total: all.length, derived: derived.length, not_derived: notDerived.join(",") || undefined },
    { total: all.length, derived: derived.length, not_derived: notDerived },
  );
  if (statement.derivation.answers) out.group("answers", answerFields(statement.derivation.answers));
  for (const text of statement.derivation.texts) printMeasured(text, out);
  out.group("statement", {
    file,
    signed: key !== undefined,
    bytes: bytes.length,
    digest: (await sha256()).update(bytes).digest("hex"),
  });
  return 0;
}

/** Warns of texts whose figures mean less than they seem to. @throws {UsageError} there is no tokenizer */
export async function checkTexts(texts: readonly string[], against: string, quant: Checkpoint): Promise<void> {
  if (texts.length > 0) tokenizerFor("text", openModel(against), "copy them there", "leave --text out");
  const given = await Promise.all(texts.map(readGivenText));
  await warnOfOverlap("--text", given.map(({ content }) => content), [quant]);
}

function program(): Program {
  const built = revision();
  return { name: "rabbit", version: VERSION, ...built !== undefined && { revision: built } };
}

function answerFields({ prompts, kept, steps }: MeasuredAnswers) {
  return { prompts, kept, tokens: steps };
}

/** Prints the figures of a text, as `compare` does. */
function printMeasured({ name, tokens, window, stride, scored, figures }: MeasuredText, out: Output): void {
  const fields = { file: name, tokens, window, stride, scored };
  if (out.json) return out.item("texts", {}, { ...fields, ...flat(figures) });
  out.group("text", fields);
  for (const [word, figure] of Object.entries(figures)) out.group(word, figure);
}

function flat(figures: MeasuredText["figures"]): Record<string, string> {
  return Object.fromEntries(
    Object.entries(figures).flatMap(([word, group]) => {
      return Object.entries(group).map(([key, figure]) => [`${word}_${key}`, figure]);
    }),
  );
}
