/**
 * GGUF files in memory.
 *
 * @module
 */

import { assert } from "@std/assert";
import { type ByteSource, type Gguf, parseGguf } from "../../lib/gguf/container.ts";

/** `bytes` as a source, of a file that has `fileBytes`; a read beyond its end is a defect of the reader. */
export function byteSource(bytes: Uint8Array, path = "m", fileBytes = bytes.length): ByteSource {
  return {
    path,
    bytes: fileBytes,
    read(offset, into) {
      assert(offset >= 0 && offset + into.length <= fileBytes, `read of ${into.length} at ${offset} of ${fileBytes}`);
      into.set(bytes.subarray(offset, offset + into.length));
    },
  };
}

/** A file, parsed, and all its bytes. */
export function readGguf(path: string): Gguf & { data: Uint8Array<ArrayBuffer> } {
  const data = Deno.readFileSync(path);
  return { ...parseGguf(byteSource(data, path)), data };
}
