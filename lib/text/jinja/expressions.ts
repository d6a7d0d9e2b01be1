/**
 * Compiles the expressions of a template.
 *
 * @module
 */

import type { Arguments, Call, Expression, Filter } from "./ast.ts";
import { Dict, equal, Tuple } from "./collections.ts";
import { FILTERS, TESTS } from "./filters.ts";
import { errorAt } from "./lexer.ts";
import { spendItems, spendText, TemplateError, Unsupported } from "./limits.ts";
import { attributeIn, itemIn } from "./lookup.ts";
import { contains, operate, ordered, sign, sliceOf } from "./operators.ts";
import { type Args, listOf, PyObject, strOf, textOf, truthOf, typeOf, Undefined, type Value } from "./values.ts";
import { type Evaluate, type Place, softly, type Variables } from "./variables.ts";

/** Compiles an expression. @throws {TemplateError} it is invalid or unsupported */
export function expression(node: Expression, place: Place): Evaluate {
  switch (node.kind) {
    case "Constant": {
      const { value } = node;
      return () => value;
    }
    case "Name":
      return read(node.name, place, node.line);
    case "Tuple":
    case "List": {
      const items = node.items.map((item) => expression(item, place));
      const tuple = node.kind === "Tuple";
      return (variables) => {
        const list = items.map((item) => item(variables));
        if (tuple) return new Tuple(list);
        spendItems(list.length);
        return list;
      };
    }
    case "Dict": {
      const items = node.items.map((pair) => pair.map((part) => expression(part, place)));
      return (variables) => new Dict(items.map(([key, value]): [Value, Value] => [key(variables), value(variables)]));
    }
    case "Concat": {
      const items = node.items.map((item) => expression(item, place));
      return (variables) => {
        const texts = items.map((item) => textOf(item(variables)));
        spendText(texts.reduce((sum, { length }) => sum + length, 0));
        return texts.join("");
      };
    }
    case "Attribute": {
      const value = expression(node.node, place);
      const { name } = node;
      return (variables) => attributeIn(value(variables), name);
    }
    case "Item":
      return item(node.node, node.key, place);
    case "Condition":
      return condition(node, softly(place));
    case "Binary":
      return binary(node, place);
    case "Unary": {
      const value = expression(node.node, place);
      const { op } = node;
      return (variables) => op === "not" ? !truthOf(value(variables)) : sign(op, value(variables));
    }
    case "Compare":
      return comparison(node, place);
    case "Call":
      return call(node, place);
    case "Filter":
    case "Test":
      return filter(node, place);
    case "Slice":
      throw new Unsupported(`line ${node.line}: a slice at this place`);
  }
}

/** The variable of a name. @throws {TemplateError} the name is unknown at this place */
export function variableOf(name: string, { scope }: Place, line: number): string {
  const variable = scope.find(name);
  // Jinja2 fails here too, on the arguments of the filter of a set block.
  if (variable === undefined) throw errorAt(line, `the name ${name} is unknown here`);
  return variable;
}

/** Compiles the reading of a name. */
export function read(name: string, place: Place, line: number): Evaluate {
  const variable = variableOf(name, place, line);
  return (variables) => variables.get(variable) ?? new Undefined(`'${name}' is undefined`);
}

function item(object: Expression, key: Expression, place: Place): Evaluate {
  const value = expression(object, place);
  if (key.kind !== "Slice") {
    const index = expression(key, place);
    return (variables) => itemIn(value(variables), index(variables));
  }
  const [start, stop, step] = [key.start, key.stop, key.step].map((part) =>
    part === undefined ? () => undefined : expression(part, place)
  );
  return (variables) => sliceOf(value(variables), start(variables), stop(variables), step(variables));
}

function condition(node: Expression & { kind: "Condition" }, place: Place): Evaluate {
  const [test, then] = [expression(node.test, place), expression(node.then, place)];
  const otherwise = node.otherwise === undefined ? undefined : expression(node.otherwise, place);
  const { line } = node;
  return (variables) => {
    if (truthOf(test(variables))) return then(variables);
    return otherwise === undefined
      ? new Undefined(`the inline if-expression on line ${line} evaluated to false and no else section was defined.`)
      : otherwise(variables);
  };
}

