/**
 * Python's collections, equality and hashes.
 *
 * @module
 */

import { spendItems, spendText, step, TemplateError, Unsupported } from "./limits.ts";
import { quoted } from "./text.ts";
import {
  bind,
  indexed,
  type Maybe,
  method,
  Native,
  NONE,
  numberOf,
  over,
  PyObject,
  reprOf,
  strOf,
  typeOf,
  Undefined,
  unsafe,
  type Value,
} from "./values.ts";

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

/** A dict, which keeps the order of insertion. */
export class Dict extends PyObject {
  readonly type = "dict";
  readonly #entries = new Map<string, [Value, Value]>();

  /** Of equal keys, the first one is kept with the last value. */
  constructor(pairs: Iterable<readonly [Value, Value]> = []) {
    super();
    for (const [key, value] of pairs) this.set(key, value);
  }

  /** Sets an item while the dict is created. @throws {TemplateError} the key is unhashable */
  set(key: Value, value: Value): void {
    const hash = hashOf(key);
    const entry = this.#entries.get(hash);
    if (entry !== undefined) entry[1] = value;
    else {
      spendItems(2);
      this.#entries.set(hash, [key, value]);
    }
  }

  /** @throws {TemplateError} the key is unhashable */
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

/** The result of keys(), values() or items() of a dict. */
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

/** A range, of at most 100,000 integers in the sandbox. */
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

/** A generator or another iterator: it can be iterated once, is always true and has no length. */
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
    // Without `return`, so that breaking out of a loop does not close it.
    return { next: () => this.#items.next() };
  }
}

/** The result of namespace(), whose attributes a template can set. */
export class Namespace extends PyObject {
  readonly type = "Namespace";
  readonly #attributes = new Dict();

  set(name: Value, value: Value): void {
    if (typeof name === "string" && name.startsWith("_")) {
      throw new TemplateError(
        `cannot set attribute ${quoted(name)} of a namespace: names with a leading underscore are refused`,
      );
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

const LIST_CHANGES = ["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"];

/** The attributes of a list, tuple or range. */
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

/** `a == b` */
export function equal(a: Value, b: Value): boolean {
  step();
  const x = numberOf(a);
  if (x !== undefined) {
    const y = numberOf(b);
    // Compares an int with a float by their exact values, as Python does.
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

/** The items of two lists, or of two tuples; undefined for other values. */
export function sequences(a: Value, b: Value): [readonly Value[], readonly Value[]] | undefined {
  if (Array.isArray(a) && Array.isArray(b)) return [a, b];
  return a instanceof Tuple && b instanceof Tuple ? [a.items, b.items] : undefined;
}

function isHashable(value: Value): boolean {
  if (value instanceof Tuple) return value.items.every(isHashable);
  return !(Array.isArray(value) || value instanceof Dict || (value instanceof View && value.kind !== "values"));
}

/** A string that is the same for equal keys of a dict, and differs for others. @throws {TemplateError} the value is unhashable */
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
