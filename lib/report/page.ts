/**
 * A report as one HTML page: figures to text, nothing else. The page has no script, loads nothing, and forbids itself
 * to; what it shows of the figures carries their path in the JSON (`data-figure`).
 *
 * @module
 */

import type { Figure, PredictionFigures } from "../measure/metrics.ts";
import { commonAxes, commonDecades, differenceHistogram, divergenceCurve, errorMap } from "./charts.ts";
import type { Answer, QuantFigures, Report } from "./figures.ts";
import { type Html, jsonScript, markup, type Part, trusted } from "./html.ts";
import { digitsOf, grouped, inBytes, inWords, percent } from "./numbers.ts";
import { figure, scrolling, section } from "./parts.ts";
import { STYLE } from "./style.ts";
import { orderRules, tensors } from "./tensor_table.ts";

/** What the page allows itself: its own style sheet. */
const POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/** The page of a report. */
export function page(report: Report): string {
  const { model, quants, program } = report;
  return markup`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="${POLICY}">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="${program}">
<title>${model.name}: ${quants.map(({ name }) => name).join(", ")} – quantization report</title>
<style>
${trusted(STYLE)}
${trusted(orderRules(report))}
</style>
</head>
<body>
${head(report)}
<main>
${checkpoints(report)}
${answers(report)}
${logits(report)}
${prediction(report)}
${weights(report)}
${tensors(report)}
</main>
<footer>
<p>Made by ${program}. This page has no script and loads nothing; its figures are in it as JSON, in the element
<code>data</code>.</p>
</footer>
<script type="application/json" id="data">${jsonScript(report)}</script>
</body>
</html>
`.text;
}

function head({ model }: Report): Html {
  const { text, unit, size } = inWords(model.parameters);
  const fact = (key: "layers" | "hidden" | "intermediate" | "heads" | "kv_heads" | "vocabulary", label: string) =>
    markup`<li><b>${figure(`model.${key}`, grouped(model[key]))}</b> ${label}</li>`;
  return markup`<header>
<p class="eyebrow">Quantization report</p>
<h1>${model.name}</h1>
<ul class="facts">
<li><b>${model.architecture}</b></li>
<li><b>${figure("model.parameters", text, 1 / size)}${unit && ` ${unit}`}</b> parameters</li>
${fact("layers", "layers")}
${fact("hidden", "hidden")}
${fact("intermediate", "intermediate")}
${fact("heads", "heads")}
${fact("kv_heads", "key/value heads")}
${fact("vocabulary", "tokens in the vocabulary")}
</ul>
</header>`;
}

function checkpoints({ model, quants, text }: Report): Html {
  const reference = card(
    model.name,
    `${model.dtypes.join(", ")} · reference`,
    "model",
    model,
    1,
    undefined,
    text ? [["Perplexity", figure("text.perplexity.float", digitsOf(text.perplexity.float, 4))]] : [],
  );
  const cards = quants.map((quant, n) => {
    const path = (key: keyof QuantFigures) => `quants.${n}.${key}`;
    return card(quant.name, quant.format, `quants.${n}`, quant, quant.ratio, verdict(quant, n), [
      ["Part of the reference", markup`${figure(path("ratio"), (quant.ratio * 100).toFixed(1), 100)} %`],
      ["Error of the weights", markup`${figure(path("rms"), percent(quant.rms), 100)} %`],
      ["Mean change of a logit", figure(path("logits_mean"), quant.logits_mean.toFixed(4))],
      ...quant.perplexity === undefined
        ? []
        : [["Perplexity", figure(`quants.${n}.perplexity.quant`, digitsOf(quant.perplexity.quant, 4))] as const],
    ]);
  });
  return section("checkpoints", "Size and verdict", undefined, markup`<div class="cards">${reference}${cards}</div>`);
}

function card(
  name: string,
  tag: string,
  path: string,
  file: { readonly path: string; readonly bytes: number; readonly bits_per_weight: number },
  ratio: number,
  verdict: Part,
  rows: readonly (readonly [string, Html])[],
): Html {
  const { text, unit, size } = inBytes(file.bytes);
  const all: (readonly [string, Html])[] = [
    ["Bytes", figure(`${path}.bytes`, grouped(file.bytes))],
    ["Bits per weight", figure(`${path}.bits_per_weight`, file.bits_per_weight.toFixed(2))],
    ...rows,
  ];
  return markup`<article class="card">
<h3>${name} <span class="tag">${tag}</span></h3>
<p class="path"><code>${file.path}</code></p>
<p class="size">${figure(`${path}.bytes`, text, 1 / size)} ${unit}</p>
<div class="track"><i style="width:${Math.min(100, ratio * 100).toFixed(1)}%"></i></div>
${verdict}
<dl>
${all.map(([label, value]) => markup`<dt>${label}</dt><dd>${value}</dd>\n`)}</dl>
</article>
`;
}

