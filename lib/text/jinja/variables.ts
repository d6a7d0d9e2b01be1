/**
 * The variables and the output of a template while it is rendered, and what its nodes are made into.
 *
 * @module
 */

import { MAX_TEXT, spendText, TemplateError } from "./limits.ts";
import { Scope } from "./scopes.ts";
import type { Maybe, Value } from "./values.ts";

/** What one rendering has. */
export interface Rendering {
  /** What is passed, and the functions. */
  readonly context: ReadonlyMap<string, Value>;
  /** The line of the statement that runs. */
  line: number;
}

/** The variables of one call of a function: the template, a macro, or the body of a recursive loop. */
export class Variables {
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
export class Buffer {
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
export type Next = undefined | "break" | "continue";

/** What an expression is made into. */
export type Evaluate = (variables: Variables) => Value;

/** What a statement is made into. */
export type Execute = (variables: Variables, out: Buffer) => Next;

/** Where a node stands. */
export interface Place {
  readonly scope: Scope;
  /** In an if or a conditional expression, filters may be unknown until they are used. */
  readonly soft: boolean;
  /** In a loop of the same function. */
  readonly loop: boolean;
}

/** The same place, where filters may be unknown. */
export function softly(place: Place): Place {
  return { ...place, soft: true };
}

/** A place in a block of its own. */
export function inside(place: Place, scope: Scope): Place {
  return { scope, soft: false, loop: place.loop };
}
