// Configurations as transformers writes and reads them (fixtures/configs), and the models that it makes of them: what the
// decoder reads, which tensors it wants, and the logits.

import { assert, assertEquals, assertThrows } from "@std/assert";
import { longestContext, parseConfig } from "../../../lib/model/config.ts";
import { Llama } from "../../../lib/model/llama.ts";
import { tensorsOf, type TensorSource } from "../../../lib/model/tensors.ts";
import { LimitError } from "../../../lib/errors.ts";
import { Reference } from "../../../lib/kernels/reference.ts";
import { json, ROOT } from "../../support/fixtures.ts";
import { tensorSource, using } from "../../support/models.ts";
import { assertNear } from "../../support/numbers.ts";

interface Case {
  readonly name: string;
  readonly config: Record<string, unknown>;
  readonly expected: {
    readonly frequencies: readonly number[];
    /** The longest context in which the window changes nothing; null if it is `fed` or more. */
    readonly window: number | null;
    readonly fed: number;
    /** An index of the file's lists. */
    readonly tensors: number;
    readonly ids: number[];
    readonly logits: readonly number[];
    readonly [field: string]: unknown;
  };
}

// make_configs.py makes such files of other configurations too.
const FILE = Deno.env.get("RABBIT_CONFIGS") ?? `${ROOT}fixtures/configs/configs.json`;
const { cases, tensors: lists }: { cases: Case[]; tensors: Record<string, number[]>[] } = json(FILE);

/** What make_configs.py sets a parameter to: `index` is its place among the sorted names. */
function weights(index: number, shape: readonly number[]): Float32Array {
  const count = shape.reduce((a, b) => a * b, 1);
  const values = new Float32Array(count);
  for (let n = 0, state = index * 7919 + 1; n < count; n++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const value = state / 2 ** 32 - 0.5;
    values[n] = shape.length === 1 ? 1 + value / 2 : value / (Math.max(...shape) < 64 ? 1 : 2);
  }
  return values;
}

/** A checkpoint of these tensors. */
function sourceOf(tensors: Record<string, number[]>): TensorSource {
  const entries = Object.entries(tensors).map(([name, shape], n) =>
    [name, { dtype: "F32", shape, bytes: new Uint8Array(weights(n, shape).buffer) }] as const
  );
  return tensorSource(Object.fromEntries(entries));
}

Deno.test(`parseConfig reads ${cases.length} configurations as transformers does`, () => {
  for (const { name, config: text, expected } of cases) {
    const config = parseConfig("config.json", JSON.stringify(text));
    for (
      const field of [
        ...["hidden", "intermediate", "layers", "heads", "kvHeads", "headDim", "vocabulary", "maxPositions", "normEps"],
        ...["tied", "endOfText"],
      ] as const
    ) assertEquals(config[field as keyof typeof config], expected[field], `${name}: ${field}`);
    assertEquals(config.ropeFrequencies.length, expected.frequencies.length, name);
    // transformers computes them in binary32.
    const off = config.ropeFrequencies.map((f, n) => Math.abs(f / expected.frequencies[n] - 1));
    assert(Math.max(...off) < 2e-6, `${name}: ${config.ropeFrequencies} and ${expected.frequencies}`);
    const { window } = config;
    if (expected.window !== null) assertEquals(window, expected.window, `${name}: window`);
    else assert(window === undefined || window >= expected.fed, `${name}: window ${window}`);
  }
});

Deno.test("tensorsOf lists the parameters of the models of transformers", () => {
  for (const { name, config, expected } of cases) {
    const tensors = [...tensorsOf(parseConfig("config.json", JSON.stringify(config)))];
    const sorted = tensors.sort((a, b) => a.name < b.name ? -1 : 1).map(({ name, shape }) => [name, shape]);
    assertEquals(sorted, Object.entries(lists[expected.tensors]), name);
  }
});

Deno.test("Llama computes the logits of transformers, and refuses a context longer than a window", () => {
  const sources = lists.map(sourceOf);
  for (const { name, config: text, expected } of cases) {
    const config = parseConfig("config.json", JSON.stringify(text));
    const source = sources[expected.tensors];
    using(new Reference(), (ops) => {
      const model = new Llama(ops, config, source, expected.ids.length);
      assertNear(model.feed(expected.ids), expected.logits, 1e-4, name);
      const longest = longestContext(config);
      assertThrows(
        () => new Llama(ops, config, source, longest + 1),
        LimitError,
        longest === config.maxPositions ? "max_position_embeddings" : "sliding_window",
      );
    });
  }
});
