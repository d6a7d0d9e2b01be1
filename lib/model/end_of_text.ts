/**
 * Finds the EOS tokens in config.json and generation_config.json.
 *
 * @module
 */

import { join } from "@std/path/join";
import { CheckpointError } from "../errors.ts";
import { exists } from "../files/read.ts";
import { readJsonObject } from "../format/json.ts";
import type { Config } from "./config.ts";
import { idsOf } from "./fields.ts";

/** The size limit of generation_config.json. */
const MAX_BYTES = 10_000_000;

/**
 * The ids of the EOS tokens of a checkpoint directory: those of config.json and generation_config.json, or, if both
 * have none, the default of the model's class.
 *
 * @throws {CheckpointError} generation_config.json is not a JSON object, or its eos_token_id is invalid
 */
export function endOfText({ endOfText, endAssumed }: Config, directory: string): number[] {
  const path = join(directory, "generation_config.json");
  const ids = exists(path) ? idsOf(readJsonObject(path, MAX_BYTES).eos_token_id) : [];
  if (ids === undefined) throw new CheckpointError({ path, field: "eos_token_id" }, "expected ids");
  return endAssumed && ids.length > 0 ? ids : [...endOfText, ...ids];
}
