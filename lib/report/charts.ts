/**
 * The charts of a report, as SVG in the page. All have the same width, so that they fit columns, and are designed for
 * phones: wider screens scale them up.
 *
 * @module
 */

import type { Bins } from "../measure/metrics.ts";
import { PARTS, type QuantFigures, type Report } from "./figures.ts";
import { type Html, markup, type Part } from "./html.ts";
import { coordinate as at, grouped, niceCeiling, percent } from "./numbers.ts";
import { STEPS } from "./style.ts";

/** The width of a chart in SVG units; about as many pixels on a phone. */
const WIDTH = 364;

/** The layout of the map: a column of labels, a column of cells for each part, bars, and the values of the bars. */
const MAP = { label: 30, cell: 34, row: 17, top: 40, bars: 277, barsEnd: 325, end: 360 };

/** A tensor in the map. */
interface Mark {
  readonly tensor: number;
  readonly name: string;
  readonly layer?: number;
  readonly part?: string;
  readonly rms: number;
}

/**
 * The error of every quantized tensor: a row for each layer, a column for each part, and a bar for the whole layer.
 * Matrices outside of layers have rows above these, and don't count for the colour scale.
 */
export function errorMap(report: Report, index: number): Html {
  const quant = report.quants[index];
  const marks = report.tensors.flatMap(({ name, layer, part, quants }, tensor): Mark[] => {
    const rms = quants[index]?.rms;
    return rms === undefined ? [] : [{ tensor, name, layer, part, rms }];
  });
  const outside = marks.filter(({ layer }) => layer === undefined);
  const inside = marks.filter(({ layer }) => layer !== undefined);
  const low = inside.reduce((low, { rms }) => Math.min(low, rms), Infinity);
  const high = inside.reduce((high, { rms }) => Math.max(high, rms), 0);
  const step = (rms: number) =>
    high > low ? Math.min(STEPS - 1, Math.floor((rms - low) / (high - low) * STEPS)) : STEPS >> 1;
  const body = MAP.top + outside.length * MAP.row + (outside.length > 0 ? 6 : 0);
  const bottom = body + quant.layers.length * MAP.row;
  const most = niceCeiling(Math.max(1e-6, ...quant.layers, ...outside.map(({ rms }) => rms)));
  const bar = (y: number, rms: number, value: Part) => [
    rect("bar", MAP.bars, y + 3, (MAP.barsEnd - MAP.bars) * rms / most, MAP.row - 6),
    text("value", MAP.end, y + 12, value, "end"),
  ];

  const heading = [
    text("axis", MAP.label, 12, "each matrix, %"),
    text("axis", MAP.bars, 12, "whole layer, %"),
    text("axis", MAP.label - 5, 34, "layer", "end"),
    PARTS.map((part, n) => text("axis", MAP.label + (n + 0.5) * MAP.cell, 34, part, "middle")),
    text("axis", MAP.bars, 34, "0", "middle"),
    text("axis", MAP.barsEnd, 34, tick(most * 100), "middle"),
  ];
  const above = outside.map(({ tensor, name, rms }, n) => {
    const y = MAP.top + n * MAP.row;
    return markup`<g data-tensor="${tensor}"><title>${name}: ${percent(rms)} %</title>${
      text("value", MAP.label, y + 12, short(name))
    }${bar(y, rms, percent(rms))}</g>`;
  });
  const cells = inside.map(({ tensor, name, layer, part, rms }) => {
    const x = MAP.label + PARTS.indexOf(part!) * MAP.cell;
    const y = body + layer! * MAP.row;
    const n = step(rms);
    return markup`<g data-tensor="${tensor}"><title>${name}: ${percent(rms)} %</title>${
      rect(`h${n}`, x, y, MAP.cell - 1, MAP.row - 1)
    }${text(`t${n}`, x + MAP.cell / 2 - 0.5, y + 12, percent(rms), "middle")}</g>\n`;
  });
  const layers = quant.layers.map((rms, layer) => {
    const y = body + layer * MAP.row;
    const value = markup`<tspan data-figure="quants.${index}.layers.${layer}" data-scale="100">${percent(rms)}</tspan>`;
    return [text("axis", MAP.label - 5, y + 12, layer, "end"), bar(y, rms, value), "\n"];
  });
  const title =
    `Relative RMS error of each matrix of ${quant.name}: a row for each of ${quant.layers.length} layers, ` +
    `a column for each kind of matrix, from ${percent(low)} to ${percent(high)} percent, and a bar for each whole ` +
    "layer. The table of all tensors lists the same errors.";
  return chart(bottom + 44, title, [
    heading,
    above,
    cells,
    layers,
    path("line", `M${MAP.bars} ${MAP.top}V${bottom}`),
    path("grid", `M${MAP.barsEnd} ${MAP.top}V${bottom}`),
    legend(low, high, bottom + 12),
  ]);
}

