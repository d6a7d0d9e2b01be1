// The figures of a report by hand, and its page read by another parser.

import { assert, assertEquals } from "@std/assert";
import { trace } from "../../../lib/measure/compare.ts";
import type { Config } from "../../../lib/model/config.ts";
import { Q4B32 } from "../../../lib/format/blocks.ts";
import type { Checkpoint } from "../../../lib/format/checkpoint.ts";
import { decodeQuantized, figures, type QuantFigures, type Report } from "../../../lib/report/figures.ts";
import { page } from "../../../lib/report/page.ts";
import { DARK, LIGHT, type Scheme, STEPS } from "../../../lib/report/style.ts";
import { FakeModel } from "../../support/decoders.ts";
import { attribute, Page, textOf, within, wrongFigures } from "../../support/report_page.ts";
import { madeUp, withText } from "../../support/reports.ts";

// ---------------------------------------------------------------- decoding

/** A model of four tokens whose logits after each text are written down. */
function table(rows: Record<string, number[]>): FakeModel {
  return new FakeModel((text) => rows[text.join("")]);
}

const FLOAT = { "0": [0, 3, 1, 0], "01": [0, 0, 2, 1.5], "012": [1, 0, 0, 4], "0123": [7, 7, 0, 0] };
const QUANT = {
  "0": [0, 2, 1.5, 0],
  // After 01 the float model takes 2, this one 3.
  "01": [0, 0, 1, 1.25],
  "012": [1, 0, 0, 2],
  "0123": [7, 6.5, 0, 0],
  "013": [9, 0, 0, 5],
};

Deno.test("decodeQuantized has the margins of the model's own answer, and what it chooses after the float model's", () => {
  const steps: number[] = [];
  const traced = trace(table(FLOAT), [0], 3, () => steps.push(1));
  assertEquals([traced.tokens, steps.length], [[1, 2, 3], 4]);
  const { comparison, margins, agree, histogram } = decodeQuantized(table(QUANT), traced);
  assertEquals(comparison.tokens, [1, 3, 0]);
  assertEquals(margins, [0.5, 0.25, 4]);
  // 1 and 3 after the float model's tokens, not 2.
  assertEquals(agree, 2);
  // The differences after the tokens of the answer: -1, -0.25; -2; -0.5, and nine zeros.
  assertEquals(histogram.bins(1), { width: 1, first: -2, counts: [1, 3, 8] });
  assertEquals([comparison.steps.values, comparison.steps.max, comparison.steps.mean], [12, 2, 3.75 / 12]);
});

Deno.test("decodeQuantized finds nothing to tell of a model that is the float model", () => {
  const traced = trace(table(FLOAT), [0], 3);
  const { comparison, margins, agree, histogram } = decodeQuantized(table(FLOAT), traced);
  assertEquals([comparison.match, margins, agree], [true, [2, 0.5, 3], 3]);
  assertEquals(histogram.bins().counts, [12]);
});

// ---------------------------------------------------------------- figures

function checkpoint(
  path: string,
  width: Checkpoint["width"],
  tensors: [string, number[], string, number][],
): Checkpoint {
  const files = [{ path, bytes: 1000, dataStart: 8, version: "" }];
  return {
    path,
    directory: "d",
    files,
    width,
    tensors: tensors.map(([name, shape, dtype, bytes]) => ({ name, shape, dtype, bytes, file: 0, offset: 8 })),
  };
}

