/**
 * The tables of Jinja2's filters and tests.
 *
 * @module
 */

import { hashOf } from "./collections.ts";
import { type Filter, type Filters, plain } from "./filter.ts";
import { TemplateError, Unsupported } from "./limits.ts";
import { attributeIn } from "./lookup.ts";
import { strArgument } from "./methods.ts";
import { NUMBER_FILTERS } from "./number_filters.ts";
import { sequenceFilters } from "./sequence_filters.ts";
import { VALUE_TESTS } from "./tests.ts";
import { TEXT_FILTERS } from "./text_filters.ts";
import { type Args, bind, strOf, textOf, truthOf, Undefined, type Value } from "./values.ts";

function defaulted(value: Value, args: Args, name: string): Value {
  const [otherwise, boolean] = bind(name, ["default_value?", "boolean?"], args);
  const missing = value instanceof Undefined || (boolean !== undefined && truthOf(boolean) && !truthOf(value));
  return missing ? otherwise ?? "" : value;
}

function unsupported(name: string): [string, Filter] {
  return [name, () => {
    throw new Unsupported(`the filter ${name}`);
  }];
}

/** Filters, by name. */
export const FILTERS: Filters = {
  ...Object.fromEntries(
    ["filesizeformat", "pprint", "random", "striptags", "urlencode", "urlize", "wordwrap", "xmlattr"].map(unsupported),
  ),
  attr(value, args, name) {
    const [attribute] = bind(name, ["name"], args);
    return attributeIn(value, strArgument(attribute, name), false);
  },
  d: defaulted,
  default: defaulted,
  ...NUMBER_FILTERS,
  ...TEXT_FILTERS,
  ...sequenceFilters(find),
};

/** Tests, by name. */
export const TESTS: Filters = {
  ...VALUE_TESTS,
  filter: plain((value) => Object.hasOwn(FILTERS, textKey(value))),
  test: plain((value) => Object.hasOwn(TESTS, textKey(value))),
};

function find(kind: "filter" | "test", name: Value): Filter {
  const table = kind === "filter" ? FILTERS : TESTS;
  const text = strOf(name);
  if (text === undefined || !Object.hasOwn(table, text)) throw new TemplateError(`no ${kind} named ${textOf(name)}`);
  return table[text];
}

function textKey(value: Value): string {
  hashOf(value);
  return strOf(value) ?? "";
}
