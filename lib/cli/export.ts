/**
 * `rabbit export`: writes a GGUF file.
 *
 * @module
 */

import { exportGguf, planExport } from "../gguf/export.ts";
import { unreadVocabulary } from "../text/tokenizer_files.ts";
import { bytesOf } from "../format/checkpoint.ts";
import { checkOutputFile } from "../format/outputs.ts";
import { CHECKPOINT, command, DRY_RUN, FILE, FORCE, TEXT } from "./arguments.ts";
import { printMethod } from "./calibrate.ts";
import { memoryFor } from "./model.ts";
import { warn, withBar } from "./output.ts";

/** `rabbit export` */
export const exportCommand = command({
  name: "export",
  summary: "write a checkpoint as GGUF, for llama.cpp, with the same weights",
  positionals: [
    { name: "CHECKPOINT", type: CHECKPOINT, alias: "in", help: "the checkpoint, quantized or float" },
    { name: "GGUF", type: FILE, alias: "gguf", help: "the new file" },
  ],
  flags: {
    pre: {
      type: TEXT,
      value: "NAME",
      unset: "derived from tokenizer.json",
      help: "llama.cpp's name for the pre-tokenizer",
    },
    force: { ...FORCE, help: "overwrite an existing file" },
    "dry-run": DRY_RUN,
  },
  example: "rabbit export SmolLM2-135M-q8 SmolLM2-135M-q8.gguf",
  async run({ positionals: [input, path], values: { pre, force, "dry-run": dry } }, out) {
    const plan = planExport(input, { pre });
    const { source, config, vocabulary } = plan;
    if (dry) checkOutputFile(path, [source], force);
    const digest = dry
      ? undefined
      : await withBar("export", plan.bytes, (watch) => exportGguf(plan, path, { force, ...watch }));
    if (vocabulary === undefined) {
      const { directory } = source;
      warn(
        "export",
        `${directory} has no tokenizer${unreadVocabulary(directory)}, so ${path} has none`,
      );
    }
    if (vocabulary?.doubt !== undefined) warn("export", vocabulary.doubt);
    if (config.window !== undefined && config.window < config.maxPositions) {
      warn(
        "export",
        `llama.cpp does not support the sliding window of this architecture: beyond ${config.window} tokens its ` +
          "results differ from the model's",
      );
    }
    out.line({
      dry_run: dry || undefined,
      gguf: path,
      bytes: plan.bytes,
      source_bytes: dry ? bytesOf(source) : undefined,
      tensors: plan.tensors.length,
      type: plan.type.name,
      architecture: plan.architecture,
      tokenizer: vocabulary === undefined ? "none" : vocabulary.sentencePiece ? "llama" : vocabulary.pre,
      memory: dry ? memoryFor(0) : undefined,
    });
    await printMethod(source, out);
    if (digest !== undefined) out.line({ digest });
    return 0;
  },
});
