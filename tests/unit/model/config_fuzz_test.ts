// Random changes of configurations, with infer's, compare's and export's use of them: an error of one line, or a model that
// is computed. RABBIT_FUZZ_ACCEPTED names a file for the configurations that were
// accepted, for fixtures/configs/make_configs.py to ask transformers what it makes of them.

import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path/join";
import { parseConfig } from "../../../lib/model/config.ts";
import { Llama } from "../../../lib/model/llama.ts";
import { CheckpointError, LimitError } from "../../../lib/errors.ts";
import { planTensors } from "../../../lib/gguf/export.ts";
import { openCheckpoint, TensorReader } from "../../../lib/format/checkpoint.ts";
import { Reference } from "../../../lib/kernels/reference.ts";
import { json, modelNames, MODELS, TINY } from "../../support/fixtures.ts";
import { rounds } from "../../support/fuzz.ts";
import { using } from "../../support/models.ts";
import { Random } from "../../support/random.ts";
import { attempt } from "../../support/refusals.ts";

const RUNS = rounds(1000);
const ACCEPTED = Deno.env.get("RABBIT_FUZZ_ACCEPTED");
const IDS = [3, 30, 7, 51, 20, 7];

/** Keys on which the logits may depend; what is done with all others has no effect. */
const READ = new Set([
  ...["architectures", "model_type", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size"],
  ...["rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters", "tie_word_embeddings", "attention_bias"],
]);

const KEYS = [
  ...READ,
  ...["intermediate_size", "num_hidden_layers", "vocab_size", "max_position_embeddings", "hidden_act", "mlp_bias"],
  ...["sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "eos_token_id", "bos_token_id"],
  ...["quantization_config", "pretraining_tp", "partial_rotary_factor", "rope_interleaved", "no_rope_layers"],
  ...["attention_multiplier", "logits_scaling", "embedding_multiplier", "residual_multiplier", "use_qk_norm"],
  ...["final_logit_softcapping", "original_max_position_embeddings", "attention_dropout", "torch_dtype"],
  ...["per_layer_config", "constructor", "unknown"],
];

const ROPE_KEYS = [
  ...["rope_type", "type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor", "partial_rotary_factor"],
  ...["original_max_position_embeddings", "attention_factor", "beta_fast", "short_factor", "mrope_section", "a\nb"],
];

// deno-lint-ignore no-explicit-any
type Json = any;

const VALUES: readonly Json[] = [
  ...[null, true, false, "", "silu", "gelu", "llama", "mistral", "linear", "llama3", "dynamic", "yarn", "default"],
  ...[0, -0, 1, -1, 2, 3, 4, 5, 8, 16, 32, 64, 0.5, 1.5, 1e-5, 1e-50, 1e39, 1e300, -1e300, 1e4, 1e6, 28, 48, 256],
  ...[1023, 1024, 1028, 2 ** 20, 2 ** 24, 2 ** 31 - 4, 2 ** 31 - 1, 2 ** 31, 2 ** 32, 2 ** 53, 2 ** 53 + 2],
  ...[[], [1], [1, 1], [0, 1], ["full_attention", "full_attention"], ["full_attention", "sliding_attention"]],
  ...[["LlamaForCausalLM"], ["MistralForCausalLM"], ["Qwen2ForCausalLM"], ["Qwen3ForCausalLM"], ["LLaMAForCausalLM"]],
  ...[{}, { rope_type: "linear", factor: 2 }, { type: "default" }, { rope_theta: 500 }, { bits: 4 }],
  { rope_type: "llama3", factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 48 },
];

/** The models of the fixtures: their configurations, and their logits after some ids. */
const MODELS_HERE = [
  TINY,
  ...modelNames().map((name) => `${MODELS}/${name}`),
];

/** A change of a configuration; the keys at the top that it touched, or undefined if it can't be told. */
function changed(config: Json, random: Random): { text: string; keys: string[] | undefined } {
  const copy = structuredClone(config);
  const keys: string[] = [];
  for (let count = 1 + random.below(3); count > 0; count--) {
    const key = random.pick(KEYS);
    keys.push(key);
    const way = random.below(8);
    if (way === 0) delete copy[key];
    else if (way < 3) {
      const rope = random.pick(["rope_scaling", "rope_parameters"]);
      keys.push(rope);
      copy[rope] = { ...copy[rope], [random.pick(ROPE_KEYS)]: random.pick(VALUES) };
    } else if (way === 3) {
      const other = json(join(random.pick(MODELS_HERE), "config.json"));
      if (key in other) copy[key] = other[key];
    } else copy[key] = random.pick(VALUES);
  }
  const text = JSON.stringify(copy);
  if (random.below(10) > 0) return { text, keys };
  // Damage to the text itself.
  const at = random.below(text.length);
  const damage = random.pick(["", "}", '"', "\\", "0", "e9", "\u0000", ",", '"a":1,', "\ud800", "\u2028", "NaN"]);
  return { text: text.slice(0, at) + damage + text.slice(at + random.below(3)), keys: undefined };
}

Deno.test(`${RUNS} changed configurations are refused in one line, or computed`, () => {
  const random = new Random(13);
  const models = MODELS_HERE.map((directory) => {
    const config = json(join(directory, "config.json"));
    const checkpoint = openCheckpoint(directory);
    const logits = using(new Reference(), (ops) => {
      using reader = new TensorReader(checkpoint);
      return new Llama(ops, parseConfig("c", JSON.stringify(config)), reader, IDS.length).feed(IDS).slice();
    });
    return { directory, config, checkpoint, logits };
  });
  const accepted: [string, unknown][] = [];
  let [computed, exported, unchanged] = [0, 0, 0];
  for (let run = 0; run < RUNS; run++) {
    const { directory, config, checkpoint, logits } = random.pick(models);
    const { text, keys } = changed(config, random);
    const context = `run ${run}, ${directory}: ${text}`;
    try {
      const parsed = attempt(() => parseConfig("config.json", text), CheckpointError, LimitError);
      if (parsed === undefined) continue;
      using reader = new TensorReader(checkpoint);
      const found = attempt(
        () => new Llama(new Reference(), parsed, reader, IDS.length).feed(IDS).slice(),
        CheckpointError,
        LimitError,
      );
      const plan = attempt(
        () => planTensors(checkpoint, parsed, "config.json", undefined),
        CheckpointError,
        LimitError,
      );
      if (plan !== undefined) {
        exported++;
        assertEquals(plan.tensors.filter(({ source }) => source !== undefined).length, checkpoint.tensors.length);
      }
      if (found === undefined) continue;
      computed++;
      accepted.push([directory, JSON.parse(text)]);
      assert(found.every(Number.isFinite), "logits that are not finite");
      if (keys === undefined || keys.some((key) => READ.has(key))) continue;
      assertEquals(found, logits, "a key that is not read has an effect");
      unchanged++;
    } catch (error) {
      throw new Error(context, { cause: error });
    }
  }
  if (ACCEPTED !== undefined) Deno.writeTextFileSync(ACCEPTED, JSON.stringify(accepted));
  if (RUNS > 1000) console.log(`${computed} computed, ${unchanged} of them as before; ${exported} exported`);
  assert(computed > RUNS / 50 && computed < RUNS && exported > 0 && unchanged > 0);
});
