/**
 * Types and helpers of filters and tests.
 *
 * @module
 */

import { Unsupported } from "./limits.ts";
import { type Args, bind, Markup, textOf, type Value } from "./values.ts";

/** A filter or a test: takes a value, and the arguments in its parentheses. */
export type Filter = (value: Value, args: Args, name: string) => Value;

/** Filters or tests, by name. */
export type Filters = Readonly<Record<string, Filter>>;

/** Finds a filter or a test by a name that is a value of the template. @throws {TemplateError} it is unknown */
export type Find = (kind: "filter" | "test", name: Value) => Filter;

/** A filter or test without parameters. */
export function plain(run: (value: Value) => Value): Filter {
  return (value, args, name) => {
    bind(name, [], args);
    return run(value);
  };
}

/** The string of an unmarked value. Filters of strings marked as safe are not supported. */
export function softText(value: Value): string {
  if (value instanceof Markup) throw new Unsupported("a filter of a string marked safe");
  return textOf(value);
}

/** The value itself. */
export const asIs = (value: Value) => value;
