/**
 * Python's operators on the values of templates.
 *
 * @module
 */

import { percent } from "./format.ts";
import { spendItems, spendText, TemplateError, Unsupported } from "./limits.ts";
import { intArgument } from "./methods.ts";
import { calculate } from "./numbers.ts";
import { Markup, numberOf, strOf, Tuple, typeOf, Undefined, type Value } from "./values.ts";

/** `a op b` for + - * / // % and **. @throws {TemplateError} they have no such operation */
export function operate(op: string, a: Value, b: Value): Value {
  // str % takes whatever there is.
  if (op === "%" && typeof a === "string") return percent(a, b);
  for (const value of [a, b]) if (value instanceof Undefined) value.fail();
  const [x, y] = [numberOf(a), numberOf(b)];
  if (x !== undefined && y !== undefined) return calculate(op, x, y);
  const result = op === "+" ? added(a, b) : op === "*" ? repeated(a, b) ?? repeated(b, a) : undefined;
  if (result === undefined) {
    if (a instanceof Markup || b instanceof Markup) throw new Unsupported(`${op} of a text marked safe`);
    throw new TemplateError(`${op} is not for ${typeOf(a)} and ${typeOf(b)}`);
  }
  return result;
}

function added(a: Value, b: Value): Value | undefined {
  const [s, t] = [strOf(a), strOf(b)];
  if (s !== undefined && t !== undefined) {
    if (a instanceof Markup || b instanceof Markup) return new Markup(Markup.escape(a).text + Markup.escape(b).text);
    spendText(s.length + t.length);
    return s + t;
  }
  if (Array.isArray(a) && Array.isArray(b)) {
    spendItems(a.length + b.length);
    return [...a, ...b];
  }
  return a instanceof Tuple && b instanceof Tuple ? new Tuple([...a.items, ...b.items]) : undefined;
}

function repeated(value: Value, by: Value): Value | undefined {
  if (typeof numberOf(by) !== "bigint") return undefined;
  const times = Math.max(intArgument(by, "*"), 0);
  if (typeof value === "string") {
    if (value === "") return "";
    spendText(value.length * times);
    return value.repeat(times);
  }
  const items = value instanceof Tuple ? value.items : value;
  if (!Array.isArray(items)) return undefined;
  if (items.length === 0) return value;
  spendItems(items.length * times);
  const list = Array.from({ length: times }, () => items as readonly Value[]).flat(1);
  return value instanceof Tuple ? new Tuple(list) : list;
}

/** `-value` and `+value`. @throws {TemplateError} it is no number */
export function sign(op: string, value: Value): Value {
  if (value instanceof Undefined) value.fail();
  const number = numberOf(value);
  if (number === undefined) throw new TemplateError(`${op} is not for ${typeOf(value)}`);
  return op === "-" ? -number : number;
}
