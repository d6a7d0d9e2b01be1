/**
 * The filters and tests of Jinja2.
 *
 * @module
 */

import { Dict, equal, Generator, hashOf, Range, Tuple, View } from "./collections.ts";
import { pad, percent } from "./format.ts";
import { toJson } from "./json.ts";
import { counted, spendItems, TemplateError, Unsupported } from "./limits.ts";
import { attributeIn, itemIn } from "./lookup.ts";
import { intArgument, joined, replaced, strArgument } from "./methods.ts";
import { calculate, parseFloating, parseInteger, roundNumber, toFloat, truncated } from "./numbers.ts";
import { compare, contains, operate, ordered } from "./operators.ts";
import * as str from "./text.ts";
import {
  type Args,
  bind,
  isNone,
  iteratorOf,
  lengthOfValue,
  listOf,
  Markup,
  type Maybe,
  NONE,
  numberOf,
  over,
  PyObject,
  sizeOf,
  strOf,
  textOf,
  truthOf,
  typeOf,
  Undefined,
  type Value,
} from "./values.ts";

/** A filter or a test: what it does to a value, with the arguments behind it. */
export type Filter = (value: Value, args: Args, name: string) => Value;

/** A filter or test without parameters. */
function plain(run: (value: Value) => Value): Filter {
  return (value, args, name) => {
    bind(name, [], args);
    return run(value);
  };
}

/** A text that is not marked: what a filter makes of a marked one is marked, in ways that are not here. */
function softText(value: Value): string {
  if (value instanceof Markup) throw new Unsupported("a filter of a text marked safe");
  return textOf(value);
}

function lower(value: Value): Value {
  const text = strOf(value);
  return text === undefined ? value : counted(str.lower(text));
}

const asIs = (value: Value) => value;

/** What an attribute of a filter looks up: parts with dots between them, of which digits are indices. */
function getter(attribute: Maybe, post = asIs, otherwise: Maybe = undefined): (item: Value) => Value {
  const text = strOf(attribute);
  const parts: Value[] = isNone(attribute)
    ? []
    : text === undefined
    ? [attribute]
    : text.split(".").map((part) => /^[0-9]+$/.test(part) ? BigInt(part) : part);
  return (item) => {
    for (const part of parts) {
      item = itemIn(item, part);
      if (!isNone(otherwise) && item instanceof Undefined) item = otherwise;
    }
    return post(item);
  };
}

/** The same for several attributes with commas between them. */
function multiGetter(attribute: Maybe, post: (value: Value) => Value): (item: Value) => Value[] {
  const text = strOf(attribute);
  const getters = (text === undefined ? [attribute] : text.split(",")).map((each) => getter(each, post));
  return (item) => getters.map((get) => get(item));
}

/** Strings compare without their case unless it is asked for. */
function caseOf(sensitive: Maybe): (value: Value) => Value {
  return sensitive !== undefined && truthOf(sensitive) ? asIs : lower;
}

function sorted(items: Value[], key: (item: Value) => Value, reverse: Maybe): Value[] {
  const sign = reverse !== undefined && truthOf(reverse) ? -1 : 1;
  const keyed = items.map((item) => ({ item, key: key(item) }));
  return keyed.sort((a, b) => sign * compare(a.key, b.key)).map(({ item }) => item);
}

function extreme(op: "<" | ">"): Filter {
  return (value, args, name) => {
    const [sensitive, attribute] = bind(name, ["case_sensitive?", "attribute?"], args);
    const key = getter(attribute, caseOf(sensitive));
    const items = listOf(value);
    if (items.length === 0) return new Undefined("No aggregated item, sequence was empty.");
    let best = { item: items[0], key: key(items[0]) };
    for (const item of items.slice(1)) {
      const candidate = { item, key: key(item) };
      if (Number.isNaN(candidate.key)) throw new Unsupported(`the filter ${name} of NaN`);
      if (ordered(op, candidate.key, best.key)) best = candidate;
    }
    return best.item;
  };
}

