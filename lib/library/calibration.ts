/**
 * Calibrated quantization: what it is calibrated with, and the checkpoint that it writes.
 *
 * @module
 */

import { basename } from "@std/path/basename";
import { join } from "@std/path/join";
import { calibrate, type Calibrated, costsOf } from "../calibrate/calibrate.ts";
import { calibrationMemory } from "../calibrate/memory.ts";
import { beginOfText, sampledWindows } from "../calibrate/sampled.ts";
import { bytesOfIds, type TextIds, windowsOfTexts } from "../calibrate/tokens.ts";
import { CheckpointError, LimitError, RabbitError } from "../errors.ts";
import { openFile, readText, writeAt } from "../files/read.ts";
import type { NewFile } from "../files/new_files.ts";
import { sha256 } from "../files/write.ts";
import { BLOCK } from "../format/blocks.ts";
import { type Checkpoint, nameOf, QUANTIZATION_FILE, TensorReader } from "../format/checkpoint.ts";
import {
  type Calibration,
  type FileDigest,
  type MatrixLoss,
  MAX_DAMPING,
  MAX_TOKENS,
  type Method,
  quantizationOf,
} from "../format/quantization.ts";
import { Pool } from "../kernels/pool.ts";
import { threadCount } from "../kernels/workers.ts";
import { WINDOW } from "../measure/perplexity.ts";
import { longestContext } from "../model/config.ts";
import { type Model, readConfig } from "../model/load.ts";
import { nameOfPart } from "../model/tensors.ts";
import { Engine } from "../quantize/calibrate/engine.ts";
import { checkpointDigest, digestOf, fileDigests } from "../quantize/digests.ts";
import { checkWeights, type Filled, type Plan } from "../quantize/quantize.ts";
import { loadTokenizer } from "../text/tokenizer.ts";
import { unreadVocabulary } from "../text/tokenizer_files.ts";
import { MAX_TEXT_BYTES, textIds } from "./prompt.ts";

/** The version of the method: it changes when the same source, texts and parameters give other blocks. */
export const METHOD_VERSION = 1;

/** Bytes that are copied or hashed at once. */
const PIECE = 1 << 22;

/** Tokens for each column of the widest matrix, below which a matrix is fitted to the text more than to the language. */
const TOKENS_PER_COLUMN = 10;

/** What a calibration is made with. */
export interface CalibrationOptions {
  /** The paths of texts (UTF-8), or `self`: text that is sampled from the float model. */
  readonly calibrate: "self" | readonly string[];
  /** The most tokens to calibrate with (default 32,768; at most 1,048,576). */
  readonly tokens?: number;
  /** Tokens of a window (default 512, or the model's context where that is shorter). */
  readonly window?: number;
  /** The seed of the choice of windows, or of the sampled text (default 1). */
  readonly seed?: number;
  /** Added to the diagonal of each Hessian, as a part of its mean (default 0.3). */
  readonly damping?: number;
}

/** The defaults of {@link CalibrationOptions}. */
export const CALIBRATION = { tokens: 32_768, window: WINDOW, seed: 1, damping: 0.3 } as const;

/** A calibration that is ready to run. */
export interface PlannedCalibration {
  readonly model: Model;
  readonly plan: Plan;
  readonly texts: readonly (FileDigest & TextIds)[];
  /** The windows; undefined where they are to be sampled. */
  readonly windows?: readonly (readonly number[])[];
  readonly tokens: number;
  readonly window: number;
  readonly seed: number;
  readonly damping: number;
  /** What a user has to know before it runs. */
  readonly warnings: readonly string[];
}

/**
 * Reads what a calibration needs, and refuses what it can't have.
 *
 * @param made the texts of a calibration that runs again, as many as are given
 * @throws {CheckpointError} config.json or the tokenizer is missing or bad; a text is not UTF-8, too long, or not that of `made`
 * @throws {RabbitError} a text is shorter than a window, or the model has no token that begins a sampled text
 * @throws {LimitError} fewer tokens than a window, or fewer windows than texts; the window is longer than the model's context
 * @throws {RangeError} an option is out of range
 * @throws {SystemError} a text can't be read
 */
