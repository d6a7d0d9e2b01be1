/**
 * The methods of Python's str, and the attributes of its numbers.
 *
 * @module
 */

import { sequenceAttribute, Tuple } from "./collections.ts";
import { formatMethod, type Lookup, pad } from "./format.ts";
import { counted, spendItems, spendText, TemplateError, Unsupported } from "./limits.ts";
import * as str from "./text.ts";
import {
  type Args,
  bind,
  isNone,
  listOf,
  type Maybe,
  Native,
  NONE,
  numberOf,
  PyObject,
  strOf,
  truthOf,
  typeOf,
  type Value,
} from "./values.ts";

/** A str argument. @throws {TemplateError} it is not a str */
export function strArgument(value: Maybe, name: string): string {
  const text = strOf(value);
  if (text === undefined) throw new TemplateError(`${name}: expected a str, found ${typeOf(value ?? NONE)}`);
  return text;
}

/** An int argument, clamped to ±(2^53 - 1). @throws {TemplateError} it is not an int */
export function intArgument(value: Maybe, name: string): number {
  const number = numberOf(value);
  if (typeof number !== "bigint") throw new TemplateError(`${name}: expected an int, found ${typeOf(value ?? NONE)}`);
  return Math.max(-Number.MAX_SAFE_INTEGER, Math.min(Number(number), Number.MAX_SAFE_INTEGER));
}

type Method = (text: string, args: Args, name: string) => Value;

function list(items: string[]): string[] {
  spendItems(items.length);
  return items;
}

/** A method without parameters. */
function plain(run: (text: string) => Value): Method {
  return (text, args, name) => {
    bind(name, [], args);
    return run(text);
  };
}

function stripping(left: boolean, right: boolean): Method {
  return (text, args, name) => {
    const [chars] = bind(name, ["chars?"], args, 1);
    return str.strip(text, isNone(chars) ? undefined : strArgument(chars, name), left, right);
  };
}

function splitting(right: boolean): Method {
  return (text, args, name) => {
    const [sep, maxsplit] = bind(name, ["sep?", "maxsplit?"], args);
    const limit = maxsplit === undefined ? -1 : intArgument(maxsplit, name);
    if (isNone(sep)) return list(str.splitSpace(text, limit, right));
    const separator = strArgument(sep, name);
    if (separator === "") throw new TemplateError(`${name}: the separator is empty`);
    return list(str.splitAt(text, separator, limit, right));
  };
}

function filling(align: "<" | ">" | "^"): Method {
  return (text, args, name) => {
    const [width, fill] = bind(name, ["width", "fillchar?"], args, 2);
    const character = fill === undefined ? " " : strArgument(fill, name);
    if (str.lengthOf(character) !== 1) throw new TemplateError(`${name}: expected a fill character`);
    const size = intArgument(width, name);
    const missing = size - str.lengthOf(text);
    if (align !== "^" || missing <= 0) return pad(text, size, character, align);
    // As in CPython, an odd fill character goes to the left if the width is odd.
    const left = (missing >> 1) + (missing & size & 1);
    return pad(pad(text, size - (missing - left), character, ">"), size, character, "<");
  };
}

/** The part of a string that find(), count() and similar methods search, and its beginning. */
function part(text: string, start: Maybe, stop: Maybe, name: string): { part: string; begin: number } | undefined {
  if (start === undefined && stop === undefined) return { part: text, begin: 0 };
  const length = str.lengthOf(text);
  const at = (value: Maybe, otherwise: number) => {
    const index = isNone(value) ? otherwise : intArgument(value, name);
    return index < 0 ? Math.max(index + length, 0) : index;
  };
  const [begin, end] = [at(start, 0), Math.min(at(stop, length), length)];
  return begin > end ? undefined : { part: str.cut(text, begin, end), begin };
}

const SEARCH = ["sub", "start?", "end?"];

function finding(right: boolean, required: boolean): Method {
  return (text, args, name) => {
    const [sub, start, stop] = bind(name, SEARCH, args, 3);
    const found = part(text, start, stop, name);
    const wanted = strArgument(sub, name);
    const unit = found === undefined ? -1 : right ? found.part.lastIndexOf(wanted) : found.part.indexOf(wanted);
    if (unit >= 0) return BigInt(found!.begin + str.pointIndex(found!.part, unit));
    if (required) throw new TemplateError("substring not found");
    return -1n;
  };
}

function edging(right: boolean): Method {
  return (text, args, name) => {
    const [edge, start, stop] = bind(name, SEARCH, args, 3);
    const found = part(text, start, stop, name);
    const edges = edge instanceof Tuple ? edge.items : [edge];
    return edges.map((each) => strArgument(each, name)).some((each) =>
      found !== undefined && (right ? found.part.endsWith(each) : found.part.startsWith(each))
    );
  };
}

function partition(right: boolean): Method {
  return (text, args, name) => {
    const [sep] = bind(name, ["sep"], args, 1);
    const separator = strArgument(sep, name);
    if (separator === "") throw new TemplateError(`${name}: the separator is empty`);
    const at = right ? text.lastIndexOf(separator) : text.indexOf(separator);
    if (at < 0) return new Tuple(right ? ["", "", text] : [text, "", ""]);
    return new Tuple([text.slice(0, at), separator, text.slice(at + separator.length)]);
  };
}

