/**
 * What filters and tests have in common.
 *
 * @module
 */

import { Unsupported } from "./limits.ts";
import { type Args, bind, Markup, textOf, type Value } from "./values.ts";

/** A filter or a test: what it does to a value, with the arguments behind it. */
export type Filter = (value: Value, args: Args, name: string) => Value;

/** Filters or tests by their names. */
export type Filters = Readonly<Record<string, Filter>>;

/** Finds a filter or a test whose name is a value of the template. @throws {TemplateError} there is none */
export type Find = (kind: "filter" | "test", name: Value) => Filter;

/** A filter or test without parameters. */
export function plain(run: (value: Value) => Value): Filter {
  return (value, args, name) => {
    bind(name, [], args);
    return run(value);
  };
}

/** A text that is not marked: what a filter makes of a marked one is marked, in ways that are not here. */
export function softText(value: Value): string {
  if (value instanceof Markup) throw new Unsupported("a filter of a text marked safe");
  return textOf(value);
}

/** The value itself. */
export const asIs = (value: Value) => value;