Deno.test("figures puts every tensor of either side in a row, and weighs a layer's errors by their squares", () => {
  const q = "model.layers.0.self_attn.q_proj.weight";
  const down = "model.layers.0.mlp.down_proj.weight";
  const far = "model.layers.7.mlp.up_proj.weight";
  const float = checkpoint("a/b/model.safetensors", undefined, [
    [q, [2, 32], "BF16", 128],
    [down, [4, 32], "F32", 512],
    [far, [1, 32], "BF16", 64],
    ["norm", [32], "F32", 128],
    ["scalar", [], "F32", 4],
  ]);
  const stored = checkpoint("c/other.safetensors", Q4B32, [
    [down, [4, 32], "Q4B32", 72],
    ["more", [3, 32], "Q4B32", 54],
    [q, [2, 32], "Q4B32", 36],
    [far, [1, 32], "Q4B32", 18],
  ]);
  const traced = trace(table(FLOAT), [0], 3);
  const report = figures({
    program: "p",
    float: { checkpoint: float, config: { layers: 2, architecture: "A" } as Config, trace: traced },
    quants: [{
      checkpoint: stored,
      measured: decodeQuantized(table(QUANT), traced),
      against: {
        digests: [],
        blocks: 0,
        rms: 0.25,
        tensors: [
          { name: down, equal: true, rms: 0.5, squares: 3 },
          { name: "more", equal: false, problem: "not in the source" },
          { name: q, equal: false, row: 1, block: 0, rms: 0.125, squares: 16 },
          { name: far, equal: true, rms: 2, squares: 1 },
          { name: "norm", equal: false, problem: "missing from the quantized checkpoint" },
        ],
      },
    }],
    textOf: (id) => "abcd"[id],
  });
  assertEquals(
    report.tensors.map(({ name, layer, part, shape, dtype, bytes }) => [name, layer, part, shape, dtype, bytes]),
    [
      [q, 0, "q", [2, 32], "BF16", 128],
      [down, 0, "down", [4, 32], "F32", 512],
      // The model has two layers: this one is none of them, and makes no list of eight.
      [far, undefined, undefined, [1, 32], "BF16", 64],
      ["norm", undefined, undefined, [32], "F32", 128],
      ["scalar", undefined, undefined, [], "F32", 4],
      ["more", undefined, undefined, [3, 32], undefined, undefined],
    ],
  );
  assertEquals(report.tensors.map(({ quants: [stored] }) => stored && [stored.dtype, stored.equal, stored.rms]), [
    ["Q4B32", false, 0.125],
    ["Q4B32", true, 0.5],
    ["Q4B32", true, 2],
    null,
    null,
    ["Q4B32", false, undefined],
  ]);
  const [quant] = report.quants;
  assertEquals(quant.layers, [Math.sqrt((0.25 * 3 + 16 / 64) / 19), 0]);
  assertEquals([quant.name, report.model.name], ["other.safetensors", "b"]);
  assertEquals([report.model.parameters, report.model.bits_per_weight], [64 + 128 + 32 + 32 + 1, 8000 / 257]);
  assertEquals(report.model.dtypes, ["BF16", "F32"]);
  assertEquals([quant.match, quant.kept, quant.agree, quant.steps, quant.equal, quant.different], [
    false,
    1,
    2,
    3,
    2,
    3,
  ]);
  assertEquals(report.answer, { ids: [1, 2, 3], texts: ["b", "c", "d"], margins: [2, 0.5, 3] });
  assertEquals(quant.answer, { ids: [1, 3, 0], texts: ["b", "d", "a"], margins: [0.5, 0.25, 4] });
  assertEquals(report.prompt, { ids: [0], texts: ["a"] });
});

Deno.test("figures calls checkpoints by their paths where their names are alike", () => {
  const traced = trace(table(FLOAT), [0], 1);
  const config = { layers: 0 } as Config;
  const against = { digests: [], blocks: 0, rms: 0, tensors: [] };
  const { model, quants } = figures({
    program: "p",
    float: { checkpoint: checkpoint("model.safetensors", undefined, []), config, trace: traced },
    quants: ["a/q/model.safetensors", "./r/", "b/q"].map((path) => {
      return { checkpoint: checkpoint(path, Q4B32, []), measured: decodeQuantized(table(QUANT), traced), against };
    }),
  });
  assertEquals(model.name, "model.safetensors");
  assertEquals(quants.map(({ name }) => name), ["a/q/model.safetensors", "r", "b/q"]);
});

// ---------------------------------------------------------------- the page

/** What a hostile file can have for a name. */
const HOSTILE = [
  "</script><script>alert(1)</script>",
  '"><img src=x onerror=alert(1)>',
  "'; </style><svg onload=alert(1)> <!-- ]]>",
  "a\u0000b\u0007c\u007f\u0085\r\nd",
  "\u202eesrever\u2066 \ud800 \ufdd0 \u{1fffe}",
  "&lt;&amp;amp; ${x} \\u003c",
  "x".repeat(300),
];

