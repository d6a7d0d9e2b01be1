/**
 * Writes a checkpoint as GGUF, for llama.cpp, and shows what is in the file.
 *
 *     deno run --allow-all examples/export.ts CHECKPOINT NEW.gguf
 */

import { exportGguf } from "@rabbit/rabbit";
import { parseGguf } from "@rabbit/rabbit/gguf";

const [checkpoint, path] = Deno.args;

const digest = await exportGguf(checkpoint, path);
console.log(`SHA-256 ${digest}`);

using file = Deno.openSync(path);
const read = (offset: number, into: Uint8Array) => {
  file.seekSync(offset, Deno.SeekMode.Start);
  for (let done = 0; done < into.length;) done += file.readSync(into.subarray(done)) ?? into.length;
};
const { metadata, tensors } = parseGguf({ path, bytes: file.statSync().size, read });
console.log(metadata.get("general.architecture"));
for (const { name, type, shape } of tensors) console.log(name, type.name, shape);