/** select, reject and their kin for attributes. */
function selecting(wanted: boolean, byAttribute: boolean): Filter {
  return (value, { list, named }, name) => {
    function* chosen() {
      if (!truthOf(value)) return;
      if (byAttribute && list.length === 0) throw new TemplateError(`${name}: missing parameter for attribute name`);
      const get = byAttribute ? getter(list[0]) : asIs;
      const [test, ...rest] = byAttribute ? list.slice(1) : list;
      for (const item of over(value)) {
        const found = test === undefined
          ? get(item)
          : lookUp(TESTS, test, "test")(get(item), { list: rest, named }, textOf(test));
        if (truthOf(found) === wanted) yield item;
      }
    }
    return new Generator(chosen());
  };
}

function lookUp(table: Readonly<Record<string, Filter>>, name: Value, kind: string): Filter {
  const text = strOf(name);
  if (text === undefined || !Object.hasOwn(table, text)) throw new TemplateError(`no ${kind} named ${textOf(name)}`);
  return table[text];
}

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

const count = plain(lengthOfValue);
const escape = plain(Markup.escape);

/** By name. */
export const FILTERS: Readonly<Record<string, Filter>> = {
  ...Object.fromEntries(
    ["filesizeformat", "pprint", "random", "striptags", "urlencode", "urlize", "wordwrap", "xmlattr"].map(unsupported),
  ),
  abs: plain((value) => {
    const number = numberOf(value);
    if (number === undefined) throw new TemplateError(`bad operand type for abs(): ${typeOf(value)}`);
    return number < 0 || Object.is(number, -0) ? -number : number;
  }),
  attr(value, args, name) {
    const [attribute] = bind(name, ["name"], args);
    return attributeIn(value, strArgument(attribute, name), false);
  },
  batch(value, args, name) {
    const [linecount, fill] = bind(name, ["linecount", "fill_with?"], args);
    function* lines() {
      let line: Value[] = [];
      for (const item of over(value)) {
        if (equal(BigInt(line.length), linecount!)) {
          yield line;
          line = [];
        }
        spendItems(0);
        line.push(item);
      }
      if (line.length === 0) return;
      if (!isNone(fill) && ordered("<", BigInt(line.length), linecount!)) {
        const missing = intArgument(linecount, name) - line.length;
        spendItems(missing);
        line.push(...Array(missing).fill(fill));
      }
      yield line;
    }
    return new Generator(lines());
  },
  capitalize: plain((value) => counted(str.capitalize(softText(value)))),
  center(value, args, name) {
    const [width] = bind(name, ["width?"], args);
    return attributeCall(softText(value), "center", [width ?? 80n]);
  },
  count,
  d: defaulted,
  default: defaulted,
  dictsort(value, args, name) {
    const [sensitive, by, reverse] = bind(name, ["case_sensitive?", "by?", "reverse?"], args);
    const column = by === undefined ? 0 : ["key", "value"].indexOf(strOf(by) ?? "");
    if (column < 0) throw new TemplateError('dictsort: you can only sort by either "key" or "value"');
    if (!(value instanceof Dict)) throw new TemplateError(`dictsort: expected a dict, found ${typeOf(value)}`);
    const pairs = listOf(new View(value, "items"));
    const post = caseOf(sensitive);
    return sorted(pairs, (pair) => post((pair as Tuple).items[column]), reverse);
  },
  e: escape,
  escape,
  first: plain((value) => {
    const { done, value: item } = iteratorOf(value).next();
    return done ? new Undefined("No first item, sequence was empty.") : item;
  }),
  float(value, args, name) {
    const [otherwise] = bind(name, ["default?"], args);
    if (value instanceof Undefined) value.fail();
    return floating(value) ?? otherwise ?? 0;
  },
  forceescape: plain((value) => Markup.escape(value instanceof Markup ? value.text : value)),
  format(value, { list, named }) {
    if (list.length > 0 && named.size > 0) {
      throw new TemplateError("format: can't handle positional and keyword arguments at the same time");
    }
    return percent(softText(value), named.size > 0 ? new Dict(named) : new Tuple(list));
  },
  groupby(value, args, name) {
    const [attribute, otherwise, sensitive] = bind(name, ["attribute", "default?", "case_sensitive?"], args);
    const post = caseOf(sensitive);
    const key = getter(attribute, post, otherwise);
    const groups: { key: Value; items: Value[] }[] = [];
    for (const item of sorted(listOf(value), key, undefined)) {
      const found = key(item);
      const last = groups.at(-1);
      if (last !== undefined && equal(last.key, found)) last.items.push(item);
      else groups.push({ key: found, items: [item] });
    }
    const real = getter(attribute, asIs, otherwise);
    return groups.map(({ key, items }) =>
      new Tuple([post === asIs ? key : real(items[0]), items], ["grouper", "list"])
    );
  },
  indent(value, args, name) {
    const [width, first, blank] = bind(name, ["width?", "first?", "blank?"], args);
    if (value instanceof Markup || strOf(width) !== undefined && width instanceof Markup) softText(value);
    const spaces = width === undefined ? 4n : width;
    const text = strArgument(value, name);
    const step = strOf(spaces) ?? pad("", intArgument(spaces, name), " ", "<");
    const all = blank !== undefined && truthOf(blank);
    const lines = str.splitLines(`${text}\n`, false);
    const indented = lines.map((line, n) => n > 0 && (all || line !== "") ? step + line : line);
    return (first !== undefined && truthOf(first) ? step : "") + joined("\n", indented);
  },
  int(value, args, name) {
    const [otherwise, base] = bind(name, ["default?", "base?"], args);
    return integer(value, base === undefined ? 10 : intArgument(base, name)) ?? otherwise ?? 0n;
  },
  items: plain((value) => {
    function* items() {
      if (value instanceof Undefined) return;
      if (!(value instanceof Dict)) throw new TemplateError("items: can only get item pairs from a mapping");
      yield* over(new View(value, "items"));
    }
    return new Generator(items());
  }),
  join(value, args, name) {
    const [separator, attribute] = bind(name, ["d?", "attribute?"], args);
    const items = isNone(attribute) ? listOf(value) : listOf(value).map(getter(attribute));
    return joined(separator === undefined ? "" : textOf(separator), items.map(textOf));
  },
  last: plain((value) => {
    const items = reversible(value);
    if (items === undefined) throw new TemplateError(`${typeOf(value)} object is not reversible`);
    return items.at(-1) ?? new Undefined("No last item, sequence was empty.");
  }),
  length: count,
  list: plain(listOf),
  lower: plain((value) => counted(str.lower(softText(value)))),
  map(value, { list, named }, name) {
    function* mapped() {
      if (!truthOf(value)) return;
      let apply: (item: Value) => Value;
      if (list.length === 0 && named.has("attribute")) {
        for (const word of named.keys()) {
          if (word !== "attribute" && word !== "default") throw new TemplateError(`map: unexpected argument ${word}`);
        }
        apply = getter(named.get("attribute"), asIs, named.get("default"));
      } else {
        if (list.length === 0) throw new TemplateError(`${name}: requires a filter argument`);
        const [filter, ...rest] = list;
        apply = (item) => lookUp(FILTERS, filter, "filter")(item, { list: rest, named }, textOf(filter));
      }
      for (const item of over(value)) yield apply(item);
    }
    return new Generator(mapped());
  },
  max: extreme(">"),
  min: extreme("<"),
  reject: selecting(false, false),
  rejectattr: selecting(false, true),
  replace(value, args, name) {
    const [old, replacement, limit] = bind(name, ["old", "new", "count?"], args);
    return replaced(textOf(value), textOf(old!), textOf(replacement!), isNone(limit) ? -1n : limit);
  },
  reverse: plain((value) => {
    if (value instanceof Markup) softText(value);
    if (typeof value === "string") return [...value].reverse().join("");
    const items = reversible(value);
    return items === undefined ? listOf(value).reverse() : new Generator(items.toReversed()[Symbol.iterator]());
  }),
  round(value, args, name) {
    const [precision, method] = bind(name, ["precision?", "method?"], args);
    const how = method === undefined ? "common" : strOf(method);
    if (how !== "common" && how !== "ceil" && how !== "floor") {
      throw new TemplateError("round: method must be common, ceil or floor");
    }
    const number = numberOf(value);
    if (number === undefined) throw new TemplateError(`round: expected a number, found ${typeOf(value)}`);
    if (how === "common" && precision === NONE) {
      return typeof number === "bigint" ? number : truncated(roundNumber(number, 0) as number);
    }
    const digits = precision === undefined ? 0 : intArgument(precision, name);
    if (how === "common") return roundNumber(number, digits);
    if (digits < 0) throw new Unsupported("round with ceil or floor and a negative precision");
    const unit = 10n ** BigInt(Math.min(digits, 400));
    const scaled = calculate("*", number, unit);
    const whole = typeof scaled === "bigint"
      ? scaled
      : truncated(how === "ceil" ? Math.ceil(scaled) : Math.floor(scaled));
    return calculate("/", whole, unit);
  },
  safe: plain((value) => value instanceof Markup ? value : new Markup(textOf(value))),
  select: selecting(true, false),
  selectattr: selecting(true, true),
  slice(value, args, name) {
    const [slices, fill] = bind(name, ["slices", "fill_with?"], args);
    function* columns() {
      const items = listOf(value);
      const wanted = intArgument(slices, name);
      if (wanted === 0) throw new TemplateError("integer division or modulo by zero");
      const size = Math.floor(items.length / wanted);
      const extra = items.length % wanted;
      let start = 0;
      for (let n = 0; n < wanted; n++) {
        const column = items.slice(start, start += size + (n < extra ? 1 : 0));
        if (!isNone(fill) && n >= extra) column.push(fill);
        spendItems(column.length);
        yield column;
      }
    }
    return new Generator(columns());
  },
  sort(value, args, name) {
    const [reverse, sensitive, attribute] = bind(name, ["reverse?", "case_sensitive?", "attribute?"], args);
    return sorted(listOf(value), multiGetter(attribute, caseOf(sensitive)), reverse);
  },
  string: plain((value) => value instanceof Markup ? value : textOf(value)),
  sum(value, args, name) {
    const [attribute, start] = bind(name, ["attribute?", "start?"], args);
    if (strOf(start) !== undefined) throw new TemplateError("sum() can't sum strings");
    const get = isNone(attribute) ? asIs : getter(attribute);
    let total: Value = start ?? 0n;
    for (const item of over(value)) total = operate("+", total, get(item));
    return total;
  },
  title: plain((value) => {
    const words = softText(value).split(new RegExp(`([-${str.SPACE}({\\[<]+)`)).filter((word) => word !== "");
    return words.map((word) => {
      const [first] = word;
      return counted(str.upper(first) + str.lower(word.slice(first.length)));
    }).join("");
  }),
  tojson: toJson,
  trim(value, args, name) {
    const [chars] = bind(name, ["chars?"], args);
    return str.strip(softText(value), isNone(chars) ? undefined : strArgument(chars, name), true, true);
  },
  truncate(value, args, name) {
    const [length, killwords, end, leeway] = bind(name, ["length?", "killwords?", "end?", "leeway?"], args);
    const [limit, slack] = [intArgument(length ?? 255n, name), intArgument(isNone(leeway) ? 5n : leeway, name)];
    const tail = end === undefined ? "..." : strArgument(end, name);
    const text = strArgument(value, name);
    const kept = limit - str.lengthOf(tail);
    if (kept < 0 || slack < 0) throw new TemplateError("truncate: length or leeway is too small");
    if (str.lengthOf(text) <= limit + slack) return value;
    const start = str.cut(softText(value), 0, kept);
    if (killwords !== undefined && truthOf(killwords)) return start + tail;
    const space = start.lastIndexOf(" ");
    return (space < 0 ? start : start.slice(0, space)) + tail;
  },
  unique(value, args, name) {
    const [sensitive, attribute] = bind(name, ["case_sensitive?", "attribute?"], args);
    const key = getter(attribute, caseOf(sensitive));
    function* unique() {
      const seen = new Set<string>();
      for (const item of over(value)) {
        const hash = hashOf(key(item));
        if (seen.has(hash)) continue;
        spendItems(0);
        seen.add(hash);
        yield item;
      }
    }
    return new Generator(unique());
  },
  upper: plain((value) => counted(str.upper(softText(value)))),
  wordcount: plain((value) => BigInt(textOf(value).match(/[\p{L}\p{N}_]+/gu)?.length ?? 0)),
};

