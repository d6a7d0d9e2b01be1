/**
 * Filters of numbers.
 *
 * @module
 */

import { type Filters, plain } from "./filter.ts";
import { TemplateError, Unsupported } from "./limits.ts";
import { intArgument } from "./methods.ts";
import { calculate, parseFloating, parseInteger, roundNumber, toFloat, truncated } from "./numbers.ts";
import * as str from "./text.ts";
import { bind, NONE, numberOf, strOf, typeOf, Undefined, type Value } from "./values.ts";

/** Filters of numbers. */
export const NUMBER_FILTERS: Filters = {
  abs: plain((value) => {
    const number = numberOf(value);
    if (number === undefined) throw new TemplateError(`bad operand type for abs(): ${typeOf(value)}`);
    return number < 0 || Object.is(number, -0) ? -number : number;
  }),
  float(value, args, name) {
    const [otherwise] = bind(name, ["default?"], args);
    if (value instanceof Undefined) value.fail();
    return floating(value) ?? otherwise ?? 0;
  },
  int(value, args, name) {
    const [otherwise, base] = bind(name, ["default?", "base?"], args);
    return integer(value, base === undefined ? 10 : intArgument(base, name)) ?? otherwise ?? 0n;
  },
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
};

/** `float(value)`, or undefined if it raises a TypeError or ValueError. */
function floating(value: Value): number | undefined {
  const number = numberOf(value);
  if (number !== undefined) return toFloat(number);
  const text = strOf(value);
  return text === undefined ? undefined : parseFloating(str.strip(text, undefined, true, true));
}

/** The result of the filter int, or undefined if the default applies. */
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
