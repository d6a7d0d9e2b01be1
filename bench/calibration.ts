/**
 * Times the arithmetic of calibration for one layer of a Llama, on random inputs and weights, and says what it takes for all
 * layers. What the layers themselves compute is not in it.
 *
 *     deno run --allow-all bench/calibration.ts [HIDDEN FFN KEYS LAYERS TOKENS [THREADS]]
 *
 * The default is the shape of SmolLM2-135M with 16,384 tokens: 576 1536 192 30 16384. KEYS is the width of the keys.
 *
 * @module
 */

import { Q4B32 } from "../lib/format/blocks.ts";
import { DEFAULT_THREADS } from "../lib/kernels/workers.ts";
import { Engine } from "../lib/quantize/calibrate/engine.ts";
import { Xorshift32 } from "../lib/random.ts";

const given = Deno.args.map(Number);
const [hidden, ffn, keys, layers, tokens] = given.length > 0 ? given : [576, 1536, 192, 30, 16384];
const threads = given[5] ?? DEFAULT_THREADS;

/** Tokens of a call. */
const TOKENS = 512;
/** Rows of a call. */
const ROWS = 1024;

const random = new Xorshift32(1);
const values = (count: number) => Float32Array.from({ length: count }, () => random.bits() / 2 ** 32 - 0.5);

const [x, noise] = [values(TOKENS * ffn), values(TOKENS * ffn)];
const x0 = x.map((value, at) => value + 0.05 * noise[at]);
const weights = values(ROWS * ffn);

const engine = new Engine({ threads });
const milliseconds = { sums: 0, factors: 0, rows: 0 };
const operations = { sums: 0, factors: 0, rows: 0 };

async function timed(part: keyof typeof milliseconds, count: number, work: () => Promise<unknown>): Promise<void> {
  const start = performance.now();
  await work();
  milliseconds[part] += performance.now() - start;
  operations[part] += count;
}

/** Matrices of so many rows in all with one input. */
async function group(columns: number, rows: number, residual: number): Promise<void> {
  engine.begin({ columns, target: true, residual });
  const [some, some0] = [x.subarray(0, TOKENS * columns), x0.subarray(0, TOKENS * columns)];
  const [r, r0] = residual > 0 ? [x.subarray(0, TOKENS * residual), x0.subarray(0, TOKENS * residual)] : [];
  // Half of H, and C: two operations for a product of two values; then P.
  const sums = TOKENS * columns * (3 * columns + 2 * residual);
  for (let t = 0; t < tokens; t += TOKENS) {
    await timed("sums", sums, () => engine.add({ tokens: TOKENS, x: some, x0: some0, r, r0 }));
  }
  await timed("factors", 2 / 3 * columns ** 3, () => engine.factor(0.3));
  for (let first = 0; first < rows; first += ROWS) {
    const count = Math.min(ROWS, rows - first);
    // The target, two losses, GPTQ, the gradient, and three sweeps, without the search for scales.
    const solve = count * columns ** 2 * (4 + 2 * 6.5);
    const own = weights.subarray(0, count * columns);
    await timed("rows", solve, () => engine.solve({ format: Q4B32, rows: count, first, weights: own }));
  }
}

await group(hidden, hidden + 2 * keys, 0);
await group(hidden, hidden, hidden);
await group(hidden, 2 * ffn, 0);
await group(ffn, hidden, hidden);
engine.close();

let total = 0;
for (const part of ["sums", "factors", "rows"] as const) {
  const rate = operations[part] / milliseconds[part] / 1e6;
  total += milliseconds[part];
  console.log(`${part}: ${(milliseconds[part] / 1000).toFixed(2)} s a layer, ${rate.toFixed(1)} GFLOP/s`);
}
const rss = Deno.memoryUsage().rss / 2 ** 20;
console.log(
  `${threads} threads: ${(total / 1000).toFixed(2)} s a layer, ${
    (total * layers / 60000).toFixed(1)
  } min for ${layers}`,
);
console.log(`resident memory at the end: ${rss.toFixed(0)} MiB`);