function attributeCall(value: Value, name: string, list: Value[]): Value {
  const method = attributeIn(value, name, false) as PyObject;
  return method.call!({ list, named: new Map() });
}

/** The items of what `reversed` takes. */
function reversible(value: Value): Value[] | undefined {
  const can = typeof value === "string" || Array.isArray(value) || value instanceof Tuple || value instanceof Dict ||
    value instanceof View || value instanceof Range || value instanceof Undefined || value instanceof Markup;
  return can ? listOf(value) : undefined;
}

/** `float(value)`, or undefined where it raises a TypeError or ValueError. */
function floating(value: Value): number | undefined {
  const number = numberOf(value);
  if (number !== undefined) return toFloat(number);
  const text = strOf(value);
  return text === undefined ? undefined : parseFloating(str.strip(text, undefined, true, true));
}

/** The filter int, or undefined where it takes the default. */
function integer(value: Value, base: number): bigint | undefined {
  if (value instanceof Undefined) value.fail();
  const number = numberOf(value);
  if (typeof number === "bigint") return number;
  if (number !== undefined) return Number.isNaN(number) ? undefined : truncated(number);
  const text = strOf(value);
  if (text === undefined) return undefined;
  const whole = parseInteger(str.strip(text, undefined, true, true), base);
  if (whole !== undefined) return whole;
  const float = floating(value);
  return float !== undefined && Number.isFinite(float) ? truncated(float) : undefined;
}

