/**
 * Python's values, as Jinja2's sandbox lets a template see them.
 *
 * An int is a bigint, a float a number, a str a string and a list an array. Everything else is a class of this module, also
 * None, so that ?? takes it for the value that it is. Templates change no list and no dict (the sandbox forbids it): values may be shared.
 *
 * @module
 */

import { spendItems, spendText, step, TemplateError, Unsupported } from "./limits.ts";
import { floatText, intText } from "./numbers.ts";
import { compareText, lengthOf, pointsOf, quoted } from "./text.ts";

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

/** A tuple, or a named one. */
export class Tuple extends PyObject {
  readonly type = "tuple";

  constructor(readonly items: readonly Value[], readonly names: readonly string[] = []) {
    super();
    spendItems(items.length);
  }
  override repr(): string {
    return `(${this.items.map(reprOf).join(", ")}${this.items.length === 1 ? "," : ""})`;
  }
  override attribute(name: string): Maybe {
    const at = this.names.indexOf(name);
    return at < 0 ? sequenceAttribute(this.items, this.type, name) : this.items[at];
  }
  override item(key: Value): Maybe {
    return indexed(this.items, key);
  }
  override length(): number {
    return this.items.length;
  }
  override iterate(): Iterator<Value> {
    return this.items[Symbol.iterator]();
  }
}

/** A dict, which keeps the order in which its keys came. */
export class Dict extends PyObject {
  readonly type = "dict";
  readonly #entries = new Map<string, [Value, Value]>();

  /** The later one of equal keys gives the value, the first one the key. */
  constructor(pairs: Iterable<readonly [Value, Value]> = []) {
    super();
    for (const [key, value] of pairs) this.set(key, value);
  }

  /** For the one who makes it. @throws {TemplateError} the key can't be hashed */
  set(key: Value, value: Value): void {
    const hash = hashOf(key);
    const entry = this.#entries.get(hash);
    if (entry !== undefined) entry[1] = value;
    else {
      spendItems(2);
      this.#entries.set(hash, [key, value]);
    }
  }

  /** @throws {TemplateError} the key can't be hashed */
  get(key: Value): Maybe {
    return this.#entries.get(hashOf(key))?.[1];
  }

  entries(): readonly (readonly [Value, Value])[] {
    return [...this.#entries.values()];
  }

  override repr(): string {
    return `{${this.entries().map(([key, value]) => `${reprOf(key)}: ${reprOf(value)}`).join(", ")}}`;
  }
  override attribute(name: string): Maybe {
    switch (name) {
      case "get":
        return new Native("get", (args) => {
          const [key, otherwise] = bind("get", ["key", "default?"], args, 2);
          return this.get(key!) ?? otherwise ?? NONE;
        });
      case "items":
      case "keys":
      case "values":
        return method(name, () => new View(this, name));
      case "copy":
        return method(name, () => new Dict(this.entries()));
      case "clear":
      case "pop":
      case "popitem":
      case "setdefault":
      case "update":
        return unsafe(this.type, name);
      case "fromkeys":
        throw new Unsupported("dict.fromkeys");
    }
  }
  override item(key: Value): Maybe {
    return isHashable(key) ? this.get(key) : undefined;
  }
  override length(): number {
    return this.#entries.size;
  }
  override iterate(): Iterator<Value> {
    return this.entries().map(([key]) => key)[Symbol.iterator]();
  }
}

/** What keys(), values() and items() of a dict give. */
export class View extends PyObject {
  readonly type: string;

  constructor(readonly dict: Dict, readonly kind: "keys" | "values" | "items") {
    super();
    this.type = `dict_${kind}`;
  }
  list(): Value[] {
    return this.dict.entries().map((entry) =>
      this.kind === "items" ? new Tuple(entry) : entry[this.kind === "keys" ? 0 : 1]
    );
  }
  override repr(): string {
    return `${this.type}(${reprOf(this.list())})`;
  }
  override attribute(name: string): Maybe {
    if (name === "mapping" || name === "isdisjoint") throw new Unsupported(`the attribute ${name} of ${this.type}`);
    return undefined;
  }
  override length(): number {
    return this.dict.length();
  }
  override iterate(): Iterator<Value> {
    return this.list()[Symbol.iterator]();
  }
}

/** A range of at most 100,000 integers, as the sandbox has it. */
export class Range extends PyObject {
  readonly type = "range";

