/**
 * The variables and the output of a template while it is rendered, and the types of its compiled nodes.
 *
 * @module
 */

import { MAX_TEXT, spendText, TemplateError } from "./limits.ts";
import type { Scope } from "./scopes.ts";
import type { Maybe, Value } from "./values.ts";

/** The state of one rendering. */
export interface Rendering {
  /** The variables that the caller passes, and the functions. */
  readonly context: ReadonlyMap<string, Value>;
  /** The line of the current statement. */
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

  /** Sets the variables of a block at its beginning. */
  enter({ loads }: Scope): void {
    for (const [variable, load] of loads) {
      if (load.kind === "resolve") this.set(variable, this.rendering.context.get(load.name));
      else if (load.kind === "alias") this.set(variable, this.get(load.of));
      else if (load.kind === "undefined") this.set(variable, undefined);
    }
  }

  /** Unsets the variables of a block at its end. */
  leave({ loads }: Scope): void {
    for (const [variable] of loads) this.set(variable, undefined);
  }
}

/** The output, piece by piece. */
export class Buffer {
  readonly #parts: string[] = [];
  #length = 0;

  add(text: string): void {
    this.#length += text.length;
    if (this.#length > MAX_TEXT) throw new TemplateError(`makes a string of more than ${MAX_TEXT} characters`);
    this.#parts.push(text);
  }

  text(): string {
    spendText(this.#length);
    return this.#parts.join("");
  }
}

/** How a statement ends: undefined continues with the next one. */
export type Next = undefined | "break" | "continue";

/** A compiled expression. */
export type Evaluate = (variables: Variables) => Value;

/** A compiled statement. */
export type Execute = (variables: Variables, out: Buffer) => Next;

/** The context in which a node is compiled. */
export interface Place {
  readonly scope: Scope;
  /** Inside an if or a conditional expression: an unknown filter is an error only when it is used. */
  readonly soft: boolean;
  /** Inside a loop of the same function. */
  readonly loop: boolean;
}

/** The same place, inside an if. */
export function softly(place: Place): Place {
  return { ...place, soft: true };
}

/** A place inside a block with its own scope. */
export function inside(place: Place, scope: Scope): Place {
  return { scope, soft: false, loop: place.loop };
}
