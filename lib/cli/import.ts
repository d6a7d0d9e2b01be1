import { join } from "@std/path/join";
import { WIDTHS } from "../format/blocks.ts";
import { MODEL_FILE } from "../format/checkpoint.ts";
import { DTYPES, importGguf, planImport } from "../gguf/import.ts";
import { type Command, FORCE } from "./arguments.ts";
import { warn, withBar } from "./output.ts";

/** `rabbit import` */
export const importCommand: Command = {
  name: "import",
  summary: "write a GGUF file as a checkpoint",
  positionals: [],
  flags: [
    { name: "gguf", value: "FILE", required: true, help: "the file: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0 or Q5_1" },
    { name: "out", value: "DIR", required: true, help: "the directory for the checkpoint; made where it is missing" },
    {
      name: "dtype",
      value: DTYPES.join("|"),
      help: "what the matrices become (default: bf16, or the float dtype that all have); " +
        `same keeps ${WIDTHS.filter(({ ggml }) => ggml).map(({ name, ggml }) => `${ggml} as ${name}`).join(" and ")}`,
    },
    { ...FORCE, help: "replace files that are in DIR" },
  ],
  example: "rabbit import --gguf SmolLM2-135M-Q8_0.gguf --out SmolLM2-135M --dtype same",
  async run(args, out) {
    const path = args.text("gguf");
    const directory = args.text("out");
    const plan = planImport(path, args.choice("dtype", DTYPES));
    const force = args.switches.has("force");
    const digest = await withBar("import", plan.bytes, (watch) => importGguf(plan, directory, { force, ...watch }));
    if (plan.missing !== undefined) warn("import", `${path}: ${plan.missing}; ${directory} gets none, use --ids`);
    out.line({
      model: join(directory, MODEL_FILE),
      bytes: plan.bytes,
      tensors: plan.tensors.length,
      dtype: plan.format.name,
      architecture: plan.architecture,
      files: plan.files.size + 1,
    });
    out.line({ digest });
    return 0;
  },
};
