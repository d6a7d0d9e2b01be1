/**
 * Parses the expressions of a template, as Jinja2 3.1 does.
 *
 * @module
 */

import type { Arguments, Call, Expression } from "./ast.ts";
import { Unsupported } from "./limits.ts";
import type { Tokens } from "./tokens.ts";
import { NONE, type Value } from "./values.ts";

/** Constants, by name. */
export const CONSTANTS = new Map<string, Value>([
  ["true", true],
  ["True", true],
  ["false", false],
  ["False", false],
  ["none", NONE],
  ["None", NONE],
]);

const COMPARISONS = ["==", "!=", "<", "<=", ">", ">="];

/** Parses expressions from the current token on. */
export class ExpressionParser {
  readonly #tokens: Tokens;

  constructor(tokens: Tokens) {
    this.#tokens = tokens;
  }

  /** Whether a tuple without parentheses ends here. @param ends names that end it */
  isTupleEnd(ends: readonly string[]): boolean {
    return ["}}", "%}", ")"].includes(this.#tokens.token.kind) || this.#tokens.isName(...ends);
  }

  /** An expression, or a tuple without parentheses. */
  tuple({ condition = true, ends = [] as string[], empty = false } = {}): Expression {
    const items: Expression[] = [];
    const { line } = this.#tokens.token;
    let tuple = false;
    for (;;) {
      if (items.length > 0) this.#tokens.expect(",");
      if (this.isTupleEnd(ends)) break;
      items.push(this.expression(condition));
      if (!this.#tokens.is(",")) break;
      tuple = true;
    }
    if (!tuple && items.length === 1) return items[0];
    if (!tuple && !empty) this.#tokens.fail(`expected an expression, found ${this.#tokens.found()}`);
    return { kind: "Tuple", items, line };
  }

  /** An expression. @param condition whether it may be a conditional one */
  expression(condition = true): Expression {
    return this.#tokens.nested(() => condition ? this.#condition() : this.#or());
  }

  #condition(): Expression {
    const { line } = this.#tokens.token;
    let then = this.#or();
    while (this.#tokens.skip("name", "if")) {
      const test = this.#or();
      const otherwise = this.#tokens.skip("name", "else") ? this.#tokens.nested(() => this.#condition()) : undefined;
      then = { kind: "Condition", test, then, otherwise, line };
    }
    return then;
  }

  /** Left-associative operators of one precedence. */
  #binary(parse: () => Expression, operator: () => boolean): Expression {
    let left = parse();
    while (operator()) {
      const { kind, value, line } = this.#tokens.next();
      left = { kind: "Binary", op: kind === "name" ? value as string : kind, left, right: parse(), line };
    }
    return left;
  }

