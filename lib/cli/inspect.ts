/**
 * `rabbit inspect`: lists the tensors of a checkpoint.
 *
 * @module
 */

import { bytesOf, nameOf, openCheckpoint } from "../format/checkpoint.ts";
import { CHECKPOINT, command } from "./arguments.ts";
import { printMethod } from "./calibrate.ts";

/** `rabbit inspect` */
export const inspectCommand = command({
  name: "inspect",
  summary: "list the tensors of a checkpoint, from its header alone",
  positionals: [{ name: "CHECKPOINT", type: CHECKPOINT, help: "the checkpoint, a directory or a file" }],
  flags: {},
  example: "rabbit inspect SmolLM2-135M-q8",
  // deno-lint-ignore require-await
  async run(args, out) {
    const checkpoint = openCheckpoint(args.positionals[0]);
    const { files, tensors, width } = checkpoint;
    out.line({
      model: nameOf(checkpoint),
      bytes: bytesOf(checkpoint),
      files: files.length,
      format: width?.declaration ?? "none",
      tensors: tensors.length,
      parameters: tensors.reduce((sum, { shape }) => sum + shape.reduce((n, d) => n * d, 1), 0),
    });
    printMethod(checkpoint, out);
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
