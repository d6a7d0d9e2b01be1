// The decoder against models whose answers an independent decoder computed (fixtures/models, fixtures/tiny), with both
// implementations of the operations.

import { assertEquals, assertThrows } from "@std/assert";
import { argmax } from "../../../lib/measure/distribution.ts";
import { BATCH, type Llama } from "../../../lib/model/llama.ts";
import type { TensorSource } from "../../../lib/model/tensors.ts";
import { LimitError } from "../../../lib/errors.ts";
import { Pool } from "../../../lib/kernels/pool.ts";
import { Reference } from "../../../lib/kernels/reference.ts";
import type { Activations } from "../../../lib/kernels/operations.ts";
import { inTemporary } from "../../support/files.ts";
import { type Expected, expected, json, modelNames, MODELS, TINY, WEIGHTS } from "../../support/fixtures.ts";
import { configOf, IMPLEMENTATIONS, load, quantizeTo, using } from "../../support/models.ts";
import { assertNear, assertSameBits } from "../../support/numbers.ts";
import { assertRefused } from "../../support/refusals.ts";
import { entriesOf } from "../../support/safetensors.ts";

/** The most that a logit may differ from the independent decoder's. */
const TOLERANCE = 1e-4;

/** `count` ids of the tiny model's vocabulary. */
function idsOf(count: number): number[] {
  return Array.from({ length: count }, (_, n) => (n * 37 + 11 * (n >> 2)) % 320);
}

/** Copies of the logits after every token, fed one by one. */
function oneByOne(model: Llama, ids: readonly number[]): Float32Array[] {
  return ids.map((id) => model.feed([id]).slice());
}

function checkAnswer(model: Llama, expected: Expected, what: string): Float32Array {
  const logits = model.feed(expected.prompt_ids).slice();
  assertNear(logits, expected.prefill_logits, TOLERANCE, `${what}: the logits after the prompt`);
  const tokens = [argmax(logits)];
  while (tokens.length < expected.tokens.length) tokens.push(argmax(model.feed(tokens.slice(-1))));
  assertEquals(tokens, expected.tokens, what);
  return logits;
}

for (const name of modelNames()) {
  Deno.test(`Llama gives the logits and the greedy tokens of ${name}, alike with all implementations`, () => {
    const directory = `${MODELS}/${name}`;
    const expected: Expected = json(`${directory}/expected.json`);
    let first: Float32Array | undefined;
    for (const { name: ops, make } of IMPLEMENTATIONS) {
      const logits = using(make(), (ops) => checkAnswer(load(ops, directory), expected, name));
      assertSameBits(logits, first ??= logits, `${name}, ${ops}`);
    }
  });
}

Deno.test("Llama gives the logits and the greedy tokens of the tiny model, float and quantized", async () => {
  await inTemporary(async (temporary) => {
    const all = expected;
    for (const kind of ["float", "q4", "q8"]) {
      const directory = kind === "float" ? TINY : `${temporary}/${kind}`;
      if (kind !== "float") await quantizeTo(directory, TINY, Number(kind.slice(1)));
      const expected: Expected = { ...all[kind], prompt_ids: all.prompt_ids };
      let first: Float32Array | undefined;
      for (const { name, make } of IMPLEMENTATIONS) {
        const logits = using(make(), (ops) => checkAnswer(load(ops, directory), expected, kind));
        assertSameBits(logits, first ??= logits, `${kind}, ${name}`);
      }
    }
  });
});

Deno.test("Llama with integer activations is alike with all implementations, and near the exact one", async () => {
  await inTemporary(async (temporary) => {
    for (const bits of [4, 8]) {
      const directory = await quantizeTo(`${temporary}/q${bits}`, TINY, bits);
      const ids = idsOf(9);
      const run = (ops: Reference | Pool) => using(ops, (ops) => load(ops, directory).feed(ids).slice());
      const exact = [...run(new Reference("f32"))];
      // Attention has eleven bits and a sign with i16, so its error is the larger part.
      for (const [activations, near] of [["i16", 1e-2], ["i8", 0.5]] as [Activations, number][]) {
        const defined = run(new Reference(activations));
        assertNear(defined, exact, near, `q${bits} ${activations}`);
        for (const threads of [1, 2, 3]) {
          assertSameBits(run(new Pool({ threads, activations })), defined, `q${bits} ${activations} ${threads}`);
        }
      }
    }
  });
});

