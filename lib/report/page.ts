/**
 * A report as one HTML page: figures to text, nothing else. The page has no script, loads nothing, and forbids itself
 * to; what it shows of the figures carries their path in the JSON (`data-figure`).
 *
 * @module
 */

import { differenceHistogram, errorMap, extent } from "./charts.ts";
import type { Answer, QuantFigures, Report, StoredFigures } from "./figures.ts";
import { type Html, html, jsonScript, type Part, trusted } from "./html.ts";
import { counted, grouped, inUnit, niceCeiling, percent } from "./numbers.ts";
import { STYLE } from "./style.ts";

/** The page of a report. */
export function page(report: Report): string {
  const { model, quants, program } = report;
  const title = `${model.name}: ${quants.map(({ name }) => name).join(", ")}`;
  return html`
    <!DOCTYPE html>
    <html lang="en">
      <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <meta http-equiv="Content-Security-Policy"
          content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
        <meta name="color-scheme" content="light dark">
        <meta name="generator" content="${program}">
        <title>${title} – quantization report</title>
        <style>
    ${trusted(STYLE)}
    ${order(report)}
    </style>
      </head>
      <body>
    ${head(report)}
    <main>
    ${checkpoints(report)}
    ${answers(report)}
    ${logits(report)}
    ${weights(report)}
    ${tensors(report)}
    </main>
    ${foot(report)}
    <script type="application/json" id="data">${jsonScript(report)}</script>
      </body>
    </html>
  `.text;
}

/** A number of the report, with its path in the JSON, and the factor between what is shown and what the JSON has. */
function figure(path: string, text: string, scale?: number): Html {
  return html`
    <span data-figure="${path}" ${scale !== undefined && html`
      data-scale="${scale}"
    `}>${text}</span>
  `;
}

function perCent(path: string, value: number): Html {
  return html`${figure(path, percent(value), 100)} %`;
}

function head({ model }: Report): Html {
  const fact = (path: keyof typeof model, label: string, text = grouped(Number(model[path]))) =>
    html`<li><b>${figure(`model.${path}`, text)}</b> ${label}</li>`;
  return html`
    <header>
      <p class="eyebrow">Quantization report</p>
      <h1>${model.name}</h1>
      <ul class="facts">
    <li><b>${model.architecture}</b></li>
    <li title="${counted(model.parameters)}"><b>${figure(
      "model.parameters",
      grouped(model.parameters),
    )}</b> parameters</li>
    ${fact("layers", "layers")}
    ${fact("hidden", "hidden")}
    ${fact("intermediate", "intermediate")}
    ${fact("heads", "heads")}
    ${fact("kv_heads", "key/value heads")}
    ${fact("vocabulary", "tokens in the vocabulary")}
      </ul>
    </header>
  `;
}

function checkpoints({ model, quants }: Report): Html {
  return html`
    <section aria-labelledby="checkpoints">
      <h2 id="checkpoints">Size and verdict</h2>
      <div class="cards">
    <article class="card">
    <h3>${model.name} <span class="tag">${model.dtypes.join(", ")} · the reference</span></h3>
    <p class="path"><code>${model.path}</code></p>
    ${size("model.bytes", model.bytes, 1, "")}
    <dl>
    <dt>Bytes</dt><dd>${figure("model.bytes", grouped(model.bytes))}</dd>
    <dt>Bits per weight</dt><dd>${figure("model.bits_per_weight", model.bits_per_weight.toFixed(2))}</dd>
    </dl>
    </article>
    ${quants.map(card)}
      </div>
    </section>
  `;
}

function size(path: string, bytes: number, ratio: number, beside: Part): Html {
  const { text, unit, size } = inUnit(bytes);
  return html`<p class="size">${figure(path, text, 1 / size)} ${unit} <small>${beside}</small></p>
<div class="track"><i style="width:${Math.min(100, ratio * 100).toFixed(1)}%"></i></div>`;
}

