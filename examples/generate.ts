/**
 * Writes what follows a prompt, as it is decoded.
 *
 *     deno run --allow-all examples/generate.ts CHECKPOINT "The capital of France is"
 */

import { open } from "@rabbit/rabbit";

const [checkpoint, prompt] = Deno.args;

await using model = await open(checkpoint);
const pieces = model.generate(prompt, { temperature: 0.8, topP: 0.95, seed: 1, maxTokens: 64 });
for await (const { text } of pieces) Deno.stdout.writeSync(new TextEncoder().encode(text));
console.log();
