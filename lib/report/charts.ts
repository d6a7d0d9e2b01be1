/**
 * The charts of a report, as SVG inside the page. All are of one width, so that they stand in columns, and are drawn
 * for a phone: wider screens scale them up.
 *
 * @module
 */

import { type Bins, PARTS, type QuantFigures, type Report } from "./figures.ts";
import { type Html, html } from "./html.ts";
import { coordinate as at, grouped, niceCeiling, percent } from "./numbers.ts";
import { STEPS } from "./style.ts";

/** Units of a chart from left to right; about as many pixels on a phone. */
const WIDTH = 364;

/** The geometry of the map: a column of labels, one of cells a part, and bars. */
const MAP = { label: 30, cell: 34, row: 17, top: 40, bars: 278, end: WIDTH - 6 };

/**
 * The error of every quantized tensor: a row a layer, a column a part, and a bar for the whole layer. Matrices that
 * belong to no layer have a row each, above.
 */
export function errorMap(report: Report, index: number): Html {
  const quant = report.quants[index];
  const marks = report.tensors.flatMap(({ name, layer, part }, tensor) => {
    const rms = report.tensors[tensor].quants[index]?.rms;
    return rms === undefined ? [] : [{ tensor, name, layer, part, rms }];
  });
  const errors = marks.map(({ rms }) => rms);
  const [low, high] = [Math.min(...errors), Math.max(...errors)];
  const step = (rms: number) =>
    high > low ? Math.min(STEPS - 1, Math.floor((rms - low) / (high - low) * STEPS)) : STEPS >> 1;
  const outside = marks.filter(({ layer }) => layer === undefined);
  const body = MAP.top + outside.length * MAP.row + (outside.length > 0 ? 6 : 0);
  const bottom = body + quant.layers.length * MAP.row;
  const height = bottom + 44;
  // The bars of tensors outside the layers are on the same axis.
  const top = niceCeiling(Math.max(...quant.layers, ...outside.map(({ rms }) => rms), 1e-6));
  const bar = (y: number, rms: number, label: string) =>
    html`
      <rect class="bar" x="${MAP.bars}" y="${at(y + 3)}" width="${at(
        (MAP.end - MAP.bars) * rms / top,
      )}" height="${MAP.row - 6}">
        <title>${label}: ${percent(rms)} %</title>
      </rect>
    `;
  const cell = (
    { tensor, name, rms }: typeof marks[number],
    x: number,
    y: number,
    width: number,
    texts: (step: number) => Html,
  ) =>
    html`
      <g
        data-tensor="${tensor}"><rect class="h${step(rms)}" x="${x}" y="${y}" width="${width - 1}" height="${MAP.row -
          1}"><title>${name}: ${percent(rms)} %</title></rect>${texts(step(rms))}</g>
    `;
  const wide = PARTS.length * MAP.cell;
  return chart(
    height,
    `Relative RMS error of each tensor of ${quant.name}`,
    `One row for each of ${quant.layers.length} layers, one column for each kind of matrix, and a bar for the whole ` +
      `layer. The errors are from ${percent(low)} to ${percent(high)} per cent; the table of tensors lists them.`,
    html`
      <text class="axis" x="${MAP.label - 5}" y="34" text-anchor="end">layer</text>
      ${PARTS.map((part, n) =>
        html`<text class="axis" x="${at(MAP.label + (n + 0.5) * MAP.cell)}" y="34" text-anchor="middle">${part}</text>`
      )}
      <text class="axis" x="${MAP.label}" y="12">error of each matrix, %</text>
      <text class="axis" x="${MAP.bars}" y="12">whole layer, %</text>
      <text class="axis" x="${MAP.bars}" y="34" text-anchor="middle">0</text>
      <text class="axis" x="${MAP.end + 4}" y="34" text-anchor="end">${tick(top * 100)}</text>
      ${outside.map((mark, n) => {
        const y = MAP.top + n * MAP.row;
        return [
          cell(mark, MAP.label, y, wide, (step) =>
            html`
              <text class="t${step}" x="${MAP.label + 5}" y="${y + 12}">${short(mark.name)}</text>
              <text class="t${step}" x="${MAP.label + wide - 6}" y="${y + 12}" text-anchor="end">${percent(
                mark.rms,
              )}</text>
            `),
          bar(y, mark.rms, mark.name),
        ];
      })}
      ${marks.filter(({ layer }) => layer !== undefined).map((mark) => {
        const x = MAP.label + PARTS.indexOf(mark.part!) * MAP.cell;
        const y = body + mark.layer! * MAP.row;
        return cell(
          mark,
          x,
          y,
          MAP.cell,
          (step) =>
            html`<text class="t${step}" x="${at(x + MAP.cell / 2 - 0.5)}" y="${y + 12}" text-anchor="middle">${
              percent(mark.rms)
            }</text>`,
        );
      })}
      ${quant.layers.map((rms, layer) => {
        const y = body + layer * MAP.row;
        return html`<text class="axis" x="${MAP.label - 5}" y="${y + 12}" text-anchor="end">${layer}</text>${
          bar(y, rms, `layer ${layer}`)
        }`;
      })}
      <path class="line" d="M${MAP.bars} ${MAP.top}V${bottom}" /><path class="grid"
        d="M${MAP.end} ${MAP.top}V${bottom}" />
      ${legend(low, high, bottom + 12)}
    `,
  );
}

