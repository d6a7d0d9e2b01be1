// Which work is done one layer at a time, by models whose sizes are counted by hand.

import { assert, assertEquals, assertThrows } from "@std/assert";
import { LimitError } from "../../../lib/errors.ts";
import { type Needs, planMemory, textNeeds, type Weighed } from "../../../lib/library/memory_plan.ts";
import { parseConfig } from "../../../lib/model/config.ts";
import { tensorsOf } from "../../../lib/model/tensors.ts";
import { windowsOf } from "../../../lib/measure/perplexity.ts";

const MB = 1e6;

/** A model of 40 layers of 12 * 1024 * 1024 weights and a vocabulary of 8192, in BF16: 25 MB each, 17 MB. */
function model(tied: boolean, layers = 40): Weighed {
  const config = parseConfig(
    "config.json",
    JSON.stringify({
      architectures: ["LlamaForCausalLM"],
      ...{ hidden_size: 1024, intermediate_size: 8 * 1024 / 3 | 0, num_hidden_layers: layers, vocab_size: 8192 },
      ...{ num_attention_heads: 16, num_key_value_heads: 16, tie_word_embeddings: tied },
      max_position_embeddings: 4096,
    }),
  );
  const tensors = [...tensorsOf(config)].map(({ name, shape }) => {
    return { name, dtype: "BF16", shape, bytes: 2 * shape.reduce((a, b) => a * b) };
  });
  return { config, tensors };
}

const IDS = Array.from({ length: 8192 }, () => 1);
const TEXT = { ids: IDS, window: 512, windows: windowsOf(8192, 512, 512) };

/** What a plan takes beyond one of models without layers and text, which is the program. */
function planned(models: Weighed[], needs: Needs, budget: number) {
  const program = planMemory([], { ...needs, results: 0 }, 2, Infinity).memory;
  const { memory, rows } = planMemory(models, needs, 2, program + budget);
  return { megabytes: (memory - program) / MB, rows };
}

Deno.test("a text is measured with all weights in memory if they fit, else one layer at a time, else several times", () => {
  for (const tied of [true, false]) {
    const models = [model(tied), model(tied)];
    const needs = textNeeds(models, TEXT);
    assertEquals([needs.context, needs.fed, needs.fewest, needs.oneCache], [512, 16 * 511, 512, true]);
    const all = planned(models, needs, 1e12);
    // Layers; caches of 4 MB for each; embedding and head; activations.
    const least = 2 * (40 * 25.1 + 40 * 4 + (tied ? 17 : 34));
    assert(all.megabytes > least && all.megabytes < least + 100, `${all.megabytes}, at least ${least}`);
    assertEquals(all.rows, undefined);
    // A layer; a cache; the head, and the activations of all tokens: 33 MB for each model.
    const one = planned(models, needs, 1e9);
    const head = 2 * (25.1 + 4 + 17 + 33.5 + (tied ? 0 : 1));
    assert(one.megabytes > head && one.megabytes < head + 60, `${one.megabytes}, at least ${head}`);
    assertEquals(one.rows, 16 * 511);
    const few = planned(models, needs, (one.megabytes - 40) * MB);
    assert(few.rows! < 16 * 511 - 4000 && few.rows! >= 512 && few.megabytes <= one.megabytes - 39, `${few.rows}`);
    const error = assertThrows(() => planned(models, needs, (one.megabytes - 70) * MB), LimitError);
    assertEquals(error.code, "memory");
    const numbers =
      /^measuring the text takes (\d+) MB with the weights of one layer in memory, and (\d+) MB may be used$/
        .exec(error.message)!.slice(1).map(Number);
    assert(numbers[0] > numbers[1] && numbers[0] < numbers[1] + 40, error.message);
  }
});

Deno.test("a text that is shorter than a window needs no more than its own activations", () => {
  const text = { ids: IDS.slice(0, 100), window: 512, windows: windowsOf(100, 512, 512) };
  const models = [model(true)];
  const needs = textNeeds(models, text);
  assertEquals([needs.context, needs.fed, needs.fewest], [100, 99, 99]);
  const { rows } = planned(models, needs, 100 * MB);
  assertEquals(rows, 99);
});

Deno.test("work without a text is done one layer at a time with a cache for every layer", () => {
  const needs = { name: "decoding", context: 1024, logitRows: 1, oneCache: false, fed: 0, fewest: 0, results: 0 };
  const { megabytes, rows } = planned([model(true)], needs, 500 * MB);
  assertEquals(rows, 0);
  assert(megabytes > 40 * 8.3 + 25 + 17 && megabytes < 40 * 8.4 + 25 + 17 + 40, `${megabytes}`);
});
