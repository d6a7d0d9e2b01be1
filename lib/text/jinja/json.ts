/**
 * Python's `json.dumps`, as transformers gives it to templates.
 *
 * @module
 */

import { Dict, Tuple } from "./collections.ts";
import { spendText, TemplateError } from "./limits.ts";
import { intArgument, strArgument } from "./methods.ts";
import { floatText, intText } from "./numbers.ts";
import { compare } from "./operators.ts";
import { type Args, bind, isNone, type Maybe, NONE, strOf, truthOf, typeOf, type Value } from "./values.ts";

interface Style {
  readonly ascii: boolean;
  readonly indent: string | undefined;
  readonly item: string;
  readonly key: string;
  readonly sorted: boolean;
}

/** The filter tojson. @throws {TemplateError} the value is not JSON serializable */
export function toJson(value: Value, args: Args): string {
  const [ascii, indent, separators, sorted] = bind(
    "tojson",
    ["ensure_ascii?", "indent?", "separators?", "sort_keys?"],
    args,
  );
  const step = indentOf(indent);
  const [item, key] = isNone(separators) ? [step === undefined ? ", " : ",", ": "] : separatorsOf(separators);
  const style = {
    ascii: ascii !== undefined && truthOf(ascii),
    indent: step,
    item,
    key,
    sorted: sorted !== undefined && truthOf(sorted),
  };
  return dump(value, style, 0);
}

function indentOf(indent: Maybe): string | undefined {
  if (isNone(indent)) return undefined;
  const text = strOf(indent);
  if (text !== undefined) return text;
  const count = Math.max(intArgument(indent, "tojson"), 0);
  spendText(count);
  return " ".repeat(count);
}

function separatorsOf(separators: Value): string[] {
  const pair = separators instanceof Tuple ? separators.items : separators;
  if (!Array.isArray(pair) || pair.length !== 2) throw new TemplateError("tojson: expected two strings as separators");
  return pair.map((text) => strArgument(text, "tojson"));
}

function dump(value: Value, style: Style, depth: number): string {
  const text = strOf(value);
  if (text !== undefined) return jsonString(text, style.ascii);
  if (value === NONE) return "null";
  if (typeof value === "boolean") return String(value);
  if (typeof value === "bigint") return intText(value);
  if (typeof value === "number") return jsonFloat(value);
  if (value instanceof Dict) {
    const entries = [...value.entries()];
    if (style.sorted) entries.sort(([a], [b]) => compare(a, b));
    return bracketed(
      "{}",
      entries.map(([key, item]) => `${keyOf(key, style)}${style.key}${dump(item, style, depth + 1)}`),
      style,
      depth,
    );
  }
  const items = value instanceof Tuple ? value.items : value;
  if (!Array.isArray(items)) throw new TemplateError(`Object of type ${typeOf(value)} is not JSON serializable`);
  return bracketed("[]", items.map((item) => dump(item, style, depth + 1)), style, depth);
}

function bracketed([open, close]: string, parts: string[], { indent, item }: Style, depth: number): string {
  if (parts.length === 0) return open + close;
  if (indent !== undefined) spendText(indent.length * (depth + 1) * (parts.length + 1));
  const line = indent === undefined ? "" : `\n${indent.repeat(depth + 1)}`;
  const end = indent === undefined ? "" : `\n${indent.repeat(depth)}`;
  const text = open + line + parts.join(item + line) + end + close;
  spendText(text.length);
  return text;
}

function keyOf(key: Value, { ascii }: Style): string {
  const text = strOf(key);
  if (text !== undefined) return jsonString(text, ascii);
  if (key === NONE) return '"null"';
  if (typeof key === "boolean") return `"${key}"`;
  if (typeof key === "bigint") return `"${intText(key)}"`;
  if (typeof key === "number") return `"${jsonFloat(key)}"`;
  throw new TemplateError(`keys must be str, int, float, bool or None, not ${typeOf(key)}`);
}

function jsonFloat(value: number): string {
  if (Number.isFinite(value)) return floatText(value);
  return Number.isNaN(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

function jsonString(text: string, ascii: boolean): string {
  spendText(text.length);
  // JSON.stringify escapes the same characters as Python, since strings here contain no lone surrogates.
  const quoted = JSON.stringify(text);
  if (!ascii) return quoted;
  return quoted.replace(/[\u007f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
