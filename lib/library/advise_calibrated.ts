/**
 * What calibration does for the narrowest width, for advice.
 *
 * @module
 */

import { overlap } from "../calibrate/tokens.ts";
import { RabbitError } from "../errors.ts";
import { nameOfPart } from "../model/tensors.ts";
import { matrixBytes } from "../format/blocks.ts";
import type { Plan } from "../quantize/quantize.ts";
import type { Task } from "./advise.ts";
import { methodOf, type PlannedCalibration, runCalibration, type RunOptions } from "./calibration.ts";
import type { Raised } from "../calibrate/calibrate.ts";

/** A plan whose matrices have been calibrated, in memory. */
export interface CalibratedPlan extends Plan {
  /** What it took, in seconds. */
  readonly seconds: number;
  readonly raised: readonly Raised[];
}

/** Refuses a text to calibrate with that is measured too. @throws {RabbitError} */
export function checkApart({ texts }: PlannedCalibration, { text }: Task): void {
  const same = texts.find(({ ids }) => text !== undefined && overlap(ids, text.ids));
  if (same === undefined) return;
  throw new RabbitError(
    `${same.name} shares a passage with the text that is measured (${text!.name}); calibrate with a text that does not`,
  );
}

/** Calibrates the matrices of a plan, and keeps the blocks in memory. */
export async function calibratedPlan(planned: PlannedCalibration, options: RunOptions): Promise<CalibratedPlan> {
  const { plan, model: { config } } = planned;
  const made = new Map<string, Uint8Array>();
  const sizes = new Map(plan.tensors.map(({ source: { name, shape: [rows, columns] } }) => [name, [rows, columns]]));
  const start = performance.now();
  const { raised } = await runCalibration(planned, (name, first, blocks) => {
    const [rows, columns] = sizes.get(name)!;
    if (!made.has(name)) made.set(name, new Uint8Array(matrixBytes(plan.format, rows, columns)));
    made.get(name)!.set(blocks, matrixBytes(plan.format, first, columns));
  }, options);
  const [embedding, head] = [nameOfPart("embedding"), nameOfPart("head")];
  // Some files have a tied embedding twice.
  if (config.tied && sizes.has(head)) made.set(head, made.get(embedding)!);
  return { ...plan, made, method: methodOf(planned), seconds: (performance.now() - start) / 1000, raised };
}
