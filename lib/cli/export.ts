/**
 * `rabbit export`: writes a GGUF file, or a directory for compressed-tensors.
 *
 * @module
 */

import { exportGguf, planExport } from "../gguf/export.ts";
import { unreadVocabulary } from "../text/tokenizer_files.ts";
import { bytesOf } from "../format/checkpoint.ts";
import { MODEL_FILE } from "../format/checkpoint.ts";
import { checkOutputFile } from "../format/outputs.ts";
import {
  checkCompressed,
  exportCompressedTensors,
  PACK_QUANTIZED,
  planCompressedTensors,
} from "../compressed/export.ts";
import { join } from "@std/path/join";
import { CHECKPOINT, command, DIRECTORY, DRY_RUN, FILE, FORCE, TEXT } from "./arguments.ts";
import { printMethod } from "./calibrate.ts";
import { memoryFor } from "../files/memory.ts";
import { UsageError } from "./errors.ts";
import { type Output, warn, withBar } from "./output.ts";

/** `rabbit export` */
export const exportCommand = command({
  name: "export",
  summary: "write a checkpoint for llama.cpp (GGUF) or transformers, with the same weights",
  positionals: [
    { name: "CHECKPOINT", type: CHECKPOINT, alias: "in", help: "the checkpoint, quantized or float" },
    { name: "GGUF", type: FILE, alias: "gguf", help: "the new file", optional: true },
  ],
  flags: {
    "compressed-tensors": {
      type: DIRECTORY,
      help: "write a directory for transformers instead, which loads it with the Python package compressed-tensors",
    },
    pre: {
      type: TEXT,
      value: "NAME",
      unset: "derived from tokenizer.json",
      help: "llama.cpp's name for the pre-tokenizer",
    },
    force: { ...FORCE, help: "overwrite existing files" },
    "dry-run": DRY_RUN,
  },
  example: "rabbit export SmolLM2-135M-q8 SmolLM2-135M-q8.gguf",
  async run(
    { positionals: [input, path], values: { pre, force, "dry-run": dry, "compressed-tensors": directory } },
    out,
  ) {
    if (directory !== undefined) {
      const other = path !== undefined ? path : pre !== undefined ? "--pre" : undefined;
      if (other === undefined) return await exportPacked(input, directory, { force, dry }, out);
      throw new UsageError(`${other} is for a GGUF file, and --compressed-tensors writes none; give one of the two`);
    }
    if (path === undefined) throw new UsageError("GGUF is missing; see rabbit export --help");
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

/** Writes a directory for compressed-tensors. */
async function exportPacked(
  input: string,
  directory: string,
  { force, dry }: { readonly force: boolean; readonly dry: boolean },
  out: Output,
): Promise<number> {
  const plan = planCompressedTensors(input);
  const { source, width, tensors, bytes } = plan;
  if (dry) checkCompressed(plan, directory, force);
  const done = dry
    ? undefined
    : await withBar("export", bytes, (watch) => exportCompressedTensors(plan, directory, { force, ...watch }));
  for (const name of done?.missing ?? []) {
    warn("export", `${source.directory} has no ${name}, so the new directory has none`);
  }
  for (const name of done?.left ?? []) {
    warn("export", `${join(source.directory, name)} is not copied; copy it to ${directory} if it is needed`);
  }
  out.line({
    dry_run: dry || undefined,
    model: join(directory, MODEL_FILE),
    bytes,
    source_bytes: dry ? bytesOf(source) : undefined,
    tensors: tensors.length,
    format: PACK_QUANTIZED,
    bits: width.bits,
    group_size: width.blockWeights,
    scale: "f32",
    embedding: "f32",
    memory: dry ? memoryFor(0) : undefined,
  });
  await printMethod(source, out);
  if (done !== undefined) out.line({ digest: done.digest });
  return 0;
}
