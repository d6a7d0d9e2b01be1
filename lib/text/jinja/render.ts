/**
 * Renders a chat template as transformers does: Jinja2 3.1 in a sandbox that changes nothing, with trim_blocks,
 * lstrip_blocks, break, continue and generation, and without automatic escaping.
 *
 * What a template does that is not here is refused by name ({@link Unsupported}); everything else gives the text that
 * Jinja2 gives, with Python's values. Nodes become functions, as Jinja2 makes Python of them.
 *
 * @module
 */

import { Dict } from "./collections.ts";
import type { Moment } from "./dates.ts";
import { globalsOf, Raised } from "./globals.ts";
import { resetLimits, TemplateError } from "./limits.ts";
import { parse } from "./parser.ts";
import { Scope } from "./scopes.ts";
import { block } from "./statements.ts";
import { isBroken } from "./text.ts";
import { NONE, type Value } from "./values.ts";
import { Buffer, Variables } from "./variables.ts";

/** What the caller passes: an int is a bigint, a float a number. */
export type Plain = null | boolean | bigint | number | string | readonly Plain[] | { readonly [key: string]: Plain };

/** What a template made. */
export interface Rendered {
  readonly text: string;
  /** Whether it asked for the date. */
  readonly dated: boolean;
}

function valueOf(plain: Plain): Value {
  if (typeof plain === "string" && isBroken(plain)) throw new TemplateError("a text has half of a surrogate pair");
  if (Array.isArray(plain)) return plain.map(valueOf);
  if (typeof plain !== "object" || plain === null) return plain === null ? NONE : plain as Value;
  return new Dict(Object.entries(plain).map(([key, value]) => [key, valueOf(value)]));
}

/**
 * Renders a template.
 *
 * @param variables what it can read, besides Jinja2's and transformers' functions
 * @param now the time for strftime_now
 * @param milliseconds the time that rendering may take
 * @throws {TemplateError} it is no template, raises an error, uses too much, or has what is not supported
 */
export function render(
  template: string,
  variables: Readonly<Record<string, Plain>>,
  now: Moment,
  milliseconds = Infinity,
): Rendered {
  resetLimits(milliseconds);
  let dated = false;
  const rendering = {
    context: new Map([
      ...globalsOf(now, () => dated = true),
      ...Object.entries(variables).map(([name, value]): [string, Value] => [name, valueOf(value)]),
    ]),
    line: 0,
  };
  try {
    const body = parse(template);
    const scope = new Scope();
    scope.visit(body);
    const execute = block(body, { scope, soft: false, loop: false });
    const root = new Variables(rendering);
    root.enter(scope);
    const out = new Buffer();
    execute(root, out);
    return { text: out.text(), dated };
  } catch (error) {
    if (error instanceof RangeError) throw new TemplateError("is nested too deeply");
    if (!(error instanceof TemplateError) || error instanceof Raised || error.message.startsWith("line ")) throw error;
    if (rendering.line > 0) error.message = `line ${rendering.line}: ${error.message}`;
    throw error;
  }
}