function binary({ op, left, right }: Expression & { kind: "Binary" }, place: Place): Evaluate {
  const [a, b] = [expression(left, place), expression(right, place)];
  if (op !== "and" && op !== "or") return (variables) => operate(op, a(variables), b(variables));
  return (variables) => {
    const value = a(variables);
    return truthOf(value) === (op === "and") ? b(variables) : value;
  };
}

function comparison(node: Expression & { kind: "Compare" }, place: Place): Evaluate {
  const first = expression(node.node, place);
  const operands = node.operands.map(([op, operand]) => [op, expression(operand, place)] as const);
  return (variables) => {
    let left = first(variables);
    for (const [op, operand] of operands) {
      const right = operand(variables);
      if (!compares(op, left, right)) return false;
      left = right;
    }
    return true;
  };
}

function compares(op: string, a: Value, b: Value): boolean {
  switch (op) {
    case "==":
      return equal(a, b);
    case "!=":
      return !equal(a, b);
    case "in":
      return contains(b, a);
    case "not in":
      return !contains(b, a);
    default:
      return ordered(op, a, b);
  }
}

function argumentsOf(args: Arguments, place: Place): (variables: Variables) => Args {
  const list = args.list.map((arg) => expression(arg, place));
  const named = args.named.map(([name, arg]) => [name, expression(arg, place)] as const);
  const more = args.dynamicList && expression(args.dynamicList, place);
  const moreNamed = args.dynamicNamed && expression(args.dynamicNamed, place);
  return (variables) => {
    const values = list.map((arg) => arg(variables));
    if (more !== undefined) values.push(...listOf(more(variables)));
    const names = new Map(named.map(([name, arg]) => [name, arg(variables)]));
    if (moreNamed !== undefined) {
      const dict = moreNamed(variables);
      if (!(dict instanceof Dict)) throw new TemplateError(`the argument after ** must be a dict, not ${typeOf(dict)}`);
      for (const [key, value] of dict.entries()) {
        const name = strOf(key);
        if (name === undefined || names.has(name)) {
          throw new TemplateError("a key of the argument after ** is not a string, or is given twice");
        }
        names.set(name, value);
      }
    }
    return { list: values, named: names };
  };
}

/** Compiles a call. @param caller the body of a call block */
export function call(node: Call, place: Place, caller?: (variables: Variables) => Value): Evaluate {
  const callee = expression(node.node, place);
  const args = argumentsOf(node.args, place);
  return (variables) => {
    const value = callee(variables);
    const given = args(variables);
    if (!(value instanceof PyObject) || value.call === undefined) {
      throw new TemplateError(`'${typeOf(value)}' object is not callable`);
    }
    if (caller === undefined) return value.call(given);
    if (given.named.has("caller")) throw new TemplateError("the argument caller is given twice");
    return value.call({ list: given.list, named: new Map([...given.named, ["caller", caller(variables)]]) });
  };
}

/** Compiles a filter or test. @param content the input of a block's filter */
export function filter(node: Filter, place: Place, content?: Evaluate): Evaluate {
  const { kind, name, line } = node;
  const table = kind === "Filter" ? FILTERS : TESTS;
  const known = Object.hasOwn(table, name) ? table[name] : undefined;
  if (known === undefined && !place.soft) throw errorAt(line, `no ${kind.toLowerCase()} named ${name}`);
  const value = node.node === undefined
    ? content!
    : node.node.kind === "Filter"
    ? filter(node.node, place, content)
    : expression(node.node, place);
  const args = argumentsOf(node.args, place);
  return (variables) => {
    if (known === undefined) throw new TemplateError(`no ${kind.toLowerCase()} named ${name}`);
    const given = value(variables);
    return known(given, args(variables), name);
  };
}
