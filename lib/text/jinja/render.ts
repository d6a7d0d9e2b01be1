/**
 * Renders chat templates as transformers does: Jinja2 3.1 in its immutable sandbox, with trim_blocks, lstrip_blocks, the tags
 * break, continue and generation, and without automatic escaping.
 *
 * rabbit has its own interpreter because the npm package @huggingface/jinja 0.5.11 has JavaScript's values where templates
 * rely on Python's: of 2,070 renderings of 207 templates of real models it fails in 161 that Jinja2 renders, gives another
 * text in 60, and renders 141 that Jinja2 rejects. This interpreter gives Jinja2's text, or rejects what Jinja2 rejects, in
 * all of them (tests/README.md).
 *
 * Features that it lacks are refused by name ({@link Unsupported}). The nodes of a template are compiled to functions, as
 * Jinja2 compiles them to Python.
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

/** A value that the caller passes: a bigint is an int, a number a float. */
export type Plain = null | boolean | bigint | number | string | readonly Plain[] | { readonly [key: string]: Plain };

/** The result of rendering. */
export interface Rendered {
  readonly text: string;
  /** Whether the template asked for the date. */
  readonly dated: boolean;
}

function valueOf(plain: Plain): Value {
  if (typeof plain === "string" && isBroken(plain)) throw new TemplateError("a variable contains a lone surrogate");
  if (Array.isArray(plain)) return plain.map(valueOf);
  if (typeof plain !== "object" || plain === null) return plain === null ? NONE : plain as Value;
  return new Dict(Object.entries(plain).map(([key, value]) => [key, valueOf(value)]));
}

/**
 * Renders a template.
 *
 * @param variables what the template can read, besides the functions of Jinja2 and transformers
 * @param now the time that strftime_now gives
 * @param milliseconds the limit for rendering
 * @throws {TemplateError} the template is invalid, raises an error, exceeds a limit, or is not supported
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