export async function planCalibration(
  plan: Plan,
  options: CalibrationOptions,
  made?: readonly FileDigest[],
): Promise<PlannedCalibration> {
  const checkpoint = plan.source;
  const model = { checkpoint, config: readConfig(join(checkpoint.directory, "config.json")) };
  const longest = longestContext(model.config);
  const { calibrate: from, tokens = CALIBRATION.tokens, seed = CALIBRATION.seed } = options;
  const { window = Math.min(CALIBRATION.window, longest), damping = CALIBRATION.damping } = options;
  whole("window", window, 2);
  if (window > longest) {
    throw new LimitError(
      `a window of ${window} tokens is more than the model's context of ${longest}; use a smaller one`,
    );
  }
  whole("tokens", tokens, 1, MAX_TOKENS);
  if (tokens < window) {
    throw new LimitError(`${tokens} tokens are less than a window of ${window}; use more, or a smaller window`);
  }
  whole("seed", seed, 0);
  if (!(damping > 0 && damping <= MAX_DAMPING)) {
    throw new RangeError(`damping ${damping}: a number above 0, to ${MAX_DAMPING} is needed`);
  }
  const texts: (FileDigest & TextIds)[] = [];
  const warnings: string[] = [];
  if (from === "self") beginOfText(model);
  else {
    if (from.length === 0) throw new RangeError("a text to calibrate with is needed");
    const { directory } = checkpoint;
    const tokenizer = loadTokenizer(directory, "encode", { vocabulary: model.config.vocabulary });
    if (tokenizer === undefined) {
      throw new CheckpointError(
        { path: directory },
        `no tokenizer.json, and no vocab.json and merges.txt${
          unreadVocabulary(directory)
        }; copy them there, or calibrate ` +
          "with text that is sampled from the model",
      );
    }
    if (tokenizer.assumed !== undefined) warnings.push(tokenizer.assumed);
    for (const [n, path] of from.entries()) {
      const text = readText(path, MAX_TEXT_BYTES);
      const sha256 = await textDigest(text);
      // Before its tokens are counted: another text may be too short for a window, and need not be longer.
      if (made !== undefined && made[n].sha256 !== sha256) {
        throw new CheckpointError(
          { path },
          `its digest is ${sha256}, but the checkpoint was made with ${made[n].sha256}`,
        );
      }
      texts.push({ file: basename(path), name: path, sha256, ids: textIds(path, text, tokenizer, model) });
      const same = texts.find(({ sha256 }) => sha256 === texts.at(-1)!.sha256)!;
      if (same !== texts.at(-1)) throw new RabbitError(`${path}: the same text as ${same.name}; give each text once`);
    }
  }
  const windows = from === "self" ? undefined : windowsOfTexts(texts, tokens, window, seed);
  const got = windows === undefined ? Math.floor(tokens / window) * window : windows.length * window;
  const { hidden, heads, headDim, intermediate } = model.config;
  const widest = Math.max(hidden, heads * headDim, intermediate);
  if (got < Math.floor(tokens / window) * window) {
    warnings.push(`the text has ${got} tokens in whole windows, fewer than the ${tokens} that were asked for`);
  }
  if (got < TOKENS_PER_COLUMN * widest) {
    warnings.push(
      `${got} tokens are ${
        (got / widest).toFixed(1)
      } for each column of the widest matrix (${widest}); with fewer than ` +
        `${TOKENS_PER_COLUMN} (${TOKENS_PER_COLUMN * widest} tokens) it may be fitted to the text alone`,
    );
  }
  return { model, plan, texts, windows, tokens: got, window, seed, damping, warnings };
}

/** The SHA-256 of a text in UTF-8, in hexadecimal: that of the file that it was read from. */
export async function textDigest(text: string): Promise<string> {
  return (await sha256()).update(new TextEncoder().encode(text)).digest("hex");
}

/** The SHA-256 of the token ids of a calibration, in hexadecimal. */
export async function idsDigest(windows: readonly (readonly number[])[]): Promise<string> {
  return (await sha256()).update(bytesOfIds(windows)).digest("hex");
}

/** The memory that a calibration takes beside the program, in bytes. */
export function memoryOf({ model, plan, windows, tokens, window }: PlannedCalibration, threads: number): number {
  const sampled = windows === undefined;
  return calibrationMemory(model, plan.format, { count: tokens / window, window, sampled, threads });
}

/** What a calibration is called in quantization.json. */
export function methodOf({ texts }: Pick<PlannedCalibration, "texts">): Method {
  return texts.length === 0 ? "self-calibrated" : "calibrated";
}

/**
 * How the blocks of a checkpoint were chosen, where quantization.json says it. One that describes other weights is left
 * out.
 *
 * @param warn is called with its path and a sentence, if it is left out
 * @param check whether to hash the weights, to tell that
 */
export async function methodFields(
  checkpoint: Checkpoint,
  warn?: (path: string, problem: string) => void,
  check = true,
): Promise<Readonly<Record<string, string | number | undefined>> | undefined> {
  const quantization = quantizationOf(checkpoint);
  if (quantization === undefined) return undefined;
  const { method, version, calibration } = quantization;
  const { texts, ...parameters } = calibration ?? { texts: [] };
  const names = texts.map(({ file }) => file).join(",") || undefined;
  const digest = check ? await checkpointDigest(checkpoint) : quantization.digest;
  if (digest === quantization.digest) return { method, version, texts: names, ...parameters };
  warn?.(
    join(checkpoint.directory, QUANTIZATION_FILE),
    `does not belong to ${nameOf(checkpoint)}: it describes weights of the digest ${quantization.digest}, and these ` +
      `have ${digest}; what it says of the method is left out`,
  );
  return undefined;
}

