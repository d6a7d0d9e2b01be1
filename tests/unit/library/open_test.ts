import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { CheckpointError, RabbitError } from "../../../lib/errors.ts";
import { generate } from "../../../lib/dev/gen.ts";
import { exportGguf } from "../../../lib/gguf/export.ts";
import { type GeneratedToken, type LanguageModel, open, type Prompt } from "../../../lib/library/open.ts";
import type { GenerateOptions } from "../../../lib/library/open.ts";
import { temporary } from "../../support/files.ts";
import { copyModel, quantizeTo } from "../../support/models.ts";
import { rabbit } from "../../support/program.ts";

const directory = temporary();
const float = `${directory}/float`;
const quant = `${directory}/quant`;
generate(float);
await quantizeTo(quant, float, 8);
const SETTINGS = { chat_template: "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}" };
Deno.writeTextFileSync(`${quant}/tokenizer_config.json`, JSON.stringify(SETTINGS));

/** Calls `test` with an open model. */
async function using(options: Parameters<typeof open>[1], test: (model: LanguageModel) => Promise<void>) {
  await using model = await open(quant, { threads: 2, ...options });
  await test(model);
}

async function answer(model: LanguageModel, prompt: Prompt, options: GenerateOptions = {}): Promise<GeneratedToken[]> {
  return await Array.fromAsync(model.generate(prompt, options));
}

function textOf(pieces: readonly GeneratedToken[]): string {
  return pieces.map(({ text }) => text).join("");
}

Deno.test("generate gives the tokens and the text that the program gives", async () => {
  for (
    const [options, flags] of [
      [{}, []],
      [{ temperature: 0.9, topP: 0.8, seed: 7 }, ["--temperature", "0.9", "--top-p", "0.8", "--seed", "7"]],
    ] as const
  ) {
    await using({}, async (model) => {
      const pieces = await answer(model, "Once upon", { maxTokens: 12, ...options });
      const args = ["infer", quant, "--prompt", "Once upon", "--steps", "12", "--threads", "2", "--json", ...flags];
      const { out } = await rabbit(directory, args);
      const { tokens, text } = JSON.parse(out);
      assertEquals(pieces.map(({ id }) => id), tokens);
      assertEquals(textOf(pieces), text.text);
    });
  }
});

Deno.test("a GGUF file generates what its checkpoint generates, with the template in it", async () => {
  const path = `${directory}/quant.gguf`;
  await exportGguf(quant, path, { pre: "gpt-2" });
  await using model = await open(path, { threads: 2 });
  await using(undefined, async (checkpoint) => {
    for (const [prompt, options] of [["Once upon", {}], ["Once", { chat: true }]] as const) {
      const wanted = await answer(checkpoint, prompt, { maxTokens: 8, ...options });
      assertEquals(await answer(model, prompt, { maxTokens: 8, ...options }), wanted);
    }
    assertEquals(model.activations, checkpoint.activations);
  });
});

Deno.test("generate follows token ids, forgets the answer before, and ends with a token that stops it", () =>
  using({}, async (model) => {
    const first = await answer(model, [1, 2, 3], { maxTokens: 6 });
    assertEquals(first.length, 6);
    assertEquals(await answer(model, [1, 2, 3], { maxTokens: 6 }), first);
    const stopped = await answer(model, [1, 2, 3], { maxTokens: 6, stops: [first[2].id] });
    const at = first.findIndex(({ id }) => id === first[2].id);
    assertEquals(stopped.map(({ id }) => id), first.slice(0, at + 1).map(({ id }) => id));
    // What stops an answer is no part of its text, but for bytes of a character that has not ended.
    assertMatch(stopped.at(-1)!.text, /^\ufffd*$/);
  }));

Deno.test("generate of a chat: a text and its message are one prompt, and another role another", () =>
  using({}, async (model) => {
    const text = await answer(model, "Once", { chat: true, maxTokens: 5 });
    assertEquals(await answer(model, [{ role: "user", content: "Once" }], { maxTokens: 5 }), text);
    assertEquals(await answer(model, "user: Once\n", { maxTokens: 5 }), text);
    const system = await answer(model, [{ role: "system", content: "Once" }], { maxTokens: 5 });
    assertEquals(await answer(model, "system: Once\n", { maxTokens: 5 }), system);
  }));

Deno.test("generate gives whole characters: a piece ends within none, and the last one has what is left", () =>
  using({}, async (model) => {
    const tokenizer = model.tokenizer!;
    for (const seed of [1, 2, 3]) {
      const pieces = await answer(model, "a", { maxTokens: 20, temperature: 100, seed });
      assertEquals(textOf(pieces), tokenizer.decode(pieces.map(({ id }) => id)));
    }
  }));

