/**
 * Objects with state: the variable `loop`, macros, cyclers and joiners.
 *
 * @module
 */

import { Dict, equal, Tuple } from "./collections.ts";
import { spendItems, TemplateError, Unsupported } from "./limits.ts";
import {
  type Args,
  bind,
  iteratorOf,
  type Maybe,
  method,
  Native,
  NONE,
  PyObject,
  reprOf,
  sizeOf,
  Undefined,
  type Value,
} from "./values.ts";

/** Renders the body of a recursive loop for other items. */
export type Recurse = (items: Value, depth: number) => string;

/** The variable `loop`, which is also the iterator of the loop. */
export class Loop extends PyObject {
  readonly type = "LoopContext";
  readonly #items: Value;
  readonly #recurse?: Recurse;
  readonly #depth: number;
  #iterator: Iterator<Value>;
  #index = -1;
  #length?: number;
  #after: Maybe;
  #current: Maybe;
  #before: Maybe;
  #changed?: Value;

  /** @param depth 0 for the outermost loop */
  constructor(items: Value, depth = 0, recurse?: Recurse) {
    super();
    this.#items = items;
    this.#iterator = iteratorOf(items);
    this.#depth = depth;
    this.#recurse = recurse;
  }

  /** The next item, or undefined at the end. */
  next(): Maybe {
    const item = this.#peek();
    this.#after = undefined;
    if (item === undefined) return undefined;
    this.#index++;
    this.#before = this.#current;
    this.#current = item;
    return item;
  }

