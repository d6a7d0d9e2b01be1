import { assert, assertEquals, assertRejects } from "@std/assert";
import { RabbitError } from "../../../lib/errors.ts";
import { generate } from "../../../lib/dev/gen.ts";
import { advise } from "../../../lib/library/advise.ts";
import { compare, compareText } from "../../../lib/library/compare.ts";
import { compareTextPart, mergeWindows } from "../../../lib/library/text_parts.ts";
import { predictionFigures } from "../../../lib/measure/metrics.ts";
import { exportGguf } from "../../../lib/gguf/export.ts";
import { importGguf } from "../../../lib/gguf/import.ts";
import { quantize } from "../../../lib/quantize/quantize.ts";
import { verify, verifyAgainst } from "../../../lib/quantize/verify.ts";
import { temporary } from "../../support/files.ts";
import { quantizeTo } from "../../support/models.ts";
import { rabbit } from "../../support/program.ts";

const directory = temporary();
const float = `${directory}/float`;
const quant = `${directory}/quant`;
generate(float);
await quantizeTo(quant, float, 4);
const TEXT = "The cat sat on the mat, and the dog looked at it.";
Deno.writeTextFileSync(`${directory}/text`, TEXT);

/** What a command of the program says. */
// deno-lint-ignore no-explicit-any
async function said(...args: string[]): Promise<any> {
  return JSON.parse((await rabbit(directory, [...args, "--threads", "2", "--json"])).out);
}

Deno.test("compare finds what the program finds", async () => {
  const found = await compare(float, quant, { prompt: "Once", steps: 5, threads: 2 });
  const { tokens_float, tokens_quant, logits, prefill, result } = await said(
    "compare",
    float,
    quant,
    "--prompt",
    "Once",
    "--steps",
    "5",
  );
  assertEquals([found.float, found.quant, found.match], [tokens_float, tokens_quant, result.match]);
  assertEquals([found.logits.max, found.logits.mean, found.logits.values], [logits.max, logits.mean, logits.values]);
  assertEquals([found.prefill.max, found.prefill.mean], [prefill.max, prefill.mean]);
});

Deno.test("compare and compareText of a GGUF file find what they find of its checkpoint", async () => {
  const path = `${directory}/other.gguf`;
  await exportGguf(quant, path, { pre: "gpt-2" });
  const prompt = { prompt: "Once", steps: 5, threads: 2 };
  assertEquals(await compare(float, path, prompt), await compare(float, quant, prompt));
  const windows = { window: 16, stride: 8, threads: 2 };
  const [found, wanted] = [
    await compareText(float, path, TEXT, windows),
    await compareText(float, quant, TEXT, windows),
  ];
  assertEquals(found.observations, wanted.observations);
});

Deno.test("compareText finds what the program finds", async () => {
  const found = await compareText(float, quant, TEXT, { window: 16, stride: 8, threads: 2 });
  const { perplexity, kl, text } = await said(
    "compare",
    float,
    quant,
    "--text",
    `${directory}/text`,
    "--window",
    "16",
    "--stride",
    "8",
  );
  assertEquals([found.scored, found.float.value, found.ratio.value], [text.scored, perplexity.float, perplexity.ratio]);
  assertEquals(found.kl.value, kl.mean);
});

Deno.test("compareTextPart prints what the program prints, and mergeTextParts finds what compareText finds", async () => {
  const options = { window: 8, stride: 4, threads: 2 };
  const whole = await compareText(float, quant, TEXT, options);
  for (const count of [1, 2, 5]) {
    const parts: [string, string][] = [];
    for (let number = count; number >= 1; number--) {
      const lines = await compareTextPart(float, quant, TEXT, { number, count }, { ...options, file: "text" });
      parts.push([`part ${number}`, lines]);
      const args = ["--text", "text", "--window", "8", "--stride", "4", "--shard", `${number}/${count}`];
      const { out } = await rabbit(directory, ["compare", float, quant, ...args, "--quiet"]);
      assertEquals(lines, out);
    }
    const { run, measured } = mergeWindows(parts);
    assertEquals([run.texts[0].file, run.length, run.stride], ["text", 8, 4]);
    assertEquals(predictionFigures(measured), predictionFigures(whole));
  }
  // More parts than windows.
  assertEquals(await compareTextPart(float, quant, TEXT, { number: 999, count: 999 }, options), "");
  for (const part of [{ number: 0, count: 2 }, { number: 3, count: 2 }, { number: 1.5, count: 2 }]) {
    const expected = `the part ${part.number}: expected a whole number from 1 to 2`;
    await assertRejects(() => compareTextPart(float, quant, TEXT, part), RangeError, expected);
  }
});

