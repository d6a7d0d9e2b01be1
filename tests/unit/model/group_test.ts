// Models of one pool that are compared there, with sequences that share passes: against the same models fed one sequence
// after the other, whose logits are compared by the definition.

import { assertEquals, assertThrows } from "@std/assert";
import { NumericError } from "../../../lib/errors.ts";
import type { Operations, Pair } from "../../../lib/kernels/operations.ts";
import { Pool } from "../../../lib/kernels/pool.ts";
import { groupOf, type ModelGroup, type Sequence } from "../../../lib/measure/group.ts";
import { LlamaGroup } from "../../../lib/model/group.ts";
import { finish } from "../../../lib/pace.ts";
import { openCheckpoint, TensorReader } from "../../../lib/format/checkpoint.ts";
import { BATCH, Llama } from "../../../lib/model/llama.ts";
import { temporary } from "../../support/files.ts";
import { TINY } from "../../support/fixtures.ts";
import { configOf, IMPLEMENTATIONS, load, quantizeTo, using } from "../../support/models.ts";
import { assertSameBits } from "../../support/numbers.ts";
import { Random } from "../../support/random.ts";

const made = temporary();
const DIRECTORIES = [TINY, await quantizeTo(`${made}/q4`, TINY, 4), await quantizeTo(`${made}/q8`, TINY, 8)];

function modelsOf(ops: Operations, context: number, logitRows: number): [Llama, Llama[]] {
  const config = configOf(TINY, { max_position_embeddings: Math.max(context, 256) });
  const [float, ...quants] = DIRECTORIES.map((directory) => load(ops, directory, { config, context, logitRows }));
  return [float, quants];
}

/** The files of models that are read by layer: they stay open as long as the models are used. */
const readers: TensorReader[] = [];

function closeReaders(): void {
  for (const reader of readers.splice(0)) reader[Symbol.dispose]();
}

/** The same models, of which one layer each is in memory at a time. */
function modelsByLayer(ops: Operations, context: number, logitRows: number, oneCache: boolean): [Llama, Llama[]] {
  const config = configOf(TINY, { max_position_embeddings: Math.max(context, 256) });
  const [float, ...quants] = DIRECTORIES.map((directory) => {
    const reader = new TensorReader(openCheckpoint(directory));
    readers.push(reader);
    return finish(Llama.loading(ops, config, reader, context, logitRows, { oneCache }));
  });
  return [float, quants];
}

function sequence(length: number, random: Random): number[] {
  return Array.from({ length }, () => random.below(320));
}

/** Drops what work yields, which must grow to `total`. */
function counted<T>(work: Generator<number, T>, total: number): T {
  let last = 0;
  for (;;) {
    const { done, value } = work.next();
    if (done) {
      assertEquals(last, total);
      return value;
    }
    if (value < last || value > total) throw new Error(`${value} of ${total} tokens are done, after ${last}`);
    last = value;
  }
}

/** All that a comparison visits; the binary64 sums as their bits. */
function visited(group: ModelGroup, sequences: readonly Sequence[]) {
  const found: { place: number[]; pair: Pair; sums: BigUint64Array }[] = [];
  const total = sequences.reduce((sum, { ids }) => sum + ids.length, 0);
  const work = group.compare(sequences, (sequence, index, quant, pair) => {
    const sums = new BigUint64Array(Float64Array.of(pair.sumP, pair.sumQ, pair.cross).buffer);
    found.push({ place: [quant, sequence, index], pair: { ...pair, p: pair.p.slice(), q: pair.q.slice() }, sums });
  });
  counted(work, total);
  return found.sort((a, b) => a.place[0] - b.place[0] || a.place[1] - b.place[1] || a.place[2] - b.place[2]);
}

/** Lengths of sequences, room in the caches, logit rows: one pass for all, several, sequences of more than one pass. */
const CASES: readonly [number[], number, number][] = [
  [[3, 20, 1, 9], 128, 4],
  [[3, 20, 1, 9], 64, 64],
  [[33, 31, 32, 40, 2], 40, 3],
  [[BATCH - 2, 7, 5], BATCH + 40, 64],
  [[4, BATCH + 30, 6], BATCH + 30, 64],
];

