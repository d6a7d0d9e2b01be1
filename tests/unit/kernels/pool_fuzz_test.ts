// Random models, by the definition of every operation and in pools of several numbers of threads: the logits must have the
// same bits, and no kernel may write outside of the areas that it is given. RABBIT_FUZZ_MODELS says how many models, and
// RABBIT_FUZZ_FIRST which is the first: a failure names the number of its model.

import { assert } from "@std/assert";
import { parseConfig } from "../../../lib/model/config.ts";
import { finish } from "../../../lib/pace.ts";
import { Llama } from "../../../lib/model/llama.ts";
import { tensorsOf, type TensorSource } from "../../../lib/model/tensors.ts";
import { type Format, FORMATS, matrixBytes } from "../../../lib/format/blocks.ts";
import { type Activations, type Operations, padded } from "../../../lib/kernels/operations.ts";
import { Pool } from "../../../lib/kernels/pool.ts";
import { Reference } from "../../../lib/kernels/reference.ts";
import { writeFloat } from "../../support/blocks.ts";
import { tensorSource } from "../../support/models.ts";
import { assertSameBits } from "../../support/numbers.ts";
import { Random } from "../../support/random.ts";

const FIRST = Number(Deno.env.get("RABBIT_FUZZ_FIRST") ?? 0);
const MODELS = Number(Deno.env.get("RABBIT_FUZZ_MODELS") ?? 40);

/** More than any kernel reads or writes at once. */
const GUARD_BYTES = 1024;

/** Half of it is kept free of weights, and 1 MiB is for reading. */
const SMALL_MEMORY = 8 << 20;
const ROOM_FOR_WEIGHTS = (SMALL_MEMORY >> 1) - (1 << 20);

/** Products of the definition, which takes some ten nanoseconds for each, that a model may ask for. */
const MOST_PRODUCTS = 6e6;

/** What is sampled: a model, and what it is fed. */
interface Sampled {
  readonly architecture: string;
  readonly bias: boolean;
  readonly tied: boolean;
  readonly layers: number;
  readonly hidden: number;
  readonly intermediate: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly vocabulary: number;
  /** A format for all tensors that can have it, or `mixed`. */
  readonly format: string;
  /** Whether weights have magnitudes of many kinds. */
  readonly wild: boolean;
  readonly activations: Activations;
  readonly memories: "one" | "several";
  readonly logitRows: number;
  /** Tokens that are fed at once, again and again; the first batch is also fed by feedAll. */
  readonly batches: readonly number[];
  readonly spare: number;
}

function sample(random: Random): Sampled {
  const rarely = () => random.below(12) === 0;
  const headDim = random.pick([4, 8, 12, 16, 20, 28, 32, 36, 44, 48, 60, 64, 68, 96, 128]);
  const kvHeads = random.pick([1, 1, 2, 3, 4, 5]);
  const blocks = random.below(5) < 3;
  const memories = random.below(6) === 0 ? "several" as const : "one" as const;
  const sampled = {
    architecture: random.pick(["Llama", "Llama", "Mistral", "Qwen2", "Qwen3"]),
    bias: random.below(3) === 0,
    tied: random.below(2) === 0,
    layers: 1 + random.below(3),
    hidden: blocks ? 32 * (1 + random.below(5)) : 1 + random.below(130),
    intermediate: blocks && random.below(5) > 0 ? 32 * (1 + random.below(7)) : 1 + random.below(200),
    heads: kvHeads * random.pick([1, 2, 3, 4, 5, 6, 7, 9]),
    kvHeads,
    headDim: rarely() ? random.pick([512, 516, 1024]) : headDim,
    vocabulary: random.pick([1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 257, 1000]),
    format: random.pick([...FORMATS.keys(), ...Array(6).fill("mixed")]),
    wild: rarely(),
    activations: random.pick(["f32", "i16", "i8"] as const),
    memories,
    logitRows: random.pick([1, 1, 4, 64]),
    batches: [
      random.pick([1, 2, 3, 5, 8, 17, 31, 32, 33, 63, 64, 65, 66, 100, 129]),
      ...Array.from({ length: random.below(4) }, () => random.pick([1, 1, 1, 2, 4, 7, 33])),
    ],
    spare: random.pick([0, 0, 1, 40]),
  };
  if (memories === "several") {
    return {
      ...sampled,
      // A table of binary32 that does not fit a small memory, nor two of them; and what does fit beside it.
      vocabulary: Math.ceil(2.2 * ROOM_FOR_WEIGHTS / 4 / padded(sampled.hidden)),
      heads: kvHeads,
      headDim,
      logitRows: 1,
      batches: sampled.batches.slice(0, 2),
    };
  }
  return rarely()
    ? { ...sampled, hidden: 32, layers: 1, headDim: 8, heads: 2, kvHeads: 1, batches: [513, 1] }
    : sampled;
}