  #or(): Expression {
    return this.#binary(() => this.#and(), () => this.#tokens.isName("or"));
  }

  #and(): Expression {
    return this.#binary(() => this.#not(), () => this.#tokens.isName("and"));
  }

  #not(): Expression {
    const { line } = this.#tokens.token;
    if (!this.#tokens.skip("name", "not")) return this.#compare();
    return { kind: "Unary", op: "not", node: this.#tokens.nested(() => this.#not()), line };
  }

  #compare(): Expression {
    const { line } = this.#tokens.token;
    const node = this.#sum();
    const operands: [string, Expression][] = [];
    for (;;) {
      if (COMPARISONS.includes(this.#tokens.token.kind)) operands.push([this.#tokens.next().kind, this.#sum()]);
      else if (this.#tokens.skip("name", "in")) operands.push(["in", this.#sum()]);
      else if (this.#tokens.isName("not") && this.#tokens.following.value === "in") {
        this.#tokens.next();
        this.#tokens.next();
        operands.push(["not in", this.#sum()]);
      } else break;
    }
    return operands.length === 0 ? node : { kind: "Compare", node, operands, line };
  }

  #sum(): Expression {
    return this.#binary(() => this.#concat(), () => this.#tokens.is("+") || this.#tokens.is("-"));
  }

  #concat(): Expression {
    const { line } = this.#tokens.token;
    const items = [this.#product()];
    while (this.#tokens.skip("~")) items.push(this.#product());
    return items.length === 1 ? items[0] : { kind: "Concat", items, line };
  }

  #product(): Expression {
    return this.#binary(() => this.#power(), () => ["*", "/", "//", "%"].includes(this.#tokens.token.kind));
  }

  #power(): Expression {
    return this.#binary(() => this.#unary(), () => this.#tokens.is("**"));
  }

  #unary(filters = true): Expression {
    const { kind, line } = this.#tokens.token;
    let node: Expression;
    if (kind === "-" || kind === "+") {
      this.#tokens.next();
      node = { kind: "Unary", op: kind, node: this.#tokens.nested(() => this.#unary(false)), line };
    } else node = this.#primary();
    node = this.#postfix(node);
    return filters ? this.#filtered(node) : node;
  }

  #primary(): Expression {
    const { kind, value, line } = this.#tokens.token;
    switch (kind) {
      case "name": {
        this.#tokens.next();
        const constant = CONSTANTS.get(value as string);
        if (constant !== undefined) return { kind: "Constant", value: constant, line };
        return { kind: "Name", name: value as string, context: "load", line };
      }
      case "string": {
        let text = "";
        while (this.#tokens.is("string")) text += this.#tokens.next().value;
        return { kind: "Constant", value: text, line };
      }
      case "integer":
      case "float":
        return { kind: "Constant", value: this.#tokens.next().value, line };
      case "(": {
        this.#tokens.next();
        const tuple = this.tuple({ empty: true });
        this.#tokens.expect(")");
        return tuple;
      }
      case "[":
        return this.#list(line);
      case "{":
        return this.#dict(line);
    }
    return this.#tokens.fail(`unexpected ${this.#tokens.found()}`);
  }

  #list(line: number): Expression {
    this.#tokens.next();
    const items: Expression[] = [];
    while (!this.#tokens.is("]")) {
      if (items.length > 0) this.#tokens.expect(",");
      if (this.#tokens.is("]")) break;
      items.push(this.expression());
    }
    this.#tokens.expect("]");
    return { kind: "List", items, line };
  }

  #dict(line: number): Expression {
    this.#tokens.next();
    const items: [Expression, Expression][] = [];
    while (!this.#tokens.is("}")) {
      if (items.length > 0) this.#tokens.expect(",");
      if (this.#tokens.is("}")) break;
      const key = this.expression();
      this.#tokens.expect(":");
      items.push([key, this.expression()]);
    }
    this.#tokens.expect("}");
    return { kind: "Dict", items, line };
  }

  #postfix(node: Expression): Expression {
    for (;;) {
      if (this.#tokens.is(".")) node = this.#attribute(node);
      else if (this.#tokens.is("[")) node = this.#item(node);
      else if (this.#tokens.is("(")) node = this.#call(node);
      else return node;
    }
  }

  #filtered(node: Expression): Expression {
    for (;;) {
      if (this.#tokens.is("|")) node = this.filters(node);
      else if (this.#tokens.isName("is")) node = this.#test(node);
      else if (this.#tokens.is("(")) node = this.#call(node);
      else return node;
    }
  }

  #attribute(node: Expression): Expression {
    const { line } = this.#tokens.next();
    const { kind, value } = this.#tokens.token;
    if (kind !== "name" && kind !== "integer") this.#tokens.fail("expected a name or a number after the dot");
    this.#tokens.next();
    if (kind === "name") return { kind: "Attribute", node, name: value as string, line };
    return { kind: "Item", node, key: { kind: "Constant", value, line }, line };
  }

  #item(node: Expression): Expression {
    const { line } = this.#tokens.next();
    const keys: Expression[] = [];
    while (!this.#tokens.is("]")) {
      if (keys.length > 0) this.#tokens.expect(",");
      keys.push(this.#tokens.nested(() => this.#key()));
    }
    this.#tokens.expect("]");
    if (keys.length === 1) return { kind: "Item", node, key: keys[0], line };
    if (keys.some(({ kind }) => kind === "Slice")) throw new Unsupported(`line ${line}: a slice among several keys`);
    return { kind: "Item", node, key: { kind: "Tuple", items: keys, line }, line };
  }

  #key(): Expression {
    const { line } = this.#tokens.token;
    const end = () => this.#tokens.is("]") || this.#tokens.is(",") || this.#tokens.is(":");
    const start = this.#tokens.is(":") ? undefined : this.expression();
    if (!this.#tokens.skip(":")) return start!;
    const stop = end() ? undefined : this.expression();
    const step = this.#tokens.skip(":") && !this.#tokens.is("]") && !this.#tokens.is(",")
      ? this.expression()
      : undefined;
    return { kind: "Slice", start, stop, step, line };
  }

  #arguments(): Arguments {
    const { line } = this.#tokens.expect("(");
    const list: Expression[] = [];
    const named: [string, Expression][] = [];
    let dynamicList: Expression | undefined;
    let dynamicNamed: Expression | undefined;
    const ensure = (valid: boolean) => {
      if (!valid) this.#tokens.fail("invalid syntax for function call expression", line);
    };
    for (let first = true; !this.#tokens.is(")"); first = false) {
      if (!first) this.#tokens.expect(",");
      if (!first && this.#tokens.is(")")) break;
      if (this.#tokens.is("*")) {
        ensure(dynamicList === undefined && dynamicNamed === undefined);
        this.#tokens.next();
        dynamicList = this.expression();
      } else if (this.#tokens.is("**")) {
        ensure(dynamicNamed === undefined);
        this.#tokens.next();
        dynamicNamed = this.expression();
      } else if (this.#tokens.is("name") && this.#tokens.following.kind === "=") {
        ensure(dynamicNamed === undefined);
        const name = this.#tokens.next().value as string;
        this.#tokens.next();
        if (named.some(([other]) => other === name)) this.#tokens.fail(`the argument ${name} is given twice`);
        named.push([name, this.expression()]);
      } else {
        ensure(dynamicList === undefined && dynamicNamed === undefined && named.length === 0);
        list.push(this.expression());
      }
    }
    this.#tokens.expect(")");
    return { list, named, dynamicList, dynamicNamed };
  }

  #call(node: Expression): Call {
    const { line } = this.#tokens.token;
    return { kind: "Call", node, args: this.#arguments(), line };
  }

  #dotted(): string {
    let name = this.#tokens.expect("name").value as string;
    while (this.#tokens.skip(".")) name += `.${this.#tokens.expect("name").value}`;
    return name;
  }

  /** A chain of filters. @param starts whether the first one has no bar */
  filters(node: Expression | undefined, starts = false): Expression {
    for (let bare = starts; bare || this.#tokens.is("|"); bare = false) {
      if (!bare) this.#tokens.next();
      const { line } = this.#tokens.token;
      const name = this.#dotted();
      const args = this.#tokens.is("(") ? this.#arguments() : { list: [], named: [] };
      node = { kind: "Filter", node, name, args, line };
    }
    return node!;
  }

  #test(node: Expression): Expression {
    const { line } = this.#tokens.next();
    const negated = this.#tokens.skip("name", "not");
    const name = this.#dotted();
    let args: Arguments = { list: [], named: [] };
    if (this.#tokens.is("(")) args = this.#arguments();
    else if (
      ["name", "string", "integer", "float", "[", "{"].includes(this.#tokens.token.kind) &&
      !this.#tokens.isName("else", "or", "and")
    ) {
      if (this.#tokens.isName("is")) this.#tokens.fail("tests can't be chained with is");
      args = { list: [this.#postfix(this.#primary())], named: [] };
    }
    const test: Expression = { kind: "Test", node, name, args, line };
    return negated ? { kind: "Unary", op: "not", node: test, line } : test;
  }
}
