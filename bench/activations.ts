/**
 * Compares the effect of integer activations on the logits with that of quantizing the weights. The defaults of
 * `rabbit infer` are based on it.
 *
 *     deno run --allow-all bench/activations.ts FLOAT QUANT… [TOKENS]
 *
 * Decodes TOKENS (default: 200) tokens with the float model, feeds them to each model, and compares the logits.
 *
 * @module
 */

import { trace } from "../lib/measure/compare.ts";
import { PUBLISHED_PROMPT } from "../lib/cli/model.ts";
import { loadModel, openModel } from "../lib/model/load.ts";
import { Pool } from "../lib/kernels/pool.ts";
import { Difference } from "../lib/measure/metrics.ts";

const steps = Number(Deno.args.find((word) => /^\d+$/.test(word)) ?? 200);
const [float, ...quants] = Deno.args.filter((word) => !/^\d+$/.test(word)).map((path) => openModel(path));
const threads = navigator.hardwareConcurrency;
const context = PUBLISHED_PROMPT.length + steps;

async function logitsOf(model: typeof float, activations: "f32" | "i16" | "i8", tokens: readonly number[]) {
  const pool = new Pool({ threads, activations });
  const llama = loadModel(pool, model, context);
  llama.feed(PUBLISHED_PROMPT);
  const logits = tokens.map((token) => llama.feed([token]).slice());
  await pool.reset();
  pool.close();
  return logits;
}

function difference(a: Float32Array[], b: Float32Array[]): Difference {
  const sum = new Difference();
  a.forEach((row, n) => sum.add(row, b[n]));
  return sum;
}

const pool = new Pool({ threads });
const { tokens, logits } = trace(loadModel(pool, float, context), PUBLISHED_PROMPT, steps);
await pool.reset();
pool.close();
console.log("| format | activations | mean | max | format's mean / this mean |\n|---|---|---|---|---|");
for (const quant of quants) {
  const name = quant.checkpoint.width!.name;
  const exact = await logitsOf(quant, "f32", tokens);
  const own = difference([...logits], exact);
  console.log(`| ${name} against the float model | f32 | ${own.mean.toFixed(6)} | ${own.max.toFixed(4)} | |`);
  for (const activations of ["i16", "i8"] as const) {
    const fast = difference(exact, await logitsOf(quant, activations, tokens));
    const ratio = (own.mean / fast.mean).toFixed(1);
    console.log(
      `| ${name} against its own f32 | ${activations} | ${fast.mean.toFixed(6)} | ${fast.max.toFixed(4)} | ${ratio} |`,
    );
  }
}