function verdict({ match, kept, steps }: QuantFigures, n: number): Html {
  const decoded = figure(`quants.${n}.steps`, grouped(steps));
  return match
    ? markup`<p class="verdict kept">✓ Answer kept: all ${decoded} tokens</p>`
    : markup`<p class="verdict lost">≠ Differs from token ${grouped(kept + 1)} of ${decoded} on</p>`;
}

function answers({ model, prompt, answer, quants }: Report): Html {
  const words = prompt.texts
    ? markup`<code>${shown(prompt.texts.join(""))}</code>`
    : markup`of the ids <code>${prompt.ids.join(" ")}</code>`;
  const note = markup`Greedy decoding after the prompt ${words}. Beside each token stands its margin: its logit minus
that of the runner-up. A choice whose margin is smaller than the logits move can fall the other way.
<span class="lost">≠</span> marks tokens that differ; from the first of them on, the answers go different ways.`;
  const rows = answer.ids.map((id, n) => {
    const others = quants.map(({ answer: own }, q) => token(own, n, `quants.${q}.answer`, own.ids[n] !== id));
    return markup`<tr><th scope="row" class="n">${n + 1}</th>${token(answer, n, "answer", false)}${others}</tr>\n`;
  });
  return section(
    "answers",
    "The answer, token by token",
    note,
    scrolling(
      "Table of the answers",
      markup`<table>
<thead><tr><th scope="col" class="n">#</th><th scope="col">${model.name}</th>${
        quants.map(({ name }) => markup`<th scope="col">${name}</th>`)
      }</tr></thead>
<tbody>
${rows}</tbody>
</table>`,
    ),
  );
}

function token({ ids, texts, margins }: Answer, n: number, path: string, differs: boolean): Html {
  const mark = markup`<span class="mark" aria-hidden="true">≠</span><span class="vh">differs: </span>`;
  const text = texts && markup`<code class="text">${shown(texts[n])}</code> `;
  const id = markup`<span class="id">${figure(`${path}.ids.${n}`, String(ids[n]))}</span>`;
  const margin = markup`<span class="margin">${figure(`${path}.margins.${n}`, margins[n].toFixed(3))}</span>`;
  return markup`<td${differs && trusted(' class="differs"')}><span class="token">${
    differs && mark
  }${text}${id}</span>${margin}</td>`;
}

/** Text with its line feeds and tabs as signs that can be seen; spaces are kept by the style. */
function shown(text: string): string {
  return text.replaceAll("\n", "↵").replaceAll("\t", "⇥");
}

function logits({ quants }: Report): Html {
  const row = (label: string, key: keyof QuantFigures, digits: number) => {
    const cells = quants.map((quant, n) => {
      const value = quant[key] as number;
      return markup`<td class="n">${
        figure(`quants.${n}.${key}`, digits === 0 ? grouped(value) : value.toFixed(digits))
      }</td>`;
    });
    return markup`<tr><th scope="row">${label}</th>${cells}</tr>\n`;
  };
  const axes = commonAxes(quants.map(({ histogram }) => histogram));
  const charts = quants.map((quant) =>
    markup`<figure>
<h3>${quant.name} <span class="tag">${quant.format}</span></h3>
${differenceHistogram(quant, axes)}
<figcaption>Differences of ${grouped(quant.values)} logits${
      quants.length > 1 && "; all these charts have the same axes"
    }.</figcaption>
</figure>
`
  );
  return section(
    "logits",
    "How far the logits move",
    markup`Both models are fed the prompt and then the reference’s answer, and their logits are compared after each
token, in binary32 on the weights as they are stored: what differs comes from the weights alone.`,
    [
      scrolling(
        "Table of the differences of the logits",
        markup`<table>
<thead><tr><th scope="col">Difference of the logits</th>${
          quants.map(({ name }) => markup`<th scope="col" class="n">${name}</th>`)
        }</tr></thead>
<tbody>
${row("Largest", "logits_max", 6)}${row("Mean", "logits_mean", 6)}${row("Values compared", "values", 0)}${
          row("Largest, after the prompt", "prefill_max", 6)
        }${row("Mean, after the prompt", "prefill_mean", 6)}${row("Tokens decoded", "steps", 0)}${
          row("Same tokens until the first other one", "kept", 0)
        }${row("Same choice after the reference’s tokens", "agree", 0)}</tbody>
</table>`,
      ),
      markup`<div class="charts">${charts}</div>`,
    ],
  );
}

