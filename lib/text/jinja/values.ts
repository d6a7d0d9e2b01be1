/**
 * Python's values, as Jinja2's sandbox lets a template see them.
 *
 * An int is a bigint, a float a number, a str a string and a list an array. Everything else is a class of this module, also
 * None, so that ?? takes it for the value that it is. Templates change no list and no dict (the sandbox forbids it): values may be shared.
 *
 * @module
 */

import { counted, spendItems, spendText, TemplateError, Unsupported } from "./limits.ts";
import { floatText, intText } from "./numbers.ts";
import { lengthOf, quoted } from "./text.ts";

/** Any value. */
export type Value = boolean | bigint | number | string | readonly Value[] | PyObject;

/** What is left undefined stands for an attribute, an item or an argument that is not there. */
export type Maybe = Value | undefined;

/** What a call passes. */
export interface Args {
  readonly list: readonly Value[];
  readonly named: ReadonlyMap<string, Value>;
}

/** No arguments. */
export const NO_ARGS: Args = { list: [], named: new Map() };

/** An object of a class. What a class does not override, its values do not have. */
export abstract class PyObject {
  /** The name of its class in Python. */
  abstract readonly type: string;

  /** `bool(self)` */
  truth(): boolean {
    return this.length?.() !== 0;
  }

  /** `repr(self)`. @throws {Unsupported} it has an address in it */
  repr(): string {
    throw new Unsupported(`printing a ${this.type}`);
  }

  /** `self.name`, or undefined. */
  attribute(_name: string): Maybe {
    return undefined;
  }

  /** `self[key]`, or undefined where Python raises a LookupError or a TypeError. */
  item(_key: Value): Maybe {
    return undefined;
  }

  /** `len(self)`, where there is one. */
  length?(): number;

  /** `iter(self)`, where there is one. */
  iterate?(): Iterator<Value>;

  /** `self(…)`, where it can be called. */
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

/** An attribute or variable that is not there. It prints as nothing; nearly all else that is done with it is an error. */
export class Undefined extends PyObject {
  readonly type = "Undefined";

  /** @param problem what the error says */
  constructor(readonly problem: string) {
    super();
  }

  /** The error of what can't be done with it. */
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

/** A text that is marked as safe HTML. */
export class Markup extends PyObject {
  readonly type = "Markup";

  constructor(readonly text: string) {
    super();
    spendText(text.length);
  }

  /** Escapes a text unless it is marked. */
  static escape(value: Value): Markup {
    if (value instanceof Markup) return value;
    return new Markup(textOf(value).replace(/[&<>'"]/g, (c) => `&${HTML[c]};`));
  }
  override repr(): string {
    return `Markup(${quoted(this.text)})`;
  }
  override attribute(name: string): Maybe {
    throw new Unsupported(`the attribute ${name} of a text marked safe`);
  }
  override item(): Maybe {
    throw new Unsupported("an item of a text marked safe");
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

/** What the sandbox gives for an attribute that it protects. */
export function unsafe(type: string, name: string): Undefined {
  return new Undefined(`access to attribute ${quoted(name)} of ${quoted(type)} object is unsafe.`);
}

/** `items[key]` by an integer, also from the end. */
export function indexed(items: { length: number; at(n: number): Maybe }, key: Value): Maybe {
  if (typeof key === "boolean") return indexed(items, key ? 1n : 0n);
  if (typeof key !== "bigint" || key >= BigInt(items.length) || key < BigInt(-items.length)) return undefined;
  return items.at(Number(key < 0n ? key + BigInt(items.length) : key));
}

/**
 * Binds the arguments of a call to parameters as Python does.
 *
 * @param parameters names; one that ends with ? may be left out
 * @param positional how many of them can't be given by name
 * @throws {TemplateError} they do not fit
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

/** The text of a str, marked or not; undefined for any other value. */
export function strOf(value: Maybe): string | undefined {
  return value instanceof Markup ? value.text : typeof value === "string" ? value : undefined;
}

/** The value of a number or a bool; undefined for any other value. */
export function numberOf(value: Maybe): bigint | number | undefined {
  if (typeof value === "boolean") return value ? 1n : 0n;
  return typeof value === "bigint" || typeof value === "number" ? value : undefined;
}

/** `iter(value)`, once. @throws {TemplateError} it can't be gone through */
export function iteratorOf(value: Value): Iterator<Value> {
  if (typeof value === "string") return value[Symbol.iterator]();
  if (Array.isArray(value)) return (value as readonly Value[])[Symbol.iterator]();
  const items = value instanceof PyObject ? value.iterate?.() : undefined;
  if (items === undefined) throw new TemplateError(`${quoted(typeOf(value))} object is not iterable`);
  return items;
}

/** The same, for a loop; leaving it early does not close a generator. */
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

/** `len(value)`, or undefined where there is none. */
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
