/**
 * The elements of the page's sections.
 *
 * @module
 */

import { type Html, markup, type Part } from "./html.ts";

/** A number of the report, with its path in the JSON, and the factor from the JSON's value to the one shown. */
export function figure(path: string, text: string, scale?: number): Html {
  return markup`<span data-figure="${path}"${scale !== undefined && markup` data-scale="${scale}"`}>${text}</span>`;
}

/** A section of a report: a heading that names it, a note, and the content. */
export function section(id: string, heading: string, note: Part, content: Part): Html {
  return markup`<section class="${id}" aria-labelledby="${id}">
<h2 id="${id}">${heading}</h2>
${note && markup`<p class="note">${note}</p>`}
${content}
</section>`;
}

/** A table that scrolls horizontally if it is too wide. */
export function scrolling(label: string, table: Html): Html {
  return markup`<div class="scroll" tabindex="0" role="region" aria-label="${label}">\n${table}\n</div>`;
}
