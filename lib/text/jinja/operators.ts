/**
 * Python's operators on the values of templates: arithmetic, order, `in` and slices.
 *
 * @module
 */

import { Dict, equal, Range, sequences, Tuple, View } from "./collections.ts";
import { percent } from "./format.ts";
import { spendItems, spendText, TemplateError, Unsupported } from "./limits.ts";
import { intArgument } from "./methods.ts";
import { calculate } from "./numbers.ts";
import { compareText, pointsOf, quoted } from "./text.ts";
import { isNone, Markup, type Maybe, numberOf, over, strOf, typeOf, Undefined, type Value } from "./values.ts";

/** `a op b` for + - * / // % and **. @throws {TemplateError} the operands do not support it */
export function operate(op: string, a: Value, b: Value): Value {
  // `%` on a str accepts every value, also undefined ones.
  if (op === "%" && typeof a === "string") return percent(a, b);
  for (const value of [a, b]) if (value instanceof Undefined) value.fail();
  const [x, y] = [numberOf(a), numberOf(b)];
  if (x !== undefined && y !== undefined) return calculate(op, x, y);
  const result = op === "+" ? added(a, b) : op === "*" ? repeated(a, b) ?? repeated(b, a) : undefined;
  if (result === undefined) {
    if (a instanceof Markup || b instanceof Markup) throw new Unsupported(`${op} of a string marked safe`);
    throw new TemplateError(`unsupported operand types for ${op}: ${typeOf(a)} and ${typeOf(b)}`);
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

/** `-value` and `+value`. @throws {TemplateError} it is not a number */
export function sign(op: string, value: Value): Value {
  if (value instanceof Undefined) value.fail();
  const number = numberOf(value);
  if (number === undefined) throw new TemplateError(`unsupported operand type for ${op}: ${typeOf(value)}`);
  return op === "-" ? -number : number;
}

/** `a op b` for < <= > and >=. @throws {TemplateError} the values have no order */
export function ordered(op: string, a: Value, b: Value): boolean {
  for (const value of [a, b]) if (value instanceof Undefined) value.fail();
  const [x, y] = [numberOf(a), numberOf(b)];
  if (x !== undefined && y !== undefined) return holds(op, x, y);
  const [s, t] = [strOf(a), strOf(b)];
  if (s !== undefined && t !== undefined) return holds(op, compareText(s, t), 0);
  const pair = sequences(a, b);
  if (pair !== undefined) {
    const [p, q] = pair;
    for (let n = 0; n < p.length && n < q.length; n++) if (!equal(p[n], q[n])) return ordered(op, p[n], q[n]);
    return holds(op, p.length, q.length);
  }
  if (a instanceof View || b instanceof View) throw new Unsupported("comparing views of dicts");
  throw new TemplateError(`unsupported operand types for ${op}: ${typeOf(a)} and ${typeOf(b)}`);
}

function holds(op: string, a: bigint | number, b: bigint | number): boolean {
  return op === "<" ? a < b : op === "<=" ? a <= b : op === ">" ? a > b : a >= b;
}

/** Compares values for a stable sort. @throws {TemplateError} they have no order @throws {Unsupported} one is NaN */
export function compare(a: Value, b: Value): number {
  if (Number.isNaN(a) || Number.isNaN(b)) throw new Unsupported("sorting NaN");
  return ordered("<", a, b) ? -1 : ordered("<", b, a) ? 1 : 0;
}

/** `item in container`. @throws {TemplateError} */
export function contains(container: Value, item: Value): boolean {
  const text = strOf(container);
  if (text !== undefined) {
    const part = strOf(item);
    if (part !== undefined) return text.includes(part);
    throw new TemplateError(`'in <string>' requires string as left operand, not ${typeOf(item)}`);
  }
  const dict = container instanceof View && container.kind === "keys" ? container.dict : container;
  if (dict instanceof Dict) return dict.get(item) !== undefined;
  for (const other of over(container)) if (other === item || equal(other, item)) return true;
  return false;
}

/** `value[start:stop:step]`. @throws {TemplateError} the value can't be sliced */
export function sliceOf(value: Value, start: Maybe, stop: Maybe, step: Maybe): Value {
  if (value instanceof Undefined) value.fail();
  if (value instanceof Markup || value instanceof Range) throw new Unsupported(`a slice of a ${value.type}`);
  const items = typeof value === "string" ? pointsOf(value) : value instanceof Tuple ? value.items : value;
  if (typeof items !== "string" && !Array.isArray(items)) {
    throw new TemplateError(`${quoted(typeOf(value))} object can't be sliced`);
  }
  const picked = sliceIndices(items.length, start, stop, step).map((n) => items[n] as Value);
  if (typeof value === "string") {
    spendText(picked.length);
    return picked.join("");
  }
  if (value instanceof Tuple) return new Tuple(picked);
  spendItems(picked.length);
  return picked;
}

function sliceIndices(length: number, ...parts: Maybe[]): number[] {
  const [start, stop, step] = parts.map((part) => {
    if (isNone(part)) return undefined;
    const number = numberOf(part);
    if (part instanceof Undefined || typeof number !== "bigint") {
      throw new TemplateError("slice indices must be integers or None");
    }
    return number;
  });
  const by = step ?? 1n;
  if (by === 0n) throw new TemplateError("slice step cannot be zero");
  const size = BigInt(length);
  const [low, high] = by > 0n ? [0n, size] : [-1n, size - 1n];
  const clamp = (at: bigint | undefined, otherwise: bigint) => {
    if (at === undefined) return otherwise;
    const from = at < 0n ? at + size : at;
    return from < low ? low : from > high ? high : from;
  };
  const [first, end] = by > 0n ? [clamp(start, low), clamp(stop, high)] : [clamp(start, high), clamp(stop, low)];
  const indices: number[] = [];
  for (let at = first; by > 0n ? at < end : at > end; at += by) indices.push(Number(at));
  return indices;
}
