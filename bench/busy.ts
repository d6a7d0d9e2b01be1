/**
 * Decoding beside another busy process, with one thread and with all, and how soon the rate is back when that has ended:
 *
 *     DENO_V8_FLAGS=$(deno run lib/kernels/engine_flags.ts) deno run --allow-all bench/busy.ts CHECKPOINT [ROUNDS]
 *
 * Prints tokens a second: while the processors are free, beside the process, and in each second after its end.
 *
 * @module
 */

import { loadModel, openModel } from "../lib/model/load.ts";
import { Pool } from "../lib/kernels/pool.ts";

const [path, rounds = "3"] = Deno.args;
const model = openModel(path);

/** Tokens after which decoding begins again at the first, so that all take the same time. */
const TOKENS = 64;

/** Seconds of each part. */
const WARM = 1;
const FREE = 2;
const BUSY = 5;
const AFTER = 3;

/** The rates with so many threads. */
function rates(threads: number) {
  const pool = new Pool({ threads, activations: model.checkpoint.width?.activations });
  const llama = loadModel(pool, model, TOKENS);
  const rate = (seconds: number) => {
    const start = performance.now();
    let count = 0;
    for (; performance.now() - start < 1000 * seconds; count++) {
      if (llama.position === TOKENS) llama.rewind(0);
      llama.feed([1 + count % TOKENS]);
    }
    return 1000 * count / (performance.now() - start);
  };
  rate(WARM);
  const free = rate(FREE);
  const other = new Deno.Command(Deno.execPath(), { args: ["eval", "for (;;);"] }).spawn();
  rate(WARM);
  const busy = rate(BUSY);
  other.kill();
  const after = Array.from({ length: AFTER }, () => rate(1));
  pool.close();
  return { free, busy, after };
}

for (let n = 0; n < Number(rounds); n++) {
  const [one, all] = [rates(1), rates(navigator.hardwareConcurrency)];
  for (const [name, { free, busy, after }] of [["one thread", one], ["all threads", all]] as const) {
    const seconds = after.map((rate) => rate.toFixed(0)).join(", ");
    console.log(`${name}: free ${free.toFixed(0)}, busy ${busy.toFixed(0)}, in each second after it ${seconds}`);
  }
  console.log(`all threads beside a busy process, over one: ${(all.busy / one.busy).toFixed(2)}`);
}
