/**
 * The style sheet of a report; it uses no external fonts, images or scripts.
 *
 * @module
 */

/** The colours of one scheme, by purpose. */
export interface Scheme {
  readonly page: string;
  readonly card: string;
  readonly text: string;
  readonly muted: string;
  readonly line: string;
  readonly bar: string;
  readonly good: string;
  readonly bad: string;
  /** The background of a token that differs. */
  readonly changed: string;
  /** The colours of the map from the lowest error to the highest, and of the text on each. */
  readonly ramp: readonly (readonly [fill: string, text: string])[];
}

/** The number of colours in the map's scale. */
export const STEPS = 8;

/** The light scheme, also for print. */
export const LIGHT: Scheme = {
  page: "#f7f8f9",
  card: "#ffffff",
  text: "#1a1f26",
  muted: "#555f6b",
  line: "#d9dee4",
  bar: "#3f73ab",
  good: "#17663a",
  bad: "#9c3310",
  changed: "#fdeee6",
  ramp: [
    ["#eef3f9", "#10202f"],
    ["#d8e4f1", "#10202f"],
    ["#bdd2e8", "#10202f"],
    ["#9fbddd", "#10202f"],
    ["#7fa6cf", "#0a1622"],
    ["#3f73ab", "#ffffff"],
    ["#2a5a90", "#ffffff"],
    ["#173f6d", "#ffffff"],
  ],
};

/** The dark scheme, in which a higher error is lighter. */
export const DARK: Scheme = {
  page: "#0f1318",
  card: "#171c23",
  text: "#e4e8ed",
  muted: "#9da8b4",
  line: "#2d353f",
  bar: "#6f9fd0",
  good: "#74c795",
  bad: "#f2a07a",
  changed: "#3a2318",
  ramp: [
    ["#1d2833", "#dfe9f3"],
    ["#22384d", "#e6eff8"],
    ["#284a6a", "#eef5fb"],
    ["#2f5c88", "#ffffff"],
    ["#3d70a3", "#ffffff"],
    ["#7fa9d6", "#0a1622"],
    ["#aac9e9", "#0a1622"],
    ["#d7e7f7", "#0a1622"],
  ],
};

function variables({ ramp, ...colours }: Scheme): string {
  return [
    ...Object.entries(colours).map(([name, value]) => `--${name}:${value}`),
    ...ramp.flatMap(([fill, text], n) => [`--h${n}:${fill}`, `--t${n}:${text}`]),
  ].join(";");
}

