/**
 * Runs a checkpoint of 5 GB, whose weights need several WebAssembly memories, and checks that the logits are the same,
 * bit for bit, if the weights are distributed differently:
 *
 *     deno run --allow-all bench/big_model.ts DIR --layers 55 && deno run --allow-all bench/huge.ts DIR
 *
 * @module
 */

import { loadModel, openModel } from "../lib/model/load.ts";
import { Pool } from "../lib/kernels/pool.ts";

const IDS = [5, 6, 7];
const model = openModel(Deno.args[0]);
const runs: Float32Array[] = [];
for (const memoryBytes of [undefined, 2 ** 31]) {
  const pool = new Pool({ threads: 2, memoryBytes });
  runs.push(loadModel(pool, model, IDS.length).feed(IDS).slice());
  await pool.reset();
  pool.close();
}
const different = runs[0].findIndex((value, n) => !Object.is(value, runs[1][n]));
console.log(different < 0 ? `${runs[0].length} logits are the same bit for bit` : `logit ${different} differs`);
Deno.exitCode = different < 0 ? 0 : 1;
