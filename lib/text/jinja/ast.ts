/**
 * The syntax tree of a template. The order of the fields is the order in which scopes.ts visits names.
 *
 * @module
 */

import type { Value } from "./values.ts";

/** A name: read, assigned, or a parameter. */
export interface Name {
  readonly kind: "Name";
  readonly name: string;
  readonly context: "load" | "store" | "param";
  readonly line: number;
}

/** `namespace.attribute` as the target of an assignment. */
export interface NamespaceTarget {
  readonly kind: "NamespaceTarget";
  readonly name: string;
  readonly attribute: string;
  readonly line: number;
}

/** The target of a set or a for. */
export type Target = Name | NamespaceTarget | {
  readonly kind: "Tuple";
  readonly items: readonly Target[];
  line: number;
};

/** The arguments of a call, a filter or a test. */
export interface Arguments {
  readonly list: readonly Expression[];
  readonly named: readonly (readonly [string, Expression])[];
  readonly dynamicList?: Expression;
  readonly dynamicNamed?: Expression;
}

/** `start:stop:step` */
export interface Slice {
  readonly kind: "Slice";
  readonly start?: Expression;
  readonly stop?: Expression;
  readonly step?: Expression;
  readonly line: number;
}

/** A call. */
export interface Call {
  readonly kind: "Call";
  readonly node: Expression;
  readonly args: Arguments;
  readonly line: number;
}

/** A filter or a test. The first filter of a block has no node. */
export interface Filter {
  readonly kind: "Filter" | "Test";
  readonly node?: Expression;
  readonly name: string;
  readonly args: Arguments;
  readonly line: number;
}

/** An expression. */
export type Expression =
  | Name
  | Call
  | Filter
  | Slice
  | { readonly kind: "Constant"; readonly value: Value; readonly line: number }
  | { readonly kind: "Tuple" | "List" | "Concat"; readonly items: readonly Expression[]; readonly line: number }
  | { readonly kind: "Dict"; readonly items: readonly (readonly [Expression, Expression])[]; readonly line: number }
  | { readonly kind: "Attribute"; readonly node: Expression; readonly name: string; readonly line: number }
  | { readonly kind: "Item"; readonly node: Expression; readonly key: Expression; readonly line: number }
  | {
    readonly kind: "Condition";
    readonly test: Expression;
    readonly then: Expression;
    readonly otherwise?: Expression;
    readonly line: number;
  }
  | {
    readonly kind: "Binary";
    readonly op: string;
    readonly left: Expression;
    readonly right: Expression;
    readonly line: number;
  }
  | { readonly kind: "Unary"; readonly op: string; readonly node: Expression; readonly line: number }
  | {
    readonly kind: "Compare";
    readonly node: Expression;
    readonly operands: readonly (readonly [string, Expression])[];
    readonly line: number;
  };

/** The parameters of a macro or a call block; the defaults belong to the last ones. */
export interface Signature {
  readonly parameters: readonly Name[];
  readonly defaults: readonly Expression[];
}

/** A for loop. */
export interface For {
  readonly kind: "For";
  readonly target: Target;
  readonly over: Expression;
  readonly body: readonly Statement[];
  readonly otherwise: readonly Statement[];
  readonly test?: Expression;
  readonly recursive: boolean;
  readonly line: number;
}

/** An if. Each elif is another if in `branches`. */
export interface If {
  readonly kind: "If";
  readonly test: Expression;
  readonly body: readonly Statement[];
  readonly branches: readonly If[];
  readonly otherwise: readonly Statement[];
  readonly line: number;
}

/** A macro. */
export interface Macro extends Signature {
  readonly kind: "Macro";
  readonly name: string;
  readonly body: readonly Statement[];
  readonly line: number;
}

/** A call block. The tag `generation` of transformers is one without a call. */
export interface CallBlock extends Signature {
  readonly kind: "CallBlock";
  readonly call?: Call;
  readonly body: readonly Statement[];
  readonly line: number;
}

/** A statement that contains statements in a scope of their own. */
export type Block =
  | For
  | Macro
  | CallBlock
  | {
    readonly kind: "FilterBlock";
    readonly body: readonly Statement[];
    readonly filter: Filter;
    readonly line: number;
  }
  | {
    readonly kind: "With";
    readonly targets: readonly Target[];
    readonly values: readonly Expression[];
    readonly body: readonly Statement[];
    readonly line: number;
  }
  | {
    readonly kind: "AssignBlock";
    readonly target: Target;
    readonly filter?: Filter;
    readonly body: readonly Statement[];
    readonly line: number;
  };

/** A statement. */
export type Statement =
  | Block
  | If
  | { readonly kind: "Data"; readonly text: string; readonly line: number }
  | { readonly kind: "Output"; readonly node: Expression; readonly line: number }
  | { readonly kind: "Assign"; readonly target: Target; readonly node: Expression; readonly line: number }
  | { readonly kind: "Break" | "Continue"; readonly line: number };

/** Any node. */
export type Node = Statement | Expression | Target;

/** The children of a node. */
export function childrenOf(node: Node): Node[] {
  return Object.values(node).flatMap(nodesIn);
}

function nodesIn(value: unknown): Node[] {
  if (Array.isArray(value)) return value.flatMap(nodesIn);
  if (typeof value !== "object" || value === null) return [];
  if ("kind" in value) return [value as Node];
  // Arguments.
  return Object.getPrototypeOf(value) === Object.prototype ? Object.values(value).flatMap(nodesIn) : [];
}