const LAYOUT = `
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--text);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",Arial,sans-serif;font-variant-numeric:tabular-nums lining-nums}
body>*{max-width:68rem;margin-inline:auto;padding-inline:clamp(1rem,4vw,2rem)}
header{padding-block:2.5rem 1rem}
main>section{margin-block:2.75rem}
footer{padding-block:1.25rem 3rem;color:var(--muted);font-size:.875rem}
h1,h2,h3{line-height:1.2;letter-spacing:-.012em;margin:0;overflow-wrap:anywhere}
h1{font-size:clamp(1.7rem,5vw,2.4rem);font-weight:680}
h2{font-size:1.3rem;font-weight:650;margin-bottom:.35rem}
h3{font-size:1.05rem;font-weight:620}
p{margin:.35rem 0}
code,.id{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;font-size:.875em;overflow-wrap:anywhere}
.eyebrow{color:var(--muted);font-size:.8rem;letter-spacing:.07em;text-transform:uppercase;margin:0 0 .4rem}
.note,figcaption{color:var(--muted);max-width:46rem;font-size:.925rem}
.facts{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;margin:.7rem 0 0;padding:0;list-style:none;color:var(--muted)}
.facts b{color:var(--text);font-weight:600}
.cards,.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,18rem),1fr));gap:1rem;margin-top:1rem}
.charts{grid-template-columns:repeat(auto-fit,minmax(min(100%,21rem),1fr))}
.card,figure{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:1.1rem 1.2rem;margin:0;min-width:0}
.card h3,figure h3{display:flex;flex-wrap:wrap;gap:.2rem .6rem;align-items:baseline;justify-content:space-between}
.tag{font-size:.78rem;font-weight:500;color:var(--muted);letter-spacing:.02em}
.path{color:var(--muted);font-size:.8rem;margin:.1rem 0 .7rem}
.verdict{font-weight:620;margin:.7rem 0}
.kept{color:var(--good)}
.lost{color:var(--bad)}
.size{margin:0;font-size:1.5rem;font-weight:640;letter-spacing:-.015em;line-height:1.2}
.track{height:.4rem;border-radius:.2rem;background:var(--line);margin:.55rem 0 .7rem;overflow:hidden}
.track i{display:block;height:100%;background:var(--bar)}
dl{display:grid;grid-template-columns:1fr auto;gap:.2rem 1rem;margin:0;font-size:.925rem}
dt{color:var(--muted)}
dd{margin:0;text-align:right}
.scroll{position:relative;overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:.6rem;margin-top:1rem}
.scroll:focus-visible{outline:2px solid var(--bar);outline-offset:2px}
table{border-collapse:collapse;width:100%;font-size:.925rem}
th,td{padding:.42rem .8rem;text-align:left;vertical-align:baseline;border-top:1px solid var(--line)}
thead tr:first-child>*{border-top:0}
th{font-weight:600}
thead th{color:var(--muted);font-size:.85rem}
td.n,th.n{text-align:right;white-space:nowrap}
tbody th{font-weight:400}
.error{color:var(--muted);font-size:.9em}
.answers td{min-width:5.5rem}
.answers .token{margin-right:.8rem}
.answers .text{white-space:pre-wrap;background:color-mix(in srgb,var(--line) 50%,transparent);border-radius:.2rem;padding:.08em .28em}
.answers .id{color:var(--muted)}
.answers .margin{float:right;color:var(--muted)}
.differs{background:var(--changed);box-shadow:inset 3px 0 var(--bad)}
.differs .mark{color:var(--bad);font-weight:700;margin-right:.3em}
.answers .differs .margin,.answers .differs .id{color:var(--text)}
.vh{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
svg{display:block;width:100%;height:auto;max-width:36rem;margin:.8rem auto .2rem;font-size:10px;overflow:visible}
svg .axis{fill:var(--muted)}
svg .value{fill:var(--text)}
svg .bar{fill:var(--bar)}
svg .curve{stroke:var(--bar);stroke-width:2;stroke-linejoin:round;fill:none}
svg .area{fill:var(--bar);opacity:.14}
svg .line{stroke:var(--muted);fill:none}
svg .grid{stroke:var(--line);fill:none}
svg .frame{stroke:var(--line);fill:none}
figcaption{font-size:.85rem}
details{margin-top:1rem}
summary{cursor:pointer;font-weight:600;padding:.3rem 0}
summary:focus-visible{outline:2px solid var(--bar);outline-offset:2px}
fieldset{min-inline-size:0;border:0;margin:.5rem 0 0;padding:0;display:flex;flex-wrap:wrap;gap:.3rem 1.1rem;font-size:.925rem}
legend{float:left;margin-right:1.1rem;padding:0;color:var(--muted)}
fieldset label{min-width:0;padding-block:.1rem;overflow-wrap:anywhere}
input{accent-color:var(--bar);margin:0 .2rem 0 0;vertical-align:-.1em}
/* A grid, so that the selected order can sort the rows without a script. */
.tensors table{display:grid;grid-template-columns:minmax(var(--name,min(23rem,60vw)),1fr) repeat(var(--columns),auto);font-size:.85rem}
.tensors .group{grid-column:span 3}
.tensors thead th{font-size:1em}
.tensors .w{white-space:nowrap}
.tensors thead,.tensors tbody{display:contents}
.tensors tr{display:grid;grid-template-columns:subgrid;grid-column:1/-1;border-top:1px solid var(--line)}
.tensors th,.tensors td{border:0;padding:.28rem .8rem}
.tensors tr:first-child{border-top:0}
.tensors thead tr{order:-1;border-top:0}
.tensors tbody tr:hover{background:color-mix(in srgb,var(--line) 35%,transparent)}
.tensors tbody th{overflow-wrap:anywhere}
.tensors .odd{color:var(--bad)}
@media (max-width:40rem){
 .answers .margin{float:none;display:block}
 .answers .token{margin:0}
 td .error{display:block}
 th,td{padding-inline:.5rem}
 body{font-size:15px}
 .card,figure{padding:.9rem}
}
@media print{
 @page{margin:14mm}
 body{font-size:10pt}
 body>*{max-width:none;padding-inline:1px}
 header{padding-block:0 .5rem}
 main>section{margin-block:1.5rem}
 h2,h3,summary,.note{break-after:avoid}
 .card,figure,.note,tr{break-inside:avoid}
 .cards{grid-template-columns:repeat(auto-fit,minmax(5.4cm,1fr));gap:.5rem}
 .charts{grid-template-columns:repeat(auto-fit,minmax(8cm,1fr));gap:.5rem}
 .card,figure{padding:.7rem}
 dl{font-size:.75rem;gap:.1rem .5rem}
 th,td{padding-block:.3rem}
 svg{max-height:21cm}
 .scroll{overflow:visible}
 fieldset,summary{display:none}
 details::details-content{display:block;content-visibility:visible;block-size:auto;height:auto}
 .tensors table{--name:3.4cm;font-size:calc(6.5pt*min(1,9/var(--columns)))}
 .tensors th,.tensors td{padding:.15em .4em}
 .card,figure,.scroll,.track,.track i,svg,.differs,.answers .text{-webkit-print-color-adjust:exact;print-color-adjust:exact}
}
`;

/** The style sheet of a page. */
export const STYLE: string = [
  `:root{color-scheme:light;${variables(LIGHT)}}`,
  // Print uses the light scheme.
  `@media screen and (prefers-color-scheme:dark){:root{color-scheme:dark;${variables(DARK)}}}`,
  LAYOUT.trim(),
  LIGHT.ramp.map((_, n) => `.h${n}{fill:var(--h${n})}.t${n}{fill:var(--t${n})}`).join(""),
].join("\n");