/** A report that has `text` wherever a file or a user can put one. */
function with_(text: string): Report {
  const report = madeUp();
  return {
    ...report,
    model: { ...report.model, name: text, path: text, dtypes: [text] },
    prompt: { ids: [1], texts: [text] },
    answer: { ...report.answer, texts: [text, text, text] },
    quants: report.quants.map((quant) => ({
      ...quant,
      name: text,
      path: text,
      answer: { ...quant.answer, texts: [text, "", text] },
    })),
    tensors: report.tensors.map((tensor, n) => ({
      ...tensor,
      name: `${text}${n}`,
      dtype: text,
      quants: tensor.quants.map((stored) => stored && { ...stored, problem: text, equal: false }),
    })),
  };
}

/** The elements of a page by name and attributes' names, without those values that a text can be. */
function skeleton(page: Page): string[] {
  return page.elements.map(({ tagName, attrs }) => `${tagName} ${attrs.map(({ name }) => name).join(" ")}`);
}

Deno.test("page: names of any kind are text and nothing else, in the page and in its JSON", () => {
  const plain = skeleton(new Page(page(with_("plain"))));
  for (const text of HOSTILE) {
    const report = with_(text);
    const html = page(report);
    const found = new Page(html);
    assertEquals([text, found.errors], [text, []]);
    assertEquals([text, skeleton(found)], [text, plain]);
    assertEquals(found.data, JSON.parse(JSON.stringify(report)));
    // Nothing invisible or reordering is left to mislead.
    assertEquals(/(?![\n\t])\p{Cc}|\p{Bidi_Control}/u.test(html), false);
    const names = found.all("th").filter((th) => attribute(th, "role") === "rowheader").map(textOf);
    if (!/[^\x20-\x7e]/.test(text)) assertEquals(names, report.tensors.map(({ name }) => name));
  }
});

