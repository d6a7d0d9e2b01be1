import { exportGguf, planExport } from "../gguf/export.ts";
import { unreadVocabulary } from "../text/tokenizer_files.ts";
import { CHECKPOINT, command, FILE, FORCE, TEXT } from "./arguments.ts";
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
      unset: "found from tokenizer.json",
      help: "llama.cpp's name for how the tokenizer splits a text",
    },
    force: { ...FORCE, help: "replace a file that is there" },
  },
  example: "rabbit export SmolLM2-135M-q8 SmolLM2-135M-q8.gguf",
  async run({ positionals: [input, path], values: { pre, force } }, out) {
    const plan = planExport(input, { pre });
    const { source, config, vocabulary } = plan;
    const digest = await withBar("export", plan.bytes, (watch) => exportGguf(plan, path, { force, ...watch }));
    if (vocabulary === undefined) {
      const { directory } = source;
      warn(
        "export",
        `${directory} has no tokenizer${unreadVocabulary(directory)}, so ${path} takes and gives ids alone`,
      );
    }
    if (config.window !== undefined && config.window < config.maxPositions) {
      warn(
        "export",
        `llama.cpp computes no sliding window in this architecture: with more than ${config.window} tokens its ` +
          "results are not the model's",
      );
    }
    out.line({
      gguf: path,
      bytes: plan.bytes,
      tensors: plan.tensors.length,
      type: plan.type.name,
      architecture: plan.architecture,
      tokenizer: vocabulary === undefined ? "none" : vocabulary.sentencePiece ? "llama" : vocabulary.pre,
    });
    out.line({ digest });
    return 0;
  },
});
