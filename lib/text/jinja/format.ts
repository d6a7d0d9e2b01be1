/**
 * Python's `str.format` and `%` on strings.
 *
 * @module
 */

import { Dict, Range, Tuple } from "./collections.ts";
import { MAX_TEXT, spendText, TemplateError, Unsupported } from "./limits.ts";
import { floatFormat, intText, toFloat, truncated } from "./numbers.ts";
import { cut, lengthOf } from "./text.ts";
import {
  type Args,
  type Maybe,
  Native,
  numberOf,
  reprOf,
  strOf,
  textOf,
  typeOf,
  Undefined,
  type Value,
} from "./values.ts";

/** Pads a string to a width, in code points. */
export function pad(text: string, width: number, fill: string, align: "<" | ">" | "^"): string {
  const missing = width - lengthOf(text);
  if (missing <= 0) return text;
  spendText(text.length + missing * fill.length);
  const left = align === "<" ? 0 : align === ">" ? missing : missing >> 1;
  return fill.repeat(left) + text + fill.repeat(missing - left);
}

/** Pads a number to a width with zeros after its sign and prefix. */
function zeros(sign: string, digits: string, width: number): string {
  return sign + pad(digits, width - sign.length, "0", ">");
}

/** Parses a width or precision. */
function small(text: string): number {
  const number = Number(text);
  if (number > MAX_TEXT) throw new TemplateError("the width of a format is too large");
  return number;
}