Deno.test("Llama.feed of many tokens gives the same bits as of one after the other", async () => {
  await inTemporary(async (temporary) => {
    const q4 = await quantizeTo(`${temporary}/q4`, TINY, 4);
    const q8 = await quantizeTo(`${temporary}/q8`, TINY, 8);
    const cases: [string, string, Activations][] = [
      ["float", TINY, "f32"],
      ["qwen3", `${MODELS}/qwen3`, "f32"],
      ["head-dim", `${MODELS}/head-dim`, "f32"],
      ...(["f32", "i16", "i8"] as const).flatMap((activations): [string, string, Activations][] => [
        ["q4", q4, activations],
        ["q8", q8, activations],
      ]),
    ];
    for (const [name, directory, activations] of cases) {
      for (const threads of [1, 3]) {
        using(new Pool({ threads, activations }), (ops) => {
          const ids = idsOf(40).map((id) => id % 72);
          const model = load(ops, directory);
          const single = oneByOne(model, ids);
          for (const count of [1, 2, 4, 5, 33, 40]) {
            model.rewind(0);
            const what = `${name} ${activations}, ${threads} threads, ${count} tokens`;
            assertSameBits(model.feed(ids.slice(0, count)), single[count - 1], what);
            // The cache is the same too: the token that follows sees it.
            if (count < 40) assertSameBits(model.feed([ids[count]]), single[count], `${what} and one`);
          }
        });
      }
    }
    using(new Reference(), (ops) => {
      const ids = idsOf(5);
      const model = load(ops, TINY);
      const single = oneByOne(model, ids);
      model.rewind(0);
      assertSameBits(model.feed(ids), single[4], "Reference");
    });
  });
});

Deno.test("Llama.feed takes more tokens than one batch", () => {
  const count = BATCH + 70;
  const ids = idsOf(count);
  using(new Pool({ threads: 2 }), (ops) => {
    const model = load(ops, TINY, { config: configOf(TINY, { max_position_embeddings: count }), context: count });
    const last = oneByOne(model, ids)[count - 1];
    model.rewind(0);
    assertSameBits(model.feed(ids), last, "two batches");
    assertEquals(model.position, count);
  });
});

Deno.test("Llama.feedAll visits the logits after each token, whatever the number of logit rows", () => {
  const ids = idsOf(11);
  for (const make of [() => new Reference(), () => new Pool({ threads: 2 })]) {
    const single = using(make(), (ops) => oneByOne(load(ops, TINY), ids));
    for (const logitRows of [1, 3, 11, 64]) {
      using(make(), (ops) => {
        const model = load(ops, TINY, { logitRows });
        const seen: number[] = [];
        model.feedAll(ids, (index, logits) => {
          seen.push(index);
          assertSameBits(logits, single[index], `${logitRows} rows, token ${index}`);
        });
        assertEquals(seen, ids.map((_, n) => n));
        assertEquals(model.position, 11);
      });
    }
  }
});

Deno.test("Llama.rewind forgets what was fed", () => {
  for (const make of [() => new Reference(), () => new Pool({ threads: 2 })]) {
    using(make(), (ops) => {
      const model = load(ops, TINY);
      model.feed([1, 2, 3]);
      const after = model.feed([4]).slice();
      const longer = model.feed([5, 6]).slice();
      model.rewind(3);
      assertEquals(model.position, 3);
      model.feed([300]);
      model.rewind(3);
      assertSameBits(model.feed([4]), after, "the fourth token again");
      assertSameBits(model.feed([5, 6]), longer, "and two more");
      model.rewind(0);
      const fresh = model.feed([7, 8]).slice();
      using(make(), (ops) => assertSameBits(load(ops, TINY).feed([7, 8]), fresh, "from the start"));
    });
  }
});