function legend(low: number, high: number, y: number): Html {
  const width = 20;
  const label = (x: number, anchor: string, text: string) =>
    html`<text class="axis" x="${x}" y="${y + 26}" text-anchor="${anchor}">${text}</text>`;
  return html`
    ${Array.from(
      { length: STEPS },
      (_, n) =>
        html`
          <rect class="h${n}" x="${MAP.label + n * width}" y="${y}" width="${width}" height="10" />
        `,
    )}<rect class="frame" x="${MAP.label}" y="${y}" width="${STEPS * width}" height="10" />${label(
      MAP.label,
      "start",
      `${percent(low)} %`,
    )}${label(MAP.label + STEPS * width, "end", `${percent(high)} %`)}
  `;
}

/** The plot of a histogram: its sides in the chart. */
const PLOT = { left: 40, right: WIDTH - 12, top: 22, bottom: 170, height: 208 };

/**
 * How many logits differ by how much, on a logarithmic scale of counts.
 *
 * @param reach the axis goes from -reach to reach
 */
export function differenceHistogram({ name, histogram, values }: QuantFigures, reach: number): Html {
  const most = Math.max(1, ...histogram.counts);
  const decades = Math.max(1, Math.ceil(Math.log10(most)));
  // A count of one has some height too.
  const y = (count: number) => PLOT.bottom - (PLOT.bottom - PLOT.top) * (Math.log10(count) + 0.3) / (decades + 0.3);
  const x = (value: number) => (PLOT.left + PLOT.right) / 2 + (PLOT.right - PLOT.left) / 2 * value / reach;
  const range = extent(histogram);
  return chart(
    PLOT.height,
    `Differences of the logits of ${name}`,
    `A histogram of ${grouped(values)} differences, quantized minus float, from ${tick(range[0])} to ${
      tick(range[1])
    }; the counts are on a logarithmic scale.`,
    html`
      <text class="axis" x="2" y="11">logits (log scale)</text>
      ${Array.from({ length: decades + 1 }, (_, n) =>
        html`
          <path class="grid" d="M${PLOT.left} ${at(y(10 ** n))}H${PLOT.right}" />
          <text class="axis" x="${PLOT.left - 5}" y="${at(y(10 ** n) + 3.5)}" text-anchor="end">${power(n)}</text>
        `)}
      ${histogram.counts.map((count, n) => {
        if (count === 0) return undefined;
        const left = x((histogram.first + n) * histogram.width);
        const width = x((histogram.first + n + 1) * histogram.width) - left;
        return html`
          <rect class="bar" x="${at(left)}" y="${at(y(count))}" width="${// A gap where the bins are wide enough for one.
          at(width > 4 ? width - 0.5 : width)}" height="${at(PLOT.bottom - y(count))}" />
        `;
      })}
      <path class="line" d="M${PLOT.left} ${PLOT.bottom}H${PLOT.right}" />
      ${[-1, -0.5, 0, 0.5, 1].map((part) =>
        html`
          <path class="line" d="M${at(x(part * reach))} ${PLOT.bottom}v4" />
          <text class="axis" x="${at(x(part * reach))}" y="${PLOT.bottom + 16}" text-anchor="middle">${tick(
            part * reach,
          )}</text>
        `
      )}
      <text class="axis" x="${at(x(0))}" y="${PLOT.height - 6}"
        text-anchor="middle">logit of the quantized model minus the float model’s</text>
    `,
  );
}

/** The smallest and the largest edge of the bins. */
export function extent({ width, first, counts }: Bins): [number, number] {
  return [first * width, (first + counts.length) * width];
}

function chart(height: number, title: string, description: string, content: Html): Html {
  return html`<svg viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="${title}. ${description}">
${content}
</svg>`;
}

function tick(value: number): string {
  const text = Math.abs(value) >= 1e-3 || value === 0 ? String(Number(value.toPrecision(3))) : value.toExponential(0);
  return text.replace("-", "−");
}

function power(n: number): string {
  return n < 3 ? String(10 ** n) : `${10 ** (n % 3)}${["", "k", "M", "G", "T"][Math.floor(n / 3)]}`;
}

/** A name that fits a row of the map; the end tells most. */
function short(name: string): string {
  const characters = [...name];
  return characters.length > 34 ? `…${characters.slice(-33).join("")}` : name;
}
