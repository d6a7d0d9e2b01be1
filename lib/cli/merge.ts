/**
 * `rabbit merge`: puts the parts of a checkpoint or of a measurement together.
 *
 * @module
 */

import { readText, stat } from "../files/read.ts";
import { mergeWindows } from "../library/text_parts.ts";
import type { Limits } from "../measure/gates.ts";
import { merge, planMerge } from "../quantize/merge.ts";
import { command, FORCE } from "./arguments.ts";
import { printTexts } from "./compare_text.ts";
import { UsageError } from "./errors.ts";
import { LIMIT_FLAGS, limitFlag, limitsOf } from "./limits.ts";
import { type Output, withBar } from "./output.ts";

/** The size limit of a file of lines: about a hundred bytes for each scored token. */
const MAX_LINES_BYTES = 400_000_000;

/** `rabbit merge` */
export const mergeCommand = command({
  name: "merge",
  summary: "put together the parts that quantize --shard or compare --text --shard made",
  positionals: [
    {
      name: "PARTS",
      type: { kind: "path", of: "any" },
      many: true,
      help: "the directory of the parts, which becomes the checkpoint; or the files of lines",
    },
  ],
  flags: {
    single: { help: "make one file, not shards" },
    force: FORCE,
    ...LIMIT_FLAGS,
  },
  verdict: "0 merged, and within the limits if any are given, 1 beyond a limit or undecided",
  details: [
    "Of a directory, every part must be there, of the same source, width and number of parts, with the digest that its " +
    "record names. The parts become the shards, and their index is written. With --single, or if a matrix is divided " +
    "between parts, the data is copied into new files, and the parts are removed. The digest is that of the checkpoint " +
    "that quantize without --shard writes.",
    "Of files with the lines of compare --text --shard, every window must be there. The lines that compare --text prints " +
    "for the whole text are printed, without that of the memory; with limits, also its verdict, as rabbit compare --help " +
    "describes it.",
  ],
  example: "rabbit merge SmolLM2-135M-q8",
  async run(args, out) {
    const { positionals: paths, values: { single, force } } = args;
    const limits = limitsOf(args);
    const directory = paths.find((path) => stat(path).isDirectory);
    if (directory === undefined) return mergeLines(paths, { single, force }, limits, out);
    if (limits !== undefined) {
      throw new UsageError(`--${limitFlag(args)} is for lines of compare --text, and ${directory} is a directory`);
    }
    if (paths.length > 1) throw new UsageError(`${directory} is a directory, which is merged alone; give only that`);
    const plan = planMerge(directory, single);
    const total = plan.parts.files.reduce((sum, { bytes }) => sum + bytes, 0);
    const { model, digest } = await withBar("merge", total, (watch) => merge(plan, { force, ...watch }));
    out.line({
      model,
      files: plan.files.length > 1 ? plan.files.length : undefined,
      bytes: plan.bytes,
      parts: plan.records.size,
      tensors: plan.tensors,
      bits: plan.format.bits,
    });
    out.line({ digest });
    return 0;
  },
});

/** Merges lines of windows, and prints the results as compare does. */
function mergeLines(
  paths: readonly string[],
  switches: Readonly<Record<string, boolean>>,
  limits: Limits | undefined,
  out: Output,
): number {
  const stray = Object.keys(switches).find((name) => switches[name]);
  if (stray !== undefined) throw new UsageError(`--${stray} is for a directory, and ${paths[0]} is a file`);
  const files = function* (): Generator<readonly [string, string]> {
    for (const path of paths) yield [path, readText(path, MAX_LINES_BYTES)];
  };
  const { run, measured: all, texts } = mergeWindows(files());
  out.name = "COMPARE";
  if (run.quantization !== undefined) out.group("quantization", run.quantization);
  return printTexts(run, { all, texts }, limits, out);
}
