/**
 * `rabbit import`: converts a GGUF file to a checkpoint.
 *
 * @module
 */

import { join } from "@std/path/join";
import { WIDTHS } from "../format/blocks.ts";
import { MODEL_FILE } from "../format/checkpoint.ts";
import { READABLE } from "../gguf/types.ts";
import { checkImport, DTYPES, importGguf, planImport } from "../gguf/import.ts";
import { stat } from "../files/read.ts";
import { command, DIRECTORY, DRY_RUN, FILE, FORCE } from "./arguments.ts";
import { list } from "./help.ts";
import { memoryFor } from "../files/memory.ts";
import { warn, withBar } from "./output.ts";

const readable = READABLE.map(({ name }) => name);

/** The quantized types that `--dtype same` keeps. */
const kept = WIDTHS.flatMap(({ name, ggml }) => ggml === undefined ? [] : [`${ggml} as ${name}`]);

/** `rabbit import` */
export const importCommand = command({
  name: "import",
  summary: "convert a GGUF file to a checkpoint",
  positionals: [
    { name: "GGUF", type: FILE, alias: "gguf", help: `the file; its tensors may be ${list(readable)}` },
    {
      name: "OUT",
      type: DIRECTORY,
      alias: "out",
      help: "the output directory, created if missing",
    },
  ],
  flags: {
    dtype: {
      type: { kind: "choice", of: DTYPES },
      unset: "the float dtype of all matrices if it is the same, else bf16",
      help: `dtype of the matrices; same keeps ${list(kept, "and")}`,
    },
    force: { ...FORCE, help: "overwrite existing files in OUT" },
    "dry-run": DRY_RUN,
  },
  example: "rabbit import SmolLM2-135M-Q8_0.gguf SmolLM2-135M --dtype same",
  async run({ positionals: [path, directory], values: { dtype, force, "dry-run": dry } }, out) {
    const plan = planImport(path, dtype);
    if (dry) checkImport(plan, directory, force);
    const digest = dry
      ? undefined
      : await withBar("import", plan.bytes, (watch) => importGguf(plan, directory, { force, ...watch }));
    if (plan.missing !== undefined) warn("import", `${path}: ${plan.missing}; ${directory} gets none, use --ids`);
    out.line({
      dry_run: dry || undefined,
      model: join(directory, MODEL_FILE),
      bytes: plan.bytes,
      source_bytes: dry ? plan.parts.reduce((sum, { path }) => sum + stat(path).size, 0) : undefined,
      tensors: plan.tensors.length,
      dtype: plan.format.name,
      architecture: plan.architecture,
      files: plan.files.size + 1,
      memory: dry ? memoryFor(0) : undefined,
    });
    if (digest !== undefined) out.line({ digest });
    return 0;
  },
});