Deno.test("compareText judges limits, on one text or on several, as the program does", async () => {
  const other = Array.from({ length: 80 }, (_, n) => `line ${n * n}`).join(" ");
  Deno.writeTextFileSync(`${directory}/more`, other);
  const limits = { maxKl: 0.001, minSameTop: 0.2, confidence: 0.9 };
  const { gates, verdict, texts, scored } = await compareText(float, quant, [TEXT, other], { limits, threads: 2 });
  const args = ["--max-kl", "0.001", "--min-same-top", "0.2", "--confidence", "0.9"];
  const files = ["--text", `${directory}/text`, "--text", `${directory}/more`];
  const says = await said("compare", float, quant, ...files, ...args);
  assertEquals(verdict.toUpperCase(), says.verdict);
  assertEquals(scored, says.text.scored);
  assertEquals(texts.map(({ kl }) => kl.value), says.texts.map(({ kl }: { kl: { mean: number } }) => kl.mean));
  assertEquals(
    gates.map(({ name, lower, upper, tokensNeeded }) => [name, lower, upper, tokensNeeded]),
    says.gates.map(({ gate, lower, upper, tokens_needed }: Record<string, unknown>) => [
      ...[gate, lower, upper, tokens_needed],
    ]),
  );
  assertEquals((await compareText(float, quant, TEXT, { threads: 2 })).gates, []);
  const refuse = (text: string[], options = {}) => () => compareText(float, quant, text, options);
  await assertRejects(refuse([]), TypeError, "there is no text");
  await assertRejects(refuse([TEXT, TEXT]), RabbitError, "text 1 and text 2 are the same text; give it once");
  await assertRejects(refuse([TEXT], { limits: { minSameTop: 98 } }), RangeError, "minSameTop 98");
});

Deno.test("advise says what the program says", async () => {
  const { use, why, widths } = await advise(float, { text: TEXT, threads: 2 });
  const says = await said("advise", float, "--text", `${directory}/text`);
  assertEquals([String(use), why, widths.map(({ bits }) => bits)], [
    says.use,
    says.why,
    says.widths.map(({ bits }: { bits: number }) => bits),
  ]);
});

/** Every function that takes long, on two threads. */
const LONG: Readonly<Record<string, (watch: Parameters<typeof verify>[1], to: string) => Promise<unknown>>> = {
  quantize: (watch, to) => quantize(float, to, { bits: 8, threads: 2, ...watch }),
  verify: (watch) => verify(quant, { threads: 2, ...watch }),
  verifyAgainst: (watch) => verifyAgainst(quant, float, { threads: 2, ...watch }),
  compare: (watch) => compare(float, quant, { prompt: [1, 2], threads: 2, ...watch }),
  compareText: (watch) => compareText(float, quant, TEXT, { threads: 2, ...watch }),
  advise: (watch) => advise(float, { text: TEXT, threads: 2, ...watch }),
  exportGguf: (watch, to) => exportGguf(quant, to, watch),
  importGguf: (watch, to) => importGguf(`${directory}/model.gguf`, to, { dtype: "same", ...watch }),
};
await exportGguf(quant, `${directory}/model.gguf`);

for (const [name, work] of Object.entries(LONG)) {
  Deno.test(`${name} tells its progress up to its end, and leaves no listener on the signal`, async () => {
    const seen: [number, number][] = [];
    const { signal } = new AbortController();
    let listeners = 0;
    const { addEventListener, removeEventListener } = signal;
    const counted =
      (add: number, method: typeof addEventListener) => (...args: Parameters<typeof addEventListener>) => {
        listeners += add;
        method.apply(signal, args);
      };
    Object.assign(signal, {
      addEventListener: counted(1, addEventListener),
      removeEventListener: counted(-1, removeEventListener),
    });
    await work({ signal, progress: (done, total) => seen.push([done, total]) }, `${directory}/${name}`);
    const [, total] = seen[0];
    assert(total > 0 && seen.every(([done, all], n) => all === total && done >= (seen[n - 1]?.[0] ?? 0)));
    assertEquals(seen.at(-1)![0], total);
    assertEquals(listeners, 0);
  });

  Deno.test(`${name} ends with the reason of its signal`, async () => {
    const controller = new AbortController();
    const watch = { signal: controller.signal, progress: () => controller.abort(new Error("enough")) };
    await assertRejects(() => work(watch, `${directory}/${name}-aborted`), Error, "enough");
    const before = { signal: AbortSignal.abort(new Error("no")) };
    await assertRejects(() => work(before, `${directory}/${name}-aborted`), Error, "no");
    const left = [...Deno.readDirSync(directory)].filter((entry) => entry.name.startsWith(`${name}-aborted`));
    assertEquals(left, []);
  });
}

Deno.test("the library refuses what is out of range, and checkpoints of two models", async () => {
  const other = `${directory}/other`;
  generate(other, {
    shape: { hidden: 64, intermediate: 64, layers: 1, heads: 2, kvHeads: 1, vocabulary: 512, tied: true },
  });
  await assertRejects(() => compare(float, other, { prompt: [1] }), RabbitError, "not of one architecture");
  await assertRejects(() => compare(float, quant, { prompt: [1], steps: 0 }), RangeError, "steps 0");
  await assertRejects(() => compareText(float, quant, TEXT, { window: 4096 }), RangeError, "window 4096");
  await assertRejects(() => compareText(float, quant, TEXT, { window: 8, stride: 9 }), RangeError, "stride 9");
  await assertRejects(() => compareText(float, quant, "a"), RabbitError, "expected at least 2 tokens, found");
  await assertRejects(
    () => quantize(float, `${directory}/five`, { bits: 5 }),
    RangeError,
    "unsupported width: 5 bits; expected 8 or 4",
  );
  await assertRejects(() => verify(quant, { threads: 1000 }), RangeError, "number of threads is 1000");
});

Deno.test("the library refuses checkpoints in the wrong order, and one checkpoint twice", async () => {
  for (const [a, b, message] of [[quant, float, "must be the float one"], [float, float, "are the same checkpoint"]]) {
    await assertRejects(() => compare(a, b, { prompt: [1] }), RabbitError, message);
    await assertRejects(() => compareText(a, b, TEXT), RabbitError, message);
  }
});
