/**
 * Parses a template as Jinja2 3.1 does, with the extensions of transformers: break, continue and generation.
 *
 * @module
 */

import type { Expression, Filter, For, If, Name, Signature, Statement, Target } from "./ast.ts";
import { CONSTANTS, ExpressionParser } from "./expression_parser.ts";
import { Unsupported } from "./limits.ts";
import { Tokens } from "./tokens.ts";

/** Unsupported tags: they need other templates, inheritance, or automatic escaping. */
const OTHER_TAGS = ["autoescape", "block", "extends", "from", "import", "include"];

class Parser {
  readonly #tokens: Tokens;
  readonly #expressions: ExpressionParser;

  constructor(tokens: Tokens) {
    this.#tokens = tokens;
    this.#expressions = new ExpressionParser(tokens);
  }

  parse(): Statement[] {
    return this.#body([]);
  }

  // ---------------------------------------------------------------- statements

  /** Statements up to one of the tags `ends`, which is not consumed, or up to the end of the template. */
  #body(ends: readonly string[]): Statement[] {
    const body: Statement[] = [];
    while (!this.#tokens.is("end of template")) {
      const { kind, value, line } = this.#tokens.next();
      if (kind === "data") body.push({ kind: "Data", text: value as string, line });
      else if (kind === "{{") {
        body.push({ kind: "Output", node: this.#expressions.tuple(), line });
        this.#tokens.expect("}}");
      } else {
        if (this.#tokens.isName(...ends)) return body;
        body.push(...this.#tokens.nested(() => this.#statement()));
        this.#tokens.expect("%}");
      }
    }
    if (ends.length > 0) this.#tokens.fail("unexpected end of template");
    return body;
  }

  /** The rest of an opening tag, and its body up to one of the tags `ends`. */
  #block(...ends: string[]): Statement[] {
    // A colon is allowed, as in Python.
    this.#tokens.skip(":");
    this.#tokens.expect("%}");
    return this.#body(ends);
  }

  /** The same with one end, which is consumed. */
  #whole(end: string): Statement[] {
    const body = this.#block(end);
    this.#tokens.next();
    return body;
  }

  #statement(): Statement[] {
    if (!this.#tokens.is("name")) this.#tokens.fail("expected the name of a tag");
    const { value, line } = this.#tokens.next();
    const tag = value as string;
    this.#tokens.open.push(tag);
    const statements = this.#tag(tag, line);
    this.#tokens.open.pop();
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
        const signature = this.#tokens.is("(") ? this.#signature() : { parameters: [], defaults: [] };
        const call = this.#expressions.expression();
        if (call.kind !== "Call") this.#tokens.fail("expected a call", line);
        return [{ kind: "CallBlock", call, ...signature, body: this.#whole("endcall"), line }];
      }
      case "generation":
        return [{ kind: "CallBlock", parameters: [], defaults: [], body: this.#whole("endgeneration"), line }];
      case "filter": {
        const filter = this.#expressions.filters(undefined, true) as Filter;
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
    this.#tokens.open.pop();
    const open = this.#tokens.open.at(-1);
    return this.#tokens.fail(`unknown tag ${tag}${open === undefined ? "" : `; ${open} is not closed`}`, line);
  }

  #for(line: number): For {
    const target = this.#target(["in"]);
    this.#tokens.expect("name", "in");
    const over = this.#expressions.tuple({ condition: false, ends: ["recursive"] });
    const test = this.#tokens.skip("name", "if") ? this.#expressions.expression() : undefined;
    const recursive = this.#tokens.skip("name", "recursive");
    const body = this.#block("endfor", "else");
    const otherwise = this.#tokens.next().value === "endfor" ? [] : this.#whole("endfor");
    return { kind: "For", target, over, body, otherwise, test, recursive, line };
  }

  #if(line: number): If {
    const test = this.#expressions.tuple({ condition: false });
    const body = this.#block("elif", "else", "endif");
    const branches: If[] = [];
    let end = this.#tokens.next();
    while (end.value === "elif") {
      const { line } = end;
      const test = this.#expressions.tuple({ condition: false });
      branches.push({
        kind: "If",
        test,
        body: this.#block("elif", "else", "endif"),
        branches: [],
        otherwise: [],
        line,
      });
      end = this.#tokens.next();
    }
    const otherwise = end.value === "else" ? this.#whole("endif") : [];
    return { kind: "If", test, body, branches, otherwise, line };
  }

  #set(line: number): Statement {
    const target = this.#target([], true);
    if (this.#tokens.skip("=")) return { kind: "Assign", target, node: this.#expressions.tuple(), line };
    const filter = this.#tokens.is("|") ? this.#expressions.filters(undefined) as Filter : undefined;
    return { kind: "AssignBlock", target, filter, body: this.#whole("endset"), line };
  }

  #print(line: number): Statement[] {
    const nodes: Statement[] = [];
    while (!this.#tokens.is("%}")) {
      if (nodes.length > 0) this.#tokens.expect(",");
      nodes.push({ kind: "Output", node: this.#expressions.expression(), line });
    }
    return nodes;
  }

  #with(line: number): Statement {
    const targets: Target[] = [];
    const values: Expression[] = [];
    while (!this.#tokens.is("%}")) {
      if (targets.length > 0) this.#tokens.expect(",");
      targets.push(asParameter(this.#target([])));
      this.#tokens.expect("=");
      values.push(this.#expressions.expression());
    }
    return { kind: "With", targets, values, body: this.#whole("endwith"), line };
  }

  #signature(): Signature {
    const parameters: Name[] = [];
    const defaults: Expression[] = [];
    this.#tokens.expect("(");
    while (!this.#tokens.is(")")) {
      if (parameters.length > 0) this.#tokens.expect(",");
      const name = this.#targetName("param");
      if (parameters.some((other) => other.name === name.name)) {
        this.#tokens.fail(`the parameter ${name.name} is given twice`);
      }
      parameters.push(name);
      if (this.#tokens.skip("=")) defaults.push(this.#expressions.expression());
      else if (defaults.length > 0) this.#tokens.fail("a parameter without a default follows one with a default");
    }
    this.#tokens.expect(")");
    return { parameters, defaults };
  }

  // ---------------------------------------------------------------- targets

  #targetName(context: "store" | "param"): Name {
    const { value, line } = this.#tokens.expect("name");
    const name = value as string;
    if (CONSTANTS.has(name)) this.#tokens.fail(`can't assign to ${name}`, line);
    return { kind: "Name", name, context, line };
  }

  /** A name, an attribute of a namespace, or a tuple of them. */
  #target(ends: readonly string[], namespaces = false): Target {
    const { line } = this.#tokens.token;
    const items: Target[] = [];
    let tuple = false;
    for (;;) {
      if (items.length > 0) this.#tokens.expect(",");
      if (this.#expressions.isTupleEnd(ends)) break;
      items.push(this.#targetPart(namespaces));
      if (!this.#tokens.is(",")) break;
      tuple = true;
    }
    if (tuple) return { kind: "Tuple", items, line };
    if (items.length === 0) this.#tokens.fail(`expected a name, found ${this.#tokens.found()}`);
    return items[0];
  }

  #targetPart(namespaces: boolean): Target {
    if (this.#tokens.skip("(")) {
      const { line } = this.#tokens.token;
      if (this.#tokens.skip(")")) return { kind: "Tuple", items: [], line };
      // Jinja2 does not allow attributes of namespaces in parentheses.
      const target = this.#tokens.nested(() => this.#target([]));
      this.#tokens.expect(")");
      return target;
    }
    if (!this.#tokens.is("name")) this.#tokens.fail(`can't assign to ${this.#tokens.found()}`);
    const { value, line } = this.#tokens.token;
    const following = this.#tokens.following.kind;
    if (namespaces && following === "." && !CONSTANTS.has(value as string)) {
      this.#tokens.next();
      this.#tokens.next();
      return {
        kind: "NamespaceTarget",
        name: value as string,
        attribute: this.#tokens.expect("name").value as string,
        line,
      };
    }
    return this.#targetName("store");
  }
}

function asParameter(target: Target): Target {
  if (target.kind === "Tuple") return { ...target, items: target.items.map(asParameter) };
  return target.kind === "Name" ? { ...target, context: "param" } : target;
}

/** Parses a template. @throws {TemplateError} it is invalid or unsupported */
export function parse(source: string): Statement[] {
  return new Parser(new Tokens(source)).parse();
}
