import { join } from "@std/path/join";
import { WIDTHS } from "../format/blocks.ts";
import { MODEL_FILE, openCheckpoint } from "../format/checkpoint.ts";
import { generate } from "../dev/gen.ts";
import { type Command, FORCE } from "./arguments.ts";
import { interruptible } from "./output.ts";
import { BITS } from "./quantize.ts";

/** `rabbit gen` */
export const genCommand: Command = {
  name: "gen",
  summary: "write a small development model with random weights",
  positionals: [],
  flags: [
    { name: "out", value: "DIR", required: true, help: "the directory; made where it is missing" },
    { name: "seed", value: "N", help: "another seed gives other weights (default 0)" },
    {
      name: "exact",
      value: BITS.join("|"),
      help: "weights that quantizing to that many bits does not change (those of the gate)",
    },
    FORCE,
  ],
  example: "rabbit gen --out dev && rabbit quantize --in dev --out dev-q4",
  async run(args, out) {
    const bits = args.choice("exact", BITS);
    const levels = WIDTHS.find((format) => String(format.bits) === bits)?.levels;
    const seed = args.integer("seed", 0, 2 ** 32 - 1) ?? 0;
    const directory = args.text("out");
    const force = args.switches.has("force");
    // A signal waits until the files have their names.
    await interruptible(() => Promise.resolve(generate(directory, { seed, exact: levels, force })));
    const { tensors, files } = openCheckpoint(directory);
    const model = join(directory, MODEL_FILE);
    out.line({ model, bytes: files[0].bytes, tensors: tensors.length, seed, exact: bits ?? "none" });
    return 0;
  },
};