const CONVERSION = /%(?:\(([^()]*)\))?([-+ #0]*)(\*|\d+)?(?:\.(\*|\d*))?[hlL]?(.)?/gsu;

/** `text % values`. @throws {TemplateError} the values do not match the format */
export function percent(text: string, values: Value): string {
  const list = values instanceof Tuple ? values.items : [values];
  let used = 0;
  const next = (): Value => {
    if (used >= list.length) throw new TemplateError("not enough arguments for format string");
    return list[used++];
  };
  const result = text.replace(CONVERSION, (_, key, flags, width, precision, type) => {
    if (type === undefined) throw new TemplateError("incomplete format");
    if (type === "%") {
      if (_ !== "%%") throw new Unsupported(`the format ${_}`);
      return "%";
    }
    if (width === "*" || precision === "*") throw new Unsupported("the format *");
    let value: Value;
    if (key !== undefined) {
      if (!(values instanceof Dict)) throw new TemplateError("format requires a mapping");
      const found = values.get(key);
      if (found === undefined) throw new TemplateError(`the format key ${key} is missing`);
      value = found;
    } else value = next();
    const decimals = precision === undefined ? undefined : small(precision);
    return converted(value, type, flags, width === undefined ? 0 : small(width), decimals);
  });
  // Python ignores unused values of a mapping, and treats everything with items as one.
  const mapping = values instanceof Dict || values instanceof Undefined || values instanceof Range ||
    Array.isArray(values);
  if (used < list.length && !mapping) throw new TemplateError("not all arguments converted during string formatting");
  spendText(result.length);
  return result;
}

function converted(value: Value, type: string, flags: string, width: number, precision: number | undefined): string {
  const has = (flag: string) => flags.includes(flag);
  const align = has("-") ? "<" : ">";
  if ("sr".includes(type)) {
    const text = type === "s" ? textOf(value) : reprOf(value);
    return pad(precision === undefined ? text : cut(text, 0, precision), width, " ", align);
  }
  if (type === "c") return pad(character(value), width, " ", align);
  let number = numberOf(value);
  let digits: string;
  if ("diuxXo".includes(type)) {
    if (number === undefined || (typeof number === "number" && !"diu".includes(type))) {
      throw new TemplateError(`%${type} format: an integer is required, not ${typeOf(value)}`);
    }
    number = typeof number === "number" ? truncated(number) : number;
    digits = integerDigits(number < 0n ? -number : number, type, has("#")).padStart(precision ?? 0, "0");
    if (precision !== undefined && has("#") && /[xXo]/.test(type)) throw new Unsupported(`the format %#.${precision}`);
  } else if ("eEfFgG".includes(type)) {
    if (number === undefined) throw new TemplateError(`%${type} format: a number is required, not ${typeOf(value)}`);
    if (has("#")) throw new Unsupported("the flag # for floats");
    digits = floatFormat(toFloat(number), type, precision ?? 6);
  } else throw new TemplateError(`unsupported format character ${JSON.stringify(type)}`);
  const negative = number < 0 || Object.is(number, -0);
  const sign = negative ? "-" : has("+") ? "+" : has(" ") ? " " : "";
  if (has("0") && !has("-") && /[0-9]/.test(digits[0])) {
    const prefix = /^0[xXo]/.exec(has("#") ? digits : "")?.[0] ?? "";
    return zeros(sign + prefix, digits.slice(prefix.length), width);
  }
  return pad(sign + digits, width, " ", align);
}

function character(value: Value): string {
  const text = strOf(value);
  if (text !== undefined && lengthOf(text) === 1) return text;
  const code = numberOf(value);
  if (typeof code !== "bigint" || code < 0n || code > 0x10ffffn || (code >= 0xd800n && code < 0xe000n)) {
    throw new TemplateError("%c requires an integer or one character");
  }
  return String.fromCodePoint(Number(code));
}

function integerDigits(value: bigint, type: string, prefix: boolean): string {
  switch (type) {
    case "x":
      return (prefix ? "0x" : "") + value.toString(16);
    case "X":
      return (prefix ? "0X" : "") + value.toString(16).toUpperCase();
    case "o":
      return (prefix ? "0o" : "") + value.toString(8);
    case "b":
      return (prefix ? "0b" : "") + value.toString(2);
    default:
      return intText(value);
  }
}

const SPECIFICATION = /^(?:(.)?([<>=^]))?([-+ ])?(z)?(#)?(0)?(\d+)?([_,])?(?:\.(\d+))?(.)?$/su;

/** `format(value, specification)`. @throws {TemplateError} */
function formatted(value: Value, specification: string): string {
  if (specification === "") return textOf(value);
  const found = SPECIFICATION.exec(specification);
  if (found === null) throw new TemplateError("invalid format specifier");
  const [, fill, align, sign, z, alternate, zero, width, group, precision, type] = found;
  if (z !== undefined) throw new Unsupported("the format z");
  const size = small(width ?? "0");
  const decimals = precision === undefined ? undefined : small(precision);
  const text = strOf(value);
  if (text !== undefined) {
    if ((type ?? "s") !== "s" || sign || alternate || group || align === "=") {
      throw new TemplateError(`the format ${specification} does not apply to str`);
    }
    const shown = decimals === undefined ? text : cut(text, 0, decimals);
    const side = (align ?? "<") as "<" | ">" | "^";
    return pad(shown, size, fill ?? (zero ? "0" : " "), side);
  }
  const number = numberOf(value);
  if (number === undefined) throw new TemplateError(`the format ${specification} does not apply to ${typeOf(value)}`);
  if (typeof value === "boolean" && type === undefined) throw new Unsupported("a format for True and False");
  if (group === "_" || (group !== undefined && (zero || align === "="))) {
    throw new Unsupported(`the format ${specification}`);
  }
  let digits: string;
  if (typeof number === "bigint" && "dbxXon".includes(type ?? "d") && type !== "n") {
    if (decimals !== undefined) throw new TemplateError("precision not allowed in integer format specifier");
    digits = integerDigits(number < 0n ? -number : number, type ?? "d", alternate !== undefined);
    if (group && type !== undefined && type !== "d") throw new TemplateError("cannot specify ',' with this type");
  } else if (type === "c") {
    throw new Unsupported("the format c");
  } else if ("eEfFgG%".includes(type ?? "")) {
    if (type === undefined || alternate) throw new Unsupported(`the format ${specification} for a float`);
    const float = toFloat(number);
    digits = type === "%"
      ? `${floatFormat(float * 100, "f", decimals ?? 6)}%`
      : floatFormat(float, type, decimals ?? 6);
  } else throw new TemplateError(`unknown format code ${JSON.stringify(type)} for ${typeOf(value)}`);
  if (group) digits = digits.replace(/^\d+/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, ","));
  const negative = number < 0 || Object.is(number, -0);
  const mark = negative ? "-" : sign === "+" || sign === " " ? sign : "";
  if (align === "=" || (zero && align === undefined)) {
    const prefix = /^0[xXob]/.exec(alternate ? digits : "")?.[0] ?? "";
    const rest = digits.slice(prefix.length);
    return mark + prefix + pad(rest, size - mark.length - prefix.length, fill ?? (zero ? "0" : " "), ">");
  }
  const side = (align ?? ">") as "<" | ">" | "^";
  return pad(mark + digits, size, fill ?? (zero ? "0" : " "), side);
}

/** Looks up the attributes and items of a field `{a.b[c]}`. */
export interface Lookup {
  attribute(value: Value, name: string): Value;
  item(value: Value, key: Value): Value;
}

const FIELD = /^([^.[!:{}]*)((?:\.[^.[!:{}]+|\[[^\]{}]+\])*)(?:!([rsa]))?(?::([^{}]*))?$/s;

/** `text.format(*list, **named)`. @throws {TemplateError} */
export function format(text: string, args: Args, lookup: Lookup): string {
  let automatic = 0;
  let result = "";
  for (let at = 0; at < text.length;) {
    const brace = /[{}]/.exec(text.slice(at));
    if (brace === null) {
      result += text.slice(at);
      break;
    }
    result += text.slice(at, at + brace.index);
    at += brace.index;
    if (text[at + 1] === brace[0]) {
      result += brace[0];
      at += 2;
      continue;
    }
    const end = text.indexOf("}", at);
    if (brace[0] === "}" || end < 0) throw new TemplateError(`single ${JSON.stringify(brace[0])} in a format`);
    const field = text.slice(at + 1, end);
    const found = FIELD.exec(field);
    if (found === null) throw new Unsupported(`the format {${field}}`);
    const [, first, path, conversion, specification = ""] = found;
    let value: Maybe;
    if (first === "") {
      if (automatic < 0) throw new TemplateError("a format mixes numbered fields with others");
      value = args.list[automatic++];
    } else if (/^\d+$/.test(first)) {
      if (automatic > 0) throw new TemplateError("a format mixes numbered fields with others");
      automatic = -1;
      value = args.list[Number(first)];
    } else value = args.named.get(first);
    if (value === undefined) throw new TemplateError(`a format has no value for {${field}}`);
    for (const [, name, key] of path.matchAll(/\.([^.[]+)|\[([^\]]+)\]/g)) {
      value = name !== undefined
        ? lookup.attribute(value, name)
        : lookup.item(value, /^\d+$/.test(key) ? BigInt(key) : key);
    }
    if (conversion === "a") throw new Unsupported("the conversion !a");
    if (conversion === "r") value = reprOf(value);
    if (conversion === "s") value = textOf(value);
    result += formatted(value, specification);
    spendText(result.length);
    at = end + 1;
  }
  return result;
}

/** `text.format` and `text.format_map` as values. */
export function formatMethod(text: string, name: string, lookup: Lookup): Native {
  return new Native(name, (args) => {
    if (name === "format") return format(text, args, lookup);
    const [mapping] = args.list;
    if (!(mapping instanceof Dict) || args.list.length !== 1 || args.named.size > 0) {
      throw new Unsupported("format_map of another value than a dict");
    }
    const named = mapping.entries().filter(([key]) => typeof key === "string") as [string, Value][];
    return format(text, { list: [], named: new Map(named) }, lookup);
  });
}
