/**
 * The second model of fixtures/make_compressed_tensors.py.
 *
 * @module
 */

import { variant } from "./models.ts";

/** Makes `directory` a Qwen2 of the tensors of the tiny model, with a head of its own, and biases. */
export function qwenOf(directory: string, tiny: string): string {
  return variant(directory, tiny, {
    config: { architectures: ["Qwen2ForCausalLM"], model_type: "qwen2", tie_word_embeddings: false },
    tensors(entries) {
      const { dtype, bytes: data } = entries.find(({ name }) => name === "model.embed_tokens.weight")!;
      const [rows, rowBytes] = [320, 128];
      const head = new Uint8Array(data.length);
      for (let row = 0; row < rows; row++) {
        head.set(data.subarray(row * rowBytes, (row + 1) * rowBytes), (rows - 1 - row) * rowBytes);
      }
      const biases = [0, 1].flatMap((layer) =>
        Object.entries({ q: 64, k: 32, v: 32 }).map(([name, size], n) => {
          const at = (3 * layer + n) * rowBytes;
          return {
            name: `model.layers.${layer}.self_attn.${name}_proj.bias`,
            dtype,
            shape: [size],
            bytes: data.subarray(at, at + 2 * size),
          };
        })
      );
      return [...entries, { name: "lm_head.weight", dtype, shape: [rows, 64], bytes: head }, ...biases];
    },
  });
}
