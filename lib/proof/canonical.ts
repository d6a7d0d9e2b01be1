/**
 * JSON with one text for each value: RFC 8785 (JSON Canonicalization Scheme). Keys are sorted by their UTF-16 units, there
 * is no white space, and numbers and strings are written as JavaScript does.
 *
 * @module
 */

import { CheckpointError } from "../errors.ts";
import { JsonError, JsonReader, OddNumber } from "../format/json.ts";

/** A value of JSON. Undefined members are left out. */
export type Json = null | boolean | number | string | readonly Json[] | JsonObject;

/** An object of JSON. */
export interface JsonObject {
  /** The members. */
  readonly [key: string]: Json | undefined;
}

/** The canonical text of a value. */
export function canonical(value: Json): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (isList(value)) return `[${value.map(canonical).join(",")}]`;
  const keys = Object.keys(value).filter((key) => value[key] !== undefined).sort();
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key]!)}`).join(",")}}`;
}

function isList(value: object): value is readonly Json[] {
  return Array.isArray(value);
}

/**
 * Parses a text strictly: no duplicate keys, no lone surrogates, nothing after the value.
 *
 * @param path for messages
 * @throws {CheckpointError} it is not such a text
 */
export function parseStrict(path: string, text: string): Json {
  try {
    const reader = new JsonReader(text);
    const value = read(reader);
    reader.end();
    return value;
  } catch (error) {
    if (error instanceof JsonError) throw new CheckpointError({ path }, error.message);
    throw error;
  }
}

function read(reader: JsonReader): Json {
  switch (reader.peek()) {
    case "object": {
      const members: [string, Json][] = [];
      reader.object((key) => members.push([key, read(reader)]));
      return Object.fromEntries(members);
    }
    case "array": {
      const values: Json[] = [];
      reader.array(() => values.push(read(reader)));
      return values;
    }
    case "string":
      return reader.string();
    case "number": {
      const number = reader.number();
      return number instanceof OddNumber ? Number(number.text) : number;
    }
    case "literal":
      return reader.literal();
  }
}
