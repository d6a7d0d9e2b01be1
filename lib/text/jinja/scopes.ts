/**
 * Resolves names to variables, by the rules of Jinja2 3.1 (its module idtracking).
 *
 * The body of a loop, macro or block has its own scope. A name that is assigned in it starts with its value outside; a name
 * that is only read refers to the outer variable. Names are resolved before a template runs, with surprising cases: a macro
 * that reads a name sees assignments after the macro, and not the value that the caller of the template passed.
 *
 * @module
 */

import { type Block, childrenOf, type Node, type Target } from "./ast.ts";

/** The initial value of a variable when its block is entered. */
export type Load =
  /** The block itself sets it. */
  | { readonly kind: "parameter" }
  /** The value that the caller of the template passed, or a global. */
  | { readonly kind: "resolve"; readonly name: string }
  /** The value of another variable. */
  | { readonly kind: "alias"; readonly of: string }
  | { readonly kind: "undefined" };

/** The scope of a block. */
export class Scope {
  readonly #parent?: Scope;
  readonly #level: number;
  #refs = new Map<string, string>();
  #loads = new Map<string, Load>();
  #stores = new Set<string>();

  constructor(parent?: Scope) {
    this.#parent = parent;
    this.#level = parent === undefined ? 0 : parent.#level + 1;
  }

  /** The variables to set when the block is entered, with their initial values. */
  get loads(): readonly (readonly [string, Load])[] {
    return [...this.#loads];
  }

  /** The variable of a name, or undefined if the name was not visited. */
  find(name: string): string | undefined {
    return this.#refs.get(name) ?? this.#parent?.find(name);
  }

  /** Declares a parameter, and returns its variable. */
  parameter(name: string): string {
    this.#stores.add(name);
    return this.#define(name, { kind: "parameter" });
  }

  /** Visits nodes in order. */
  visit(nodes: readonly Node[]): void {
    for (const node of nodes) this.#visit(node);
  }

  /** Visits a target whose names are parameters. */
  visitParameters(target: Target): void {
    if (target.kind === "Tuple") { for (const item of target.items) this.visitParameters(item); }
    else if (target.kind === "Name") this.parameter(target.name);
  }

  #define(name: string, load: Load): string {
    const variable = `${this.#level}_${name}`;
    this.#refs.set(name, variable);
    this.#loads.set(variable, load);
    return variable;
  }

  #load(name: string): void {
    if (this.find(name) === undefined) this.#define(name, { kind: "resolve", name });
  }

  #store(name: string): void {
    this.#stores.add(name);
    if (this.#refs.has(name)) return;
    const outer = this.#parent?.find(name);
    this.#define(name, outer === undefined ? { kind: "undefined" } : { kind: "alias", of: outer });
  }

  #visit(node: Node): void {
    switch (node.kind) {
      case "Name":
        if (node.context === "param") this.parameter(node.name);
        else if (node.context === "store") this.#store(node.name);
        else this.#load(node.name);
        return;
      case "NamespaceTarget":
        return this.#load(node.name);
      case "If":
        this.#visit(node.test);
        return this.#branches([node.body, node.branches, node.otherwise]);
      case "Macro":
        return this.#store(node.name);
      case "Assign":
        this.#visit(node.node);
        return this.#visit(node.target);
      case "For":
        return this.#visit(node.over);
      case "CallBlock":
        if (node.call !== undefined) this.#visit(node.call);
        return;
      case "FilterBlock":
        return this.#visit(node.filter);
      case "With":
        return this.visit(node.values);
      case "AssignBlock":
        return this.#visit(node.target);
      default:
        this.visit(childrenOf(node));
    }
  }

  /** A name that only some branches assign starts with its value outside. */
  #branches(bodies: readonly (readonly Node[])[]): void {
    const before = { refs: this.#refs, loads: this.#loads, stores: this.#stores };
    const after = bodies.map((body) => {
      this.#refs = new Map(before.refs);
      this.#loads = new Map(before.loads);
      this.#stores = new Set(before.stores);
      this.visit(body);
      return { refs: this.#refs, loads: this.#loads, stores: this.#stores };
    });
    const stored = new Set(after.flatMap(({ stores }) => [...stores])).difference(before.stores);
    this.#refs = new Map([before, ...after].flatMap(({ refs }) => [...refs]));
    this.#loads = new Map([before, ...after].flatMap(({ loads }) => [...loads]));
    this.#stores = new Set([before, ...after].flatMap(({ stores }) => [...stores]));
    for (const name of stored) {
      const outer = this.#parent?.find(name);
      this.#loads.set(this.find(name)!, outer === undefined ? { kind: "resolve", name } : { kind: "alias", of: outer });
    }
  }
}

/** Those of `names` that are read before they are assigned. */
export function undeclared(nodes: readonly Node[], names: readonly string[]): Set<string> {
  const wanted = new Set(names);
  const found = new Set<string>();
  const visit = (node: Node): void => {
    if (node.kind === "Name") {
      if (node.context === "load" && wanted.has(node.name)) found.add(node.name);
      else wanted.delete(node.name);
    } else for (const child of childrenOf(node)) visit(child);
  };
  for (const node of nodes) visit(node);
  return found;
}

/** Whether a block assigns to a name. */
export function assigns(block: Block, name: string): boolean {
  const visit = (node: Node): boolean =>
    node.kind === "Name" ? node.context === "store" && node.name === name : childrenOf(node).some(visit);
  return childrenOf(block).some(visit);
}
