/**
 * Decodes with rabbit and, after `rabbit export`, with llama.cpp, and says how far the tokens agree:
 *
 *     deno run --allow-all bench/peers/exports.ts PACKAGE MODEL…
 *
 * PACKAGE is a directory where `npm install node-llama-cpp@3.21.1` was run, a MODEL a checkpoint with a tokenizer. Where the
 * tokens part, the margin is the difference of llama.cpp's two largest logits there: a small one says that the two computed
 * the same and rounded otherwise (llama.cpp rounds activations to eight bits where weights are quantized).
 *
 * @module
 */

import { loadTokenizer } from "../../lib/text/tokenizer.ts";

const STEPS = 32;
const PROMPTS = ["The capital of France is", "def fibonacci(n):", "Water boils at a temperature of"];

const [directory, ...models] = Deno.args;
const main = `${import.meta.dirname}/../../main.ts`;
const script = `${import.meta.dirname}/../../tests/support/llama_cpp.mjs`;

function run(program: string, ...args: string[]): string {
  const { code, stdout, stderr } = new Deno.Command(program, { args }).outputSync();
  if (code !== 0) throw new Error(`${program} ${args.join(" ")}: exit ${code}\n${new TextDecoder().decode(stderr)}`);
  return new TextDecoder().decode(stdout);
}

function rabbit(...args: string[]) {
  return JSON.parse(run(Deno.execPath(), "run", "--allow-all", main, ...args, "--json"));
}

const temporary = Deno.makeTempDirSync();
try {
  console.log("| model | type | prompt | tokens that agree | margin where they part | smallest margin |");
  console.log("|---|---|---|---|---|---|");
  for (const model of models) {
    const path = `${temporary}/model.gguf`;
    const { type } = rabbit("export", "--in", model, "--gguf", path, "--force");
    const tokenizer = await loadTokenizer(model, "encode");
    const jobs = PROMPTS.map((prompt) => ({ path, ids: tokenizer!.encode(prompt), steps: STEPS }));
    const answers = run("node", script, Deno.realPathSync(directory), JSON.stringify(jobs)).trim().split("\n");
    for (const [n, { ids }] of jobs.entries()) {
      const { tokens, margins }: { tokens: number[]; margins: number[] } = JSON.parse(answers[n]);
      const steps = ["--steps", String(STEPS), "--ignore-eos"];
      const own: number[] = rabbit("infer", "--model", model, "--ids", ids.join(" "), ...steps).tokens;
      const parted = own.findIndex((token, n) => token !== tokens[n]);
      const cells = parted < 0 ? [`all ${own.length}`, ""] : [`${parted} of ${own.length}`, margins[parted].toFixed(3)];
      console.log(`| ${model} | ${type} | ${PROMPTS[n]} | ${cells.join(" | ")} | ${Math.min(...margins).toFixed(3)} |`);
    }
  }
} finally {
  Deno.removeSync(temporary, { recursive: true });
}
