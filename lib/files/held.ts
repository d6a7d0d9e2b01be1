/**
 * Texts that a file has in it, such as the configuration and the tokenizer of a GGUF file. They are read as if the file
 * were a directory: `model.gguf/config.json`.
 *
 * @module
 */

import { basename } from "@std/path/basename";
import { dirname } from "@std/path/dirname";
import { join } from "@std/path/join";
import { system } from "./system.ts";

/** The texts by name, by the path of the file. */
const held = new Map<string, ReadonlyMap<string, string>>();

/** Sets the texts of a file. Those of an earlier file at the same path are forgotten. */
export function holdTexts(path: string, texts: ReadonlyMap<string, string>): void {
  held.set(dirname(join(path, "any")), texts);
}

/** The texts of the file that a path leads through; undefined if it leads through directories alone. */
function textsAt(path: string): ReadonlyMap<string, string> | undefined {
  const texts = held.get(dirname(path));
  // A directory may have taken the place of the file.
  return texts !== undefined && system.stat(dirname(path)).isFile ? texts : undefined;
}

/** Whether there is a text at a path in a file; undefined if the path is not one in a file. */
export function isHeld(path: string): boolean | undefined {
  return textsAt(path)?.has(basename(path));
}

/** The text at a path in a file. */
export function heldText(path: string): string | undefined {
  return textsAt(path)?.get(basename(path));
}
