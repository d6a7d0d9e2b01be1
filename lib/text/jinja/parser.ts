/**
 * A template as a tree, as Jinja2 3.1 parses it with the extensions of transformers: break, continue and generation.
 *
 * @module
 */

import type { Arguments, Call, Expression, Filter, For, If, Name, Signature, Statement, Target } from "./ast.ts";
import { errorAt, type Token, tokenize } from "./lexer.ts";
import { Unsupported } from "./limits.ts";
import { NONE, type Value } from "./values.ts";

/** How deep tags and expressions may be nested: Python's own recursion limit ends a few dozen levels deep. */
const MAX_DEPTH = 100;

/** Tags that need other templates, blocks to override, or automatic escaping. */
const OTHER_TAGS = ["autoescape", "block", "extends", "from", "import", "include"];

const CONSTANTS = new Map<string, Value>([
  ["true", true],
  ["True", true],
  ["false", false],
  ["False", false],
  ["none", NONE],
  ["None", NONE],
]);

const COMPARISONS = ["==", "!=", "<", "<=", ">", ">="];

class Parser {
  readonly #tokens: readonly Token[];
  #at = 0;
  #depth = 0;
  /** The tags that are open. */
  readonly #open: string[] = [];

  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens;
  }

  parse(): Statement[] {
    return this.#body([]);
  }

  // ---------------------------------------------------------------- tokens

  get #token(): Token {
    return this.#tokens[this.#at];
  }

  #next(): Token {
    const token = this.#token;
    if (this.#at < this.#tokens.length - 1) this.#at++;
    return token;
  }

  #is(kind: string, value?: string): boolean {
    return this.#token.kind === kind && (value === undefined || this.#token.value === value);
  }

  #isName(...names: string[]): boolean {
    return this.#token.kind === "name" && names.includes(this.#token.value as string);
  }

  #skip(kind: string, value?: string): boolean {
    const found = this.#is(kind, value);
    if (found) this.#next();
    return found;
  }

  #expect(kind: string, value?: string): Token {
    if (!this.#is(kind, value)) this.#fail(`expected ${value ?? kind}, found ${this.#found()}`);
    return this.#next();
  }

  #found(): string {
    const { kind, value } = this.#token;
    return kind === "name" ? value as string : kind;
  }

  #fail(problem: string, line = this.#token.line): never {
    const open = this.#open.at(-1);
    throw errorAt(
      line,
      open === undefined || !this.#is("end of template") ? problem : `${problem}; ${open} is not closed`,
    );
  }

  /** Runs one level of recursion. */
  #nested<T>(parse: () => T): T {
    if (++this.#depth > MAX_DEPTH) this.#fail(`is nested deeper than ${MAX_DEPTH} levels`);
    const result = parse();
    this.#depth--;
    return result;
  }

  // ---------------------------------------------------------------- statements

  /** Statements up to a tag that is one of `ends`, which is not read; or up to the end of the template. */
  #body(ends: readonly string[]): Statement[] {
    const body: Statement[] = [];
    while (!this.#is("end of template")) {
      const { kind, value, line } = this.#next();
      if (kind === "data") body.push({ kind: "Data", text: value as string, line });
      else if (kind === "{{") {
        body.push({ kind: "Output", node: this.#tuple(), line });
        this.#expect("}}");
      } else {
        if (this.#isName(...ends)) return body;
        body.push(...this.#nested(() => this.#statement()));
        this.#expect("%}");
      }
    }
    if (ends.length > 0) this.#fail("unexpected end of template");
    return body;
  }

  /** The rest of an opening tag, and what is in it up to one of the tags `ends`. */
  #block(...ends: string[]): Statement[] {
    // Python's colon is taken.
    this.#skip(":");
    this.#expect("%}");
    return this.#body(ends);
  }

  /** The same with one end, which is read. */
  #whole(end: string): Statement[] {
    const body = this.#block(end);
    this.#next();
    return body;
  }

  #statement(): Statement[] {
    if (!this.#is("name")) this.#fail("expected the name of a tag");
    const { value, line } = this.#next();
    const tag = value as string;
    this.#open.push(tag);
    const statements = this.#tag(tag, line);
    this.#open.pop();
    return statements;
  }

  #tag(tag: string, line: number): Statement[] {
    switch (tag) {
      case "for":
        return [this.#for(line)];
      case "if":
        return [this.#if(line)];
      case "set":
        return [this.#set(line)];
      case "print":
        return this.#print(line);
      case "macro": {
        const name = this.#targetName("store").name;
        return [{ kind: "Macro", name, ...this.#signature(), body: this.#whole("endmacro"), line }];
      }
      case "call": {
        const signature = this.#is("(") ? this.#signature() : { parameters: [], defaults: [] };
        const call = this.#expression();
        if (call.kind !== "Call") this.#fail("expected a call", line);
        return [{ kind: "CallBlock", call, ...signature, body: this.#whole("endcall"), line }];
      }
      case "generation":
        return [{ kind: "CallBlock", parameters: [], defaults: [], body: this.#whole("endgeneration"), line }];
      case "filter": {
        const filter = this.#filters(undefined, true) as Filter;
        return [{ kind: "FilterBlock", body: this.#whole("endfilter"), filter, line }];
      }
      case "with":
        return [this.#with(line)];
      case "break":
        return [{ kind: "Break", line }];
      case "continue":
        return [{ kind: "Continue", line }];
    }
    if (OTHER_TAGS.includes(tag)) throw new Unsupported(`line ${line}: the tag ${tag}`);
    this.#open.pop();
    const open = this.#open.at(-1);
    return this.#fail(`unknown tag ${tag}${open === undefined ? "" : `; ${open} is not closed`}`, line);
  }

  #for(line: number): For {
    const target = this.#target(["in"]);
    this.#expect("name", "in");
    const over = this.#tuple({ condition: false, ends: ["recursive"] });
    const test = this.#skip("name", "if") ? this.#expression() : undefined;
    const recursive = this.#skip("name", "recursive");
    const body = this.#block("endfor", "else");
    const otherwise = this.#next().value === "endfor" ? [] : this.#whole("endfor");
    return { kind: "For", target, over, body, otherwise, test, recursive, line };
  }

  #if(line: number): If {
    const test = this.#tuple({ condition: false });
    const body = this.#block("elif", "else", "endif");
    const branches: If[] = [];
    let end = this.#next();
    while (end.value === "elif") {
      const { line } = end;
      const test = this.#tuple({ condition: false });
      branches.push({
        kind: "If",
        test,
        body: this.#block("elif", "else", "endif"),
        branches: [],
        otherwise: [],
        line,
      });
      end = this.#next();
    }
    const otherwise = end.value === "else" ? this.#whole("endif") : [];
    return { kind: "If", test, body, branches, otherwise, line };
  }

  #set(line: number): Statement {
    const target = this.#target([], true);
    if (this.#skip("=")) return { kind: "Assign", target, node: this.#tuple(), line };
    const filter = this.#is("|") ? this.#filters(undefined) as Filter : undefined;
    return { kind: "AssignBlock", target, filter, body: this.#whole("endset"), line };
  }

  #print(line: number): Statement[] {
    const nodes: Statement[] = [];
    while (!this.#is("%}")) {
      if (nodes.length > 0) this.#expect(",");
      nodes.push({ kind: "Output", node: this.#expression(), line });
    }
    return nodes;
  }

  #with(line: number): Statement {
    const targets: Target[] = [];
    const values: Expression[] = [];
    while (!this.#is("%}")) {
      if (targets.length > 0) this.#expect(",");
      targets.push(asParameter(this.#target([])));
      this.#expect("=");
      values.push(this.#expression());
    }
    return { kind: "With", targets, values, body: this.#whole("endwith"), line };
  }

  #signature(): Signature {
    const parameters: Name[] = [];
    const defaults: Expression[] = [];
    this.#expect("(");
    while (!this.#is(")")) {
      if (parameters.length > 0) this.#expect(",");
      const name = this.#targetName("param");
      if (parameters.some((other) => other.name === name.name)) this.#fail(`the parameter ${name.name} is given twice`);
      parameters.push(name);
      if (this.#skip("=")) defaults.push(this.#expression());
      else if (defaults.length > 0) this.#fail("a parameter without a default follows one with a default");
    }
    this.#expect(")");
    return { parameters, defaults };
  }

  // ---------------------------------------------------------------- targets

  #targetName(context: "store" | "param"): Name {
    const { value, line } = this.#expect("name");
    const name = value as string;
    if (CONSTANTS.has(name)) this.#fail(`can't assign to ${name}`, line);
    return { kind: "Name", name, context, line };
  }

  /** A name, a namespace's attribute, or a tuple of them. */
  #target(ends: readonly string[], namespaces = false): Target {
    const { line } = this.#token;
    const items: Target[] = [];
    let tuple = false;
    for (;;) {
      if (items.length > 0) this.#expect(",");
      if (this.#isTupleEnd(ends)) break;
      items.push(this.#targetPart(namespaces));
      if (!this.#is(",")) break;
      tuple = true;
    }
    if (tuple) return { kind: "Tuple", items, line };
    if (items.length === 0) this.#fail(`expected a name, found ${this.#found()}`);
    return items[0];
  }

  #targetPart(namespaces: boolean): Target {
    if (this.#skip("(")) {
      const { line } = this.#token;
      if (this.#skip(")")) return { kind: "Tuple", items: [], line };
      // In parentheses Jinja2 knows no attributes of namespaces.
      const target = this.#nested(() => this.#target([]));
      this.#expect(")");
      return target;
    }
    if (!this.#is("name")) this.#fail(`can't assign to ${this.#found()}`);
    const { value, line } = this.#token;
    const following = this.#tokens[this.#at + 1].kind;
    if (namespaces && following === "." && !CONSTANTS.has(value as string)) {
      this.#at += 2;
      return {
        kind: "NamespaceTarget",
        name: value as string,
        attribute: this.#expect("name").value as string,
        line,
      };
    }
    return this.#targetName("store");
  }

  // ---------------------------------------------------------------- expressions

  #isTupleEnd(ends: readonly string[]): boolean {
    return ["}}", "%}", ")"].includes(this.#token.kind) || this.#isName(...ends);
  }

  /** An expression, or a tuple without parentheses. */
  #tuple({ condition = true, ends = [] as string[], empty = false } = {}): Expression {
    const items: Expression[] = [];
    const { line } = this.#token;
    let tuple = false;
    for (;;) {
      if (items.length > 0) this.#expect(",");
      if (this.#isTupleEnd(ends)) break;
      items.push(this.#expression(condition));
      if (!this.#is(",")) break;
      tuple = true;
    }
    if (!tuple && items.length === 1) return items[0];
    if (!tuple && !empty) this.#fail(`expected an expression, found ${this.#found()}`);
    return { kind: "Tuple", items, line };
  }

  #expression(condition = true): Expression {
    return this.#nested(() => condition ? this.#condition() : this.#or());
  }

  #condition(): Expression {
    const { line } = this.#token;
    let then = this.#or();
    while (this.#skip("name", "if")) {
      const test = this.#or();
      const otherwise = this.#skip("name", "else") ? this.#nested(() => this.#condition()) : undefined;
      then = { kind: "Condition", test, then, otherwise, line };
    }
    return then;
  }

  /** Operators of one level, from left to right. */
  #binary(parse: () => Expression, operator: () => boolean): Expression {
    let left = parse();
    while (operator()) {
      const { kind, value, line } = this.#next();
      left = { kind: "Binary", op: kind === "name" ? value as string : kind, left, right: parse(), line };
    }
    return left;
  }

  #or(): Expression {
    return this.#binary(() => this.#and(), () => this.#isName("or"));
  }

  #and(): Expression {
    return this.#binary(() => this.#not(), () => this.#isName("and"));
  }

  #not(): Expression {
    const { line } = this.#token;
    if (!this.#skip("name", "not")) return this.#compare();
    return { kind: "Unary", op: "not", node: this.#nested(() => this.#not()), line };
  }

  #compare(): Expression {
    const { line } = this.#token;
    const node = this.#sum();
    const operands: [string, Expression][] = [];
    for (;;) {
      if (COMPARISONS.includes(this.#token.kind)) operands.push([this.#next().kind, this.#sum()]);
      else if (this.#skip("name", "in")) operands.push(["in", this.#sum()]);
      else if (this.#isName("not") && this.#tokens[this.#at + 1].value === "in") {
        this.#at += 2;
        operands.push(["not in", this.#sum()]);
      } else break;
    }
    return operands.length === 0 ? node : { kind: "Compare", node, operands, line };
  }

  #sum(): Expression {
    return this.#binary(() => this.#concat(), () => this.#is("+") || this.#is("-"));
  }

  #concat(): Expression {
    const { line } = this.#token;
    const items = [this.#product()];
    while (this.#skip("~")) items.push(this.#product());
    return items.length === 1 ? items[0] : { kind: "Concat", items, line };
  }

  #product(): Expression {
    return this.#binary(() => this.#power(), () => ["*", "/", "//", "%"].includes(this.#token.kind));
  }

  #power(): Expression {
    return this.#binary(() => this.#unary(), () => this.#is("**"));
  }

  #unary(filters = true): Expression {
    const { kind, line } = this.#token;
    let node: Expression;
    if (kind === "-" || kind === "+") {
      this.#next();
      node = { kind: "Unary", op: kind, node: this.#nested(() => this.#unary(false)), line };
    } else node = this.#primary();
    node = this.#postfix(node);
    return filters ? this.#filtered(node) : node;
  }

  #primary(): Expression {
    const { kind, value, line } = this.#token;
    switch (kind) {
      case "name": {
        this.#next();
        const constant = CONSTANTS.get(value as string);
        if (constant !== undefined) return { kind: "Constant", value: constant, line };
        return { kind: "Name", name: value as string, context: "load", line };
      }
      case "string": {
        let text = "";
        while (this.#is("string")) text += this.#next().value;
        return { kind: "Constant", value: text, line };
      }
      case "integer":
      case "float":
        return { kind: "Constant", value: this.#next().value, line };
      case "(": {
        this.#next();
        const tuple = this.#tuple({ empty: true });
        this.#expect(")");
        return tuple;
      }
      case "[":
        return this.#list(line);
      case "{":
        return this.#dict(line);
    }
    return this.#fail(`unexpected ${this.#found()}`);
  }

  #list(line: number): Expression {
    this.#next();
    const items: Expression[] = [];
    while (!this.#is("]")) {
      if (items.length > 0) this.#expect(",");
      if (this.#is("]")) break;
      items.push(this.#expression());
    }
    this.#expect("]");
    return { kind: "List", items, line };
  }

  #dict(line: number): Expression {
    this.#next();
    const items: [Expression, Expression][] = [];
    while (!this.#is("}")) {
      if (items.length > 0) this.#expect(",");
      if (this.#is("}")) break;
      const key = this.#expression();
      this.#expect(":");
      items.push([key, this.#expression()]);
    }
    this.#expect("}");
    return { kind: "Dict", items, line };
  }

  #postfix(node: Expression): Expression {
    for (;;) {
      if (this.#is(".")) node = this.#attribute(node);
      else if (this.#is("[")) node = this.#item(node);
      else if (this.#is("(")) node = this.#call(node);
      else return node;
    }
  }

  #filtered(node: Expression): Expression {
    for (;;) {
      if (this.#is("|")) node = this.#filters(node);
      else if (this.#isName("is")) node = this.#test(node);
      else if (this.#is("(")) node = this.#call(node);
      else return node;
    }
  }

  #attribute(node: Expression): Expression {
    const { line } = this.#next();
    const { kind, value } = this.#token;
    if (kind !== "name" && kind !== "integer") this.#fail("expected a name or a number behind the dot");
    this.#next();
    if (kind === "name") return { kind: "Attribute", node, name: value as string, line };
    return { kind: "Item", node, key: { kind: "Constant", value, line }, line };
  }

  #item(node: Expression): Expression {
    const { line } = this.#next();
    const keys: Expression[] = [];
    while (!this.#is("]")) {
      if (keys.length > 0) this.#expect(",");
      keys.push(this.#nested(() => this.#key()));
    }
    this.#expect("]");
    if (keys.length === 1) return { kind: "Item", node, key: keys[0], line };
    if (keys.some(({ kind }) => kind === "Slice")) throw new Unsupported(`line ${line}: a slice among several keys`);
    return { kind: "Item", node, key: { kind: "Tuple", items: keys, line }, line };
  }

  #key(): Expression {
    const { line } = this.#token;
    const end = () => this.#is("]") || this.#is(",") || this.#is(":");
    const start = this.#is(":") ? undefined : this.#expression();
    if (!this.#skip(":")) return start!;
    const stop = end() ? undefined : this.#expression();
    const step = this.#skip(":") && !this.#is("]") && !this.#is(",") ? this.#expression() : undefined;
    return { kind: "Slice", start, stop, step, line };
  }

  #arguments(): Arguments {
    const { line } = this.#expect("(");
    const list: Expression[] = [];
    const named: [string, Expression][] = [];
    let dynamicList: Expression | undefined;
    let dynamicNamed: Expression | undefined;
    const ensure = (valid: boolean) => {
      if (!valid) this.#fail("invalid syntax for function call expression", line);
    };
    for (let first = true; !this.#is(")"); first = false) {
      if (!first) this.#expect(",");
      if (!first && this.#is(")")) break;
      if (this.#is("*")) {
        ensure(dynamicList === undefined && dynamicNamed === undefined);
        this.#next();
        dynamicList = this.#expression();
      } else if (this.#is("**")) {
        ensure(dynamicNamed === undefined);
        this.#next();
        dynamicNamed = this.#expression();
      } else if (this.#is("name") && this.#tokens[this.#at + 1].kind === "=") {
        ensure(dynamicNamed === undefined);
        const name = this.#next().value as string;
        this.#next();
        if (named.some(([other]) => other === name)) this.#fail(`the argument ${name} is given twice`);
        named.push([name, this.#expression()]);
      } else {
        ensure(dynamicList === undefined && dynamicNamed === undefined && named.length === 0);
        list.push(this.#expression());
      }
    }
    this.#expect(")");
    return { list, named, dynamicList, dynamicNamed };
  }

  #call(node: Expression): Call {
    const { line } = this.#token;
    return { kind: "Call", node, args: this.#arguments(), line };
  }

  #dotted(): string {
    let name = this.#expect("name").value as string;
    while (this.#skip(".")) name += `.${this.#expect("name").value}`;
    return name;
  }

  /** The filters that follow; the first one without its bar, if it `starts`. */
  #filters(node: Expression | undefined, starts = false): Expression {
    for (let bare = starts; bare || this.#is("|"); bare = false) {
      if (!bare) this.#next();
      const { line } = this.#token;
      const name = this.#dotted();
      const args = this.#is("(") ? this.#arguments() : { list: [], named: [] };
      node = { kind: "Filter", node, name, args, line };
    }
    return node!;
  }

  #test(node: Expression): Expression {
    const { line } = this.#next();
    const negated = this.#skip("name", "not");
    const name = this.#dotted();
    let args: Arguments = { list: [], named: [] };
    if (this.#is("(")) args = this.#arguments();
    else if (
      ["name", "string", "integer", "float", "[", "{"].includes(this.#token.kind) && !this.#isName("else", "or", "and")
    ) {
      if (this.#isName("is")) this.#fail("tests can't be chained with is");
      args = { list: [this.#postfix(this.#primary())], named: [] };
    }
    const test: Expression = { kind: "Test", node, name, args, line };
    return negated ? { kind: "Unary", op: "not", node: test, line } : test;
  }
}

function asParameter(target: Target): Target {
  if (target.kind === "Tuple") return { ...target, items: target.items.map(asParameter) };
  return target.kind === "Name" ? { ...target, context: "param" } : target;
}

/** Parses a template. @throws {TemplateError} it is none, or has what is not supported */
export function parse(source: string): Statement[] {
  return new Parser(tokenize(source)).parse();
}
