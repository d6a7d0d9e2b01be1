/**
 * Statements that tests make and change.
 *
 * @module
 */

import { quantize } from "../../lib/library/quantize.ts";
import { attest, type AttestOptions } from "../../lib/proof/attest.ts";
import { canonical } from "../../lib/proof/canonical.ts";
import { write } from "./files.ts";
import { json, ROOT } from "./fixtures.ts";
import { talkingModel } from "./models.ts";
import { LETTERS } from "./tokenizers.ts";

/** The keys of fixtures/proof. */
export const KEYS = `${ROOT}fixtures/proof/`;

/** The time of the statements. */
export const TIME = "2026-01-31T12:00:00Z";

/** A float model with a tokenizer, a quantized one, a text, and the statement on them. */
export interface AttestedModel {
  readonly float: string;
  readonly quant: string;
  readonly text: string;
  /** The path of the statement. */
  readonly path: string;
}

/** A word for each of the tiny model's ids: those of all bytes, and some more. */
const WORDS = [...LETTERS, ...Array.from({ length: 64 }, (_, n) => `w${n}`)];

/** Makes them. */
export async function attestedModel(
  directory: string,
  method: { bits?: number; calibrate?: "self"; rule?: "signed" } = { bits: 8 },
  options: AttestOptions = {},
): Promise<AttestedModel> {
  const [float, quant, text, path] = ["float", "quant", "text.txt", "quant.json"].map((name) => `${directory}/${name}`);
  talkingModel(float, WORDS);
  await quantize(float, quant, { ...method, ...method.calibrate && { tokens: 128, window: 64 }, threads: 1 });
  write(directory, { "text.txt": "The quick brown fox jumps over the lazy dog. ".repeat(14) });
  const { bytes } = await attest(quant, float, { texts: [text], time: TIME, threads: 1, ...options });
  Deno.writeFileSync(path, bytes);
  return { float, quant, text, path };
}

/** Changes a statement, and writes it as rabbit would. */
// deno-lint-ignore no-explicit-any
export function change(path: string, edit: (statement: any) => void): void {
  const statement = json(path);
  edit(statement);
  Deno.writeTextFileSync(path, canonical(statement));
}
