/**
 * Recognizes paths that users give instead of a checkpoint: one shard of several, an adapter, PyTorch's pickles, a GGUF
 * file, the root of a cache. Each has an error message with advice.
 *
 * @module
 */

import { basename } from "@std/path/basename";
import { join } from "@std/path/join";
import { CheckpointError, quote, systemError } from "../errors.ts";
import { linkStat, readText } from "../files/read.ts";
import { system } from "../files/system.ts";

/** The file names of shards, with their number and count. */
const SHARD = /-(\d+)-of-(\d+)\.safetensors$/;

/** The file names of peft's adapters and their configuration. */
const ADAPTER = /^adapter_(?:model\.|config\.json$)/;

/** The names of tensors in LoRA adapters, by peft and others. */
const ADAPTER_TENSOR = /(?:^|[._])lora_(?:A|B|down|up|embedding_A|embedding_B|magnitude_vector)(?:[._]|$)/;

/** The file names of PyTorch's pickles. */
const PICKLE = /\.(?:bin|pt|pth|ckpt)$/;

const IS_ADAPTER = "a LoRA adapter, not a model; merge it into its model (merge_and_unload() of peft) and give that";

const IS_PICKLE = "PyTorch's pickle format, which is not supported, since it can run arbitrary code; convert it with " +
  'transformers: AutoModelForCausalLM.from_pretrained("DIR", dtype="auto").save_pretrained("NEW")';

/** What to do with a GGUF file where a checkpoint is needed. */
export const IS_GGUF = "a GGUF file; convert it to a checkpoint with rabbit import";

/**
 * Refuses a file that is not a complete checkpoint, by its name.
 *
 * @param shards the shards that the index in the same directory lists
 * @throws {CheckpointError}
 */
export function refuseFile(path: string, shards: readonly string[]): void {
  const name = basename(path);
  const refuse = (problem: string) => {
    throw new CheckpointError({ path }, problem);
  };
  if (shards.length > 1 && shards.includes(name)) {
    refuse(
      `one of the ${shards.length} shards that model.safetensors.index.json lists; give the directory instead`,
    );
  }
  const [, number, count] = SHARD.exec(name) ?? [];
  if (Number(count) > 1) {
    refuse(
      `shard ${Number(number)} of ${Number(count)}, without the model.safetensors.index.json that lists them; ` +
        "fetch that and the other shards, and give the directory",
    );
  }
  if (ADAPTER.test(name)) refuse(IS_ADAPTER);
}

/**
 * Refuses the shards of a quantized checkpoint if they are of two sets, or not all of one, by the numbers in their names.
 *
 * @param index the path of the index
 * @param shards the names of the shards that it lists
 * @throws {CheckpointError}
 */
export function refuseShards(index: string, shards: readonly string[]): void {
  const numbered = shards.filter((name) => SHARD.test(name));
  if (numbered.length === 0) return;
  const countOf = (name: string) => Number(SHARD.exec(name)![2]);
  const [first] = numbered;
  const other = numbered.find((name) => countOf(name) !== countOf(first));
  const problem = other !== undefined
    ? `lists ${quote(first)} and ${quote(other)}, shards of two different sets`
    : shards.length !== countOf(first)
    ? `lists ${shards.length} shards, but ${quote(first)} is one of ${countOf(first)}`
    : undefined;
  if (problem === undefined) return;
  throw new CheckpointError({ path: index, field: "weight_map" }, `${problem}; write the checkpoint again`);
}

/**
 * Refuses a file of another format, by its first eight bytes.
 *
 * @throws {CheckpointError}
 */