/** Products of the definition. */
function products({ layers, hidden, intermediate, heads, kvHeads, headDim, vocabulary, batches, logitRows }: Sampled) {
  const tokens = batches.reduce((sum, n) => sum + n);
  const attention = 2 * heads * headDim * tokens * (tokens + 1) / 2;
  const weights = hidden * headDim * (2 * heads + 2 * kvHeads) + 3 * hidden * intermediate;
  const rows = batches.length + (logitRows > 1 ? batches[0] : 0);
  return layers * (tokens * weights + attention) + rows * vocabulary * hidden;
}

/** Model `number`: the first of those that its seed gives that is not too large. */
function modelOf(number: number): { random: Random; sampled: Sampled } {
  const random = new Random(number);
  for (;;) {
    const sampled = sample(random);
    if (products(sampled) <= MOST_PRODUCTS) return { random, sampled };
  }
}

/** Random weights of a format. */
function weightsOf(format: Format, shape: readonly number[], wild: boolean, random: Random): Uint8Array {
  const [rows, columns] = shape.length === 2 ? shape : [1, shape[0]];
  const bytes = new Uint8Array(matrixBytes(format, rows, columns));
  const view = new DataView(bytes.buffer);
  if (format.kind === "block") {
    for (let at = 0; at < bytes.length; at += format.blockBytes) {
      for (let n = 2; n < format.blockBytes; n += 4) view.setUint32(at + n, random.bits());
      const odd = random.below(8) === 0 ? random.pick([0, -0, 2 ** -24, -1 / 1024]) : undefined;
      view.setFloat16(at, odd ?? (random.unit() - 0.3) / 8 / format.levels, true);
    }
    return bytes;
  }
  const spread = shape.length === 1 ? 1 : 1 / Math.sqrt(columns);
  for (let at = 0; at < bytes.length; at += format.blockBytes) {
    const value = (random.unit() * 2 - 1) * spread * (wild ? 10 ** (random.below(10) - 6) : 1);
    writeFloat(view, at, format.name, value);
  }
  return bytes;
}

function sourceOf(sampled: Sampled, random: Random): TensorSource {
  const tensors = [...tensorsOf(configOf(sampled))].map(({ name, shape }) => {
    const columns = shape.length === 2 ? shape[1] : 0;
    const formats = [...FORMATS.values()].filter(({ kind, blockWeights }) => {
      return kind === "float" || columns > 0 && columns % blockWeights === 0;
    });
    const format = formats.find(({ name }) => name === sampled.format) ?? random.pick(formats);
    return [name, { dtype: format.name, shape, bytes: weightsOf(format, shape, sampled.wild, random) }] as const;
  });
  return tensorSource(Object.fromEntries(tensors));
}

function configOf(sampled: Sampled) {
  return parseConfig(
    "config.json",
    JSON.stringify({
      architectures: [`${sampled.architecture}ForCausalLM`],
      hidden_size: sampled.hidden,
      intermediate_size: sampled.intermediate,
      num_hidden_layers: sampled.layers,
      num_attention_heads: sampled.heads,
      num_key_value_heads: sampled.kvHeads,
      head_dim: sampled.headDim,
      vocab_size: sampled.vocabulary,
      attention_bias: sampled.bias,
      tie_word_embeddings: sampled.tied,
      max_position_embeddings: 1000,
      sliding_window: null,
    }),
  );
}

