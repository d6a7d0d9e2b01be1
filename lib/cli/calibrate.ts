/**
 * Calibration as the commands have it: flags, warnings and the bar.
 *
 * @module
 */

import {
  CALIBRATION,
  type CalibrationOptions,
  methodFields,
  planCalibration,
  type PlannedCalibration,
  type RunOptions,
  textDigest,
} from "../library/calibration.ts";
import { bytesOf, type Checkpoint, nameOf } from "../format/checkpoint.ts";
import { MAX_TOKENS, quantizationOf } from "../format/quantization.ts";
import type { Plan } from "../quantize/quantize.ts";
import type { Raised } from "../calibrate/calibrate.ts";
import { type Arguments, FILE, type Flags, type Values } from "./arguments.ts";
import { UsageError } from "./errors.ts";
import { type Output, warn, withBar } from "./output.ts";

/** The word for text that is sampled from the model. */
const SELF = "self";

/** `--calibrate`. */
export const CALIBRATE = {
  type: FILE,
  value: `FILE|${SELF}`,
  many: true,
  help:
    `choose blocks so that the outputs stay near the float model's on a text (UTF-8), or on several, if it is given ` +
    `several times; ${SELF}: on text that is sampled from the float model`,
} as const satisfies Flags[string];

/** The flags of a calibration. */
export const CALIBRATION_FLAGS = {
  calibrate: CALIBRATE,
  tokens: {
    type: { kind: "integer", min: 1, max: MAX_TOKENS },
    unset: `${CALIBRATION.tokens}`,
    help: "the most tokens to calibrate with",
  },
  window: {
    type: { kind: "integer", min: 2 },
    unset: `${CALIBRATION.window}, or the model's context if that is less`,
    help: "tokens of a window of the text",
  },
  seed: {
    type: { kind: "integer", min: 0 },
    unset: `${CALIBRATION.seed}`,
    help: "chooses the windows, or samples the text",
  },
  damping: {
    type: { kind: "number", above: 0, max: 100 },
    unset: `${CALIBRATION.damping}`,
    help:
      "how much the weights as they are count beside the text: added to the diagonal of each Hessian, as a part of its " +
      "mean; above 0, at most 100",
  },
} as const satisfies Flags;

/**
 * Prints how the blocks of a checkpoint were chosen: see {@link methodFields}.
 *
 * @param most the most bytes of weights that are hashed; of more, the line says that it was not checked
 */
export async function printMethod(checkpoint: Checkpoint, out: Output, most = Infinity): Promise<void> {
  const check = bytesOf(checkpoint) <= most;
  const fields = await methodFields(checkpoint, warn, check);
  if (fields !== undefined) out.group("quantization", { ...fields, checked: check ? undefined : false });
}

/**
 * Warns if a text that is measured is one that a checkpoint was calibrated with: what is measured is then how well it was
 * learned by heart.
 *
 * @param contents the texts, which are read once: they may come through a pipe
 */
export async function warnOfOverlap(
  flag: string,
  contents: readonly string[],
  checkpoints: readonly Checkpoint[],
): Promise<void> {
  const described = checkpoints.map((checkpoint) => [checkpoint, quantizationOf(checkpoint)?.calibration] as const);
  if (described.every(([, calibration]) => calibration === undefined)) return;
  for (const content of contents) {
    const digest = await textDigest(content);
    for (const [checkpoint, calibration] of described) {
      if (!calibration?.texts.some(({ sha256 }) => sha256 === digest)) continue;
      warn(
        flag,
        `${nameOf(checkpoint)} was calibrated with this text, so it does better on it than on others; use another`,
      );
    }
  }
}

/** What stands for `--calibrate` in the library. @throws {UsageError} `self` is given with others */
export function sourcesOf(given: readonly string[]): CalibrationOptions["calibrate"] {
  if (!given.includes(SELF)) return given;
  if (given.length === 1) return SELF;
  throw new UsageError(
    `--calibrate ${SELF} and a text exclude each other; a file of that name is ./${SELF}`,
  );
}

/**
 * Reads what a calibration needs, and warns of what a user has to know.
 *
 * @returns undefined if none is asked for
 * @throws {UsageError} flags that exclude each other
 */
export async function calibrationOf(
  { values, given }: Arguments<Values<typeof CALIBRATION_FLAGS>>,
  plan: Plan,
): Promise<PlannedCalibration | undefined> {
  const { calibrate, tokens, window, seed, damping } = values;
  if (calibrate === undefined) {
    const stray = ["tokens", "window", "seed", "damping"].find((name) => given.has(name));
    if (stray !== undefined) throw new UsageError(`--${stray} is for --calibrate, which is not given`);
    return undefined;
  }
  if (given.has("rule")) throw new UsageError("--rule and --calibrate exclude each other");
  const planned = await planCalibration(plan, { calibrate: sourcesOf(calibrate), tokens, window, seed, damping });
  for (const text of planned.warnings) warn("--calibrate", text);
  return planned;
}

/** The parts of a bar's progress. */
const STEPS = 1000;

/** Runs a calibration under a bar that shows the last matrix and what was lost of it. */
export async function withCalibrationBar<T extends { readonly raised: readonly Raised[] }>(
  label: string,
  { damping }: PlannedCalibration,
  threads: number,
  work: (options: RunOptions) => Promise<T>,
): Promise<T> {
  let shown = "";
  const done = await withBar(label, STEPS, ({ signal, progress }) =>
    work({
      threads,
      signal,
      progress(done, total, last) {
        if (last) shown = `${last.name} ${last.before.toFixed(4)} -> ${last.after.toFixed(4)}`;
        progress(Math.min(STEPS, done / total * STEPS));
      },
    }), () => shown);
  for (const { name, damping: used } of done.raised) {
    warn(
      "--calibrate",
      `${name}: the Hessian is not positive definite with a damping of ${damping}; ${used} was used`,
    );
  }
  return done;
}
