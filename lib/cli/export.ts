import { join } from "@std/path/join";
import { readVocabulary } from "../gguf/vocabulary.ts";
import { exportGguf, planExport } from "../gguf/export.ts";
import { readJsonObject } from "../format/json.ts";
import { unreadVocabulary } from "../text/tokenizer_files.ts";
import { type Command, FORCE } from "./arguments.ts";
import { checkModel, MAX_CONFIG_BYTES, openModel } from "./model.ts";
import { warn, withBar } from "./output.ts";

/** `rabbit export` */
export const exportCommand: Command = {
  name: "export",
  summary: "write a checkpoint as GGUF, for llama.cpp, with the same weights",
  positionals: [],
  flags: [
    { name: "in", value: "DIR|FILE", required: true, help: "the checkpoint, quantized or float" },
    { name: "gguf", value: "FILE", required: true, help: "the new file" },
    {
      name: "pre",
      value: "NAME",
      help: "llama.cpp's name for how the tokenizer splits a text (default: found from tokenizer.json)",
    },
    { ...FORCE, help: "replace a file that is there" },
  ],
  example: "rabbit export --in SmolLM2-135M-q8 --gguf SmolLM2-135M-q8.gguf",
  async run(args, out) {
    const path = args.text("gguf");
    const { checkpoint, config } = openModel(args.text("in"));
    const configPath = join(checkpoint.directory, "config.json");
    const pre = args.values.get("pre");
    // First, since the vocabulary is as long as the configuration says.
    checkModel({ checkpoint, config });
    const json = readJsonObject(configPath, MAX_CONFIG_BYTES);
    const vocabulary = readVocabulary(checkpoint.directory, config.vocabulary, json, pre);
    const plan = planExport(checkpoint, config, configPath, vocabulary);
    const force = args.switches.has("force");
    const digest = await withBar("export", plan.bytes, (watch) => exportGguf(plan, path, { force, ...watch }));
    if (vocabulary === undefined) {
      const { directory } = checkpoint;
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
};
