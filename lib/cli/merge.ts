/**
 * `rabbit merge`: puts the parts of a checkpoint together.
 *
 * @module
 */

import { merge, planMerge } from "../quantize/merge.ts";
import { command, DIRECTORY, FORCE } from "./arguments.ts";
import { withBar } from "./output.ts";

/** `rabbit merge` */
export const mergeCommand = command({
  name: "merge",
  summary: "put together the parts that quantize --shard wrote",
  positionals: [{ name: "OUT", type: DIRECTORY, help: "the directory of the parts, which becomes the checkpoint" }],
  flags: {
    single: { help: "make one file, not shards" },
    force: FORCE,
  },
  details: [
    "Every part must be there, of the same source, width and number of parts, with the digest that its record names. The " +
    "parts become the shards, and their index is written. With --single, or if a matrix is divided between parts, the " +
    "data is copied into new files, and the parts are removed. The digest is that of the checkpoint that quantize " +
    "without --shard writes.",
  ],
  example: "rabbit merge SmolLM2-135M-q8",
  async run({ positionals: [directory], values: { single, force } }, out) {
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
