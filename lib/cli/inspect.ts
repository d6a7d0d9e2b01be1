/**
 * `rabbit inspect`: lists the tensors of a checkpoint.
 *
 * @module
 */

import { bytesOf, nameOf, openCheckpoint } from "../format/checkpoint.ts";
import { isGguf, openParts } from "../gguf/parts.ts";
import { CHECKPOINT, command } from "./arguments.ts";
import { printMethod } from "./calibrate.ts";
import type { Output } from "./output.ts";

/** The most bytes of weights that are hashed, to tell whether quantization.json belongs to them. */
const MAX_HASHED = 1 << 30;

/** `rabbit inspect` */
export const inspectCommand = command({
  name: "inspect",
  summary: "list the tensors of a checkpoint, from its header alone",
  positionals: [{
    name: "CHECKPOINT",
    type: CHECKPOINT,
    help: "the checkpoint, a directory or a file, or a GGUF file",
  }],
  flags: {},
  example: "rabbit inspect SmolLM2-135M-q8",
  async run(args, out) {
    const [path] = args.positionals;
    if (isGguf(path)) return inspectGguf(path, out);
    const checkpoint = openCheckpoint(path);
    const { files, tensors, width } = checkpoint;
    out.line({
      model: nameOf(checkpoint),
      bytes: bytesOf(checkpoint),
      files: files.length,
      format: width?.declaration ?? "none",
      tensors: tensors.length,
      parameters: parametersOf(tensors),
    });
    await printMethod(checkpoint, out, MAX_HASHED);
    for (const { name, dtype, shape, bytes, file, offset } of tensors) {
      out.item("list", {
        tensor: name,
        dtype,
        shape,
        bytes,
        offset,
        file: files.length > 1 ? files[file].path : undefined,
      });
    }
    return 0;
  },
});

/** Lists the tensors of a GGUF file as they are there, of whatever architecture. */
function inspectGguf(path: string, out: Output): number {
  const { parts, tensors } = openParts(path);
  out.line({
    model: path,
    bytes: parts.reduce((sum, { bytes }) => sum + bytes, 0),
    files: parts.length,
    format: "GGUF",
    tensors: tensors.length,
    parameters: parametersOf(tensors),
  });
  for (const { name, type, shape, bytes, offset, part } of tensors) {
    const file = parts.length > 1 ? part.path : undefined;
    out.item("list", { tensor: name, dtype: type.name, shape, bytes, offset, file });
  }
  return 0;
}

function parametersOf(tensors: readonly { readonly shape: readonly number[] }[]): number {
  return tensors.reduce((sum, { shape }) => sum + shape.reduce((n, d) => n * d, 1), 0);
}
