/**
 * The files beside the weights of a source that a new checkpoint gets: the configuration and the tokenizer.
 *
 * @module
 */

import { join } from "@std/path/join";
import { exists, readRegular } from "../files/read.ts";
import { type Checkpoint, COMPANIONS, memberOf } from "../format/checkpoint.ts";

/** Limit of a copied file: larger than the tokenizer of any known model (Gemma: 33 MB). */
const MAX_SIDECAR_BYTES = 200_000_000;

/** Files that a complete checkpoint has; missing ones are reported. */
const NEEDED = ["config.json", "vocab.json", "merges.txt"];

/** Directories of a checkpoint whose files affect the model's behaviour. */
const FOLDERS = ["additional_chat_templates"];

/** The names of the files that are copied from the source's directory. */
export function sidecarsOf({ directory }: Checkpoint): string[] {
  return COMPANIONS.filter((name) => memberOf(directory, name) !== undefined);
}

/** The bytes of a file that is copied. @throws {CheckpointError} @throws {SystemError} */
export function readSidecar({ directory }: Checkpoint, name: string): Uint8Array {
  return readRegular(join(directory, name), MAX_SIDECAR_BYTES);
}

/** What a new checkpoint lacks: files that the source lacks, and directories that are not copied. */
export function leftOut(source: Checkpoint): { readonly missing: string[]; readonly left: string[] } {
  const sidecars = sidecarsOf(source);
  return {
    missing: NEEDED.filter((name) => !sidecars.includes(name)),
    left: FOLDERS.filter((name) => exists(join(source.directory, name))),
  };
}