Deno.test("LlamaGroup compares what groupOf compares, at every number of threads", async () => {
  for (const [lengths, context, logitRows] of CASES) {
    const random = new Random(context);
    const sequences = lengths.map((length) => ({ ids: sequence(length, random), first: random.below(length) }));
    const wanted = using(new Pool({ threads: 2 }), (ops) => visited(groupOf(...modelsOf(ops, context, 1)), sequences));
    for (const { name, make } of IMPLEMENTATIONS) {
      // The definition takes minutes for long sequences.
      if (name === "Reference" && context >= BATCH) continue;
      // All weights in memory; one layer at a time; that several times, for a few activations each.
      const byLayer = { "Pool of 1": [Infinity], "Pool of 2": [20], "Pool of 3": [Infinity] }[name] ?? [];
      for (const rows of [undefined, ...byLayer]) {
        await using(make(), (ops) => {
          const models = rows === undefined
            ? modelsOf(ops, context, logitRows)
            : modelsByLayer(ops, context, logitRows, rows === Infinity);
          const found = visited(new LlamaGroup(ops, ...models, rows), sequences);
          assertEquals(found.map(({ place }) => place), wanted.map(({ place }) => place), name);
          for (const [n, { place, pair, sums }] of found.entries()) {
            const what = `${name}, room for ${context}, ${rows} rows, place ${place}`;
            assertSameBits(pair.p, wanted[n].pair.p, what);
            assertSameBits(pair.q, wanted[n].pair.q, what);
            assertEquals(
              [pair.topP, pair.topQ, sums],
              [wanted[n].pair.topP, wanted[n].pair.topQ, wanted[n].sums],
              what,
            );
          }
        });
        closeReaders();
      }
    }
  }
});

Deno.test("LlamaGroup.answers gives the answers of the float model, prompt after prompt", async () => {
  const STEPS = 6;
  for (
    const [lengths, context, logitRows] of [[[5, 12, 1, 3], 128, 3], [[5, 12, 1, 3], 32, 64], [
      [40, BATCH + 3],
      560,
      1,
    ]] as const
  ) {
    const random = new Random(context);
    const prompts = lengths.map((length) => sequence(length, random));
    const total = prompts.reduce((sum, { length }) => sum + length + STEPS, 0);
    const wanted = using(new Pool({ threads: 2 }), (ops) => {
      return counted(groupOf(...modelsOf(ops, context, 1)).answers(prompts, STEPS), total);
    });
    for (const { name, make } of IMPLEMENTATIONS) {
      if (name === "Reference" && context >= BATCH) continue;
      await using(make(), (ops) => {
        const group = new LlamaGroup(ops, ...modelsOf(ops, context, logitRows));
        assertEquals(counted(group.answers(prompts, STEPS), total), wanted, name);
      });
      await using(make(), (ops) => {
        const group = new LlamaGroup(ops, ...modelsByLayer(ops, context, logitRows, false));
        assertEquals(counted(group.answers(prompts, STEPS), total), wanted, `${name}, by layer`);
      });
      closeReaders();
    }
  }
});

Deno.test("LlamaGroup says that a logit is not finite, and refuses what its models have no room for", () => {
  using(new Pool({ threads: 2 }), (ops) => {
    const broken = load(ops, TINY, {
      change: (source) => ({
        ...source,
        names: source.names,
        find: (name) => source.find(name),
        read(name, offset, into) {
          source.read(name, offset, into);
          if (name === "model.norm.weight") into.set([0x80, 0x7f]);
        },
      }),
    });
    const group = new LlamaGroup(ops, broken, [load(ops, TINY)]);
    assertThrows(() => [...group.answers([[1, 2]], 2)], NumericError, "the logits are not finite");
    const tops: [number, boolean][] = [];
    const see = (_s: number, _i: number, _q: number, { topP, topQ }: Pair) => void tops.push([topP, topQ >= 0]);
    assertEquals([...group.compare([{ ids: [1, 2], first: 1 }], see)].at(-1), 2);
    assertEquals(tops, [[-1, true]]);
    const long = Array.from({ length: 65 }, () => 1);
    assertThrows(() => [...group.compare([{ ids: long, first: 0 }], see)], RangeError, "room for 64");
  });
});