function legend(low: number, high: number, y: number): Part {
  const width = 21;
  const end = MAP.label + STEPS * width;
  return [
    Array.from({ length: STEPS }, (_, n) => rect(`h${n}`, MAP.label + n * width, y, width, 10)),
    rect("frame", MAP.label, y, STEPS * width, 10),
    text("axis", MAP.label, y + 24, `${percent(low)} %`),
    text("axis", end, y + 24, `${percent(high)} %`, "end"),
  ];
}

/** The layout of a histogram: the edges of its plot in the chart. */
const PLOT = { left: 34, right: WIDTH - 14, top: 24, bottom: 172, height: 208 };

/** The axes that the histograms of a page share. */
export interface Axes {
  /** The values go from -reach to reach. */
  readonly reach: number;
  /** The counts go from 1 to 10^decades. */
  readonly decades: number;
}

/** The axes that fit all histograms. */
export function commonAxes(histograms: readonly Bins[]): Axes {
  const reach = histograms.flatMap(extent).reduce((most, edge) => Math.max(most, Math.abs(edge)), 1e-6);
  const count = histograms.flatMap(({ counts }) => counts).reduce((most, count) => Math.max(most, count), 10);
  return { reach: niceCeiling(reach), decades: Math.ceil(Math.log10(count)) };
}

/** A histogram of logit differences, with a logarithmic scale of counts. */
export function differenceHistogram({ name, histogram, values }: QuantFigures, { reach, decades }: Axes): Html {
  const { width, first, counts } = histogram;
  // A count of one has a visible bar too.
  const y = (count: number) => PLOT.bottom - (PLOT.bottom - PLOT.top) * (Math.log10(count) + 0.3) / (decades + 0.3);
  const x = (value: number) => (PLOT.left + PLOT.right) / 2 + (PLOT.right - PLOT.left) / 2 * value / reach;
  const bars = counts.map((count, n) => {
    if (count === 0) return undefined;
    const [left, right] = [x((first + n) * width), x((first + n + 1) * width)];
    // A gap between bars, if they are wide enough for one.
    return rect("bar", left, y(count), right - left - (right - left > 4 ? 0.5 : 0), PLOT.bottom - y(count));
  });
  const [low, high] = extent(histogram).map(tick);
  const title = `Histogram of ${grouped(values)} differences of the logits of ${name}, from ${low} to ${high}; ` +
    "the counts are on a logarithmic scale.";
  return chart(PLOT.height, title, [
    text("axis", 2, 12, "logits (log scale)"),
    Array.from({ length: decades + 1 }, (_, n) => [
      path("grid", `M${PLOT.left} ${at(y(10 ** n))}H${PLOT.right}`),
      text("axis", PLOT.left - 5, y(10 ** n) + 3.5, power(n), "end"),
    ]),
    bars,
    path("line", `M${PLOT.left} ${PLOT.bottom}H${PLOT.right}`),
    [-1, -0.5, 0, 0.5, 1].map((part) => [
      path("line", `M${at(x(part * reach))} ${PLOT.bottom}v4`),
      text("axis", x(part * reach), PLOT.bottom + 16, tick(part * reach), "middle"),
    ]),
    text("axis", x(0), PLOT.height - 5, "logit of the quantized model minus the reference’s", "middle"),
  ]);
}

/** The range of a logarithmic axis for positive values: 10^low to 10^high. */
export interface Decades {
  readonly low: number;
  readonly high: number;
}

/** The maximum number of decades below the largest value; smaller values count as zero. */
const MOST_DECADES = 8;

