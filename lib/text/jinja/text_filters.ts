/**
 * Filters of strings.
 *
 * @module
 */

import { Dict, Tuple } from "./collections.ts";
import { type Filters, plain, softText } from "./filter.ts";
import { pad, percent } from "./format.ts";
import { toJson } from "./json.ts";
import { counted, TemplateError } from "./limits.ts";
import { attributeIn } from "./lookup.ts";
import { intArgument, joined, replaced, strArgument } from "./methods.ts";
import * as str from "./text.ts";
import { bind, isNone, Markup, type PyObject, strOf, textOf, truthOf, type Value } from "./values.ts";

/** Filters of strings. */
export const TEXT_FILTERS: Filters = {
  capitalize: plain((value) => counted(str.capitalize(softText(value)))),
  center(value, args, name) {
    const [width] = bind(name, ["width?"], args);
    return attributeCall(softText(value), "center", [width ?? 80n]);
  },
  e: plain(Markup.escape),
  escape: plain(Markup.escape),
  forceescape: plain((value) => Markup.escape(value instanceof Markup ? value.text : value)),
  format(value, { list, named }) {
    if (list.length > 0 && named.size > 0) {
      throw new TemplateError("format: can't handle positional and keyword arguments at the same time");
    }
    return percent(softText(value), named.size > 0 ? new Dict(named) : new Tuple(list));
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
  lower: plain((value) => counted(str.lower(softText(value)))),
  replace(value, args, name) {
    const [old, replacement, limit] = bind(name, ["old", "new", "count?"], args);
    return replaced(textOf(value), textOf(old!), textOf(replacement!), isNone(limit) ? -1n : limit);
  },
  safe: plain((value) => value instanceof Markup ? value : new Markup(textOf(value))),
  string: plain((value) => value instanceof Markup ? value : textOf(value)),
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
  upper: plain((value) => counted(str.upper(softText(value)))),
  wordcount: plain((value) => BigInt(textOf(value).match(/[\p{L}\p{N}_]+/gu)?.length ?? 0)),
};

function attributeCall(value: Value, name: string, list: Value[]): Value {
  const method = attributeIn(value, name, false) as PyObject;
  return method.call!({ list, named: new Map() });
}
