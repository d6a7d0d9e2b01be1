/**
 * Reports that are made up.
 *
 * @module
 */

import type { QuantFigures, Report } from "../../lib/report/figures.ts";

/** A report of two layers and two quantized checkpoints, with `changes`. */
export function madeUp(changes: Partial<Report> = {}): Report {
  const parts = ["q", "k", "v", "o", "gate", "up", "down"];
  const matrices = [0, 1].flatMap((layer) =>
    parts.map((part, n) => {
      const block = n < 4 ? "self_attn" : "mlp";
      return { name: `model.layers.${layer}.${block}.${part}_proj.weight`, layer, part, shape: [64, 64], n };
    })
  );
  const quant = (name: string, format: string, size: number): QuantFigures => ({
    name,
    path: `${name}/model.safetensors`,
    format,
    bytes: 123_456 * size,
    ratio: size / 16,
    bits_per_weight: size + 0.5,
    steps: 3,
    match: size === 8,
    kept: size === 8 ? 3 : 1,
    agree: 2,
    logits_max: 1.25 / size,
    logits_mean: 0.0123456789 / size,
    values: 30,
    prefill_max: 0.75,
    prefill_mean: 0.001,
    rms: 0.5 / 2 ** size,
    equal: 17,
    different: 0,
    answer: { ids: size === 8 ? [4, 5, 6] : [4, 7, 6], margins: [1.5, 0.25, 3] },
    histogram: { width: 0.125, first: -2, counts: [1, 9, 18, 0, 2] },
    layers: [0.51 / 2 ** size, 0.52 / 2 ** size],
  });
  return {
    program: "rabbit 0.0.0",
    model: {
      name: "made-up",
      path: "made-up/model.safetensors",
      architecture: "LlamaForCausalLM",
      parameters: 1_234_567,
      layers: 2,
      hidden: 64,
      intermediate: 64,
      heads: 2,
      kv_heads: 2,
      vocabulary: 10,
      dtypes: ["BF16"],
      bytes: 2_469_134,
      bits_per_weight: 16,
    },
    prompt: { ids: [1, 2] },
    answer: { ids: [4, 5, 6], margins: [1.25, 0.5, 2] },
    quants: [quant("eight", "Q8B32", 8), quant("four", "Q4B32", 4)],
    tensors: [
      {
        name: "model.embed_tokens.weight",
        shape: [10, 64],
        dtype: "BF16",
        bytes: 1280,
        quants: [8, 4].map((bits) => ({ dtype: `Q${bits}B32`, bytes: 90 * bits, equal: true, rms: 0.3 / 2 ** bits })),
      },
      ...matrices.map(({ n, ...tensor }) => ({
        ...tensor,
        dtype: "BF16",
        bytes: 8192,
        quants: [8, 4].map((bits) => ({
          dtype: `Q${bits}B32`,
          bytes: 576 * bits,
          equal: true,
          rms: (0.5 + n / 100 + tensor.layer / 1000) / 2 ** bits,
        })),
      })),
      {
        name: "model.norm.weight",
        shape: [64],
        dtype: "BF16",
        bytes: 128,
        quants: [8, 4].map(() => ({ dtype: "BF16", bytes: 128, equal: true })),
      },
      {
        name: "extra",
        shape: [],
        quants: [null, { dtype: "F32", bytes: 4, equal: false, problem: "not in the source" }],
      },
    ],
    ...changes,
  };
}

/** The same report with a text. */
export function withText(report = madeUp()): Report {
  return {
    ...report,
    text: {
      ...{ file: "text.txt", tokens: 50, windows: 2, window: 40, scored: 48 },
      perplexity: { float: 12.5, float_error: 1.5 },
    },
    quants: report.quants.map((quant, n) => ({
      ...quant,
      perplexity: { float: 12.5, float_error: 1.5, quant: 12.75 + n, quant_error: 1.625, ratio: 1.02 + n },
      kl: { mean: 0.125, error: 0.01, median: 0.1, p999: 0.5, max: 0.75 },
      kl_quantiles: Array.from({ length: 101 }, (_, n) => n < 3 ? 0 : n / 100 * 0.75),
      same_top: { rate: 0.9375 },
      prob: { rms: 0.02, mean: -0.005 },
    })),
  };
}