function whole(name: string, value: number, least: number, most = Number.MAX_SAFE_INTEGER): void {
  if (Number.isSafeInteger(value) && value >= least && value <= most) return;
  throw new RangeError(`${name} ${value}: a whole number from ${least} to ${most} is needed`);
}

/** How a calibration runs, and what it is told meanwhile. */
export interface RunOptions {
  /** Threads to use (default: one for each processor). */
  readonly threads?: number;
  /** Aborts with the signal's reason; no partial output is left. */
  readonly signal?: AbortSignal;
  /** Called with what is done and the whole, in no unit of its own, and the last matrix that was quantized. */
  readonly progress?: (done: number, total: number, last?: MatrixLoss) => void;
}

/** What {@link runCalibration} found. */
export interface CalibrationDone extends Calibrated {
  readonly calibration: Calibration;
}

/**
 * Quantizes the matrices of a model.
 *
 * @param sink gets the blocks of each matrix from row `first` on
 * @throws {CheckpointError} a weight is not finite, naming tensor, row and column
 * @throws {NumericError} a value is not finite although all weights are, naming the matrix
 * @throws the reason of the signal
 */
export async function runCalibration(
  { model, plan, texts, windows: given, tokens, window, seed, damping }: PlannedCalibration,
  sink: (name: string, first: number, blocks: Uint8Array) => void,
  { threads, signal, progress }: RunOptions,
): Promise<CalibrationDone> {
  // One bad weight makes every later value bad, so that nothing would say where it was.
  await checkWeights(plan, { threads, signal });
  const count = tokens / window;
  const costs = costsOf(model, count, window, given === undefined);
  const ops = new Pool({ threads: threadCount(threads) });
  const core = new Engine({ threads: threadCount(threads), signal });
  try {
    let windows = given;
    if (windows === undefined) {
      const sampled = (tokens: number) => progress?.(costs.add({ kind: "sample", tokens }), costs.total);
      windows = await sampledWindows(ops, model, { count, window, seed, signal, progress: sampled });
      // The memory that held the whole model serves again; that of a pool that is closed would not be freed at once.
      await ops.reset();
    }
    const found = await calibrate({ model, plan, costs, windows, damping, sink, ops, core, signal, progress });
    const digests = texts.map(({ file, sha256 }) => ({ file, sha256 }));
    const ids = await idsDigest(windows);
    return { ...found, calibration: { texts: digests, tokens, window, seed, damping, ids } };
  } finally {
    core.close();
    ops.close();
  }
}

/** Writes the weights of a calibrated checkpoint into a new file. */
export async function fillCalibrated(
  planned: PlannedCalibration,
  { file, partial }: NewFile,
  options: RunOptions,
): Promise<Filled & Calibrated> {
  const { plan, model: { config } } = planned;
  const { signal } = options;
  writeAt(file, partial, 0, plan.header);
  const places = new Map<string, { at: number; rowBytes: number }>();
  using source = new TensorReader(plan.source);
  let at = plan.header.length;
  for (const { source: { name, shape }, bytes, from } of plan.tensors) {
    if (from === undefined) copy(source, name, bytes, (offset, piece) => writeAt(file, partial, at + offset, piece));
    else places.set(name, { at, rowBytes: shape[1] / BLOCK * plan.format.blockBytes });
    at += bytes;
  }
  const [embedding, head] = [nameOfPart("embedding"), nameOfPart("head")];
  const done = await runCalibration(planned, (name, first, blocks) => {
    const put = ({ at, rowBytes }: { at: number; rowBytes: number }) => {
      writeAt(file, partial, at + first * rowBytes, blocks);
    };
    put(places.get(name)!);
    // Some files have a tied embedding twice.
    if (config.tied && name === embedding && places.has(head)) put(places.get(head)!);
  }, options);
  // The new file is open for writing only.
  using made = openFile(partial);
  const digest = await digestOf({ file: made, path: partial, bytes: plan.bytes }, { signal });
  const { calibration, matrices, raised } = done;
  const quantization = {
    method: methodOf(planned),
    version: METHOD_VERSION,
    digest,
    source: await fileDigests(plan.source, signal),
    calibration,
    matrices,
  } as const;
  return { digest, quantization, matrices, raised };
}

function copy(
  source: TensorReader,
  name: string,
  bytes: number,
  write: (offset: number, piece: Uint8Array) => void,
): void {
  for (let at = 0; at < bytes; at += PIECE) {
    const piece = new Uint8Array(Math.min(PIECE, bytes - at));
    source.read(name, at, piece);
    write(at, piece);
  }
}