function card(quant: QuantFigures, n: number): Html {
  const path = (name: keyof QuantFigures) => `quants.${n}.${name}`;
  return html`<article class="card">
<h3>${quant.name} <span class="tag">${quant.format}</span></h3>
<p class="path"><code>${quant.path}</code></p>
${
    size(
      path("bytes"),
      quant.bytes,
      quant.ratio,
      html`${figure(path("ratio"), (quant.ratio * 100).toFixed(1), 100)} % of the reference`,
    )
  }
${verdict(quant, n)}
<dl>
<dt>Bytes</dt><dd>${figure(path("bytes"), grouped(quant.bytes))}</dd>
<dt>Bits per weight</dt><dd>${figure(path("bits_per_weight"), quant.bits_per_weight.toFixed(2))}</dd>
<dt>Error of the weights</dt><dd>${perCent(path("rms"), quant.rms)}</dd>
<dt>Mean change of a logit</dt><dd>${figure(path("logits_mean"), quant.logits_mean.toFixed(4))}</dd>
</dl>
</article>`;
}

function verdict({ match, kept, steps }: QuantFigures, n: number): Html {
  const tokens = html`${figure(`quants.${n}.steps`, grouped(steps))} ${steps === 1 ? "token" : "tokens"}`;
  return match ? html`<p class="verdict kept">✓ Answer kept: ${tokens} of ${steps} the same</p>` : html`
    <p
      class="verdict lost">≠ Answer differs from token <span data-first="${n}">${kept + 1}</span> on, of ${tokens}</p>
  `;
}

function answers({ model, prompt, answer, quants }: Report): Html {
  return html`
    <section aria-labelledby="answers">
      <h2 id="answers">The answer, token by token</h2>
      <p
        class="note">Greedy decoding after the prompt ${prompt.pieces
          ? html`<code class="prompt">${spaces(prompt.pieces.join(""))}</code>`
          : html`with the ids <code class="prompt">${
            prompt.ids.join(" ")
          }</code>`}. Beside each token stands its margin: its logit minus that of the runner-up. A choice with a margin that is
    smaller than the logits move can fall the other way. <span class="lost">≠</span> marks tokens that differ; once one
    does, the answers go different ways.</p>
      <div class="scroll" tabindex="0" role="region" aria-labelledby="answers">
        <table class="answers">
          <thead>
            <tr><th scope="col" class="n">#</th><th scope="col">${model.name}</th>${quants.map(({ name }) =>
              html`<th scope="col">${name}</th>`
            )}</tr>
          </thead>
          <tbody>
    ${answer.ids.map((id, n) =>
      html`<tr><th scope="row" class="n">${n + 1}</th>${token(answer, n, "answer", false)}${
        quants.map(({ answer: own }, q) => token(own, n, `quants.${q}.answer`, own.ids[n] !== id))
      }</tr>\n`
    )}</tbody>
        </table>
      </div>
    </section>
  `;
}

function token({ ids, pieces, margins }: Answer, n: number, path: string, differs: boolean): Html {
  return html`<td${differs && trusted(' class="differs"')}><span class="margin">${
    figure(`${path}.margins.${n}`, margins[n].toFixed(3))
  }</span>${differs && trusted('<span class="mark" aria-hidden="true">≠</span><span class="vh">differs: </span>')}${
    pieces && html`
      <code class="piece">${spaces(pieces[n])}</code>
    `
  }<span class="id">${figure(`${path}.ids.${n}`, String(ids[n]))}</span></td>`;
}

/** Text with its line feeds and tabs as signs that can be seen; spaces are kept by the style. */
function spaces(text: string): string {
  return text.replaceAll("\n", "↵").replaceAll("\t", "⇥");
}

