/**
 * `rabbit gen`: generates a model with random weights.
 *
 * @module
 */

import { join } from "@std/path/join";
import { WIDTHS } from "../format/blocks.ts";
import { MODEL_FILE, openCheckpoint } from "../format/checkpoint.ts";
import { generate } from "../dev/gen.ts";
import { command, DIRECTORY, FORCE } from "./arguments.ts";
import { interruptible } from "./output.ts";
import { BITS } from "./widths.ts";

/** `rabbit gen` */
export const genCommand = command({
  name: "gen",
  group: "development",
  summary: "write a small development model with random weights",
  positionals: [
    { name: "OUT", type: DIRECTORY, alias: "out", help: "the output directory, created if missing" },
  ],
  flags: {
    seed: {
      type: { kind: "integer", min: 0, max: 2 ** 32 - 1 },
      default: 0,
      help: "random seed of the weights",
    },
    exact: { type: BITS, help: "weights that quantizing to this number of bits does not change, as in the gate" },
    force: FORCE,
  },
  example: "rabbit gen dev && rabbit quantize dev dev-q4",
  async run({ positionals: [directory], values: { seed, exact: bits, force } }, out) {
    const levels = WIDTHS.find((format) => format.bits === bits)?.levels;
    // A signal is handled after the files have been renamed.
    await interruptible(() => Promise.resolve(generate(directory, { seed, exact: levels, force })));
    const { tensors, files } = openCheckpoint(directory);
    const model = join(directory, MODEL_FILE);
    out.line({ model, bytes: files[0].bytes, tensors: tensors.length, seed, exact: bits ?? "none" });
    return 0;
  },
});
