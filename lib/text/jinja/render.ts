/**
 * Renders a chat template as transformers does: Jinja2 3.1 in a sandbox that changes nothing, with trim_blocks,
 * lstrip_blocks, break, continue and generation, and without automatic escaping.
 *
 * What a template does that is not here is refused by name ({@link Unsupported}); everything else gives the text that
 * Jinja2 gives, with Python's values. Nodes become functions, as Jinja2 makes Python of them.
 *
 * @module
 */

import type {
  Arguments,
  Block,
  Call,
  CallBlock,
  Expression,
  Filter,
  For,
  Macro as MacroNode,
  Node,
  Statement,
  Target,
} from "./ast.ts";
import { Dict, equal, Generator, Namespace, Tuple } from "./collections.ts";
import type { Moment } from "./dates.ts";
import { FILTERS, TESTS } from "./filters.ts";
import { globalsOf, Raised } from "./globals.ts";
import { errorAt } from "./lexer.ts";
import { MAX_TEXT, resetLimits, spendItems, spendText, step, TemplateError, Unsupported } from "./limits.ts";
import { attributeIn, itemIn } from "./lookup.ts";
import { Loop, Macro } from "./loop.ts";
import { contains, operate, ordered, sign, sliceOf } from "./operators.ts";
import { parse } from "./parser.ts";
import { assigns, Scope, undeclared } from "./scopes.ts";
import { isBroken } from "./text.ts";
import {
  type Args,
  listOf,
  type Maybe,
  NONE,
  over,
  PyObject,
  strOf,
  textOf,
  truthOf,
  typeOf,
  Undefined,
  type Value,
} from "./values.ts";

/** What the caller passes: an int is a bigint, a float a number. */
export type Plain = null | boolean | bigint | number | string | readonly Plain[] | { readonly [key: string]: Plain };

/** What a template made. */
export interface Rendered {
  readonly text: string;
  /** Whether it asked for the date. */
  readonly dated: boolean;
}

/** What one rendering has. */
interface Rendering {
  /** What is passed, and the functions. */
  readonly context: ReadonlyMap<string, Value>;
  /** The line of the statement that runs. */
  line: number;
}

/** The variables of one call of a function: the template, a macro, or the body of a recursive loop. */
class Variables {
  readonly #cells = new Map<string, Maybe>();

  constructor(readonly rendering: Rendering, readonly outer?: Variables) {}

  get(variable: string): Maybe {
    return this.#cells.has(variable) ? this.#cells.get(variable) : this.outer?.get(variable);
  }

  set(variable: string, value: Maybe): void {
    this.#cells.set(variable, value);
  }

  /** Enters a block. */
  enter({ loads }: Scope): void {
    for (const [variable, load] of loads) {
      if (load.kind === "resolve") this.set(variable, this.rendering.context.get(load.name));
      else if (load.kind === "alias") this.set(variable, this.get(load.of));
      else if (load.kind === "undefined") this.set(variable, undefined);
    }
  }

  /** Leaves a block. */
  leave({ loads }: Scope): void {
    for (const [variable] of loads) this.set(variable, undefined);
  }
}

/** Text that is made piece by piece. */
class Buffer {
  readonly #parts: string[] = [];
  #length = 0;

  add(text: string): void {
    this.#length += text.length;
    if (this.#length > MAX_TEXT) throw new TemplateError(`makes a text of more than ${MAX_TEXT} characters`);
    this.#parts.push(text);
  }

  text(): string {
    spendText(this.#length);
    return this.#parts.join("");
  }
}

/** What follows a statement: the next one, or the end of the loop or of its turn. */
type Next = undefined | "break" | "continue";

type Evaluate = (variables: Variables) => Value;
type Execute = (variables: Variables, out: Buffer) => Next;

/** Where a node stands. */
interface Place {
  readonly scope: Scope;
  /** In an if or a conditional expression, filters may be unknown until they are used. */
  readonly soft: boolean;
  /** In a loop of the same function. */
  readonly loop: boolean;
}

function softly(place: Place): Place {
  return { ...place, soft: true };
}

/** A place in a block of its own. */
function inside(place: Place, scope: Scope): Place {
  return { scope, soft: false, loop: place.loop };
}

// ---------------------------------------------------------------- expressions

function expression(node: Expression, place: Place): Evaluate {
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
      throw new Unsupported(`line ${node.line}: a slice in this place`);
  }
}

function variableOf(name: string, { scope }: Place, line: number): string {
  const variable = scope.find(name);
  // Jinja2 fails here too, on the arguments of the filter of a set block.
  if (variable === undefined) throw errorAt(line, `the name ${name} is not known here`);
  return variable;
}

function read(name: string, place: Place, line: number): Evaluate {
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
        if (name === undefined || names.has(name)) throw new TemplateError("the argument after ** has a wrong key");
        names.set(name, value);
      }
    }
    return { list: values, named: names };
  };
}

