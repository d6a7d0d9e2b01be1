/**
 * Looks up attributes and items as Jinja2's sandbox does.
 *
 * @module
 */

import { Dict } from "./collections.ts";
import { Unsupported } from "./limits.ts";
import { attributeOf } from "./methods.ts";
import { pointsOf } from "./text.ts";
import { indexed, type Maybe, NONE, PyObject, reprOf, typeOf, Undefined, unsafe, type Value } from "./values.ts";

const LOOKUP = {
  attribute: (value: Value, name: string) => attributeIn(value, name),
  item: (value: Value, key: Value) => itemIn(value, key),
};

/** `value.name`: the attribute, else the item of that name, else undefined. */
export function attributeIn(value: Value, name: string, items = true): Value {
  return own(value, name) ?? (items ? subscript(value, name) : undefined) ?? absent(value, name);
}

/** `value[key]`: the item, else the attribute of that name, else undefined. */
export function itemIn(value: Value, key: Value): Value {
  return subscript(value, key) ?? (typeof key === "string" ? own(value, key) : undefined) ?? absent(value, key);
}

function own(value: Value, name: string): Maybe {
  if (/^__.*__$/s.test(name) && !(value instanceof Undefined)) {
    // Objects of Python have many of these attributes; the sandbox allows none.
    if (value instanceof Dict && value.get(name) !== undefined) throw new Unsupported(`the attribute ${name}`);
    return unsafe(typeOf(value), name);
  }
  return attributeOf(value, name, LOOKUP);
}

function subscript(value: Value, key: Value): Maybe {
  if (typeof value === "string") {
    const points = pointsOf(value);
    return indexed({ length: points.length, at: (n) => points[n] }, key);
  }
  if (Array.isArray(value)) return indexed(value, key);
  return value instanceof PyObject ? value.item(key) : undefined;
}

function absent(value: Value, key: Value): Undefined {
  const object = value === NONE ? "None" : `${typeOf(value)} object`;
  return new Undefined(
    typeof key === "string" ? `'${object}' has no attribute ${reprOf(key)}` : `${object} has no element ${reprOf(key)}`,
  );
}
