import { assert } from "@std/assert";
import { join } from "@std/path/join";
import { calibrationMemory } from "../../../lib/calibrate/memory.ts";
import { generate } from "../../../lib/dev/gen.ts";
import { Q4B32 } from "../../../lib/format/blocks.ts";
import { openCheckpoint } from "../../../lib/format/checkpoint.ts";
import { readConfig } from "../../../lib/model/load.ts";
import { temporary } from "../../support/files.ts";

const directory = temporary();
generate(directory);
const model = { checkpoint: openCheckpoint(directory), config: readConfig(join(directory, "config.json")) };

Deno.test("calibrationMemory counts sums, streams and threads, and a model that samples its text", () => {
  const { hidden, intermediate } = model.config;
  const memory = (changes = {}) => {
    return calibrationMemory(model, Q4B32, { count: 64, window: 512, sampled: false, threads: 2, ...changes });
  };
  // H and C in binary64, what is made of them in binary32, and P; both residual streams.
  const sums = 2 * (8 + 4) * intermediate ** 2 + 8 * intermediate * hidden;
  const streams = 64 * 512 * 2 * 4 * hidden;
  assert(memory() > sums + streams && memory() < 4 * (sums + streams) + 600e6, String(memory()));
  // What is kept of the inputs has a limit, and streams have none.
  const more = memory({ count: 1064 }) - memory({ count: 64 });
  assert(more > 1000 * 512 * 2 * 4 * hidden - 300e6, String(more));
  assert(memory({ threads: 8 }) > memory());
  // Few tokens take less than the weights and the caches of the model that samples them.
  const sampled = memory({ count: 1, window: 32, sampled: true });
  assert(sampled >= memory({ count: 1, window: 32 }) && sampled > model.checkpoint.files[0].bytes);
});
