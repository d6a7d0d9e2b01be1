/**
 * The ids that end a text, which config.json and generation_config.json name.
 *
 * @module
 */

import { join } from "@std/path/join";
import { CheckpointError } from "../errors.ts";
import { exists } from "../files/read.ts";
import { readJsonObject } from "../format/json.ts";
import type { Config } from "./config.ts";
import { idsOf } from "./fields.ts";

/** A generation_config.json larger than this is another file. */
const MAX_BYTES = 10_000_000;

/**
 * The ids that end a text of a checkpoint directory. Where config.json names none, those of generation_config.json count
 * before the default of the model's class.
 *
 * @throws {CheckpointError} generation_config.json is no JSON object, or has something else than ids
 */
export function endOfText({ endOfText, endAssumed }: Config, directory: string): number[] {
  const path = join(directory, "generation_config.json");
  const ids = exists(path) ? idsOf(readJsonObject(path, MAX_BYTES).eos_token_id) : [];
  if (ids === undefined) throw new CheckpointError({ path, field: "eos_token_id" }, "expected ids");
  return endAssumed && ids.length > 0 ? ids : [...endOfText, ...ids];
}