const METHODS: Readonly<Record<string, Method>> = {
  strip: stripping(true, true),
  lstrip: stripping(true, false),
  rstrip: stripping(false, true),
  split: splitting(false),
  rsplit: splitting(true),
  ljust: filling("<"),
  rjust: filling(">"),
  center: filling("^"),
  find: finding(false, false),
  rfind: finding(true, false),
  index: finding(false, true),
  rindex: finding(true, true),
  startswith: edging(false),
  endswith: edging(true),
  partition: partition(false),
  rpartition: partition(true),
  upper: plain((text) => counted(str.upper(text))),
  lower: plain((text) => counted(str.lower(text))),
  title: plain((text) => counted(str.titleCase(text))),
  capitalize: plain((text) => counted(str.capitalize(text))),
  swapcase: plain((text) => counted(str.swapCase(text))),
  casefold: plain((text) => {
    if (!str.CLASSES.isascii(text)) throw new Unsupported("casefold of non-ASCII characters");
    return counted(text.toLowerCase());
  }),
  ...Object.fromEntries(Object.entries(str.CLASSES).map(([name, test]) => [name, plain(test)])),
  count(text, args, name) {
    const [sub, start, stop] = bind(name, SEARCH, args, 3);
    const found = part(text, start, stop, name);
    return found === undefined ? 0n : BigInt(str.count(found.part, strArgument(sub, name)));
  },
  splitlines(text, args, name) {
    const [keepends] = bind(name, ["keepends?"], args);
    return list(str.splitLines(text, keepends !== undefined && truthOf(keepends)));
  },
  replace(text, args, name) {
    const [old, replacement, limit] = bind(name, ["old", "new", "count?"], args, 3);
    return replaced(text, strArgument(old, name), strArgument(replacement, name), limit ?? -1n);
  },
  removeprefix(text, args, name) {
    const prefix = strArgument(bind(name, ["prefix"], args, 1)[0], name);
    return text.startsWith(prefix) ? text.slice(prefix.length) : text;
  },
  removesuffix(text, args, name) {
    const suffix = strArgument(bind(name, ["suffix"], args, 1)[0], name);
    return text.endsWith(suffix) ? text.slice(0, text.length - suffix.length) : text;
  },
  join(text, args, name) {
    return joined(text, listOf(bind(name, ["iterable"], args, 1)[0]!).map((item) => strArgument(item, name)));
  },
  zfill(text, args, name) {
    const width = intArgument(bind(name, ["width"], args, 1)[0], name);
    const sign = /^[+-]/.exec(text)?.[0] ?? "";
    return sign + pad(text.slice(sign.length), width - sign.length, "0", ">");
  },
  expandtabs(text, args, name) {
    const [tabsize] = bind(name, ["tabsize?"], args);
    const size = tabsize === undefined ? 8 : intArgument(tabsize, name);
    spendText(text.length + str.count(text, "\t") * Math.max(size, 0));
    let [column, result] = [0, ""];
    for (const character of text) {
      if (character === "\t") {
        const width = size > 0 ? size - column % size : 0;
        result += " ".repeat(width);
        column += width;
      } else {
        result += character;
        column = character === "\n" || character === "\r" ? 0 : column + 1;
      }
    }
    return result;
  },
};

/** `text.replace(old, replacement, count)`, within the limits. */
export function replaced(text: string, old: string, replacement: string, count: Value): string {
  const limit = intArgument(count, "replace");
  const times = str.count(text, old);
  spendText(text.length + Math.max(replacement.length - old.length, 0) * (limit < 0 ? times : Math.min(times, limit)));
  return str.replace(text, old, replacement, limit);
}

/** `separator.join(parts)`, within the limits. */
export function joined(separator: string, parts: readonly string[]): string {
  spendText(parts.reduce((sum, { length }) => sum + length + separator.length, 0));
  return parts.join(separator);
}

/** Unsupported attributes of Python's values. */
const OTHERS: Readonly<Record<string, readonly string[]>> = {
  str: ["encode", "maketrans", "translate"],
  int: ["as_integer_ratio", "bit_count", "bit_length", "conjugate", "from_bytes", "is_integer", "to_bytes"],
  float: ["as_integer_ratio", "conjugate", "fromhex", "hex", "imag", "is_integer", "real"],
};

/** `value.name` as in Python, without the items of a dict; undefined if there is none. @throws {Unsupported} */
export function attributeOf(value: Value, name: string, lookup: Lookup): Maybe {
  if (typeof value === "string") {
    if (name === "format" || name === "format_map") return formatMethod(value, name, lookup);
    if (Object.hasOwn(METHODS, name)) return new Native(name, (args) => METHODS[name](value, args, name));
  } else if (Array.isArray(value)) return sequenceAttribute(value, "list", name);
  else if (typeof value === "bigint" || typeof value === "boolean") {
    const number = numberOf(value)!;
    const parts: Record<string, Value> = { real: number, numerator: number, imag: 0n, denominator: 1n };
    if (Object.hasOwn(parts, name)) return parts[name];
  } else if (value instanceof PyObject) {
    return value.attribute(name);
  }
  const type = typeOf(value) === "bool" ? "int" : typeOf(value);
  if (OTHERS[type]?.includes(name)) throw new Unsupported(`${type}.${name}`);
  return undefined;
}
