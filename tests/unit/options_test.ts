// Arguments that TypeScript would not compile, as plain JavaScript can give them.

import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import * as library from "../../lib/mod.ts";
import { checkWhole } from "../../lib/options.ts";
import { copyModel } from "../support/models.ts";
import { temporary, tree } from "../support/files.ts";
import { TINY } from "../support/fixtures.ts";

// deno-lint-ignore no-explicit-any
const { advise, compare, compareText, exportGguf, generateModel, importGguf, open, ...more } = library as any;
const { planQuantize, quantize, quantizePart, verify, verifyAgainst, verifyGguf } = more;

const directory = temporary();
const float = copyModel(TINY, `${directory}/float`);
await quantize(float, `${directory}/q8`, { bits: 8, threads: 1 });
const quant = `${directory}/q8`;
const out = `${directory}/out`;
const before = tree(directory);

/** Calls by name, with what the error says. */
const WRONG: [string, () => unknown, string][] = [
  ["open", () => open(undefined), "the path is undefined, expected a string"],
  ["open", () => open(""), "the path is empty"],
  [
    "open",
    () => open(float, { thread: 2 }),
    'open: unknown option "thread"; the options are signal, progress, threads,',
  ],
  ["open", () => open(float, 2), "open: the options are a number, expected an object"],
  ["quantize", () => quantize(float, out, { bit: 8 }), 'quantize: unknown option "bit"'],
  ["quantize", () => quantize(float, out, { bits: "8" }), 'unsupported width: "8" bits; expected 8 or 4'],
  ["quantize", () => quantize(float, out, { bits: null }), "unsupported width: null bits; expected 8 or 4"],
  ["quantize", () => quantize(float, out, { rule: "best" }), "rule best: expected absmax or signed"],
  ["quantize", () => quantize(undefined, out), "the path of the checkpoint is undefined, expected a string"],
  ["quantize", () => quantize(float, undefined), "the output directory is undefined, expected a string"],
  ["quantize", () => quantize(float, ""), "the output directory is empty"],
  ["quantizePart", () => quantizePart(planQuantize(float), out, { number: 1, count: 2 }, { forc: 1 }), "forc"],
  ["verify", () => verify(undefined), "the path of the checkpoint is undefined, expected a string"],
  ["verify", () => verify(quant, { source: float }), 'verify: unknown option "source"'],
  ["verifyAgainst", () => verifyAgainst(quant, null), "the path of the checkpoint is null, expected a string"],
  ["verifyAgainst", () => verifyAgainst(quant, float, { thread: 1 }), 'verifyAgainst: unknown option "thread"'],
  ["compare", () => compare(float, quant), "compare: the options are undefined, expected an object"],
  ["compare", () => compare(float, quant, {}), "the prompt is undefined, expected a text or an array"],
  ["compare", () => compare(float, quant, { prompt: [1], step: 2 }), 'compare: unknown option "step"'],
  ["compareText", () => compareText(float, quant, { text: "a" }), "the text is an object, expected a string"],
  ["compareText", () => compareText(float, quant, "a", { windows: 2 }), 'compareText: unknown option "windows"'],
  ["advise", () => advise(float, { texts: "a" }), 'advise: unknown option "texts"'],
  ["advise", () => advise(float, { text: 1 }), "the text is a number, expected a string"],
  ["exportGguf", () => exportGguf(float, undefined), "the output file is undefined, expected a string"],
  ["exportGguf", () => exportGguf(float, out, { pr: "" }), 'exportGguf: unknown option "pr"'],
  ["importGguf", () => importGguf(undefined, out), "the path of the GGUF file is undefined, expected a string"],
  ["importGguf", () => importGguf("a", out, { type: "f32" }), 'importGguf: unknown option "type"'],
  ["verifyGguf", () => verifyGguf(undefined, float), "the path of the GGUF file is undefined, expected a string"],
  ["verifyGguf", () => verifyGguf("a", undefined), "the path of the checkpoint is undefined, expected a string"],
  ["verifyGguf", () => verifyGguf("a", float, { threads: 1 }), 'verifyGguf: unknown option "threads"'],
  ["generateModel", () => generateModel(out, { seeds: 1 }), 'generateModel: unknown option "seeds"'],
  ["generateModel", () => generateModel(undefined), "the output directory is undefined, expected a string"],
];

for (const [name, call, message] of WRONG) {
  Deno.test(`${name} refuses a wrong argument: ${message}`, async () => {
    const error = await assertRejects(async () => await call(), Error, message);
    assert(error instanceof TypeError || error instanceof RangeError, error.name);
    assertEquals(tree(directory), before);
  });
}

Deno.test("generate refuses a prompt that is none, unknown options, and options of sampling without it", async () => {
  const model = await open(float, { threads: 1 });
  for (
    const [prompt, options, message] of [
      [undefined, {}, "the prompt is undefined, expected a text or an array"],
      [{ content: "a" }, {}, "the prompt is object, expected a text or an array"],
      [[1], { maxToken: 1 }, 'generate: unknown option "maxToken"'],
      [[1], { topP: 0.5 }, "topP needs a temperature above 0"],
      [[1], { seed: 1 }, "seed needs a temperature above 0"],
    ]
  ) {
    await assertRejects(() => model.generate(prompt, options).next(), TypeError, message);
  }
  await model.close();
});

Deno.test("the figures of compare are in its JSON, and are printed", async () => {
  const { logits, prefill } = await compare(float, quant, { prompt: [1, 2], steps: 2, threads: 1 });
  for (const difference of [logits, prefill]) {
    const { max, mean, values } = difference;
    assert(max > 0 && mean > 0 && values > 0);
    assertEquals(JSON.parse(JSON.stringify(difference)), { max, mean, values });
    assert(Deno.inspect(difference).includes(`max: ${max}`));
  }
});

Deno.test("checkWhole takes whole numbers from the least on, and says what else is expected", () => {
  for (const value of [2, 3, Number.MAX_SAFE_INTEGER]) checkWhole("n", value, 2);
  for (
    const [value, found] of [[1, "1"], [2.5, "2.5"], [NaN, "NaN"], [2 ** 53, "9007199254740992"], ["2", '"2"']] as const
  ) {
    const message = `n ${found}: expected a whole number of at least 2`;
    assertThrows(() => checkWhole("n", value as number, 2), RangeError, message);
  }
});
