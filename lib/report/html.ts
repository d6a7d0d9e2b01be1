/**
 * HTML text: a template that escapes what is put into it, and JSON inside a page.
 *
 * @module
 */

/** Text that is HTML already; only {@link markup} makes it, and {@link trusted} of constants. */
export class Html {
  constructor(readonly text: string) {}
}

/** What may stand in a template; a list is joined, undefined and false leave nothing. */
export type Part = string | number | Html | undefined | false | readonly Part[];

/**
 * A template literal whose values are escaped, unless they are {@link Html}. Attribute values must stand in double
 * quotes. (The formatter would rewrite the text of a tag that is called html, and with it what the page says.)
 */
export function markup(strings: TemplateStringsArray, ...parts: readonly Part[]): Html {
  return new Html(strings.map((text, n) => n === 0 ? text : render(parts[n - 1]) + text).join(""));
}

/** HTML that the program itself contains. */
export function trusted(text: string): Html {
  return new Html(text);
}

function render(part: Part): string {
  if (part instanceof Html) return part.text;
  if (part === undefined || part === false) return "";
  if (typeof part === "object") return part.map(render).join("");
  return escape(visible(String(part)));
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (c) => ENTITIES[c]);
}

/**
 * What HTML forbids (control characters, unpaired surrogates, noncharacters) or what would reorder the text around it
 * (bidirectional controls), as \uXXXX.
 */
function visible(text: string): string {
  // Tabs and line feeds are allowed.
  const odd = /(?![\t\n])\p{Cc}|\p{Cs}|\p{Bidi_Control}|\p{Noncharacter_Code_Point}/gu;
  return text.replace(odd, (c) => "\\u" + c.codePointAt(0)!.toString(16).padStart(4, "0"));
}

/** A value as JSON for a script element: no character of it can end the element or is forbidden in HTML. */
export function jsonScript(value: unknown): Html {
  const text = JSON.stringify(value).replace(
    /[<>&\u007f-\u009f\u2028\u2029]|\p{Bidi_Control}|\p{Noncharacter_Code_Point}/gu,
    (c) => {
      return c.split("").map((unit) => "\\u" + unit.charCodeAt(0).toString(16).padStart(4, "0")).join("");
    },
  );
  return new Html(text);
}