Deno.test("generate stops where the context is full, and refuses what does not fit", () =>
  using({ context: 10 }, async (model) => {
    assertEquals(model.context, 10);
    assertEquals((await answer(model, [1, 2, 3], { stops: [] })).length, 7);
    const long = Array.from({ length: 10 }, (_, n) => n);
    await assertRejects(() => answer(model, long), RangeError, "a prompt of 10 tokens and 0 more exceed");
    await assertRejects(() => answer(model, [1, 2], { maxTokens: 9 }), RangeError, "exceed the context of 10");
  }));

Deno.test("generate refuses options that are out of range, and prompts that are none", () =>
  using({}, async (model) => {
    const cases: [Prompt, GenerateOptions, string][] = [
      [[1], { temperature: -1 }, "temperature -1"],
      [[1], { temperature: NaN }, "temperature NaN"],
      [[1], { topP: 0 }, "topP 0"],
      [[1], { topP: 1.5 }, "topP 1.5"],
      [[1], { seed: 0.5 }, "seed 0.5"],
      [[1], { maxTokens: 0 }, "maxTokens 0"],
    ];
    for (const [prompt, options, message] of cases) {
      await assertRejects(() => answer(model, prompt, { maxTokens: 1, ...options }), RangeError, message);
    }
    for (
      const [prompt, message] of [
        [[], "the prompt is empty"],
        ["", "the prompt is empty"],
        [[8192], "the prompt has the id 8192, the vocabulary ends at 8191"],
        [[-1], "the prompt has the id -1"],
        [[1.5], "the prompt has the id 1.5"],
      ] as const
    ) await assertRejects(() => answer(model, prompt), RabbitError, message);
    await assertRejects(() => answer(model, [1], { chat: true }), TypeError, "not token ids");
  }));

Deno.test("a model generates one answer at a time, and the next after a loop that was left", () =>
  using({}, async (model) => {
    const first = model.generate([1], { maxTokens: 3 });
    await first.next();
    await assertRejects(() => answer(model, [2]), TypeError, "still generating another answer");
    await first.return();
    for await (const _ of model.generate([1], { maxTokens: 3 })) break;
    assertEquals((await answer(model, [2], { maxTokens: 2 })).length, 2);
  }));

Deno.test("a signal ends an answer with its reason, before it begins and within", () =>
  using({}, async (model) => {
    const reason = new Error("enough");
    await assertRejects(() => answer(model, [1], { signal: AbortSignal.abort(reason) }), Error, "enough");
    const controller = new AbortController();
    const seen: number[] = [];
    const work = async () => {
      for await (const { id } of model.generate([1], { signal: controller.signal, stops: [] })) {
        if (seen.push(id) === 3) controller.abort(reason);
      }
    };
    await assertRejects(work, Error, "enough");
    assertEquals(seen.length, 3);
  }));

Deno.test("open tells the progress, and ends with the reason of its signal", async () => {
  const seen: [number, number][] = [];
  const model = await open(float, { threads: 1, progress: (done, total) => seen.push([done, total]) });
  await model.close();
  await model.close();
  const { bytes } = model.checkpoint.tensors.reduce((a, b) => ({ bytes: a.bytes + b.bytes }), { bytes: 0 });
  assertEquals(seen.at(-1), [bytes, bytes]);
  assert(seen.length > 3 && seen.every(([done, total], n) => total === bytes && done >= (seen[n - 1]?.[0] ?? 0)));
  const controller = new AbortController();
  const options = { signal: controller.signal, progress: () => controller.abort(new Error("enough")) };
  await assertRejects(() => open(float, options), Error, "enough");
});

Deno.test("a closed model refuses to work, and ends the answer that it was generating", async () => {
  const model = await open(quant, { threads: 2 });
  const pieces = model.generate([1], { stops: [] });
  await pieces.next();
  await model.close();
  await assertRejects(() => pieces.next(), TypeError, "the model is closed");
  await assertRejects(() => answer(model, [1]), TypeError, "the model is closed");
});

Deno.test("open and generate refuse what is not there, or out of range", async () => {
  await assertRejects(() => open(`${directory}/nothing`), Error, "no such file or directory");
  for (
    const [options, message] of [[{ threads: 0 }, "number of threads is 0"], [{ context: 0.5 }, "context 0.5"]] as const
  ) {
    await assertRejects(() => open(quant, options), RangeError, message);
  }
  await assertRejects(() => open(quant, { context: 4096 }), Error, "4096 tokens");
  const bare = `${directory}/bare`;
  copyModel(quant, bare);
  await using model = await open(bare, { threads: 1 });
  assertEquals(model.tokenizer, undefined);
  assertEquals((await answer(model, [1], { maxTokens: 2 })).map(({ text }) => text), ["", ""]);
  await assertRejects(() => answer(model, "Once"), CheckpointError, "without them give token ids");
  await assertRejects(() => answer(model, "Once", { chat: true }), CheckpointError, "no chat template");
});
