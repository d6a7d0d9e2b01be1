/**
 * Reads and writes GGUF files.
 *
 * ```ts
 * import { generateModel, exportGguf } from "@rabbit/rabbit";
 * import { parseGguf } from "@rabbit/rabbit/gguf";
 *
 * const directory = Deno.makeTempDirSync();
 * generateModel(`${directory}/float`);
 * const path = `${directory}/model.gguf`;
 * await exportGguf(`${directory}/float`, path);
 *
 * const file = Deno.readFileSync(path);
 * const read = (offset: number, into: Uint8Array) => into.set(file.subarray(offset, offset + into.length));
 * const { metadata, tensors } = parseGguf({ path, bytes: file.length, read });
 * console.log(metadata.get("general.architecture"), tensors.length);
 * Deno.removeSync(directory, { recursive: true });
 * ```
 *
 * @module
 */

export { parseGguf, serializeGguf } from "./container.ts";
export type { ByteSource, Gguf, GgufTensor, Metadata, NewTensor, Scalar, Value, ValueType } from "./container.ts";
export { readVocabulary } from "./vocabulary.ts";
export type { Special, Vocabulary } from "./vocabulary.ts";
export { GGML_TYPES } from "./types.ts";
export type { Decode, GgmlType, ReadableType } from "./types.ts";
export type { NamedTensor } from "./names.ts";
export type { Part, PartTensor } from "./parts.ts";