Deno.test("Llama refuses a context longer than the model's, and tokens for which there is no room", () => {
  for (const make of [() => new Reference(), () => new Pool({ threads: 2 })]) {
    using(make(), (ops) => {
      assertThrows(
        () => load(ops, TINY, { context: 257 }),
        LimitError,
        "257 tokens are more than the model's context of 256 (max_position_embeddings); " +
          "use a shorter prompt or fewer steps",
      );
      const model = load(ops, TINY, { context: 5 });
      const four = model.feed([1, 2, 3, 4]).slice();
      assertThrows(() => model.feed([1, 2]), RangeError, "4 + 2 tokens, room for 5");
      // A refusal leaves the model as it was.
      assertEquals(model.position, 4);
      const five = model.feed([5]).slice();
      assertThrows(() => model.feed([1]), RangeError, "5 + 1 tokens, room for 5");
      model.rewind(0);
      assertSameBits(model.feed([1, 2, 3, 4]), four, "four tokens");
      assertSameBits(model.feed([5]), five, "and the fifth");
    });
  }
});

// ---------------------------------------------------------------- refusals

/** A source that says something else of one tensor. */
function changed(name: string, change: ReturnType<TensorSource["find"]> | "missing") {
  return (source: TensorSource): TensorSource => ({
    path: source.path,
    names: change === "missing"
      ? [...source.names].filter((other) => other !== name)
      : new Set([...source.names, name]),
    find: (tensor) => tensor !== name ? source.find(tensor) : change === "missing" ? undefined : change,
    read: (tensor, offset, into) => source.read(tensor, offset, into),
  });
}

function refuses(directory: string, message: string, options: Parameters<typeof load>[2]): void {
  for (const make of [() => new Reference(), () => new Pool({ threads: 1 })]) {
    using(make(), (ops) => void assertRefused(() => load(ops, directory, options), message));
  }
}

Deno.test("Llama refuses a model that lacks a tensor: each of those that config.json calls for", () => {
  for (const name of ["qwen3", "attention-bias", "untied"]) {
    const directory = `${MODELS}/${name}`;
    for (const tensor of entriesOf(Deno.readFileSync(`${directory}/${WEIGHTS}`)).map(({ name }) => name)) {
      refuses(
        directory,
        `${directory}/model.safetensors: tensor "${tensor}": missing, although config.json calls for it` +
          (tensor === "lm_head.weight" ? "; if the logits use the embedding, set tie_word_embeddings to true" : ""),
        { change: changed(tensor, "missing") },
      );
    }
  }
});

Deno.test("Llama refuses a tensor of another shape, naming both", () => {
  const path = `${TINY}/model.safetensors`;
  const cases: [string, number[], string][] = [
    ["model.embed_tokens.weight", [320, 32], "320,64"],
    ["model.layers.1.self_attn.k_proj.weight", [64, 64], "32,64"],
    ["model.layers.0.mlp.down_proj.weight", [128, 64], "64,128"],
    ["model.norm.weight", [64, 1], "64"],
    ["model.norm.weight", [], "64"],
  ];
  for (const [tensor, shape, wanted] of cases) {
    refuses(
      TINY,
      `other.safetensors: tensor "${tensor}": shape: [${shape}], but config.json calls for [${wanted}]`,
      { change: changed(tensor, { dtype: "BF16", shape, path: "other.safetensors" }) },
    );
  }
  refuses(
    TINY,
    `${path}: tensor "model.embed_tokens.weight": shape: [320,64], but config.json calls for [321,64]`,
    { config: configOf(TINY, { vocab_size: 321 }) },
  );
});

