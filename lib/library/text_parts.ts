/**
 * The measurement of a text in parts: one line of JSON for each window, and the whole text from all lines.
 *
 * @module
 */

import { checkOptions } from "../options.ts";
import { CheckpointError, quote } from "../errors.ts";
import { sha256 } from "../files/write.ts";
import { parseJson } from "../format/json.ts";
import { Divergence } from "../measure/metrics.ts";
import type { Model } from "../model/load.ts";
import { fingerprint } from "../quantize/part_record.ts";
import { checkNumbers, type Part } from "../quantize/parts.ts";
import { methodFields } from "./calibration.ts";
import { COMPARE_TEXT, type CompareTextOptions, predictWindows, type WindowedText, windowedText } from "./compare.ts";

/** The version of the lines. It is raised if their content changes, or any digit of a measurement. */
export const WINDOWS_VERSION = 1;

/** What a measurement is of, the same in all its lines. */
export interface TextRun {
  /** {@link WINDOWS_VERSION} of the program that measured. */
  readonly version: number;
  /** Identifies the float model: weights and configuration. */
  readonly float: string;
  /** Identifies the quantized model. */
  readonly quant: string;
  /** How the blocks of the quantized model were chosen, if quantization.json says it. */
  readonly quantization?: Readonly<Record<string, string | number | undefined>>;
  /** The path of the text. */
  readonly file: string;
  /** SHA-256 of the token ids. */
  readonly ids: string;
  /** Number of tokens. */
  readonly tokens: number;
  /** Tokens of a window. */
  readonly length: number;
  /** Tokens from one window to the next. */
  readonly stride: number;
  /** Number of windows. */
  readonly windows: number;
}

/** A text file, divided into windows. */
export interface WindowedFile extends WindowedText {
  /** Its path. */
  readonly file: string;
  /** Tokens from one window to the next. */
  readonly stride: number;
}

/** The numbers of the windows of a part: every `count`-th, so that all parts take as long. */
export function windowsOfPart({ windows }: WindowedText, part: Part): number[] {
  checkNumbers(part);
  const { number, count } = part;
  return [...windows.keys()].filter((window) => window % count === number - 1);
}

/** Options of {@link compareTextPart}. Progress counts tokens. */
export interface CompareTextPartOptions extends CompareTextOptions {
  /** What the lines call the text (default: text). */
  readonly file?: string;
}

/**
 * Measures one of several parts of a text as {@link compareText} measures all of it: windows I, I + N, I + 2N and so on
 * for part I of N. {@link mergeTextParts} puts the lines of all parts together.
 *
 * ```ts
 * import { compareTextPart, generateModel, mergeTextParts, quantize } from "@rabbit/rabbit";
 *
 * const directory = Deno.makeTempDirSync();
 * const [float, quant, text] = [`${directory}/float`, `${directory}/q8`, "The cat sat on the mat."];
 * generateModel(float);
 * await quantize(float, quant, { bits: 8 });
 *
 * const part = (number: number) => compareTextPart(float, quant, text, { number, count: 2 }, { window: 8 });
 * const { measured } = mergeTextParts([["part 1", await part(1)], ["part 2", await part(2)]]);
 * console.log(measured.ratio.value);
 * Deno.removeSync(directory, { recursive: true });
 * ```
 *
 * @returns a line of JSON for each window of the part, as `compare --text --shard` prints them
 * @throws as {@link compareText}; or {RangeError} the part is not one of its number of parts
 */
export async function compareTextPart(
  float: string,
  quant: string,
  text: string,
  part: Part,
  options: CompareTextPartOptions = {},
): Promise<string> {
  checkOptions("compareTextPart", options, { ...COMPARE_TEXT, file: true });
  const { models: [model, other], ...windowed } = windowedText(float, quant, text, options);
  const { file = "text", threads, signal, progress } = options;
  const run = await describeText(model, other, { ...windowed, file });
  const numbers = windowsOfPart(windowed, part);
  if (numbers.length === 0) return "";
  const windows = numbers.map((window) => windowed.windows[window]);
  const measured = await predictWindows(model, [other], { ...windowed, windows }, { threads, signal, progress });
  return measured.map(([window], n) => windowLine(run, numbers[n], window) + "\n").join("");
}

/** Describes a measurement. @param warn see {@link methodFields} @throws {SystemError} a file of a model can't be read */
export async function describeText(
  float: Model,
  quant: Model,
  { file, ids, window, stride, windows }: WindowedFile,
  warn?: (path: string, problem: string) => void,
): Promise<TextRun> {
  return {
    version: WINDOWS_VERSION,
    float: await identify(float),
    quant: await identify(quant),
    file,
    ids: (await sha256()).update(new Uint8Array(Uint32Array.from(ids).buffer)).digest("hex"),
    tokens: ids.length,
    length: window,
    stride,
    windows: windows.length,
    quantization: await methodFields(quant.checkpoint, warn),
  };
}

async function identify({ checkpoint, config }: Model): Promise<string> {
  return (await sha256()).update(await fingerprint(checkpoint)).update(JSON.stringify(config)).digest("hex");
}