/** How well a text is predicted, where the report has one. */
function prediction({ quants, text }: Report): Html | undefined {
  if (text === undefined) return undefined;
  const shown = (value: Figure, path: string, digits: number, scale?: number) =>
    figure(path, digitsOf(typeof value === "number" ? value * (scale ?? 1) : value, digits).replace("-", "−"), scale);
  const spread = (error: Figure | undefined, path: string, digits: number, scale?: number) =>
    error !== undefined && markup` <span class="error">± ${shown(error, path, digits, scale)}</span>`;
  const row = <Group extends keyof PredictionFigures>(
    label: string,
    group: Group,
    key: keyof PredictionFigures[Group] & string,
    digits: number,
    error?: keyof PredictionFigures[Group] & string,
    scale?: number,
  ) => {
    const cells = quants.map((quant, n) => {
      const path = `quants.${n}.${group}`;
      const figures = quant[group] as PredictionFigures[Group];
      const wide = error && spread(figures[error] as Figure | undefined, `${path}.${error}`, digits, scale);
      return markup`<td class="n">${shown(figures[key] as Figure, `${path}.${key}`, digits, scale)}${wide}</td>`;
    });
    return markup`<tr><th scope="row">${label}</th>${cells}</tr>\n`;
  };
  const decades = commonDecades(quants.flatMap(({ kl_quantiles }) => kl_quantiles ?? []));
  const curves = quants.map((quant) =>
    markup`<figure>
<h3>${quant.name} <span class="tag">${quant.format}</span></h3>
${divergenceCurve(quant, decades)}
<figcaption>Divergence of ${grouped(text.scored)} tokens, sorted${
      quants.length > 1 && "; all these charts have the same axes"
    }.</figcaption>
</figure>
`
  );
  const own = shown(text.perplexity.float, "text.perplexity.float", 4);
  return section(
    "prediction",
    "How well a text is predicted",
    markup`${figure("text.scored", grouped(text.scored))} tokens of <code>${text.file}</code> are predicted, in
${figure("text.windows", grouped(text.windows))} windows of ${figure("text.window", grouped(text.window))} tokens.
Perplexity is the exponential of the mean of −log p of the right token; the reference’s is
${own}${
      spread(text.perplexity.float_error, "text.perplexity.float_error", 4)
    }. The divergence is that of Kullback and Leibler from
the reference, in nats for each token. ± is a standard error.`,
    [
      scrolling(
        "Table of the text's figures",
        markup`<table>
<thead><tr><th scope="col">Figure</th>${
          quants.map(({ name }) => markup`<th scope="col" class="n">${name}</th>`)
        }</tr></thead>
<tbody>
${row("Perplexity", "perplexity", "quant", 4, "quant_error")}${
          row("Perplexity / the reference’s", "perplexity", "ratio", 6, "ratio_error")
        }${row("Divergence: mean", "kl", "mean", 6, "error")}${row("Divergence: median", "kl", "median", 6)}${
          row("Divergence: 99.9 % are below", "kl", "p999", 6)
        }${row("Divergence: largest", "kl", "max", 6)}${
          row("Same most probable token, %", "same_top", "rate", 2, "error", 100)
        }${row("Right token’s probability: RMS change", "prob", "rms", 6)}${
          row("Right token’s probability: mean change", "prob", "mean", 6)
        }</tbody>
</table>`,
      ),
      markup`<div class="charts">${curves}</div>`,
    ],
  );
}

function weights(report: Report): Html {
  const { quants } = report;
  const maps = quants.map((quant, n) => {
    const rms = markup`${figure(`quants.${n}.rms`, percent(quant.rms), 100)} % over all weights`;
    const all = grouped(quant.equal + quant.different);
    const compared = quant.different === 0
      ? markup`All ${figure(`quants.${n}.equal`, all)} tensors are what quantizing the reference gives.`
      : markup`${figure(`quants.${n}.different`, grouped(quant.different))} of ${all} tensors are not what quantizing
the reference gives.`;
    return markup`<figure>
<h3>${quant.name} <span class="tag">${quant.format} · ${rms}</span></h3>
${errorMap(report, n)}
<figcaption>${compared}</figcaption>
</figure>
`;
  });
  return section(
    "weights",
    "Error of the weights",
    markup`The relative RMS error of each quantized matrix: the root of Σ(w − v)² / Σw² over its weights w and what is
stored of them, v. Darker (on a dark page, lighter) is more; each map has a scale of its own, from the lowest to the
highest error of its layers.`,
    markup`<div class="charts">${maps}</div>`,
  );
}
