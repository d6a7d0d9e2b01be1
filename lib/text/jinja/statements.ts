/**
 * Compiles the statements of a template.
 *
 * @module
 */

import type { Block, CallBlock, Expression, For, Macro as MacroNode, Node, Statement } from "./ast.ts";
import { Generator } from "./collections.ts";
import { call, expression, filter, variableOf } from "./expressions.ts";
import { errorAt } from "./lexer.ts";
import { spendItems, step, TemplateError } from "./limits.ts";
import { Loop, Macro } from "./loop.ts";
import { assigns, Scope, undeclared } from "./scopes.ts";
import { assign, getter, setter } from "./targets.ts";
import { type Maybe, over, strOf, textOf, truthOf, typeOf, Undefined, type Value } from "./values.ts";
import { Buffer, type Evaluate, type Execute, inside, type Next, type Place, softly, Variables } from "./variables.ts";

/** Compiles statements that run one after the other. */
export function block(nodes: readonly Statement[], place: Place): Execute {
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
      const parts = blockOf(node, place, [...node.body, node.filter]);
      let content = "";
      const value = filter(node.filter, inside(place, parts.scope), () => content);
      return captured(parts, (variables, out, text) => {
        content = text;
        out.add(written(value(variables)));
      });
    }
    case "AssignBlock": {
      const parts = blockOf(node, place, node.body);
      let content = "";
      const value = node.filter === undefined
        ? () => content
        : filter(node.filter, inside(place, parts.scope), () => content);
      const set = assign(node.target, value, place);
      return captured(parts, (variables, out, text) => {
        content = text;
        set(variables, out);
      });
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

interface ScopedBlock {
  readonly scope: Scope;
  readonly body: Execute;
}

/** Compiles a block whose output goes to `use`, not to the output of the template. */
function captured(
  { scope, body }: ScopedBlock,
  use: (variables: Variables, out: Buffer, text: string) => void,
): Execute {
  return (variables, out) => {
    variables.enter(scope);
    const buffer = new Buffer();
    const next = body(variables, buffer);
    if (next !== undefined) return next;
    use(variables, out, buffer.text());
    variables.leave(scope);
  };
}

/** Compiles a block with its own scope. @param nodes the nodes whose names belong to the scope */
function blockOf(node: Block, place: Place, nodes: readonly Node[]): ScopedBlock {
  const scope = new Scope(place.scope);
  scope.visit(nodes);
  return { scope, body: block(node.body, inside(place, scope)) };
}

/** The result of a call block or a filter block, which must be a str. */
function written(value: Value): string {
  const text = strOf(value);
  if (text === undefined) throw new TemplateError(`a block: expected a str, found ${typeOf(value)}`);
  return text;
}

/** Compiles a macro, or the body of a call block. The function creates it where it is defined. */
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
    // Whether an iteration ran to its end. In Jinja2 the else also runs if break or continue ended all iterations.
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

/** Compiles the condition of a loop: it is evaluated for each item when the loop reaches it. */
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
