/**
 * Filters of lists and dicts.
 *
 * @module
 */

import { Dict, equal, Generator, hashOf, Range, Tuple, View } from "./collections.ts";
import { asIs, type Filter, type Filters, type Find, plain, softText } from "./filter.ts";
import { counted, spendItems, TemplateError, Unsupported } from "./limits.ts";
import { itemIn } from "./lookup.ts";
import { intArgument, joined } from "./methods.ts";
import { compare, operate, ordered } from "./operators.ts";
import * as str from "./text.ts";
import {
  bind,
  isNone,
  iteratorOf,
  lengthOfValue,
  listOf,
  Markup,
  type Maybe,
  over,
  strOf,
  textOf,
  truthOf,
  typeOf,
  Undefined,
  type Value,
} from "./values.ts";

function lower(value: Value): Value {
  const text = strOf(value);
  return text === undefined ? value : counted(str.lower(text));
}

/** Looks up an attribute of a filter: a path with dots, in which digits are indices. */
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

/** The same for several attributes, separated by commas. */
function multiGetter(attribute: Maybe, post: (value: Value) => Value): (item: Value) => Value[] {
  const text = strOf(attribute);
  const getters = (text === undefined ? [attribute] : text.split(",")).map((each) => getter(each, post));
  return (item) => getters.map((get) => get(item));
}

/** Maps strings to lower case, unless the comparison is case-sensitive. */
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

/** select, reject, selectattr and rejectattr. */
function selecting(find: Find, wanted: boolean, byAttribute: boolean): Filter {
  return (value, { list, named }, name) => {
    function* chosen() {
      if (!truthOf(value)) return;
      if (byAttribute && list.length === 0) throw new TemplateError(`${name}: missing parameter for attribute name`);
      const get = byAttribute ? getter(list[0]) : asIs;
      const [test, ...rest] = byAttribute ? list.slice(1) : list;
      for (const item of over(value)) {
        const found = test === undefined
          ? get(item)
          : find("test", test)(get(item), { list: rest, named }, textOf(test));
        if (truthOf(found) === wanted) yield item;
      }
    }
    return new Generator(chosen());
  };
}

/** Filters of lists and dicts. @param find finds the filter or test that `map`, `select` and `reject` apply */
export function sequenceFilters(find: Find): Filters {
  return {
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
    count: plain(lengthOfValue),
    dictsort(value, args, name) {
      const [sensitive, by, reverse] = bind(name, ["case_sensitive?", "by?", "reverse?"], args);
      const column = by === undefined ? 0 : ["key", "value"].indexOf(strOf(by) ?? "");
      if (column < 0) throw new TemplateError('dictsort: you can only sort by either "key" or "value"');
      if (!(value instanceof Dict)) throw new TemplateError(`dictsort: expected a dict, found ${typeOf(value)}`);
      const pairs = listOf(new View(value, "items"));
      const post = caseOf(sensitive);
      return sorted(pairs, (pair) => post((pair as Tuple).items[column]), reverse);
    },
    first: plain((value) => {
      const { done, value: item } = iteratorOf(value).next();
      return done ? new Undefined("No first item, sequence was empty.") : item;
    }),
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
    length: plain(lengthOfValue),
    list: plain(listOf),
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
          apply = (item) => find("filter", filter)(item, { list: rest, named }, textOf(filter));
        }
        for (const item of over(value)) yield apply(item);
      }
      return new Generator(mapped());
    },
    max: extreme(">"),
    min: extreme("<"),
    reject: selecting(find, false, false),
    rejectattr: selecting(find, false, true),
    reverse: plain((value) => {
      if (value instanceof Markup) softText(value);
      if (typeof value === "string") return [...value].reverse().join("");
      const items = reversible(value);
      return items === undefined ? listOf(value).reverse() : new Generator(items.toReversed()[Symbol.iterator]());
    }),
    select: selecting(find, true, false),
    selectattr: selecting(find, true, true),
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
    sum(value, args, name) {
      const [attribute, start] = bind(name, ["attribute?", "start?"], args);
      if (strOf(start) !== undefined) throw new TemplateError("sum() can't sum strings");
      const get = isNone(attribute) ? asIs : getter(attribute);
      let total: Value = start ?? 0n;
      for (const item of over(value)) total = operate("+", total, get(item));
      return total;
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
  };
}

/** The items of a value that `reversed` accepts; undefined for others. */
function reversible(value: Value): Value[] | undefined {
  const can = typeof value === "string" || Array.isArray(value) || value instanceof Tuple || value instanceof Dict ||
    value instanceof View || value instanceof Range || value instanceof Undefined || value instanceof Markup;
  return can ? listOf(value) : undefined;
}
