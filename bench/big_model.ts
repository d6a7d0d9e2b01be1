/**
 * Writes a checkpoint with the shape of TinyLlama-1.1B (2.2 GB; --layers for other sizes) and random BF16 weights, for
 * measurements of speed and memory:
 *
 *     deno run --allow-all bench/big_model.ts DIR [--layers 22]
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { MODEL_FILE } from "../lib/format/checkpoint.ts";
import { writeAt } from "../lib/files/read.ts";
import { NewFiles } from "../lib/files/new_files.ts";
import { serializeHeader } from "../lib/format/safetensors.ts";
import { configOf, randomWeights, tensorShapes } from "../lib/dev/gen.ts";

const { _: [directory], layers } = parseArgs(Deno.args, { string: ["layers", "_"], default: { layers: "22" } });
const shape = {
  hidden: 2048,
  intermediate: 5632,
  layers: Number(layers),
  heads: 32,
  kvHeads: 4,
  vocabulary: 32000,
  tied: false,
};

using files = new NewFiles(String(directory));
const tensors = [...tensorShapes(shape)].map(([name, dimensions]) => {
  return { name, dtype: "BF16", shape: dimensions, bytes: 2 * dimensions.reduce((a, b) => a * b) };
});
const header = serializeHeader({ format: "pt" }, tensors);
const { file, partial } = files.create(MODEL_FILE, tensors.reduce((sum, { bytes }) => sum + bytes, header.length));
writeAt(file, partial, 0, header);
let offset = header.length;
const step = new Uint8Array(randomWeights(0, 0.02, 1 << 20).buffer);
for (const { bytes } of tensors) {
  for (let done = 0; done < bytes; done += step.length) {
    const part = step.subarray(0, Math.min(step.length, bytes - done));
    writeAt(file, partial, offset, part);
    offset += part.length;
  }
}
files.write("config.json", new TextEncoder().encode(JSON.stringify(configOf(shape), null, 2)));
files.commit();