Deno.test("Llama refuses a dtype that it does not know, and a norm in blocks", () => {
  for (
    const [dtype, tensor, shape] of [
      ["I32", "model.embed_tokens.weight", [320, 64]],
      ["F8_E4M3", "model.norm.weight", [64]],
      ["Q8B32", "model.norm.weight", [64]],
    ] as const
  ) {
    refuses(TINY, `m.safetensors: tensor "${tensor}": dtype: the decoder does not know ${dtype}`, {
      change: changed(tensor, { dtype, shape, path: "m.safetensors" }),
    });
  }
});

Deno.test("Llama refuses a tensor that it does not use, naming it", () => {
  const layer = "model.layers.1";
  const unused = [
    ...["q", "k", "v", "o"].map((part) => `${layer}.self_attn.${part}_proj.bias`),
    ...["gate", "up", "down"].map((part) => `${layer}.mlp.${part}_proj.bias`),
    `${layer}.self_attn.q_norm.weight`,
    `${layer}.self_attn.k_norm.weight`,
    `${layer}.self_attn.sinks`,
    `${layer}.self_attn.rotary_emb.inv_freq.scale`,
    `${layer}.input_layernorm.bias`,
    `${layer}.pre_feedforward_layernorm.weight`,
    `${layer}.mlp.experts.0.up_proj.weight`,
    "model.layers.2.input_layernorm.weight",
    "model.layers.2.self_attn.rotary_emb.inv_freq",
    "model.layers.01.self_attn.q_proj.weight.scale",
    "model.embed_positions.weight",
    "lm_head.bias",
    "score.weight",
    "",
  ];
  const says = (tensor: string, architecture: string) =>
    `: tensor ${
      JSON.stringify(tensor)
    }: unexpected tensor: the ${architecture} that config.json calls for does not use it`;
  for (const tensor of unused) {
    refuses(TINY, "m.safetensors" + says(tensor, "LlamaForCausalLM"), {
      change: changed(tensor, { dtype: "BF16", shape: [64], path: "m.safetensors" }),
    });
  }
  // Qwen2 has biases on q, k and v, but none on the output; a Mistral has none, whatever attention_bias says.
  const tensor = "model.layers.0.self_attn.o_proj.bias";
  const change = changed(tensor, { dtype: "BF16", shape: [32], path: "m.safetensors" });
  for (const [name, architecture] of [["qwen2", "Qwen2ForCausalLM"], ["mistral", "MistralForCausalLM"]]) {
    const directory = `${MODELS}/${name}`;
    const config = configOf(directory, { attention_bias: true });
    refuses(directory, "m.safetensors" + says(tensor, architecture), { change, config });
  }
});

Deno.test("Llama takes the frequencies that old checkpoints have for what they are", () => {
  const { prompt_ids, float } = expected;
  for (const tensor of ["model.layers.1.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"]) {
    const change = changed(tensor, { dtype: "F32", shape: [8], path: "m.safetensors" });
    using(new Reference(), (ops) => checkAnswer(load(ops, TINY, { change }), { ...float, prompt_ids }, tensor));
  }
});

Deno.test("Llama refuses a scale that is not finite, naming tensor, row and block", async () => {
  await inTemporary(async (temporary) => {
    for (const [bits, blockBytes] of [[4, 18], [8, 34]]) {
      const directory = await quantizeTo(`${temporary}/q${bits}`, TINY, bits);
      for (const [low, high] of [[0x00, 0x7c], [0x01, 0xfe]]) {
        // Block 3 of row 50 of 64 rows of 128 columns.
        const tensor = "model.layers.1.mlp.down_proj.weight";
        const at = (50 * 4 + 3) * blockBytes;
        refuses(
          directory,
          `${directory}/model.safetensors: tensor "${tensor}": scale: row 50 block 3: the scale is not finite; ` +
            "the file is damaged, make or download it again",
          {
            change: (source) => ({
              path: source.path,
              names: source.names,
              find: (name) => source.find(name),
              read(name, offset, into) {
                source.read(name, offset, into);
                if (name !== tensor) return;
                for (const [n, byte] of [low, high].entries()) {
                  const place = at + n - offset;
                  if (place >= 0 && place < into.length) into[place] = byte;
                }
              },
            }),
          },
        );
      }
    }
  });
});

