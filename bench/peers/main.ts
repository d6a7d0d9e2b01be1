/**
 * Measures rabbit and llama.cpp in turn, in one run, and prints the ratios of their rates:
 *
 *     deno run --allow-all bench/peers/main.ts quantize WORK FLOAT [--rounds 5] [--out DIR]
 *     deno run --allow-all bench/peers/main.ts decode WORK PREFIX --gguf small|large [--rounds 5]
 *
 * WORK is what build.sh made. quantize: FLOAT is a checkpoint of the shape of WORK/models/large-bf16.gguf (bench/big_model.ts),
 * DIR a directory for the outputs (a memory file system measures the programs, not the disk). decode: PREFIX, PREFIX-q4
 * and PREFIX-q8 are checkpoints of the shape of the GGUF models. RABBIT_BIN measures the executable.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";

const { _: [mode, work, model], rounds, out, gguf } = parseArgs(Deno.args, {
  string: ["rounds", "out", "gguf", "_"],
  default: { rounds: "5", out: "/tmp", gguf: "small" },
});
const binary = Deno.env.get("RABBIT_BIN");
const main = new URL("../../main.ts", import.meta.url).pathname;
const rabbit = binary ? [binary] : [Deno.execPath(), "run", "--allow-all", main];

/** Runs a command to its end. */
function run([program, ...args]: string[]): { seconds: number; output: string } {
  const start = performance.now();
  const { code, stdout, stderr } = new Deno.Command(program, { args }).outputSync();
  const seconds = (performance.now() - start) / 1000;
  const output = new TextDecoder().decode(stdout);
  if (code !== 0) throw new Error(`${program} ${args.join(" ")}: exit ${code}\n${new TextDecoder().decode(stderr)}`);
  return { seconds, output };
}

function summary(values: number[]): string {
  const sorted = values.toSorted((a, b) => a - b);
  const [low, middle, high] = [sorted[0], sorted[sorted.length >> 1], sorted.at(-1)!];
  return `${middle.toFixed(2)} (${low.toFixed(2)}–${high.toFixed(2)})`;
}

/** Takes both rates in turn, and prints a row with the ratio of each pair. */
function pair(name: string, own: () => number, peer: () => number): void {
  const pairs = Array.from({ length: Number(rounds) }, () => [own(), peer()]);
  const columns = [pairs.map(([a]) => a), pairs.map(([, b]) => b), pairs.map(([a, b]) => a / b)].map(summary);
  console.log(`| ${name} | ${columns.join(" | ")} |`);
}

function quantize(): void {
  const bytes = Deno.statSync(`${model}/model.safetensors`).size / 1e9;
  const clear = () => {
    for (const name of ["rabbit-out", "peer.gguf"]) {
      try {
        Deno.removeSync(`${out}/${name}`, { recursive: true });
      } catch (error) {
        if (!(error instanceof Deno.errors.NotFound)) throw error;
      }
    }
  };
  console.log(`| source GB/s, median (min–max) of ${rounds} | rabbit | llama-quantize | ratio |\n|---|---|---|---|`);
  for (const bits of ["4", "8"]) {
    for (const threads of ["1", "2"]) {
      pair(`${bits} bits, ${threads} threads`, () => {
        clear();
        const args = [
          "quantize",
          "--in",
          String(model),
          "--out",
          `${out}/rabbit-out`,
          "--bits",
          bits,
          "--threads",
          threads,
        ];
        return bytes / run([...rabbit, ...args]).seconds;
      }, () => {
        clear();
        const type = `q${bits}_0`;
        const types = ["--pure", "--token-embedding-type", type, "--output-tensor-type", type];
        const files = [`${work}/models/large-bf16.gguf`, `${out}/peer.gguf`, type.toUpperCase(), threads];
        return bytes / run([`${work}/bin/llama-quantize`, ...types, ...files]).seconds;
      });
    }
  }
  clear();
}

/** A prompt of n ids of common words. */
function prompt(n: number): string {
  return Array.from({ length: n }, (_, i) => 300 + (i * 37) % 2000).join(" ");
}

function decode(): void {
  const cases = [["-q4", "q4_0", "i8"], ["-q4", "q4_0", "f32"], ["-q8", "q8_0", "i16"], ["", "bf16", "f32"]];
  for (const [kind, n, p] of [["decode", "128", "0"], ["prefill", "0", gguf === "large" ? "128" : "512"]]) {
    console.log(
      `\n| ${kind}, tokens/s, median (min–max) of ${rounds} | rabbit | llama.cpp | ratio |\n|---|---|---|---|`,
    );
    for (const [suffix, type, activations] of cases) {
      for (const threads of ["1", "2"]) {
        pair(`${type} ${activations}, ${threads} threads`, () => {
          const ids = kind === "decode" ? prompt(1) : prompt(Number(p));
          const steps = kind === "decode" ? "129" : "1";
          const args = [
            "infer",
            "--model",
            `${model}${suffix}`,
            "--ids",
            ids,
            "--steps",
            steps,
            "--ignore-eos",
            "--json",
          ];
          const { output } = run([...rabbit, ...args, "--threads", threads, "--activations", activations]);
          return JSON.parse(output)[kind].tokens_per_s;
        }, () => {
          const file = `${work}/models/${gguf}-${type}.gguf`;
          const { output } = run([
            `${work}/bin/llama-bench`,
            "-m",
            file,
            "-t",
            threads,
            "-p",
            p,
            "-n",
            n,
            "-r",
            "1",
            "-o",
            "json",
          ]);
          return JSON.parse(output)[0].avg_ts;
        });
      }
    }
  }
}

if (mode === "quantize") quantize();
else decode();
