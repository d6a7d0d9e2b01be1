/**
 * The table of all tensors. The style sheet sorts it, since the page has no script.
 *
 * @module
 */

import type { Report, StoredFigures } from "./figures.ts";
import { type Html, markup, type Part, trusted } from "./html.ts";
import { grouped } from "./numbers.ts";
import { figure, scrolling, section } from "./parts.ts";

/** The sort orders of the table: a label, and the place of each tensor. */
function orders({ tensors, quants }: Report): { label: string; places: number[] }[] {
  const places = (before: (a: number, b: number) => number) => {
    const out = new Array<number>(tensors.length);
    tensors.map((_, n) => n).sort((a, b) => before(a, b) || a - b).forEach((tensor, place) => out[tensor] = place);
    return out;
  };
  const names = new Intl.Collator("en", { numeric: true });
  return [
    { label: "place in the file", places: places(() => 0) },
    { label: "name", places: places((a, b) => names.compare(tensors[a].name, tensors[b].name)) },
    { label: "bytes", places: places((a, b) => (tensors[b].bytes ?? 0) - (tensors[a].bytes ?? 0)) },
    ...quants.map(({ name }, q) => ({
      label: `error of ${name}`,
      places: places((a, b) => (tensors[b].quants[q]?.rms ?? -1) - (tensors[a].quants[q]?.rms ?? -1)),
    })),
  ];
}

/** The style rules that order the rows by the selected order; without one they are in file order. */
export function orderRules(report: Report): string {
  const rules = orders(report).map((_, n) => `.tensors:has(#sort-${n}:checked) tbody tr{order:var(--o${n})}`);
  return rules.slice(1).join("\n");
}

/** A header of one column, or of several. Roles are explicit, since the table is displayed as a grid. */
function columnHead(label: string, kind: "n" | "" | "group"): Html {
  const scope = kind === "group" ? trusted(' scope="colgroup" colspan="3"') : trusted(' scope="col"');
  return markup`<th role="columnheader"${scope}${kind !== "" && markup` class="${kind}"`}>${label}</th>`;
}

function cell(content: Part, kind = ""): Html {
  return markup`<td role="cell"${kind !== "" && markup` class="${kind}"`}>${content}</td>`;
}

/** The section with the sortable table of all tensors. */
export function tensors(report: Report): Html {
  const { tensors, quants, model } = report;
  const sorts = orders(report);
  const choices = sorts.map(({ label }, n) =>
    markup`<label><input type="radio" name="sort" id="sort-${n}"${n === 0 && trusted(" checked")}> ${label}</label>\n`
  );
  const rows = tensors.map(({ name, shape, dtype, bytes, quants }, n) => {
    const places = sorts.slice(1).map(({ places }, o) => `--o${o + 1}:${places[n]}`).join(";");
    const own = [
      cell(shape.length === 0 ? "scalar" : shape.join(" × "), "w"),
      cell(dtype ?? "–"),
      cell(bytes === undefined ? "–" : figure(`tensors.${n}.bytes`, grouped(bytes)), "n"),
    ];
    const stored = quants.map((stored, q) => storedCells(stored, `tensors.${n}.quants.${q}`));
    return markup`<tr role="row" style="${places}"><th role="rowheader" scope="row">${name}</th>${own}${stored}</tr>\n`;
  });
  const table = markup`<table role="table" style="--columns:${3 + 3 * quants.length}">
<thead role="rowgroup">
<tr role="row">${cell("")}${columnHead(model.name, "group")}${quants.map(({ name }) => columnHead(name, "group"))}</tr>
<tr role="row">${columnHead("Tensor", "")}${columnHead("Shape", "")}${columnHead("Dtype", "")}${
    columnHead("Bytes", "n")
  }${quants.map(() => [columnHead("Dtype", ""), columnHead("Bytes", "n"), columnHead("Error, %", "n")])}</tr>
</thead>
<tbody role="rowgroup">
${rows}</tbody>
</table>`;
  return section(
    "tensors",
    "All tensors",
    undefined,
    markup`<details>
<summary>${figure("tensors.length", grouped(tensors.length))} tensors: shape, dtype, bytes and error of each</summary>
<fieldset>
<legend>Sort by</legend>
${choices}</fieldset>
${scrolling("Table of all tensors", table)}
</details>`,
  );
}

function storedCells(stored: StoredFigures | null, path: string): Part {
  if (stored === null) return [cell("≠ missing", "odd"), cell("–", "n"), cell("–", "n")];
  const { dtype, bytes, equal, problem, rms } = stored;
  const odd = equal === false && ` ≠ ${problem ?? "not the result of quantizing the reference"}`;
  const error = rms === undefined ? (odd ? "–" : "kept") : figure(`${path}.rms`, (rms * 100).toFixed(4), 100);
  return [
    cell([dtype, odd], odd ? "odd" : ""),
    cell(figure(`${path}.bytes`, grouped(bytes)), "n"),
    cell(error, "n"),
  ];
}
