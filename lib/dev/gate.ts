/**
 * `rabbit gate`: a test of the program on the machine that it runs on. A generated model whose weights a block format holds
 * exactly must decode alike before and after quantizing; one wrong nibble or scale fails it.
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

/** The largest difference of logits that the gate lets pass. */
export const GATE_TOLERANCE = 1e-3;

/** Tokens that the gate decodes. */
export const GATE_STEPS = 8;

/**
 * A directory with the gate's model in `float` and its quantized form in `quant`.
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

/** What the gate found. */
export interface GateResult extends Comparison {
  readonly float: Trace;
  /** Whether the tokens are the same and no logit differs by {@link GATE_TOLERANCE} or more. */
  readonly pass: boolean;
}

/** Decodes `prompt` with both models of a directory that {@link prepareGate} made. */
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
