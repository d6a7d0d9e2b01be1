/**
 * HTML: a template that escapes its values, and JSON in a page.
 *
 * @module
 */

/** Escaped HTML; only {@link markup} creates it, and {@link trusted} for constants. */
export class Html {
  constructor(readonly text: string) {}
}

/** The values in a template. Lists are joined; undefined and false are omitted. */
export type Part = string | number | Html | undefined | false | readonly Part[];

/**
 * A template literal whose values are escaped, unless they are {@link Html}. Attribute values must be in double quotes.
 * (The tag is not called html, since the formatter would rewrite such templates.)
 */
export function markup(strings: TemplateStringsArray, ...parts: readonly Part[]): Html {
  return new Html(strings.map((text, n) => n === 0 ? text : render(parts[n - 1]) + text).join(""));
}

/** Marks a constant of the program as HTML. */
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
 * Replaces characters that HTML forbids (control characters, unpaired surrogates, noncharacters) or that would reorder
 * the surrounding text (bidirectional controls) by \uXXXX.
 */
function visible(text: string): string {
  // Tabs and line feeds are allowed.
  const odd = /(?![\t\n])\p{Cc}|\p{Cs}|\p{Bidi_Control}|\p{Noncharacter_Code_Point}/gu;
  return text.replace(odd, (c) => "\\u" + c.codePointAt(0)!.toString(16).padStart(4, "0"));
}

/** A value as JSON for a script element, without characters that could end the element or that HTML forbids. */
export function jsonScript(value: unknown): Html {
  const text = JSON.stringify(value).replace(
    /[<>&\u007f-\u009f\u2028\u2029]|\p{Bidi_Control}|\p{Noncharacter_Code_Point}/gu,
    (c) => {
      return c.split("").map((unit) => "\\u" + unit.charCodeAt(0).toString(16).padStart(4, "0")).join("");
    },
  );
  return new Html(text);
}