/** The logarithmic axis that fits all values. */
export function commonDecades(values: readonly number[]): Decades {
  const most = values.reduce((most, value) => Math.max(most, value), 0);
  if (most === 0) return { low: -1, high: 0 };
  const least = values.reduce((least, value) => value > 0 ? Math.min(least, value) : least, most);
  const high = Math.ceil(Math.log10(most));
  return { low: Math.max(high - MOST_DECADES, Math.min(high - 1, Math.floor(Math.log10(least)))), high };
}

/** The sorted divergences of the tokens of a text, on a logarithmic scale. */
export function divergenceCurve({ name, kl_quantiles = [] }: QuantFigures, { low, high }: Decades): Html {
  const place = (value: number) => Math.max(0, (value > 0 ? Math.log10(value) : low) - low) / (high - low);
  const y = (value: number) => PLOT.bottom - (PLOT.bottom - PLOT.top) * place(value);
  const x = (part: number) => PLOT.left + (PLOT.right - PLOT.left) * part;
  const last = kl_quantiles.length - 1;
  const points = kl_quantiles.map((value, n) => `${at(x(n / last))} ${at(y(value))}`);
  const title =
    `Kullback-Leibler divergence of ${name} for the tokens of the text, on a logarithmic scale: half of them ` +
    `are below ${tick(kl_quantiles[last / 2])}, 90 percent below ${tick(kl_quantiles[last * 0.9])}, all up to ${
      tick(kl_quantiles[last])
    } nats.`;
  return chart(PLOT.height, title, [
    text("axis", 2, 12, "divergence of a token, nats (log scale)"),
    Array.from({ length: high - low + 1 }, (_, n) => [
      path("grid", `M${PLOT.left} ${at(y(10 ** (low + n)))}H${PLOT.right}`),
      text("axis", PLOT.left - 5, y(10 ** (low + n)) + 3.5, decade(low + n), "end"),
    ]),
    path("area", `M${PLOT.left} ${PLOT.bottom}L${points.join("L")}V${PLOT.bottom}Z`),
    path("curve", `M${points.join("L")}`),
    path("line", `M${PLOT.left} ${PLOT.bottom}H${PLOT.right}`),
    [0, 0.25, 0.5, 0.75, 1].map((part) => [
      path("line", `M${at(x(part))} ${PLOT.bottom}v4`),
      text("axis", x(part), PLOT.bottom + 16, `${part * 100} %`, "middle"),
    ]),
    text("axis", x(0.5), PLOT.height - 5, "fraction of the tokens with a smaller divergence", "middle"),
  ]);
}

function decade(n: number): string {
  if (n >= -2 && n <= 3) return String(Number((10 ** n).toPrecision(1)));
  return `10${[...String(n)].map((c) => c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(c)]).join("")}`;
}

/** The smallest and the largest edge of the bins. */
function extent({ width, first, counts }: Bins): [number, number] {
  return [first * width, (first + counts.length) * width];
}

function chart(height: number, title: string, content: Part): Html {
  return markup`<svg viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="${title}">\n${content}\n</svg>`;
}

function rect(kind: string, x: number, y: number, width: number, height: number): Html {
  return markup`<rect class="${kind}" x="${at(x)}" y="${at(y)}" width="${at(width)}" height="${at(height)}"/>`;
}

function path(kind: string, d: string): Html {
  return markup`<path class="${kind}" d="${d}"/>`;
}

function text(kind: string, x: number, y: number, content: Part, anchor?: "middle" | "end"): Html {
  const side = anchor && markup` text-anchor="${anchor}"`;
  return markup`<text class="${kind}" x="${at(x)}" y="${at(y)}"${side}>${content}</text>`;
}

function tick(value: number): string {
  const text = Math.abs(value) >= 1e-3 || value === 0 ? String(Number(value.toPrecision(3))) : value.toExponential(0);
  return text.replace("-", "−");
}

function power(n: number): string {
  return `${10 ** (n % 3)}${["", "k", "M", "G", "T"][Math.floor(n / 3)]}`;
}

/** Shortens a name to a row of the map; the end is the most specific part. */
function short(name: string): string {
  const characters = [...name];
  return characters.length > 38 ? `…${characters.slice(-37).join("")}` : name;
}
