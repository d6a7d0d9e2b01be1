/**
 * Refuses outputs that would overwrite a source or an existing file, or be mixed with files of another checkpoint.
 *
 * @module
 */

import { checkPath } from "../options.ts";
import { basename } from "@std/path/basename";
import { dirname } from "@std/path/dirname";
import { join } from "@std/path/join";
import { Refusal } from "../errors.ts";
import { INCOMPLETE_FILE, NewFiles, replaceable, type Seen, versionAt } from "../files/new_files.ts";
import { exists, linkStat, sameFile, stat } from "../files/read.ts";
import { type Checkpoint, COMPANIONS, INDEX_FILE, MODEL_FILE, QUANTIZATION_FILE } from "./checkpoint.ts";
import { shardsIn } from "./given.ts";

/** Files that must not stand beside the weights of another checkpoint. */
export const BESIDE: readonly string[] = [...COMPANIONS, QUANTIZATION_FILE];

/**
 * Refuses an output directory that is the source's (also through links), that has files which would be replaced without
 * `force`, or whose other files would be mixed with the new checkpoint.
 *
 * @param names the files of the new checkpoint: model.safetensors, or shards and their index; and its companions
 * @returns the existing files, for {@link NewFiles}
 * @throws {Refusal}
 */
export function checkOutput(
  directory: string,
  source: Checkpoint | undefined,
  names: readonly string[],
  force: boolean,
): Seen {
  checkPath("the output directory", directory);
  if (exists(directory) && !stat(directory).isDirectory) {
    throw new Refusal(
      "not-a-directory",
      directory,
      `${directory} is a file, and the checkpoint needs a directory; choose another name`,
    );
  }
  const seen = look(directory, [...names, MODEL_FILE, INDEX_FILE, INCOMPLETE_FILE, ...BESIDE]);
  const there = (name: string) => seen.get(name) !== undefined;
  if (source !== undefined) checkSource(directory, source);
  for (const target of names.filter(there).map((name) => join(directory, name))) {
    for (const { path } of source?.files ?? []) {
      if (!sameFile(target, path)) continue;
      throw new Refusal(
        "source",
        target,
        `${target} is the source itself (${path}), which would be overwritten; choose another directory`,
      );
    }
  }
  if (there(INDEX_FILE) && !names.includes(INDEX_FILE)) {
    throw new Refusal(
      "sharded",
      directory,
      `${directory} holds a sharded checkpoint (${INDEX_FILE}); choose another directory or remove it first`,
    );
  }
  for (const name of names.filter(there)) {
    const path = join(directory, name);
    const info = linkStat(path);
    if (info !== undefined && !replaceable(info)) {
      throw new Refusal(
        "not-a-file",
        path,
        `${path} is not a regular file and can't be replaced; choose another directory`,
      );
    }
    if (!force) throw new Refusal("exists", path, `${path} exists already`);
  }
  if (there(INCOMPLETE_FILE) && !force) {
    throw new Refusal("incomplete", directory, `a write of ${directory} was interrupted (${INCOMPLETE_FILE})`);
  }
  const others = names.includes(INDEX_FILE) ? [...BESIDE, MODEL_FILE] : BESIDE;
  const shards = names.includes(INDEX_FILE) && exists(directory) ? shardsIn(directory) : [];
  const stale = [...others.filter(there), ...shards].find((name) => !names.includes(name));
  if (stale !== undefined) throw staleFile(join(directory, stale));
  return seen;
}

/** Refuses an output directory that is the source's, also through links. @throws {Refusal} */
export function checkSource(directory: string, source: Checkpoint): void {
  if (!sameFile(directory, source.directory)) return;
  throw new Refusal(
    "source",
    directory,
    `${directory} is the directory of the source, which would be overwritten; choose another directory`,
  );
}

/** The refusal of a file that would stand beside a new checkpoint and does not belong to it. */
export function staleFile(path: string): Refusal {
  return new Refusal(
    "stale",
    path,
    `${path} exists, and the new checkpoint has no such file; remove it first or choose another directory`,
  );
}

/** The version of each file that exists. */
function look(directory: string, names: readonly string[]): Seen {
  return new Map(names.map((name) => [name, versionAt(join(directory, name))]));
}

/** The extensions of a checkpoint's files: weights, config, tokenizer and chat template. */
const CHECKPOINT_FILE = /\.(safetensors|json|txt|model|jinja)$/;

/**
 * Refuses a new file that would replace a file of a source or of its directory, another file that is read, something other
 * than a file, or, without `force`, an existing file.
 *
 * @param inputs the other files that are read: texts, a key
 * @returns the existing file, for {@link NewFiles}
 * @throws {Refusal}
 */
export function checkOutputFile(
  path: string,
  sources: readonly Checkpoint[],
  force: boolean,
  inputs: readonly string[] = [],
): Seen {
  checkPath("the output file", path);
  const seen = look(dirname(path), [basename(path)]);
  for (const source of sources.flatMap(({ files }) => files)) {
    if (!sameFile(path, source.path)) continue;
    throw new Refusal(
      "source",
      path,
      `${path} is a file of the checkpoint (${source.path}), which would be overwritten; choose another name`,
    );
  }
  for (const input of inputs) {
    if (!sameFile(path, input)) continue;
    throw new Refusal(
      "source",
      path,
      `${path} is read by this command (${input}), and would be overwritten; choose another name`,
    );
  }
  if (!exists(path)) return seen;
  if (!stat(path).isFile) {
    throw new Refusal("not-a-file", path, `${path} is not a regular file; choose another name`);
  }
  if (CHECKPOINT_FILE.test(path) && sources.some(({ directory }) => sameFile(dirname(path), directory))) {
    throw new Refusal(
      "source",
      path,
      `${path} is a file of the checkpoint, which would be overwritten; choose another name`,
    );
  }
  if (!force) throw new Refusal("exists", path, `${path} exists already`);
  return seen;
}

/** Tries whether a file can be created, before a long computation of what it will hold. @throws {SystemError} */
export function tryOutputFile(path: string): void {
  using files = new NewFiles(dirname(path));
  files.create(basename(path), 0);
}