  #peek(): Maybe {
    if (this.#after === undefined) {
      const { done, value } = this.#iterator.next();
      this.#after = done ? undefined : value;
    }
    return this.#after;
  }

  override length(): number {
    if (this.#length !== undefined) return this.#length;
    const size = sizeOf(this.#items);
    if (size !== undefined) return this.#length = size;
    // An iterator without a length is read to its end.
    const rest: Value[] = [];
    for (let next = this.#iterator.next(); !next.done; next = this.#iterator.next()) {
      spendItems(0);
      rest.push(next.value);
    }
    this.#iterator = rest[Symbol.iterator]();
    return this.#length = rest.length + this.#index + 1 + (this.#after === undefined ? 0 : 1);
  }

  override repr(): string {
    return `<LoopContext ${this.#index + 1}/${this.length()}>`;
  }

  override iterate(): never {
    throw new Unsupported("a loop over loop");
  }

  override attribute(name: string): Maybe {
    switch (name) {
      case "index0":
        return BigInt(this.#index);
      case "index":
        return BigInt(this.#index + 1);
      case "revindex0":
        return BigInt(this.length() - this.#index - 1);
      case "revindex":
        return BigInt(this.length() - this.#index);
      case "length":
        return BigInt(this.length());
      case "depth0":
        return BigInt(this.#depth);
      case "depth":
        return BigInt(this.#depth + 1);
      case "first":
        return this.#index === 0;
      case "last":
        return this.#peek() === undefined;
      case "previtem":
        return this.#index === 0 ? new Undefined("there is no previous item") : this.#before;
      case "nextitem":
        return this.#peek() ?? new Undefined("there is no next item");
      case "cycle":
        return new Native(name, ({ list, named }) => {
          if (list.length === 0 || named.size > 0) throw new TemplateError("loop.cycle: no items for cycling given");
          return list[this.#index % list.length];
        });
      case "changed":
        return new Native(name, ({ list, named }) => {
          if (named.size > 0) throw new TemplateError("loop.changed takes no named arguments");
          if (this.#changed !== undefined && equal(this.#changed, list)) return false;
          this.#changed = list;
          return true;
        });
    }
  }

  override call(args: Args): Value {
    const [items] = bind("loop", ["iterable"], args);
    if (this.#recurse === undefined) {
      throw new TemplateError("the loop must have the 'recursive' marker to be called recursively");
    }
    return this.#recurse(items!, this.#depth + 1);
  }
}

/** The parts of a macro. */
export interface MacroParts {
  /** Undefined for the body of a call block. */
  readonly name?: string;
  readonly parameters: readonly string[];
  /** Which of these the body reads. */
  readonly reads: ReadonlySet<string>;
  /** Renders it. @param values of the parameters, then of `caller`, `kwargs` and `varargs` if the body reads them */
  run(values: ReadonlyMap<string, Maybe>): string;
}

/** A macro, or the body of a call block. */
export class Macro extends PyObject {
  readonly type = "Macro";
  readonly #parts: MacroParts;

  constructor(parts: MacroParts) {
    super();
    this.#parts = parts;
  }

  override repr(): string {
    const { name } = this.#parts;
    return `<Macro ${name === undefined ? "anonymous" : reprOf(name)}>`;
  }

  override attribute(name: string): Maybe {
    const { parameters, reads } = this.#parts;
    switch (name) {
      case "name":
        return this.#parts.name ?? NONE;
      case "arguments":
        return new Tuple(parameters);
      case "catch_kwargs":
        return reads.has("kwargs");
      case "catch_varargs":
        return reads.has("varargs");
      case "caller":
        return reads.has("caller");
      case "explicit_caller":
        return parameters.includes("caller");
    }
  }

  override call({ list, named }: Args): Value {
    const { name = "caller", parameters, reads, run } = this.#parts;
    const rest = new Map(named);
    const values = new Map<string, Maybe>();
    parameters.forEach((parameter, n) => {
      values.set(parameter, n < list.length ? list[n] : rest.get(parameter));
      if (n >= list.length) rest.delete(parameter);
    });
    if (reads.has("caller") && !parameters.includes("caller")) {
      values.set("caller", rest.get("caller") ?? new Undefined("No caller defined"));
      rest.delete("caller");
    }
    if (reads.has("kwargs")) {
      values.set("kwargs", new Dict(rest));
    } else if (rest.size > 0) {
      throw new TemplateError(`the macro ${name} got an unexpected argument ${[...rest.keys()][0]}`);
    }
    if (reads.has("varargs")) values.set("varargs", new Tuple(list.slice(parameters.length)));
    else if (list.length > parameters.length) {
      throw new TemplateError(`the macro ${name} takes at most ${parameters.length} arguments`);
    }
    return run(values);
  }
}

/** The variable `self`, which has the blocks of a template; blocks are not supported. */
export class TemplateReference extends PyObject {
  readonly type = "TemplateReference";

  override repr(): string {
    return "<TemplateReference None>";
  }
}

/** `cycler(…)` */
export class Cycler extends PyObject {
  readonly type = "Cycler";
  readonly #items: readonly Value[];
  #at = 0;

  constructor(items: readonly Value[]) {
    super();
    if (items.length === 0) throw new TemplateError("cycler: at least one item has to be provided");
    this.#items = items;
  }

  override attribute(name: string): Maybe {
    switch (name) {
      case "current":
        return this.#items[this.#at];
      case "next":
        return method(name, () => {
          const item = this.#items[this.#at];
          this.#at = (this.#at + 1) % this.#items.length;
          return item;
        });
      case "reset":
        return method(name, () => {
          this.#at = 0;
          return NONE;
        });
      case "items":
        return new Tuple(this.#items);
      case "pos":
        return BigInt(this.#at);
    }
  }
}

/** `joiner(…)` */
export class Joiner extends PyObject {
  readonly type = "Joiner";
  #used = false;

  constructor(readonly separator: Value) {
    super();
  }

  override attribute(name: string): Maybe {
    return name === "sep" ? this.separator : name === "used" ? this.#used : undefined;
  }

  override call(args: Args): Value {
    bind("joiner", [], args);
    const text = this.#used ? this.separator : "";
    this.#used = true;
    return text;
  }
}
