/**
 * The measurements of a statement: answers and texts.
 *
 * @module
 */

import { basename } from "@std/path/basename";
import { LimitError, RabbitError } from "../errors.ts";
import { exists, readText, stat } from "../files/read.ts";
import { taskNeeds, taskOf, tokensOf } from "../library/advise.ts";
import { idsDigest, textDigest } from "../library/calibration.ts";
import { predictText } from "../library/compare.ts";
import { withGroup } from "../library/group.ts";
import { weighed } from "../library/memory_plan.ts";
import { MAX_TEXT_BYTES, scoredIds, tokenizerOf } from "../library/prompt.ts";
import { ANSWER_STEPS, measureAnswers } from "../measure/advise.ts";
import { predictionFigures } from "../measure/metrics.ts";
import { fedTokens, WINDOW, windowsOf } from "../measure/perplexity.ts";
import { printedFigures } from "../measure/printed.ts";
import { longestContext } from "../model/config.ts";
import type { Model } from "../model/load.ts";
import type { Phase } from "./phase.ts";
import type { MeasuredAnswers, MeasuredText, NamedDigest } from "./statement.ts";

/** The float model and the quantized one. */
export interface Models {
  readonly float: Model;
  readonly quant: Model;
}

/** A text that was read. */
export interface GivenText extends NamedDigest {
  /** Its path. */
  readonly path: string;
  /** Its content. */
  readonly content: string;
}

/**
 * Reads a text. A pipe has no name that a statement could give, and is empty when it is read again.
 *
 * @throws {CheckpointError} it is not UTF-8, or too long
 * @throws {RabbitError} it is no regular file
 * @throws {SystemError}
 */
export async function readGivenText(path: string): Promise<GivenText> {
  if (exists(path) && !stat(path).isFile) {
    throw new RabbitError(`${path} is not a regular file; a statement names its texts, so give a file`);
  }
  const content = readText(path, MAX_TEXT_BYTES);
  return { path, name: basename(path), sha256: await textDigest(content), content };
}

/**
 * Measures a text as `compare` does.
 *
 * @param size the window and the stride (default: the window of `compare`, without overlaps)
 * @throws {LimitError} the window is longer than the context of a model
 */
export async function measureText(
  { float, quant }: Models,
  { path, name, sha256, content }: GivenText,
  threads: number | undefined,
  phase: Phase,
  size?: { readonly window: number; readonly stride: number },
): Promise<MeasuredText> {
  const longest = Math.min(...[float, quant].map(({ config }) => longestContext(config)));
  const window = size?.window ?? Math.min(WINDOW, longest);
  const stride = size?.stride ?? window;
  if (window > longest || stride > window) {
    throw new LimitError(`a window of ${window} and a stride of ${stride} tokens, the model's context is ${longest}`);
  }
  const ids = scoredIds(path, content, tokenizerOf(float), float);
  const windows = windowsOf(ids.length, window, stride);
  const [measured] = await phase("text", fedTokens(windows), "tokens", (watch) => {
    return predictText(float, [quant], { ids, window, windows }, { threads, ...watch });
  });
  const { scored } = measured;
  return {
    name,
    sha256,
    tokens: ids.length,
    window,
    stride,
    scored,
    figures: printedFigures(predictionFigures(measured)),
  };
}

/** Measures how many answers to the built-in prompts of `advise` are kept. */
export async function measureKept(
  { float, quant }: Models,
  threads: number | undefined,
  phase: Phase,
): Promise<MeasuredAnswers> {
  const { prompts } = taskOf(float, tokenizerOf(float));
  const task = { prompts };
  const { kept } = await phase("answers", tokensOf(task, float), "tokens", async (watch) => {
    const { signal } = watch;
    return await withGroup(
      [float, quant].map(weighed),
      taskNeeds(task, float, 1),
      { threads, signal },
      async (group) => {
        const [answers] = await measureAnswers(group, prompts, watch);
        return answers;
      },
    );
  });
  return {
    ids: await idsDigest(prompts),
    prompts: prompts.length,
    steps: ANSWER_STEPS,
    kept,
  };
}
