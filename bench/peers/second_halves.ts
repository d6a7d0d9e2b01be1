/**
 * What llama-perplexity would score of a measurement of rabbit: the second half of every window that is full.
 *
 *     rabbit compare FLOAT FILE.gguf --text TEXT --shard 1/1 > LINES
 *     deno run --allow-read bench/peers/second_halves.ts LINES…
 *     llama-perplexity -m FLOAT.gguf -f TEXT -c 512 --kl-divergence-base LOGITS
 *     llama-perplexity -m FILE.gguf -f TEXT -c 512 --kl-divergence-base LOGITS --kl-divergence
 *
 * The tokens are the same if llama.cpp adds none at the beginning of a window. Of a window of 512 tokens it scores the last
 * 255; rabbit scores the last 511.
 *
 * @module
 */

/** The fields that are needed of a line, with one number for each scored token. */
interface Line {
  readonly texts: readonly [{ readonly tokens: number }];
  readonly window: number;
  readonly length: number;
  readonly stride: number;
  readonly loss_float: number[];
  readonly loss_quant: number[];
  readonly kl: number[];
}

console.log(
  "| lines | tokens | perplexity, float | perplexity | ratio | KL |\n|---|---|---|---|---|---|",
);
for (const path of Deno.args) {
  const lines: Line[] = Deno.readTextFileSync(path).trim().split("\n").map((line) => JSON.parse(line));
  const full = lines.filter(({ texts: [{ tokens }], window, length, stride }) => window * stride + length <= tokens);
  const mean = (of: (line: Line) => number[]) => {
    const values = full.flatMap((line) => of(line).slice(-(line.length - line.length / 2 - 1)));
    return { count: values.length, value: values.reduce((a, b) => a + b, 0) / values.length };
  };
  const [float, quant, kl] = (["loss_float", "loss_quant", "kl"] as const).map((key) => mean((line) => line[key]));
  const perplexities = [float, quant].map(({ value }) => Math.exp(value));
  const cells = [
    kl.count,
    ...perplexities.map((perplexity) => perplexity.toFixed(4)),
    (perplexities[1] / perplexities[0]).toFixed(6),
    kl.value.toFixed(6),
  ];
  console.log(`| ${path.split("/").at(-1)} | ${cells.join(" | ")} |`);
}