/** @param caller the body of a call block */
function call(node: Call, place: Place, caller?: (variables: Variables) => Value): Evaluate {
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

/** @param content what the filter of a block is applied to */
function filter(node: Filter, place: Place, content?: Evaluate): Evaluate {
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

// ---------------------------------------------------------------- statements

function block(nodes: readonly Statement[], place: Place): Execute {
  const statements = nodes.map((node) => {
    const execute = statement(node, place);
    const { line } = node;
    return (variables: Variables, out: Buffer) => {
      step();
      variables.rendering.line = line;
      return execute(variables, out);
    };
  });
  return (variables, out) => {
    for (const execute of statements) {
      const next = execute(variables, out);
      if (next !== undefined) return next;
    }
  };
}

function statement(node: Statement, place: Place): Execute {
  switch (node.kind) {
    case "Data": {
      const { text } = node;
      return (_, out) => void out.add(text);
    }
    case "Output": {
      const value = expression(node.node, place);
      return (variables, out) => void out.add(textOf(value(variables)));
    }
    case "Assign":
      return assign(node.target, expression(node.node, place), place);
    case "If": {
      const within = softly(place);
      const branches = [node, ...node.branches].map(({ test, body }) =>
        [expression(test, within), block(body, within)] as const
      );
      const otherwise = block(node.otherwise, within);
      return (variables, out) => {
        const found = branches.find(([test]) => truthOf(test(variables)));
        return (found === undefined ? otherwise : found[1])(variables, out);
      };
    }
    case "For":
      return loop(node, place);
    case "Macro": {
      const make = macro(node, place);
      const variable = variableOf(node.name, place, node.line);
      return (variables) => void variables.set(variable, make(variables));
    }
    case "CallBlock": {
      const caller = macro(node, place);
      const value = node.call === undefined
        ? (variables: Variables) => (caller(variables) as Macro).call({ list: [], named: new Map() })
        : call(node.call, place, caller);
      return (variables, out) => void out.add(written(value(variables)));
    }
    case "FilterBlock": {
      const { scope, body } = blockOf(node, place, [...node.body, node.filter]);
      let content = "";
      const value = filter(node.filter, inside(place, scope), () => content);
      return (variables, out) => {
        variables.enter(scope);
        const buffer = new Buffer();
        const next = body(variables, buffer);
        if (next !== undefined) return next;
        content = buffer.text();
        out.add(written(value(variables)));
        variables.leave(scope);
      };
    }
    case "AssignBlock": {
      const { scope, body } = blockOf(node, place, node.body);
      let content = "";
      const value = node.filter === undefined
        ? () => content
        : filter(node.filter, inside(place, scope), () => content);
      const set = assign(node.target, value, place);
      return (variables, out) => {
        variables.enter(scope);
        const buffer = new Buffer();
        const next = body(variables, buffer);
        if (next !== undefined) return next;
        content = buffer.text();
        set(variables, out);
        variables.leave(scope);
      };
    }
    case "With": {
      const scope = new Scope(place.scope);
      for (const target of node.targets) scope.visitParameters(target);
      scope.visit(node.body);
      const within = inside(place, scope);
      const sets = node.targets.map((target, n) => assign(target, expression(node.values[n], place), within));
      const body = block(node.body, within);
      return (variables, out) => {
        variables.enter(scope);
        for (const set of sets) set(variables, out);
        const next = body(variables, out);
        variables.leave(scope);
        return next;
      };
    }
    case "Break":
    case "Continue": {
      if (!place.loop) throw errorAt(node.line, `${node.kind.toLowerCase()} outside of a loop`);
      const next = node.kind === "Break" ? "break" : "continue";
      return () => next;
    }
  }
}

/** A block with names of its own, which are looked for in `nodes`. */
function blockOf(node: Block, place: Place, nodes: readonly Node[]): { scope: Scope; body: Execute } {
  const scope = new Scope(place.scope);
  scope.visit(nodes);
  return { scope, body: block(node.body, inside(place, scope)) };
}

/** The result of a call block or a filter block, which is written without being made a text. */
function written(value: Value): string {
  const text = strOf(value);
  if (text === undefined) throw new TemplateError(`a block gives a ${typeOf(value)} where a text is needed`);
  return text;
}

/** Sets a name, a namespace's attribute, or a tuple of them. */
function assign(target: Target, value: Evaluate, place: Place): Execute {
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

function setter(target: Target, place: Place): (variables: Variables, value: Value) => void {
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

/** Makes the macro when it is defined. */
function macro(node: MacroNode | CallBlock, place: Place): (variables: Variables) => Value {
  const scope = new Scope(place.scope);
  const nodes = [...node.parameters, ...node.defaults, ...node.body];
  scope.visit(nodes);
  const parameters = node.parameters.map(({ name }) => name);
  const reads = undeclared(node.body, ["caller", "kwargs", "varargs"]);
  for (const name of ["kwargs", "varargs"]) if (parameters.includes(name)) reads.delete(name);
  const explicit = parameters.indexOf("caller");
  if (reads.has("caller") && explicit >= 0 && parameters.length - explicit > node.defaults.length) {
    throw errorAt(node.line, "the parameter caller of a macro needs a default");
  }
  for (const name of reads) if (!parameters.includes(name)) scope.parameter(name);
  scope.visit(nodes);
  const within = { scope, soft: false, loop: false };
  const required = parameters.length - node.defaults.length;
  const defaults = parameters.map((name, n): [string, string, Evaluate] => [
    name,
    variableOf(name, within, node.line),
    n < required
      ? () => new Undefined(`parameter '${name}' was not provided`)
      : expression(node.defaults[n - required], within),
  ]);
  const body = block(node.body, within);
  const name = node.kind === "Macro" ? node.name : undefined;
  return (outer) =>
    new Macro({
      name,
      parameters,
      reads,
      run(values) {
        const variables = new Variables(outer.rendering, outer);
        for (const [parameter, value] of values) variables.set(variableOf(parameter, within, node.line), value);
        variables.enter(scope);
        for (const [, variable, value] of defaults) {
          if (variables.get(variable) === undefined) variables.set(variable, value(variables));
        }
        const buffer = new Buffer();
        body(variables, buffer);
        return buffer.text();
      },
    });
}

function loop(node: For, place: Place): Execute {
  const extended = node.recursive || undeclared(node.body, ["loop"]).has("loop");
  if (assigns(node, "loop")) throw errorAt(node.line, "can't assign to special loop variable in for-loop");
  const scope = new Scope(place.scope);
  const variable = extended ? scope.parameter("loop") : undefined;
  scope.visitParameters(node.target);
  scope.visit(node.body);
  const within = { scope, soft: false, loop: true };
  const set = setter(node.target, within);
  const body = block(node.body, within);
  const elseScope = new Scope(place.scope);
  elseScope.visit(node.otherwise);
  const otherwise = block(node.otherwise, {
    scope: elseScope,
    soft: false,
    loop: place.loop && !node.recursive,
  });
  const chosen = node.test === undefined ? undefined : choosing(node, node.test, place);
  const items = expression(node.over, place);

  const run = (variables: Variables, out: Buffer, over_: Value, outer: Variables, depth: number): Next => {
    const value = chosen === undefined ? over_ : chosen(outer, over_);
    const recurse = (inner: Value, depth: number) => {
      const buffer = new Buffer();
      run(new Variables(outer.rendering, outer), buffer, inner, outer, depth);
      return buffer.text();
    };
    const context = extended ? new Loop(value, depth, node.recursive ? recurse : undefined) : undefined;
    const plain = context === undefined ? over(value)[Symbol.iterator]() : undefined;
    // Whether a turn went to its end; a loop whose turns all end early has an else, as in Jinja2.
    let ended = false;
    for (;;) {
      const step = plain?.next();
      const item: Maybe = context === undefined ? (step!.done ? undefined : step!.value) : context.next();
      if (item === undefined) break;
      spendItems(0);
      if (variable !== undefined) variables.set(variable, context);
      set(variables, item);
      variables.enter(scope);
      const next = body(variables, out);
      if (next === "break") break;
      if (next === undefined) ended = true;
    }
    variables.leave(scope);
    if (ended || node.otherwise.length === 0) return undefined;
    variables.enter(elseScope);
    const next = otherwise(variables, out);
    variables.leave(elseScope);
    return next;
  };
  return (variables, out) => {
    const value = items(variables);
    if (!node.recursive) return run(variables, out, value, variables, 0);
    const buffer = new Buffer();
    run(new Variables(variables.rendering, variables), buffer, value, variables, 0);
    out.add(buffer.text());
  };
}

/** The items of a loop with an if: they are chosen one by one, as the loop goes on. */
function choosing(node: For, test: Expression, place: Place): (outer: Variables, items: Value) => Value {
  const scope = new Scope(place.scope);
  scope.visitParameters(node.target);
  scope.visit([test]);
  const within = { scope, soft: false, loop: false };
  const set = setter(node.target, within);
  const get = getter(node.target, within);
  const holds = expression(test, within);
  return (outer, items) => {
    function* chosen() {
      const variables = new Variables(outer.rendering, outer);
      variables.enter(scope);
      for (const item of over(items)) {
        set(variables, item);
        if (truthOf(holds(variables))) yield get(variables);
      }
    }
    return new Generator(chosen());
  };
}

/** The value that a target was set to: of a tuple of names, a tuple. */
function getter(target: Target, place: Place): Evaluate {
  if (target.kind !== "Tuple") return read(target.name, place, target.line);
  const items = target.items.map((item) => getter(item, place));
  return (variables) => new Tuple(items.map((item) => item(variables)));
}

// ---------------------------------------------------------------- templates

function valueOf(plain: Plain): Value {
  if (typeof plain === "string" && isBroken(plain)) throw new TemplateError("a text has half of a surrogate pair");
  if (Array.isArray(plain)) return plain.map(valueOf);
  if (typeof plain !== "object" || plain === null) return plain === null ? NONE : plain as Value;
  return new Dict(Object.entries(plain).map(([key, value]) => [key, valueOf(value)]));
}

/**
 * Renders a template.
 *
 * @param variables what it can read, besides Jinja2's and transformers' functions
 * @param now the time for strftime_now
 * @param milliseconds the time that rendering may take
 * @throws {TemplateError} it is no template, raises an error, uses too much, or has what is not supported
 */
export function render(
  template: string,
  variables: Readonly<Record<string, Plain>>,
  now: Moment,
  milliseconds = Infinity,
): Rendered {
  resetLimits(milliseconds);
  let dated = false;
  const rendering = {
    context: new Map([
      ...globalsOf(now, () => dated = true),
      ...Object.entries(variables).map(([name, value]): [string, Value] => [name, valueOf(value)]),
    ]),
    line: 0,
  };
  try {
    const body = parse(template);
    const scope = new Scope();
    scope.visit(body);
    const execute = block(body, { scope, soft: false, loop: false });
    const root = new Variables(rendering);
    root.enter(scope);
    const out = new Buffer();
    execute(root, out);
    return { text: out.text(), dated };
  } catch (error) {
    if (error instanceof RangeError) throw new TemplateError("is nested too deeply");
    if (!(error instanceof TemplateError) || error instanceof Raised || error.message.startsWith("line ")) throw error;
    if (rendering.line > 0) error.message = `line ${rendering.line}: ${error.message}`;
    throw error;
  }
}
