/**
 * Python's values, as templates see them in Jinja2's sandbox, and what all of them have in common.
 *
 * An int is a bigint, a float a number, a str a string and a list an array. Other values are instances of {@link PyObject}:
 * those of collections.ts and loop.ts, and those here. Templates can't modify lists and dicts, so values may be shared.
 *
 * @module
 */

import { counted, spendItems, spendText, TemplateError, Unsupported } from "./limits.ts";
import { floatText, intText } from "./numbers.ts";
import { lengthOf, quoted } from "./text.ts";

/** Any value. */
export type Value = boolean | bigint | number | string | readonly Value[] | PyObject;

/** undefined is a missing attribute, item or argument. */
export type Maybe = Value | undefined;

/** The arguments of a call. */
export interface Args {
  readonly list: readonly Value[];
  readonly named: ReadonlyMap<string, Value>;
}

/** No arguments. */
export const NO_ARGS: Args = { list: [], named: new Map() };

/** An object. Its class overrides what it supports. */
export abstract class PyObject {
  /** The name of its class in Python. */
  abstract readonly type: string;

  /** `bool(self)` */
  truth(): boolean {
    return this.length?.() !== 0;
  }

  /** `repr(self)`. @throws {Unsupported} it would contain an address */
  repr(): string {
    throw new Unsupported(`printing a ${this.type}`);
  }

  /** `self.name`, or undefined. */
  attribute(_name: string): Maybe {
    return undefined;
  }

  /** `self[key]`, or undefined if Python raises a LookupError or a TypeError. */
  item(_key: Value): Maybe {
    return undefined;
  }

  /** `len(self)`, if it has a length. */
  length?(): number;

  /** `iter(self)`, if it is iterable. */
  iterate?(): Iterator<Value>;

  /** `self(…)`, if it is callable. */
  call?(args: Args): Value;
}

/** The class of None. */
class None extends PyObject {
  readonly type = "NoneType";

  override truth(): boolean {
    return false;
  }
  override repr(): string {
    return "None";
  }
}

/** None. */
export const NONE = new None();

/** Whether an argument is None or not given. */
export function isNone(value: Maybe): value is None | undefined {
  return value === undefined || value === NONE;
}

/** A missing attribute or variable. It prints as an empty string; most other operations on it are errors. */
export class Undefined extends PyObject {
  readonly type = "Undefined";

  /** @param problem the message of the error */
  constructor(readonly problem: string) {
    super();
  }

  /** @throws {TemplateError} always */
  fail(): never {
    throw new TemplateError(this.problem);
  }

  override truth(): boolean {
    return false;
  }
  override repr(): string {
    return "Undefined";
  }
  override attribute(): never {
    return this.fail();
  }
  override item(): never {
    return this.fail();
  }
  override length(): number {
    return 0;
  }
  override iterate(): Iterator<Value> {
    return [][Symbol.iterator]();
  }
  override call(): never {
    return this.fail();
  }
}

/** A string that is marked as safe HTML. */
export class Markup extends PyObject {
  readonly type = "Markup";

  constructor(readonly text: string) {
    super();
    spendText(text.length);
  }

