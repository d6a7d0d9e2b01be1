// The page of a report, read by another parser.

import { assert, assertEquals } from "@std/assert";
import type { QuantFigures, Report } from "../../../lib/report/figures.ts";
import { page } from "../../../lib/report/page.ts";
import { attribute, Page, textOf, within, wrongFigures } from "../../support/report_page.ts";
import { madeUp, withText } from "../../support/reports.ts";

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