/** A test that compares with one argument. */
function comparing(run: (value: Value, other: Value) => boolean): Filter {
  return (value, args, name) => run(value, bind(name, ["other"], args, 1)[0]!);
}

function remainder(value: Value, by: Value): Value {
  return operate("%", value, by);
}

const equals = comparing(equal);
const differs = comparing((a, b) => !equal(a, b));
const order = (op: string) => comparing((a, b) => ordered(op, a, b));
const [less, lessEqual, greater, greaterEqual] = [order("<"), order("<="), order(">"), order(">=")];

/** By name. */
export const TESTS: Readonly<Record<string, Filter>> = {
  odd: plain((value) => equal(remainder(value, 2n), 1n)),
  even: plain((value) => equal(remainder(value, 2n), 0n)),
  divisibleby(value, args, name) {
    return equal(remainder(value, bind(name, ["num"], args)[0]!), 0n);
  },
  defined: plain((value) => !(value instanceof Undefined)),
  undefined: plain((value) => value instanceof Undefined),
  filter: plain((value) => Object.hasOwn(FILTERS, textKey(value))),
  test: plain((value) => Object.hasOwn(TESTS, textKey(value))),
  none: plain((value) => value === NONE),
  boolean: plain((value) => typeof value === "boolean"),
  false: plain((value) => value === false),
  true: plain((value) => value === true),
  integer: plain((value) => typeof value === "bigint"),
  float: plain((value) => typeof value === "number"),
  lower: plain((value) => str.CLASSES.islower(textOf(value))),
  upper: plain((value) => str.CLASSES.isupper(textOf(value))),
  string: plain((value) => strOf(value) !== undefined),
  mapping: plain((value) => value instanceof Dict),
  number: plain((value) => numberOf(value) !== undefined),
  sequence: plain((value) =>
    !(value instanceof View) && sizeOf(value) !== undefined && typeOf(value) !== "LoopContext"
  ),
  iterable: plain((value) =>
    typeof value === "string" || Array.isArray(value) || (value instanceof PyObject && value.iterate !== undefined)
  ),
  callable: plain((value) => value instanceof PyObject && value.call !== undefined),
  sameas(value, args, name) {
    const [other] = bind(name, ["other"], args);
    if (typeOf(value) === typeOf(other!) && ["int", "float", "str", "tuple", "function"].includes(typeOf(value))) {
      throw new Unsupported("the test sameas of two values of this kind");
    }
    return value === other;
  },
  escaped: plain((value) => value instanceof Markup),
  in: comparing((value, container) => contains(container, value)),
  "==": equals,
  eq: equals,
  equalto: equals,
  "!=": differs,
  ne: differs,
  ">": greater,
  gt: greater,
  greaterthan: greater,
  ">=": greaterEqual,
  ge: greaterEqual,
  "<": less,
  lt: less,
  lessthan: less,
  "<=": lessEqual,
  le: lessEqual,
};

function textKey(value: Value): string {
  hashOf(value);
  return strOf(value) ?? "";
}
