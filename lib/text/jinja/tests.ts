/**
 * The tests of Jinja2: the operand of `is`.
 *
 * @module
 */

import { Dict, equal, View } from "./collections.ts";
import { type Filter, type Filters, plain } from "./filter.ts";
import { Unsupported } from "./limits.ts";
import { contains, operate, ordered } from "./operators.ts";
import * as str from "./text.ts";
import {
  bind,
  Markup,
  NONE,
  numberOf,
  PyObject,
  sizeOf,
  strOf,
  textOf,
  typeOf,
  Undefined,
  type Value,
} from "./values.ts";

/** A test with one argument. */
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

/** All tests but `filter` and `test`, which look up names. */
export const VALUE_TESTS: Filters = {
  odd: plain((value) => equal(remainder(value, 2n), 1n)),
  even: plain((value) => equal(remainder(value, 2n), 0n)),
  divisibleby(value, args, name) {
    return equal(remainder(value, bind(name, ["num"], args)[0]!), 0n);
  },
  defined: plain((value) => !(value instanceof Undefined)),
  undefined: plain((value) => value instanceof Undefined),
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
