/**
 * Quantizing a checkpoint by a rule, or with calibration.
 *
 * @module
 */

import { checkOptions, isOpen, type Names, WATCH } from "../options.ts";
import {
  checkTarget,
  type NewCheckpointOptions,
  type Plan,
  planQuantize,
  quantize as quantizeByRule,
  type Quantized,
  type QuantizeOptions,
  writeQuantized,
} from "../quantize/quantize.ts";
import { planShards } from "../quantize/shards.ts";
import type { Calibrated, Raised } from "../calibrate/calibrate.ts";
import {
  type CalibrationOptions,
  fillCalibrated,
  planCalibration,
  type PlannedCalibration,
  type RunOptions,
} from "./calibration.ts";

/** How blocks are chosen. */
export interface MethodOptions extends NewCheckpointOptions, Partial<CalibrationOptions> {}

/** The names of the options of {@link quantize}. */
const QUANTIZE: Names<QuantizeOptions & MethodOptions> = {
  ...WATCH,
  ...{ bits: true, rule: true, maxShardBytes: true, threads: true, force: true },
  ...{ calibrate: true, tokens: true, window: true, seed: true, damping: true },
};

/**
 * Writes a quantized checkpoint of a float one, and the source's tokenizer and configuration, to a directory. They appear
 * when all is written and synced; until then, and after an error, what was there is untouched.
 *
 * ```ts
 * import { generateModel, quantize, verify } from "@rabbit/rabbit";
 *
 * const directory = Deno.makeTempDirSync();
 * generateModel(`${directory}/float`);
 *
 * const { digest } = await quantize(`${directory}/float`, `${directory}/q4`, { bits: 4, rule: "signed" });
 * console.log(digest === (await verify(`${directory}/q4`)).digests[0]);
 * Deno.removeSync(directory, { recursive: true });
 * ```
 *
 * @param source the float checkpoint: a directory, or a safetensors file
 * @param directory made where it is missing
 * @throws {CheckpointError} a weight is not finite or a scale overflows, naming tensor, row, and column or block; to
 * calibrate, the model is one that can't be run, or has no tokenizer
 * @throws {NumericError} a value is not finite during calibration, naming the matrix
 * @throws {Refusal} the directory is the source's, or holds a checkpoint and `force` is not set
 * @throws {SystemError} such as a full disk, a source that was changed meanwhile, or another process that wrote a
 * checkpoint to the directory meanwhile
 */
export async function quantize(
  source: string,
  directory: string,
  options?: QuantizeOptions & MethodOptions,
): Promise<Quantized>;
/** Writes a plan of {@link planQuantize}. */
export async function quantize(
  plan: Plan,
  directory: string,
  options?: QuantizeOptions & Partial<CalibrationOptions>,
): Promise<Quantized>;
export async function quantize(
  from: Plan | string,
  directory: string,
  options: QuantizeOptions & MethodOptions = {},
): Promise<Quantized> {
  checkOptions("quantize", options, QUANTIZE);
  const { bits, rule, maxShardBytes, calibrate, tokens, window, seed, damping, ...rest } = options;
  const plan = isOpen(from) ? from : planShards(planQuantize(from, bits, rule), maxShardBytes ?? Infinity);
  if (calibrate === undefined) return await quantizeByRule(plan, directory, rest);
  const planned = await planCalibration(plan, { calibrate, tokens, window, seed, damping });
  return await quantizeCalibrated(planned, directory, rest);
}

/** Writes a calibrated checkpoint. */
export async function quantizeCalibrated(
  planned: PlannedCalibration,
  directory: string,
  { force = false, ...options }: RunOptions & { readonly force?: boolean },
): Promise<Quantized & Calibrated> {
  const { plan } = planned;
  if (plan.files.length > 1) throw new RangeError("a calibrated checkpoint is one file, not shards");
  const seen = checkTarget(plan, directory, force, true);
  let raised: readonly Raised[] = [];
  const done = await writeQuantized(plan, directory, seen, async ([weights]) => {
    const filled = await fillCalibrated(planned, weights, options);
    raised = filled.raised;
    return filled;
  });
  return { ...done, matrices: done.quantization!.matrices!, raised };
}