export function refuseContent(path: string, start: Uint8Array): void {
  // A number below 2^32 may be the length of a header.
  if (start.subarray(4).every((byte) => byte === 0)) return;
  const text = new TextDecoder("latin1").decode(start);
  const refuse = (problem: string) => {
    throw new CheckpointError({ path }, `not a safetensors file but ${problem}`);
  };
  if (text.startsWith("GGUF")) refuse(IS_GGUF);
  // A zip archive, or a pickle of protocol 2 and later.
  const pickle = start[0] === 0x80 && start[1] >= 2 && start[1] <= 5;
  if (pickle || text.startsWith("PK\x03\x04")) refuse(IS_PICKLE);
  if (/^\s*[{[][\t\n\r -~]*$/.test(text)) {
    refuse("JSON; give the directory of the checkpoint, or its .safetensors file");
  }
}

/** Refuses the tensors of an adapter, whatever the file's name. @throws {CheckpointError} */
export function refuseTensors(path: string, tensors: readonly { readonly name: string }[]): void {
  const tensor = tensors.find(({ name }) => ADAPTER_TENSOR.test(name))?.name;
  if (tensor !== undefined) throw new CheckpointError({ path, tensor }, IS_ADAPTER);
}

/**
 * Refuses a directory without model.safetensors and index, with advice that depends on its contents.
 *
 * @throws {CheckpointError}
 * @throws {SystemError} it can't be read
 */
export function refuseDirectory(path: string): never {
  const names = list(path);
  const refuse = (problem: string): never => {
    throw new CheckpointError({ path }, problem);
  };
  if (names.includes("snapshots") && (names.includes("blobs") || names.includes("refs"))) {
    const snapshot = snapshotOf(path);
    refuse(
      snapshot === undefined
        ? "the Hugging Face cache of a model, without a snapshot; download the model again"
        : `the Hugging Face cache of a model, with a directory for each revision; give ${quote(snapshot)}`,
    );
  }
  const shard = names.find((name) => SHARD.test(name));
  if (shard !== undefined) {
    refuse(
      `has shards such as ${quote(shard)}, but no model.safetensors.index.json that lists them; fetch that as well`,
    );
  }
  if (names.some((name) => ADAPTER.test(name))) refuse(IS_ADAPTER);
  const other = names.find((name) => name.endsWith(".safetensors"));
  if (other !== undefined) {
    refuse(
      `no model.safetensors and no model.safetensors.index.json in this directory, but ${quote(other)}; give that`,
    );
  }
  const gguf = names.find((name) => name.endsWith(".gguf"));
  if (gguf !== undefined) {
    refuse(
      `no checkpoint, but ${quote(gguf)}; give that where a GGUF file can be read, or convert it with rabbit import`,
    );
  }
  const pickle = names.find((name) => PICKLE.test(name));
  if (pickle !== undefined) refuse(`no model.safetensors, but ${quote(pickle)}, ${IS_PICKLE}`);
  const cache = names.find((name) => name.startsWith("models--"));
  if (cache !== undefined) {
    refuse(`a Hugging Face cache, not a model in it; give a model's snapshot, such as that in ${quote(cache)}`);
  }
  return refuse("no model.safetensors and no model.safetensors.index.json in this directory; is it a checkpoint?");
}

/** More than a commit hash in hexadecimal and a line feed. */
const MAX_REF_BYTES = 100;

/** The directory of a cache's revision: that of the branch main, or the last one by name. */
function snapshotOf(cache: string): string | undefined {
  const snapshots = list(join(cache, "snapshots"));
  const ref = join(cache, "refs", "main");
  // The file is missing if only another revision was downloaded.
  const info = linkStat(ref);
  const main = info?.isFile && info.size <= MAX_REF_BYTES ? readText(ref, MAX_REF_BYTES).trim() : undefined;
  const revision = snapshots.find((name) => name === main) ?? snapshots.at(-1);
  return revision && join(cache, "snapshots", revision);
}

/** The names of the shards in a directory, sorted. @throws {SystemError} it can't be read */
export function shardsIn(directory: string): string[] {
  return list(directory).filter((name) => SHARD.test(name));
}

/** The names in a directory, sorted. */
function list(path: string): string[] {
  try {
    return system.list(path).map(({ name }) => name).sort();
  } catch (cause) {
    throw systemError(`cannot read ${path}`, cause, path);
  }
}
