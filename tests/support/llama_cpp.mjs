/**
 * Greedy decoding with llama.cpp, by the npm package node-llama-cpp: node llama_cpp.mjs PACKAGE_DIRECTORY JOBS
 *
 * JOBS is JSON: [{path, ids, steps}]. Prints {tokens, margins} of each as one line of JSON: margins are the differences of the two
 * largest probabilities' logarithms, which are those of the logits.
 */

import { createRequire } from "node:module";
import process from "node:process";
import { pathToFileURL } from "node:url";

const [directory, jobs] = process.argv.slice(2);
const entry = createRequire(`${directory}/`).resolve("node-llama-cpp");
const { getLlama, LlamaLogLevel } = await import(pathToFileURL(entry));
const llama = await getLlama({ gpu: false, build: "never", logLevel: LlamaLogLevel.error, progressLogs: false });

for (const { path, ids, steps } of JSON.parse(jobs)) {
  const model = await llama.loadModel({ modelPath: path });
  const context = await model.createContext({ contextSize: Math.max(64, ids.length + steps), threads: 1 });
  const sequence = context.getSequence();
  const tokens = [];
  const margins = [];
  const options = { temperature: 0, yieldEogToken: true };
  for await (const { token, probabilities } of sequence.evaluateWithMetadata(ids, { probabilities: true }, options)) {
    const [first, second] = [...probabilities.values()].sort((a, b) => b - a);
    tokens.push(token);
    margins.push(Math.log(first) - Math.log(second));
    if (tokens.length >= steps) break;
  }
  console.log(JSON.stringify({ tokens, margins }));
  await context.dispose();
  await model.dispose();
}
process.exit(0);
