/**
 * Compiles the targets of assignments and loops.
 *
 * @module
 */

import type { Target } from "./ast.ts";
import { Namespace, Tuple } from "./collections.ts";
import { read, variableOf } from "./expressions.ts";
import { TemplateError } from "./limits.ts";
import { over, type Value } from "./values.ts";
import type { Evaluate, Execute, Place, Variables } from "./variables.ts";

/** Compiles an assignment to a name, an attribute of a namespace, or a tuple of them. */
export function assign(target: Target, value: Evaluate, place: Place): Execute {
  const set = setter(target, place);
  const namespaces = namespacesOf(target).map(({ name, line }) => variableOf(name, place, line));
  return (variables) => {
    for (const variable of namespaces) {
      if (!(variables.get(variable) instanceof Namespace)) {
        throw new TemplateError("cannot assign attribute on non-namespace object");
      }
    }
    set(variables, value(variables));
    return undefined;
  };
}

function namespacesOf(target: Target): (Target & { kind: "NamespaceTarget" })[] {
  if (target.kind === "Tuple") return target.items.flatMap(namespacesOf);
  return target.kind === "NamespaceTarget" ? [target] : [];
}

/** Compiles the setting of a target. */
export function setter(target: Target, place: Place): (variables: Variables, value: Value) => void {
  if (target.kind === "Tuple") {
    const items = target.items.map((item) => setter(item, place));
    return (variables, value) => unpack(value, items.length).forEach((item, n) => items[n](variables, item));
  }
  const variable = variableOf(target.name, place, target.line);
  if (target.kind === "Name") return (variables, value) => variables.set(variable, value);
  const { attribute } = target;
  return (variables, value) => (variables.get(variable) as Namespace).set(attribute, value);
}

function unpack(value: Value, count: number): Value[] {
  const items: Value[] = [];
  for (const item of over(value)) {
    if (items.length === count) throw new TemplateError(`too many values to unpack (expected ${count})`);
    items.push(item);
  }
  if (items.length < count) {
    throw new TemplateError(`not enough values to unpack (expected ${count}, got ${items.length})`);
  }
  return items;
}

/** Compiles the reading of a target: a tuple of names gives a tuple. */
export function getter(target: Target, place: Place): Evaluate {
  if (target.kind !== "Tuple") return read(target.name, place, target.line);
  const items = target.items.map((item) => getter(item, place));
  return (variables) => new Tuple(items.map((item) => item(variables)));
}