  /** Escapes a string, unless it is marked as safe. */
  static escape(value: Value): Markup {
    if (value instanceof Markup) return value;
    return new Markup(textOf(value).replace(/[&<>'"]/g, (c) => `&${HTML[c]};`));
  }
  override repr(): string {
    return `Markup(${quoted(this.text)})`;
  }
  override attribute(name: string): Maybe {
    throw new Unsupported(`the attribute ${name} of a string marked safe`);
  }
  override item(): Maybe {
    throw new Unsupported("an item of a string marked safe");
  }
  override length(): number {
    return lengthOf(this.text);
  }
  override iterate(): Iterator<Value> {
    return this.text[Symbol.iterator]();
  }
}

const HTML: Readonly<Record<string, string>> = { "&": "amp", "<": "lt", ">": "gt", "'": "#39", '"': "#34" };

/** A function or a method. */
export class Native extends PyObject {
  readonly type = "function";

  constructor(readonly name: string, readonly run: (args: Args) => Value) {
    super();
  }
  override attribute(name: string): Maybe {
    throw new Unsupported(`the attribute ${name} of a function`);
  }
  override call(args: Args): Value {
    return this.run(args);
  }
}

/** A method without parameters. */
export function method(name: string, run: () => Value): Native {
  return new Native(name, (args) => {
    bind(name, [], args);
    return run();
  });
}

/** The value of an attribute that the sandbox protects. */
export function unsafe(type: string, name: string): Undefined {
  return new Undefined(`access to attribute ${quoted(name)} of ${quoted(type)} object is unsafe.`);
}

/** `items[key]` for an integer, which may be negative. */
export function indexed(items: { length: number; at(n: number): Maybe }, key: Value): Maybe {
  if (typeof key === "boolean") return indexed(items, key ? 1n : 0n);
  if (typeof key !== "bigint" || key >= BigInt(items.length) || key < BigInt(-items.length)) return undefined;
  return items.at(Number(key < 0n ? key + BigInt(items.length) : key));
}

/**
 * Binds the arguments of a call to its parameters, as Python does.
 *
 * @param parameters names; those that end with ? are optional
 * @param positional the number of positional-only parameters
 * @throws {TemplateError} the arguments do not match
 */
export function bind(name: string, parameters: readonly string[], args: Args, positional = 0): Maybe[] {
  if (args.list.length > parameters.length) {
    throw new TemplateError(`${name}() takes at most ${parameters.length} arguments, found ${args.list.length}`);
  }
  const named = new Map(args.named);
  const values = parameters.map((parameter, n): Maybe => {
    const word = parameter.replace("?", "");
    const given = n < positional ? undefined : named.get(word);
    if (given !== undefined) named.delete(word);
    if (n < args.list.length) {
      if (given !== undefined) throw new TemplateError(`${name}() got two values for ${word}`);
      return args.list[n];
    }
    if (given === undefined && word === parameter) throw new TemplateError(`${name}() needs an argument ${word}`);
    return given;
  });
  for (const word of named.keys()) throw new TemplateError(`${name}() has no parameter ${word}`);
  return values;
}

/** The name of a value's class in Python. */
export function typeOf(value: Value): string {
  if (value instanceof PyObject) return value.type;
  return { boolean: "bool", bigint: "int", number: "float", string: "str", object: "list" }[typeof value as "string"];
}

/** `bool(value)` */
export function truthOf(value: Value): boolean {
  if (value instanceof PyObject) return value.truth();
  return Array.isArray(value) ? value.length > 0 : Boolean(value);
}

/** `str(value)` */
export function textOf(value: Value): string {
  if (typeof value === "string") return value;
  if (value instanceof Markup) return value.text;
  return value instanceof Undefined ? "" : reprOf(value);
}

/** `repr(value)` */
export function reprOf(value: Value): string {
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value === "string") return counted(quoted(value));
  if (typeof value === "bigint") return intText(value);
  if (typeof value === "number") return floatText(value);
  if (value instanceof PyObject) return counted(value.repr());
  return counted(`[${value.map(reprOf).join(", ")}]`);
}

/** The string of a str, marked as safe or not; undefined for other values. */
export function strOf(value: Maybe): string | undefined {
  return value instanceof Markup ? value.text : typeof value === "string" ? value : undefined;
}

/** The number of an int, a float or a bool; undefined for other values. */
export function numberOf(value: Maybe): bigint | number | undefined {
  if (typeof value === "boolean") return value ? 1n : 0n;
  return typeof value === "bigint" || typeof value === "number" ? value : undefined;
}

/** `iter(value)`. @throws {TemplateError} it is not iterable */
export function iteratorOf(value: Value): Iterator<Value> {
  if (typeof value === "string") return value[Symbol.iterator]();
  if (Array.isArray(value)) return (value as readonly Value[])[Symbol.iterator]();
  const items = value instanceof PyObject ? value.iterate?.() : undefined;
  if (items === undefined) throw new TemplateError(`${quoted(typeOf(value))} object is not iterable`);
  return items;
}

/** The same, for a for loop; breaking out of it does not close a generator. */
export function over(value: Value): Iterable<Value> {
  const items = iteratorOf(value);
  const next = { next: () => items.next() };
  return { [Symbol.iterator]: () => next };
}

/** `list(value)`. @throws {TemplateError} */
export function listOf(value: Value): Value[] {
  const size = sizeOf(value);
  if (size !== undefined) spendItems(size);
  const list: Value[] = [];
  for (const item of over(value)) {
    if (size === undefined) spendItems(0);
    list.push(item);
  }
  return list;
}

/** `len(value)`, or undefined if it has none. */
export function sizeOf(value: Value): number | undefined {
  if (typeof value === "string") return lengthOf(value);
  if (Array.isArray(value)) return value.length;
  return value instanceof PyObject ? value.length?.() : undefined;
}

/** `len(value)`. @throws {TemplateError} */
export function lengthOfValue(value: Value): bigint {
  const size = sizeOf(value);
  if (size === undefined) throw new TemplateError(`object of type ${quoted(typeOf(value))} has no len()`);
  return BigInt(size);
}