  constructor(readonly start: number, readonly stop: number, readonly step: number) {
    super();
  }
  at(index: number): bigint {
    return BigInt(this.start + index * this.step);
  }
  override repr(): string {
    return `range(${this.start}, ${this.stop}${this.step === 1 ? "" : `, ${this.step}`})`;
  }
  override attribute(name: string): Maybe {
    if (name === "start" || name === "stop" || name === "step") return BigInt(this[name]);
    return sequenceAttribute([...over(this)], this.type, name);
  }
  override item(key: Value): Maybe {
    return indexed({ length: this.length(), at: (n: number) => this.at(n) }, key);
  }
  override length(): number {
    return Math.max(0, Math.ceil((this.stop - this.start) / this.step));
  }
  override *iterate(): Iterator<Value> {
    for (let n = 0; n < this.length(); n++) yield this.at(n);
  }
}

/** A generator or another iterator: it can be gone through once, is always true and has no length. */
export class Generator extends PyObject {
  readonly type = "generator";
  readonly #items: Iterator<Value>;

  constructor(items: Iterator<Value>) {
    super();
    this.#items = items;
  }
  override attribute(name: string): Maybe {
    if (["send", "throw", "close"].includes(name) || name.startsWith("gi_")) {
      throw new Unsupported(`the attribute ${name} of a generator`);
    }
    return undefined;
  }
  override iterate(): Iterator<Value> {
    // Without `return`: a loop that is left early does not close it.
    return { next: () => this.#items.next() };
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

/** What namespace() makes: the one thing whose attributes a template sets. */
export class Namespace extends PyObject {
  readonly type = "Namespace";
  readonly #attributes = new Dict();

  set(name: Value, value: Value): void {
    if (typeof name === "string" && name.startsWith("_")) {
      throw new TemplateError(`a namespace has no attribute ${quoted(name)}: names with an underscore are refused`);
    }
    this.#attributes.set(name, value);
  }
  override truth(): boolean {
    return true;
  }
  override repr(): string {
    return `<Namespace ${this.#attributes.repr()}>`;
  }
  override attribute(name: string): Maybe {
    return this.#attributes.get(name);
  }
}

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

const LIST_CHANGES = ["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"];

/** Attributes of a list, tuple or range. */
export function sequenceAttribute(items: readonly Value[], type: string, name: string): Maybe {
  if (type === "list" && LIST_CHANGES.includes(name)) return unsafe(type, name);
  if (type === "list" && name === "copy") return method(name, () => [...items]);
  if (name === "count") {
    return new Native(name, (args) => {
      const [value] = bind(name, ["value"], args, 1);
      return BigInt(items.filter((item) => equal(item, value!)).length);
    });
  }
  if (name === "index") {
    return new Native(name, (args) => {
      const [value, start, stop] = bind(name, ["value", "start?", "stop?"], args, 3);
      if (start !== undefined || stop !== undefined) throw new Unsupported("index with a start");
      const at = items.findIndex((item) => equal(item, value!));
      if (at < 0) throw new TemplateError(`${reprOf(value!)} is not in ${type}`);
      return BigInt(at);
    });
  }
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

function counted(text: string): string {
  spendText(text.length);
  return text;
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

/** `a == b` */
export function equal(a: Value, b: Value): boolean {
  step();
  const x = numberOf(a);
  if (x !== undefined) {
    const y = numberOf(b);
    // Of an int and a float this compares the exact values, as Python does.
    // deno-lint-ignore eqeqeq
    return y !== undefined && x == y;
  }
  const text = strOf(a);
  if (text !== undefined) return text === strOf(b);
  const pair = sequences(a, b);
  if (pair !== undefined) {
    return pair[0].length === pair[1].length && pair[0].every((item, n) => equal(item, pair[1][n]));
  }
  if (a instanceof Undefined) return b instanceof Undefined;
  if (a instanceof Dict && b instanceof Dict) {
    if (a.length() !== b.length()) return false;
    return a.entries().every(([key, value]) => {
      const other = b.get(key);
      return other !== undefined && equal(value, other);
    });
  }
  if (a instanceof Range && b instanceof Range) return equal([...over(a)], [...over(b)]);
  if (a instanceof View && b instanceof View && a.kind !== "values") throw new Unsupported("comparing views of dicts");
  if (a instanceof Native && b instanceof Native) throw new Unsupported("comparing functions");
  return a === b;
}

/** The items of two lists, or of two tuples. */
function sequences(a: Value, b: Value): [readonly Value[], readonly Value[]] | undefined {
  if (Array.isArray(a) && Array.isArray(b)) return [a, b];
  return a instanceof Tuple && b instanceof Tuple ? [a.items, b.items] : undefined;
}

/** `a op b` for one of < <= > >=. @throws {TemplateError} they have no order */
export function ordered(op: string, a: Value, b: Value): boolean {
  for (const value of [a, b]) if (value instanceof Undefined) value.fail();
  const [x, y] = [numberOf(a), numberOf(b)];
  if (x !== undefined && y !== undefined) return holds(op, x, y);
  const [s, t] = [strOf(a), strOf(b)];
  if (s !== undefined && t !== undefined) return holds(op, compareText(s, t), 0);
  const pair = sequences(a, b);
  if (pair !== undefined) {
    const [p, q] = pair;
    for (let n = 0; n < p.length && n < q.length; n++) if (!equal(p[n], q[n])) return ordered(op, p[n], q[n]);
    return holds(op, p.length, q.length);
  }
  if (a instanceof View || b instanceof View) throw new Unsupported("comparing views of dicts");
  throw new TemplateError(`${op} is not for ${typeOf(a)} and ${typeOf(b)}`);
}

function holds(op: string, a: bigint | number, b: bigint | number): boolean {
  return op === "<" ? a < b : op === "<=" ? a <= b : op === ">" ? a > b : a >= b;
}

/** The order for a stable sort. NaN has none. */
export function compare(a: Value, b: Value): number {
  if (Number.isNaN(a) || Number.isNaN(b)) throw new Unsupported("sorting NaN");
  return ordered("<", a, b) ? -1 : ordered("<", b, a) ? 1 : 0;
}

function isHashable(value: Value): boolean {
  if (value instanceof Tuple) return value.items.every(isHashable);
  return !(Array.isArray(value) || value instanceof Dict || (value instanceof View && value.kind !== "values"));
}

/** A text that is the same for equal keys of a dict, and for no others. */
export function hashOf(value: Value): string {
  if (!isHashable(value)) throw new TemplateError(`unhashable type: ${quoted(typeOf(value))}`);
  const text = strOf(value);
  if (text !== undefined) return `s${text}`;
  const number = numberOf(value);
  if (number !== undefined) {
    if (Number.isNaN(number)) throw new Unsupported("NaN as a key");
    return typeof number === "bigint" || Number.isInteger(number) ? `n${BigInt(number)}` : `n${number}`;
  }
  if (value === NONE || value instanceof Undefined) return typeOf(value);
  if (value instanceof Tuple) {
    const hashes = value.items.map(hashOf);
    spendText(hashes.reduce((sum, { length }) => sum + length, 0));
    return `t${hashes.map((hash) => `${hash.length}:${hash}`).join("")}`;
  }
  throw new Unsupported(`a ${typeOf(value)} as a key`);
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

/** `item in container`. @throws {TemplateError} */
export function contains(container: Value, item: Value): boolean {
  const text = strOf(container);
  if (text !== undefined) {
    const part = strOf(item);
    if (part !== undefined) return text.includes(part);
    throw new TemplateError(`'in <string>' requires string as left operand, not ${typeOf(item)}`);
  }
  const dict = container instanceof View && container.kind === "keys" ? container.dict : container;
  if (dict instanceof Dict) return dict.get(item) !== undefined;
  for (const other of over(container)) if (other === item || equal(other, item)) return true;
  return false;
}

/** `value[start:stop:step]`. @throws {TemplateError} it has no slices */
export function sliceOf(value: Value, start: Maybe, stop: Maybe, step: Maybe): Value {
  if (value instanceof Undefined) value.fail();
  if (value instanceof Markup || value instanceof Range) throw new Unsupported(`a slice of a ${value.type}`);
  const items = typeof value === "string" ? pointsOf(value) : value instanceof Tuple ? value.items : value;
  if (typeof items !== "string" && !Array.isArray(items)) {
    throw new TemplateError(`${quoted(typeOf(value))} object has no slices`);
  }
  const picked = sliceIndices(items.length, start, stop, step).map((n) => items[n] as Value);
  if (typeof value === "string") {
    spendText(picked.length);
    return picked.join("");
  }
  if (value instanceof Tuple) return new Tuple(picked);
  spendItems(picked.length);
  return picked;
}

function sliceIndices(length: number, ...parts: Maybe[]): number[] {
  const [start, stop, step] = parts.map((part) => {
    if (isNone(part)) return undefined;
    const number = numberOf(part);
    if (part instanceof Undefined || typeof number !== "bigint") {
      throw new TemplateError("slice indices must be integers or None");
    }
    return number;
  });
  const by = step ?? 1n;
  if (by === 0n) throw new TemplateError("slice step cannot be zero");
  const size = BigInt(length);
  const [low, high] = by > 0n ? [0n, size] : [-1n, size - 1n];
  const clamp = (at: bigint | undefined, otherwise: bigint) => {
    if (at === undefined) return otherwise;
    const from = at < 0n ? at + size : at;
    return from < low ? low : from > high ? high : from;
  };
  const [first, end] = by > 0n ? [clamp(start, low), clamp(stop, high)] : [clamp(start, high), clamp(stop, low)];
  const indices: number[] = [];
  for (let at = first; by > 0n ? at < end : at > end; at += by) indices.push(Number(at));
  return indices;
}