Deno.test("page: it is well formed, has one script, which is JSON, and loads nothing", () => {
  const found = new Page(page(madeUp()));
  assertEquals(found.errors, []);
  assertEquals(found.all("script").map((script) => attribute(script, "type")), ["application/json"]);
  assertEquals(
    ["link", "img", "iframe", "object", "embed", "base", "form", "a"].flatMap((name) => found.all(name)),
    [],
  );
  assertEquals(found.elements.flatMap(({ attrs }) => attrs).filter(({ name }) => /^on|^src|href/.test(name)), []);
  assertEquals(/url\(|@import|https?:/.test(found.html), false);
  const ids = found.having("id").map((element) => attribute(element, "id"));
  assertEquals(new Set(ids).size, ids.length);
  assertEquals(attribute(found.all("html")[0], "lang"), "en");
  assertEquals(textOf(found.all("title")[0]), "made-up: eight, four – quantization report");
  const [viewport] = found.all("meta").filter((meta) => attribute(meta, "name") === "viewport");
  assertEquals(attribute(viewport, "content"), "width=device-width, initial-scale=1");
});

Deno.test("page: its JSON is the report, and every figure that it shows is the JSON's", () => {
  const report = madeUp();
  const found = new Page(page(report));
  assertEquals(found.data, JSON.parse(JSON.stringify(report)));
  const shown = found.having("data-figure").map((element) => ({
    path: attribute(element, "data-figure")!,
    text: textOf(element),
    scale: attribute(element, "data-scale") ?? null,
  }));
  assertEquals(wrongFigures(found.data, shown), []);
  const paths = new Set(shown.map(({ path }) => path));
  for (const quant of ["quants.0", "quants.1"]) {
    for (const figure of ["bytes", "ratio", "bits_per_weight", "logits_max", "logits_mean", "values", "prefill_max"]) {
      assert(paths.has(`${quant}.${figure}`), figure);
    }
    for (const figure of ["prefill_mean", "steps", "kept", "agree", "rms", "equal", "layers.1", "answer.margins.2"]) {
      assert(paths.has(`${quant}.${figure}`), figure);
    }
  }
  // The check itself can fail.
  assertEquals(wrongFigures(found.data, [{ path: "quants.0.steps", text: "4", scale: null }]).length, 1);
  assertEquals(wrongFigures(found.data, [{ path: "quants.0.nothing", text: "4", scale: null }]).length, 1);
});

Deno.test("page: every tensor has a row in the table, and in every map a mark when it is quantized", () => {
  const report = madeUp();
  const found = new Page(page(report));
  const [table] = found.all("table").slice(-1);
  const rows = within(within(table, "tbody")[0], "tr");
  assertEquals(rows.length, report.tensors.length);
  for (const [n, { name, quants }] of report.tensors.entries()) {
    const cells = [...within(rows[n], "th"), ...within(rows[n], "td")].map(textOf);
    assertEquals([cells.length, cells[0]], [10, name]);
    assertEquals(
      [cells[4], cells[7]].map((dtype) => dtype.split(" ")[0]),
      quants.map((stored) => stored?.dtype ?? "≠"),
    );
    const errors = quants.map((stored) => {
      return stored?.rms !== undefined ? (stored.rms * 100).toFixed(4) : stored?.equal ? "kept" : "–";
    });
    assertEquals([cells[6], cells[9]], errors);
  }
  const charts = found.all("svg");
  assertEquals(charts.length, 4);
  for (const [q, chart] of charts.slice(2).entries()) {
    const marks = within(chart, "g").map((mark) => Number(attribute(mark, "data-tensor")));
    const quantized = report.tensors.flatMap(({ quants }, n) => quants[q]?.rms === undefined ? [] : [n]);
    assertEquals(marks.sort((a, b) => a - b), quantized);
  }
  for (const [q, chart] of charts.slice(0, 2).entries()) {
    const bars = within(chart, "rect");
    assertEquals(bars.length, report.quants[q].histogram.counts.filter((count) => count > 0).length);
    const heights = bars.map((bar) => Number(attribute(bar, "height")));
    assert(heights[0] > 0 && heights[0] < heights[3] && heights[3] < heights[1] && heights[1] < heights[2]);
  }
  for (const chart of charts) {
    assertEquals([attribute(chart, "role"), attribute(chart, "aria-label")!.length > 40], ["img", true]);
  }
});

Deno.test("page: the places that a sort gives are those of the sorted figures", () => {
  const report = madeUp();
  const [table] = new Page(page(report)).all("table").slice(-1);
  const rows = within(within(table, "tbody")[0], "tr");
  const place = (row: typeof rows[0], order: number) =>
    Number(new RegExp(`--o${order}:(\\d+)`).exec(attribute(row, "style")!)![1]);
  const sorted = (order: number) =>
    rows.map((_, n) => n).sort((a, b) => place(rows[a], order) - place(rows[b], order)).map((n) => report.tensors[n]);
  const falling = (values: number[]) =>
    assert(values.every((value, n) => n === 0 || value <= values[n - 1]), `${values}`);
  const names = sorted(1).map(({ name }) => name);
  assertEquals(names, names.toSorted());
  falling(sorted(2).map(({ bytes }) => bytes ?? 0));
  for (const q of [0, 1]) falling(sorted(3 + q).map(({ quants }) => quants[q]?.rms ?? -1));
});

Deno.test("page: marks say in words and signs what colours say", () => {
  const found = new Page(page(madeUp()));
  const differing = found.all("td").filter((cell) => attribute(cell, "class") === "differs").map(textOf);
  assertEquals(differing, ["≠differs: 70.250"]);
  const verdicts = found.all("p").filter((p) => attribute(p, "class")?.startsWith("verdict")).map(textOf);
  assertEquals(verdicts, ["✓ Answer kept: all 3 tokens", "≠ First difference: token 2 of 3"]);
});

Deno.test("page: one quantized checkpoint, one token, errors that are all the same or zero, an odd tensor", () => {
  const report = madeUp();
  const [quant] = report.quants;
  const one = {
    ...report,
    answer: { ids: [4], margins: [0] },
    quants: [{
      ...quant,
      steps: 1,
      kept: 1,
      answer: { ids: [4], margins: [0] },
      histogram: { width: 2 ** -24, first: 0, counts: [10] },
      layers: [0, 0],
      rms: 0,
      different: 2,
    }],
    tensors: report.tensors.map(({ quants, ...tensor }) => ({
      ...tensor,
      quants: quants.slice(0, 1).map((stored) =>
        stored && { ...stored, rms: stored.rms === undefined ? undefined : 0 }
      ),
    })),
  };
  const found = new Page(page(one));
  assertEquals(found.errors, []);
  assertEquals(/NaN|Infinity|undefined/.test(found.html), false);
  assert(found.html.includes("of 19 tensors differ from the result of"));
});

Deno.test("page: with a text it shows what the JSON says of it, and a curve for each checkpoint", () => {
  for (const report of [withText(), withText({ ...madeUp(), quants: madeUp().quants.slice(0, 1) })]) {
    const found = new Page(page(report));
    assertEquals([found.errors, /NaN|Infinity|undefined/.test(found.html)], [[], false]);
    const shown = found.having("data-figure").map((element) => {
      const [path, scale] = [attribute(element, "data-figure")!, attribute(element, "data-scale") ?? null];
      return { path, text: textOf(element), scale };
    });
    assertEquals(wrongFigures(found.data, shown), []);
    const { perplexity: { float: _, float_error: __, ...perplexity }, kl, same_top, prob } = report
      .quants[0] as Required<
        QuantFigures
      >;
    const paths = new Set(shown.map(({ path }) => path));
    for (const [group, figures] of Object.entries({ perplexity, kl, same_top, prob })) {
      for (const name of Object.keys(figures)) assert(paths.has(`quants.0.${group}.${name}`), name);
    }
    for (const name of ["scored", "windows", "window", "perplexity.float", "perplexity.float_error"]) {
      assert(paths.has(`text.${name}`));
    }
    const curves = found.all("path").filter((path) => attribute(path, "class") === "curve");
    assertEquals(curves.length, report.quants.length);
    const points = attribute(curves[0], "d")!.slice(1).split("L").map((point) => point.split(" ").map(Number));
    assertEquals(points.length, 101);
    // Tokens that do not diverge at all lie on the axis, and the curve only rises from there.
    assert(points[0][1] === points[2][1] && points[2][1] > points[3][1] && points[99][1] > points[100][1]);
    assert(points.every(([, y], n) => n === 0 || y <= points[n - 1][1]));
  }
  // Exact weights: nothing diverges.
  const exact = withText();
  const zeros = exact.quants.map((quant) => ({
    ...quant,
    kl: { mean: 0, error: 0, median: 0, p999: 0, max: 0 },
    kl_quantiles: quant.kl_quantiles!.map(() => 0),
  }));
  assertEquals(/NaN|Infinity/.test(page({ ...exact, quants: zeros })), false);
});

Deno.test("page: a report of 272 tensors and two checkpoints is far smaller than a megabyte", () => {
  const report = madeUp();
  const tensors = Array.from({ length: 16 }, () => report.tensors).flat();
  assert(tensors.length >= 272);
  const bytes = new TextEncoder().encode(page({ ...report, tensors })).length;
  assert(bytes < 600_000, `${bytes}`);
});

// ---------------------------------------------------------------- colours

/** The contrast of two colours, as WCAG 2 defines it. */
function contrast(a: string, b: string): number {
  const luminance = (colour: string) => {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255)
      .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [low, high] = [luminance(a), luminance(b)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

for (const [name, scheme] of Object.entries({ LIGHT, DARK } satisfies Record<string, Scheme>)) {
  Deno.test(`style: all text of ${name} has a contrast of 4.5 or more, bars one of 3`, () => {
    assertEquals(contrast("#000000", "#ffffff"), 21);
    const { page, card, text, muted, good, bad, changed, bar, ramp } = scheme;
    const pairs = [
      ...[page, card].flatMap((under) => [[text, under], [muted, under], [bad, under]]),
      [good, card],
      [text, changed],
      [bad, changed],
      ...ramp,
    ];
    assertEquals(pairs.filter(([a, b]) => contrast(a, b) < 4.5), []);
    assert(contrast(bar, card) >= 3);
    assertEquals(ramp.length, STEPS);
    // A step further is a step farther from the page.
    const steps = ramp.map(([fill]) => contrast(fill, card));
    assert(steps.every((step, n) => n === 0 || step > steps[n - 1]), `${steps}`);
  });
}
