/**
 * Checks the kernels on the current machine: a generated model with weights that a block format represents exactly must
 * decode to the same tokens before and after quantizing. One wrong nibble or scale makes it fail.
 *
 * @module
 */

import { join } from "@std/path/join";
import { compareWith, type Comparison, type Trace, trace } from "../measure/compare.ts";
import type { Llama } from "../model/llama.ts";
import { loadModel, openModel } from "../model/load.ts";
import type { BlockFormat } from "../format/blocks.ts";
import { openCheckpoint } from "../format/checkpoint.ts";
import { generate } from "./gen.ts";
import type { Operations } from "../kernels/operations.ts";
import { planQuantize, quantize } from "../quantize/quantize.ts";

/** The gate fails if a logit differs by this or more. */
export const GATE_TOLERANCE = 1e-3;

/** The number of tokens that the gate decodes. */
export const GATE_STEPS = 8;

/**
 * Writes the gate's model to `float` in a directory, and the quantized model to `quant`.
 *
 * @throws the reason of `signal`
 */
export async function prepareGate(
  directory: string,
  format: BlockFormat,
  threads: number,
  signal?: AbortSignal,
): Promise<void> {
  generate(join(directory, "float"), { exact: format.levels });
  const plan = planQuantize(openCheckpoint(join(directory, "float")), format);
  await quantize(plan, join(directory, "quant"), { threads, force: false, signal });
}

/** The result of {@link runGate}. */
export interface GateResult extends Comparison {
  readonly float: Trace;
  /** Whether the tokens are the same and all differences of logits are below {@link GATE_TOLERANCE}. */
  readonly pass: boolean;
}

/** Decodes a prompt with both models of a directory written by {@link prepareGate}. */
export async function runGate(directory: string, ops: Operations, prompt: readonly number[]): Promise<GateResult> {
  const float = trace(load(join(directory, "float"), ops, prompt), prompt, GATE_STEPS);
  await ops.reset();
  const comparison = compareWith(load(join(directory, "quant"), ops, prompt), float);
  await ops.reset();
  const worst = Math.max(comparison.prefill.max, comparison.steps.max);
  return { ...comparison, float, pass: comparison.match && worst < GATE_TOLERANCE };
}

function load(directory: string, ops: Operations, prompt: readonly number[]): Llama {
  return loadModel(ops, openModel(directory), prompt.length + GATE_STEPS);
}