function logits({ quants }: Report): Html {
  const row = (label: string, key: keyof QuantFigures, show: (quant: QuantFigures) => string) =>
    html`<tr><th scope="row">${label}</th>${
      quants.map((quant, n) => html`<td class="n">${figure(`quants.${n}.${key}`, show(quant))}</td>`)
    }</tr>\n`;
  const reach = reachOf(quants);
  return html`
    <section aria-labelledby="logits">
      <h2 id="logits">How far the logits move</h2>
      <p class="note">Both models are fed the prompt and the reference’s answer, and their logits are compared after each
    token, in binary32 on the weights as they are stored: what differs comes from the weights alone.</p>
      <div class="scroll" tabindex="0" role="region" aria-labelledby="logits">
        <table>
          <thead>
            <tr><th scope="col">Figure</th>${quants.map(({ name }) =>
              html`<th scope="col" class="n">${name}</th>`
            )}</tr>
          </thead>
          <tbody>
    ${row("Logits: largest difference", "logits_max", ({ logits_max }) => logits_max.toFixed(6))}${row(
      "Logits: mean difference",
      "logits_mean",
      ({ logits_mean }) => logits_mean.toFixed(9),
    )}${row("Logits compared", "values", ({ values }) => grouped(values))}${row(
      "After the prompt: largest difference",
      "prefill_max",
      ({ prefill_max }) => prefill_max.toFixed(6),
    )}${row("After the prompt: mean difference", "prefill_mean", ({ prefill_mean }) => prefill_mean.toFixed(9))}${row(
      "Tokens decoded",
      "steps",
      ({ steps }) => grouped(steps),
    )}${row("Tokens before the answers differ", "kept", ({ kept }) => grouped(kept))}${row(
      "Same choice after the reference’s tokens",
      "agree",
      ({ agree }) => grouped(agree),
    )}</tbody>
        </table>
      </div>
      <div class="charts">
    ${quants.map((quant) =>
      html`<figure>
<h3>${quant.name} <span class="tag">${quant.format}</span></h3>
${differenceHistogram(quant, reach)}
<figcaption>Differences of ${grouped(quant.values)} logits${
        quants.length > 1 && ", on the same axes as the other’s"
      }.</figcaption>
</figure>`
    )}
      </div>
    </section>
  `;
}

/** How far the axes of the histograms go on each side. */
function reachOf(quants: readonly QuantFigures[]): number {
  const most = Math.max(...quants.flatMap(({ histogram }) => extent(histogram).map(Math.abs)));
  return niceCeiling(Math.max(most, 1e-6));
}

function weights(report: Report): Html {
  const { quants } = report;
  const compared = (quant: QuantFigures, n: number) =>
    quant.different === 0
      ? html`All ${figure(`quants.${n}.equal`, grouped(quant.equal))} tensors are what quantizing the reference gives.`
      : html`${figure(`quants.${n}.different`, grouped(quant.different))} of ${
        grouped(quant.equal + quant.different)
      } tensors are not what quantizing the reference gives.`;
  return html`
    <section aria-labelledby="weights">
      <h2 id="weights">Error of the weights</h2>
      <p class="note">The relative RMS error of each quantized matrix: the root of Σ(w − v)² / Σw² over its weights w and
    what is stored of them, v. Each map has its own scale, from its lowest error to its highest.</p>
      <div class="charts">
    ${quants.map((quant, n) =>
      html`<figure>
<h3>${quant.name} <span class="tag">${quant.format} · ${
        perCent(`quants.${n}.rms`, quant.rms)
      } over all weights</span></h3>
${errorMap(report, n)}
<figcaption>${compared(quant, n)}</figcaption>
</figure>`
    )}
      </div>
    </section>
  `;
}