/** All logits of a model; `byLayer`: of one that reads its layers whenever they are needed. */
function logitsOf(
  ops: Operations,
  sampled: Sampled,
  source: TensorSource,
  ids: readonly number[],
  byLayer = false,
): Float32Array[] {
  const context = ids.length + sampled.spare;
  const how = byLayer ? { oneCache: false } : undefined;
  const model = finish(Llama.loading(ops, configOf(sampled), source, context, sampled.logitRows, how));
  const logits: Float32Array[] = [];
  const [prompt] = sampled.batches;
  if (sampled.logitRows > 1) {
    model.feedAll(ids.slice(0, prompt), (_, row) => logits.push(row.slice()));
    // What is fed again is written over what is in the cache.
    model.rewind(0);
  }
  let at = 0;
  for (const batch of sampled.batches) logits.push(model.feed(ids.slice(at, at += batch)).slice());
  return logits;
}

const pools = new Map<string, Pool>();

/** A pool that has nothing loaded. Threads are started once: more of them than there are models would take longer. */
function poolOf(threads: number, { activations, memories }: Sampled): Pool {
  const key = `${threads} ${activations} ${memories}`;
  const memoryBytes = memories === "several" ? SMALL_MEMORY : undefined;
  const pool = pools.get(key) ?? new Pool({ threads, activations, memoryBytes, guardBytes: GUARD_BYTES });
  pools.set(key, pool);
  return pool;
}

/** Runs a model by the definition and in pools. @returns bytes of guards that were looked at */
async function check(sampled: Sampled, random: Random, threadCounts: readonly number[], name: string): Promise<number> {
  const source = sourceOf(sampled, random);
  const tokens = sampled.batches.reduce((sum, n) => sum + n);
  const ids = Array.from({ length: tokens }, () => random.below(sampled.vocabulary));
  const defined = logitsOf(new Reference(sampled.activations), sampled, source, ids);
  let guards = 0;
  for (const threads of threadCounts) {
    const pool = poolOf(threads, sampled);
    try {
      const logits = logitsOf(pool, sampled, source, ids, threads % 2 === 0);
      guards += pool.checkGuards();
      assert(logits.length === defined.length);
      logits.forEach((row, n) => assertSameBits(row, defined[n], `logits ${n}`));
      await pool.reset();
    } catch (error) {
      const message = (error as Error).message;
      throw new Error(`${name}, ${threads} threads, ${JSON.stringify(sampled)}: ${message}`, { cause: error });
    }
  }
  return guards;
}

/** The pools live as long as the module's tests. */
globalThis.addEventListener("unload", () => [...pools.values()].forEach((pool) => pool.close()));

const unsanitized = { sanitizeResources: false, sanitizeOps: false };

Deno.test({
  name: `${MODELS} random models give the bits of Reference with 1, 2, 3 and 16 threads, and no guard is touched`,
  ...unsanitized,
  async fn() {
    let [guards, runs, several] = [0, 0, 0];
    for (let number = FIRST; number < FIRST + MODELS; number++) {
      const { random, sampled } = modelOf(number);
      const threadCounts = sampled.memories === "one" && number % 16 === 0 ? [1, 2, 3, 16] : [1, 2, 3];
      guards += await check(sampled, random, threadCounts, `model ${number}`);
      runs += threadCounts.length;
      if (sampled.memories === "several") several++;
    }
    assert(guards > runs * 30 * GUARD_BYTES, "an area has a guard on either side, and a model has more than 30");
    console.log(
      `${MODELS} models from ${FIRST} on, ${runs} runs, ${several} models in small memories, ${guards} bytes of guards`,
    );
  },
});

Deno.test({
  name: "A model of more layers than one program has room for gives the bits of Reference",
  ...unsanitized,
  async fn() {
    for (const [layers, activations] of [[205, "f32"], [420, "i8"]] as const) {
      const random = new Random(layers);
      const sampled: Sampled = {
        architecture: "Qwen3",
        bias: true,
        tied: false,
        layers,
        hidden: 32,
        intermediate: 32,
        heads: 2,
        kvHeads: 1,
        headDim: 8,
        vocabulary: 17,
        format: "mixed",
        wild: false,
        activations,
        memories: "one",
        logitRows: 1,
        batches: [3, 1, 1],
        spare: 0,
      };
      await check(sampled, random, [1, 2, 3], `${layers} layers`);
    }
  },
});