Deno.test("Llama uses lm_head where config.json does not say that the logits use the embedding", () => {
  const untied = `${MODELS}/untied`;
  const config = configOf(untied, { tie_word_embeddings: undefined });
  using(new Reference(), (ops) => {
    checkAnswer(load(ops, untied, { config }), json(`${untied}/expected.json`), "untied");
  });
  refuses(
    TINY,
    `${TINY}/model.safetensors: tensor "lm_head.weight": missing, although config.json calls for it; ` +
      "if the logits use the embedding, set tie_word_embeddings to true",
    { config: configOf(TINY, { tie_word_embeddings: undefined }) },
  );
});

/** A source with a head: the embedding with `change` applied to its bytes from `offset` on. */
function headed(dtype: string, change: (offset: number, bytes: Uint8Array) => void) {
  return (source: TensorSource): TensorSource => {
    const embedding = source.find("model.embed_tokens.weight")!;
    return {
      path: source.path,
      names: [...source.names, "lm_head.weight"],
      find: (name) => name === "lm_head.weight" ? { ...embedding, dtype, path: "h.safetensors" } : source.find(name),
      read(name, offset, into) {
        source.read(name === "lm_head.weight" ? "model.embed_tokens.weight" : name, offset, into);
        if (name === "lm_head.weight") change(offset, into);
      },
    };
  };
}

Deno.test("Llama takes a head beside a tied embedding if the two are equal", async () => {
  const { prompt_ids, float } = expected;
  using(new Reference(), (ops) => {
    const model = load(ops, TINY, { change: headed("BF16", () => {}) });
    checkAnswer(model, { ...float, prompt_ids }, "equal");
  });
  const differs = 'h.safetensors: tensor "lm_head.weight": differs from model.embed_tokens.weight, although ' +
    "tie_word_embeddings of config.json says that they are one; set it to false to use both";
  // The last byte of 320 rows of 64 weights.
  const last = 320 * 64 * 2 - 1;
  const change = headed("BF16", (offset, bytes) => {
    if (last >= offset && last < offset + bytes.length) bytes[last - offset] ^= 1;
  });
  refuses(TINY, differs, { change });
  refuses(TINY, differs, { change: headed("F16", () => {}) });
  await inTemporary(async (temporary) => {
    const directory = await quantizeTo(`${temporary}/q8`, TINY, 8);
    using(new Reference(), (ops) => load(ops, directory, { change: headed("Q8B32", () => {}) }));
    refuses(directory, differs, { change: headed("Q8B32", (_, bytes) => bytes[5]++) });
  });
});

Deno.test("Llama refuses a context longer than the window, and computes one that is as long", () => {
  const { prompt_ids, float } = expected;
  const context = prompt_ids.length + float.tokens.length;
  for (const make of [() => new Reference(), () => new Pool({ threads: 1 })]) {
    using(make(), (ops) => {
      const config = configOf(TINY, { sliding_window: context });
      checkAnswer(load(ops, TINY, { config, context }), { ...float, prompt_ids }, "as long as the window");
      assertThrows(
        () => load(ops, TINY, { config, context: context + 1 }),
        LimitError,
        `${
          context + 1
        } tokens are more than the model's window of ${context} (sliding_window), and the decoder knows ` +
          "no windows; use a shorter prompt or fewer steps",
      );
    });
  }
});

Deno.test("Llama ends at the first tensor that is missing, however many config.json calls for", () => {
  refuses(
    TINY,
    `${TINY}/model.safetensors: tensor "model.layers.2.input_layernorm.weight": missing, although config.json calls ` +
      "for it",
    { config: configOf(TINY, { num_hidden_layers: 10_000 }) },
  );
});
