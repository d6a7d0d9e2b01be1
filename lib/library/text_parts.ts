/**
 * The measurement of texts in parts: one line of JSON for each window, and the whole from all lines.
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
import { idsDigest, methodFields } from "./calibration.ts";
import { COMPARE_TEXT, type CompareTextOptions, predictWindows, windowedTexts } from "./compare.ts";
import type { WindowedText } from "./memory_plan.ts";
import { sumOfTexts, type TextPart, type WindowedTexts } from "./texts.ts";

/** The version of the lines. It is raised if their content changes, or any digit of a measurement. */
export const WINDOWS_VERSION = 2;

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
  /** The texts, whose windows are numbered one after the other. */
  readonly texts: readonly MeasuredPart[];
  /** Tokens of a window. */
  readonly length: number;
  /** Tokens from one window to the next. */
  readonly stride: number;
}

/** One of the texts of a {@link TextRun}. */
export interface MeasuredPart extends TextPart {
  /** SHA-256 of the token ids. */
  readonly ids: string;
}

/** The numbers of the windows of a part: every `count`-th, so that all parts take as long. */
export function windowsOfPart({ windows }: WindowedText, part: Part): number[] {
  checkNumbers(part);
  const { number, count } = part;
  return [...windows.keys()].filter((window) => window % count === number - 1);
}

/** Options of {@link compareTextPart}. Progress counts tokens. */
export interface CompareTextPartOptions extends Omit<CompareTextOptions, "limits"> {
  /** What the lines call the text, or each of several texts (default: text; or text 1, text 2 and so on). */
  readonly file?: string | readonly string[];
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
  text: string | readonly string[],
  part: Part,
  options: CompareTextPartOptions = {},
): Promise<string> {
  checkOptions("compareTextPart", options, { ...COMPARE_TEXT, file: true });
  const { file = typeof text === "string" ? "text" : undefined, threads, memory, signal, progress } = options;
  const { models: [model, other], ...windowed } = windowedTexts(float, quant, text, options, file);
  const run = await describeText(model, other, windowed);
  const numbers = windowsOfPart(windowed, part);
  if (numbers.length === 0) return "";
  const windows = numbers.map((window) => windowed.windows[window]);
  const measured = await predictWindows(model, [other], { ...windowed, windows }, {
    threads,
    memory,
    signal,
    progress,
  });
  return measured.map(([window], n) => windowLine(run, numbers[n], window) + "\n").join("");
}

/** Describes a measurement. @param warn see {@link methodFields} @throws {SystemError} a file of a model can't be read */
export async function describeText(
  float: Model,
  quant: Model,
  { texts, ids, window, stride }: WindowedTexts,
  warn?: (path: string, problem: string) => void,
): Promise<TextRun> {
  const described: MeasuredPart[] = [];
  let first = 0;
  for (const text of texts) {
    described.push({ ...text, ids: await idsDigest([ids.slice(first, first += text.tokens)]) });
  }
  return {
    version: WINDOWS_VERSION,
    float: await identify(float),
    quant: await identify(quant),
    texts: described,
    length: window,
    stride,
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
  /** The measurement of all texts, to the last bit that of one run. */
  readonly measured: Divergence;
  /** The measurement of each text. */
  readonly texts: readonly Divergence[];
}

/** What must be equal in all lines, and what it means if it is not. */
const SAME: readonly (readonly [(run: TextRun) => unknown, string])[] = [
  [({ version }) => version, "version of the measurement"],
  [({ float }) => float, "float model"],
  [({ quant }) => quant, "quantized model"],
  [({ texts }) => texts.length, "number of texts"],
  // Paths of a text may differ between machines.
  [({ texts }) => texts.map(({ ids, tokens }) => [ids, tokens]).join(), "text or tokenizer"],
  [({ length }) => length, "window"],
  [({ stride }) => stride, "stride"],
  [({ texts }) => texts.map(({ windows }) => windows).join(), "number of windows"],
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
      const other = SAME.find(([of]) => of(run) !== of(wanted));
      if (other !== undefined) fail(`another ${other[1]} than in ${from}; measure the parts of one text again`);
      const same = windowLine(wanted, window, measured);
      const before = found.get(window);
      if (before !== undefined && before.line !== same) fail(`window ${window} is there already, with other figures`);
      found.set(window, { line: same, measured });
    }
  }
  if (first === undefined) throw new CheckpointError({ path: last }, "no lines; is it the output of a part?");
  const { run, path } = first;
  const count = windowsIn(run);
  const windows: Divergence[] = [];
  while (windows.length < count) {
    const measured = found.get(windows.length)?.measured;
    if (measured === undefined) {
      throw new CheckpointError(
        { path },
        `window ${windows.length} of 0 to ${
          count - 1
        } is in none of the files; measure the missing part, and merge all`,
      );
    }
    windows.push(measured);
  }
  const { all, texts } = sumOfTexts(run.texts, windows);
  return { run, measured: all, texts };
}

function windowsIn({ texts }: TextRun): number {
  return texts.reduce((sum, { windows }) => sum + windows, 0);
}

/** What takes the fields of an object of a line. */
function taker(json: unknown, fail: (problem: string) => never) {
  if (typeof json !== "object" || json === null || Array.isArray(json)) fail("expected an object of JSON");
  const fields = json as Record<string, unknown>;
  const take = <T>(name: string, wanted: string, good: (value: unknown) => value is T): T => {
    const value = Object.hasOwn(fields, name) ? fields[name] : undefined;
    return good(value) ? value : fail(`${quote(name)}: expected ${wanted}; is it a line of a part?`);
  };
  return {
    fields,
    take,
    whole: (name: string, max = Number.MAX_SAFE_INTEGER) =>
      take(name, "a whole number", (value): value is number => {
        return Number.isSafeInteger(value) && Number(value) >= 0 && Number(value) <= max;
      }),
    text: (name: string) => take(name, "a text", (value): value is string => typeof value === "string"),
    array: <T>(name: string, wanted: string, good: (value: unknown) => boolean) =>
      take(name, `an array of ${wanted}`, (value): value is T[] => Array.isArray(value) && value.every(good)),
  };
}

function readLine(path: string, line: string, fail: (problem: string) => never) {
  let json: unknown;
  try {
    json = parseJson(path, line);
  } catch (error) {
    if (!(error instanceof CheckpointError)) throw error;
    fail("not a whole line of JSON; was the part interrupted? Measure it again");
  }
  const { fields, take, whole, text, array } = taker(json, fail);
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
    texts: array<unknown>("texts", "objects", (value) => typeof value === "object").map((value) => {
      const { whole, text } = taker(value, fail);
      return { file: text("file"), tokens: whole("tokens"), windows: whole("windows"), ids: text("ids") };
    }),
    length: whole("length"),
    stride: whole("stride"),
  };
  const window = whole("window", windowsIn(run) - 1);
  const [float, quant, kl, shift] = ["loss_float", "loss_quant", "kl", "shift"].map((name) => {
    return array<number>(name, "numbers", Number.isFinite);
  });
  const same = array<number>("same", "0 and 1", (value) => value === 0 || value === 1);
  if ([quant, kl, shift, same].some(({ length }) => length !== float.length) || float.length === 0) {
    fail("the arrays have different lengths, or none");
  }
  const measured = new Divergence();
  measured.append({ float, quant, kl, shift, same });
  return { run, window, measured };
}
