/**
 * The values of GGUF's metadata: their types and their encoding.
 *
 * @module
 */

import { quote } from "../errors.ts";

/** A type of a metadata value. */
export type ValueType = "u8" | "i8" | "u16" | "i16" | "u32" | "i32" | "f32" | "bool" | "string" | "u64" | "i64" | "f64";

/** One value; 64-bit integers that a binary64 can't hold are bigints. */
export type Scalar = number | bigint | boolean | string;

/**
 * A value of the metadata with its type, or an array of values of one type. `parseGguf` returns an array of strings or
 * a typed array: a Uint8Array of 0 and 1 for booleans, a BigInt64Array or a BigUint64Array for 64-bit integers.
 */
export type Value =
  | { readonly type: ValueType; readonly value: Scalar }
  | { readonly type: ValueType; readonly values: ArrayLike<Scalar> };

/** The metadata of a file, in file order. */
export type Metadata = ReadonlyMap<string, Value>;

/**
 * The encoding of a value type: its number, its size in bytes (of a string: that of its length), and how a number is
 * read and written.
 */
export interface Kind {
  readonly id: number;
  readonly type: ValueType;
  readonly bytes: number;
  get(view: DataView, at: number): Scalar;
  set(view: DataView, at: number, value: Scalar): void;
  /** Views a buffer as an array of values. It needs a little-endian machine, since files are little endian. */
  array(buffer: ArrayBuffer): ArrayLike<Scalar>;
}

/** Converts a 64-bit integer to a number if that is exact. */
function narrow(value: bigint): number | bigint {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

function kind<T extends Scalar>(
  id: number,
  type: ValueType,
  bytes: number,
  get: (view: DataView, at: number) => T,
  set: (view: DataView, at: number, value: never) => void,
  Values: new (buffer: ArrayBuffer) => ArrayLike<Scalar>,
): Kind {
  return { id, type, bytes, get, set: set as Kind["set"], array: (buffer) => new Values(buffer) };
}

/** All value types. */
export const KINDS: readonly Kind[] = [
  kind(0, "u8", 1, (v, at) => v.getUint8(at), (v, at, x) => v.setUint8(at, x), Uint8Array),
  kind(1, "i8", 1, (v, at) => v.getInt8(at), (v, at, x) => v.setInt8(at, x), Int8Array),
  kind(2, "u16", 2, (v, at) => v.getUint16(at, true), (v, at, x) => v.setUint16(at, x, true), Uint16Array),
  kind(3, "i16", 2, (v, at) => v.getInt16(at, true), (v, at, x) => v.setInt16(at, x, true), Int16Array),
  kind(4, "u32", 4, (v, at) => v.getUint32(at, true), (v, at, x) => v.setUint32(at, x, true), Uint32Array),
  kind(5, "i32", 4, (v, at) => v.getInt32(at, true), (v, at, x) => v.setInt32(at, x, true), Int32Array),
  kind(6, "f32", 4, (v, at) => v.getFloat32(at, true), (v, at, x) => v.setFloat32(at, x, true), Float32Array),
  kind(7, "bool", 1, (v, at) => v.getUint8(at) !== 0, (v, at, x) => v.setUint8(at, Number(x)), Uint8Array),
  kind(8, "string", 8, () => "", (v, at, x) => v.setBigUint64(at, BigInt(x), true), Uint8Array),
  kind(
    10,
    "u64",
    8,
    (v, at) => narrow(v.getBigUint64(at, true)),
    (v, at, x) => v.setBigUint64(at, BigInt(x), true),
    BigUint64Array,
  ),
  kind(
    11,
    "i64",
    8,
    (v, at) => narrow(v.getBigInt64(at, true)),
    (v, at, x) => v.setBigInt64(at, BigInt(x), true),
    BigInt64Array,
  ),
  kind(12, "f64", 8, (v, at) => v.getFloat64(at, true), (v, at, x) => v.setFloat64(at, x, true), Float64Array),
];

/** The encodings, by type. */
export const BY_TYPE: ReadonlyMap<ValueType, Kind> = new Map(KINDS.map((kind) => [kind.type, kind]));

/** The number of the type array. */
export const ARRAY_ID = 9;

/** A metadata value. */
export function value(type: ValueType, value: Scalar): Value {
  return { type, value };
}

/** Describes a value, for messages. */
export function describe(value: Value): string {
  if ("values" in value) return `an array of ${value.type}`;
  return `${value.type} ${typeof value.value === "string" ? quote(value.value) : value.value}`;
}