/** What the table of tensors can be sorted by: a label, and for each tensor its place. */
function orders({ tensors, quants }: Report): { label: string; places: number[] }[] {
  const places = (before: (a: number, b: number) => number) => {
    const sorted = tensors.map((_, n) => n).sort((a, b) => before(a, b) || a - b);
    const out = new Array<number>(tensors.length);
    sorted.forEach((tensor, place) => out[tensor] = place);
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

/** The rules by which a choice orders the rows. */
function order(report: Report): Html {
  return trusted(
    orders(report).map((_, n) => `.tensors:has(#sort-${n}:checked) tbody tr{order:var(--o${n})}`).slice(1).join("\n"),
  );
}

function tensors(report: Report): Html {
  const { tensors, quants, model } = report;
  const sorts = orders(report);
  const columns = `minmax(11rem,1fr) repeat(${3 + 3 * quants.length},auto)`;
  return html`
    <section class="tensors" aria-labelledby="tensors">
      <h2 id="tensors">All tensors</h2>
      <details>
        <summary>${figure(
          "tensors.length",
          grouped(tensors.length),
        )} tensors: shape, dtype, bytes and error of each</summary>
        <fieldset>
    <legend>Sort by</legend>
    ${sorts.map(({ label }, n) =>
      html`<label><input type="radio" name="sort" id="sort-${n}"${n === 0 && trusted(" checked")}> ${label}</label>\n`
    )}</fieldset>
        <div class="scroll" tabindex="0" role="region" aria-labelledby="tensors">
          <table role="table" style="grid-template-columns:${columns}">
            <thead role="rowgroup">
              <tr
                role="row"><td role="cell"></td><th role="columnheader" scope="colgroup" colspan="3" style="grid-column:span 3">${model
                  .name}</th>${quants.map(({ name }) =>
                    html`<th role="columnheader" scope="colgroup" colspan="3" style="grid-column:span 3">${name}</th>`
                  )}</tr>
              <tr
                role="row"><th role="columnheader" scope="col">Tensor</th><th role="columnheader" scope="col">Shape</th><th role="columnheader" scope="col">Dtype</th><th role="columnheader" scope="col" class="n">Bytes</th>${quants
                  .map(() =>
                    html`
                      <th role="columnheader" scope="col">Dtype</th>
                      <th role="columnheader" scope="col" class="n">Bytes</th>
                      <th role="columnheader" scope="col" class="n">Error, %</th>
                    `
                  )}</tr>
            </thead>
            <tbody role="rowgroup">
    ${tensors.map(({ name, shape, dtype, bytes, quants }, n) =>
      html`
        <tr role="row"
          style="${sorts.slice(1).map(({ places }, o) => `--o${o + 1}:${places[n]}`).join(
            ";",
          )}"><th role="rowheader" scope="row">${name}</th><td role="cell">${shape.length === 0
            ? "scalar"
            : shape.join(" × ")}</td><td role="cell">${dtype ?? "–"}</td><td role="cell" class="n">${bytes === undefined
            ? "–"
            : figure(`tensors.${n}.bytes`, grouped(bytes))}</td>${quants.map((stored, q) =>
              storedCells(stored, `tensors.${n}.quants.${q}`)
            )}</tr>\\n
      `
    )}</tbody>
          </table>
        </div>
      </details>
    </section>
  `;
}

function storedCells(stored: StoredFigures | null, path: string): Html {
  if (stored === null) {
    return html`
      <td role="cell" class="odd">≠ missing</td>
      <td role="cell" class="n">–</td>
      <td role="cell" class="n">–</td>
    `;
  }
  const { dtype, bytes, equal, problem, rms } = stored;
  const why = problem ?? "other values than quantizing the reference gives";
  return html`
    <td role="cell" ${!equal && trusted(' class="odd"')}>${dtype}${!equal && ` ≠ ${why}`}</td>
    <td role="cell" class="n">${figure(`${path}.bytes`, grouped(bytes))}</td>
    <td role="cell" class="n">${rms === undefined
      ? (equal ? "kept" : "–")
      : figure(`${path}.rms`, (rms * 100).toFixed(4), 100)}</td>
  `;
}

function foot({ program }: Report): Html {
  return html`
    <footer>
      <p>Made by ${program}. This page has no script and loads nothing; its figures are in it as JSON, in the element <code>data</code>.</p>
    </footer>
  `;
}
