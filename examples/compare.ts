/**
 * Says whether a quantized checkpoint keeps the answer to a prompt, how far its logits are off, and how much worse it
 * predicts a text.
 *
 *     deno run --allow-all examples/compare.ts FLOAT QUANT "The capital of France is" TEXT
 */

import { compare, compareText } from "@rabbit/rabbit";

const [float, quant, prompt, file] = Deno.args;

const { match, logits } = await compare(float, quant, { prompt, steps: 16 });
console.log(`the answer ${match ? "stays" : "changes"}; logits differ by ${logits.mean.toFixed(4)} on average`);

const { ratio, kl, sameTop } = await compareText(float, quant, Deno.readTextFileSync(file));
console.log(`perplexity times ${ratio.value.toFixed(4)} (standard error ${ratio.error.toFixed(4)})`);
console.log(`divergence ${kl.value.toFixed(5)} nats a token`);
console.log(`${(sameTop.value * 100).toFixed(1)}% of the most likely tokens are the same`);