/** The line of a window. */
export function windowLine(run: TextRun, window: number, measured: Divergence): string {
  return JSON.stringify({ ...run, window, ...renamed(measured) });
}

function renamed({ observations: { float, quant, kl, shift, same } }: Divergence) {
  return { loss_float: float, loss_quant: quant, kl, shift, same };
}

/** A measurement in parts that is complete. */
export interface MergedText {
  /** What it is of. */
  readonly run: TextRun;
  /** The measurement of the whole text, to the last bit that of one run. */
  readonly measured: Divergence;
}

/** The fields of a {@link TextRun} that must be equal in all lines, and what it means if they are not. */
const SAME: readonly (readonly [keyof TextRun, string])[] = [
  ["version", "version of the measurement"],
  ["float", "float model"],
  ["quant", "quantized model"],
  ["ids", "text or tokenizer"],
  ["tokens", "text or tokenizer"],
  ["length", "window"],
  ["stride", "stride"],
  ["windows", "number of windows"],
];

/**
 * Merges the lines of several files. A window may be in several lines if they are equal.
 *
 * @param files the paths of the files, and their texts
 * @throws {CheckpointError} a line is invalid or of another measurement, or a window is missing; names file and line
 */
export function mergeWindows(files: Iterable<readonly [path: string, text: string]>): MergedText {
  let first: { run: TextRun; path: string } | undefined;
  const found = new Map<number, { line: string; measured: Divergence }>();
  let last = "";
  for (const [path, text] of files) {
    last = path;
    const lines = text.split("\n");
    if (lines.at(-1) === "") lines.pop();
    for (const [n, line] of lines.entries()) {
      const fail = (problem: string): never => {
        throw new CheckpointError({ path, field: `line ${n + 1}` }, problem);
      };
      const { run, window, measured } = readLine(path, line, fail);
      first ??= { run, path };
      const { run: wanted, path: from } = first;
      const other = SAME.find(([field]) => run[field] !== wanted[field]);
      if (other !== undefined) fail(`another ${other[1]} than in ${from}; measure the parts of one text again`);
      // Paths of the text may differ between machines.
      const same = windowLine(wanted, window, measured);
      const before = found.get(window);
      if (before !== undefined && before.line !== same) fail(`window ${window} is there already, with other figures`);
      found.set(window, { line: same, measured });
    }
  }
  if (first === undefined) throw new CheckpointError({ path: last }, "no lines; is it the output of a part?");
  const { run } = first;
  const sum = new Divergence();
  for (let window = 0; window < run.windows; window++) {
    const measured = found.get(window)?.measured;
    if (measured === undefined) {
      throw new CheckpointError(
        { path: first.path },
        `window ${window} of 0 to ${run.windows - 1} is in none of the files; measure the missing part, and merge all`,
      );
    }
    sum.append(measured.observations);
  }
  return { run, measured: sum };
}

function readLine(path: string, line: string, fail: (problem: string) => never) {
  let json: unknown;
  try {
    json = parseJson(path, line);
  } catch (error) {
    if (!(error instanceof CheckpointError)) throw error;
    fail("not a whole line of JSON; was the part interrupted? Measure it again");
  }
  if (typeof json !== "object" || json === null || Array.isArray(json)) fail("expected an object of JSON");
  const fields = json as Record<string, unknown>;
  const take = <T>(name: string, wanted: string, good: (value: unknown) => value is T): T => {
    const value = Object.hasOwn(fields, name) ? fields[name] : undefined;
    return good(value) ? value : fail(`${quote(name)}: expected ${wanted}; is it a line of a part?`);
  };
  const whole = (name: string, max = Number.MAX_SAFE_INTEGER) =>
    take(name, "a whole number", (value): value is number => {
      return Number.isSafeInteger(value) && Number(value) >= 0 && Number(value) <= max;
    });
  const text = (name: string) => take(name, "a text", (value): value is string => typeof value === "string");
  const numbers = (name: string) =>
    take(name, "an array of numbers", (value): value is number[] => {
      return Array.isArray(value) && value.every((number) => Number.isFinite(number));
    });
  const quantization = !Object.hasOwn(fields, "quantization")
    ? undefined
    : take("quantization", "an object of texts and numbers", (value): value is Record<string, string | number> => {
      return typeof value === "object" && value !== null && !Array.isArray(value) &&
        Object.values(value).every((field) => typeof field === "string" || Number.isFinite(field));
    });
  const run: TextRun = {
    ...quantization && { quantization },
    version: whole("version"),
    float: text("float"),
    quant: text("quant"),
    file: text("file"),
    ids: text("ids"),
    tokens: whole("tokens"),
    length: whole("length"),
    stride: whole("stride"),
    windows: whole("windows"),
  };
  const window = whole("window", run.windows - 1);
  const [float, quant, kl, shift] = ["loss_float", "loss_quant", "kl", "shift"].map(numbers);
  const same = whole("same", float.length);
  if ([quant, kl, shift].some(({ length }) => length !== float.length) || float.length === 0) {
    fail("the arrays have different lengths, or none");
  }
  const measured = new Divergence();
  measured.append({ float, quant, kl, shift, same });
  return { run, window, measured };
}
