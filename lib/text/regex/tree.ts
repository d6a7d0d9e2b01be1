/**
 * The tree of a regular expression, and properties of its matches.
 *
 * @module
 */

import type { Ranges } from "../unicode.ts";

/** A pattern uses unsupported syntax; the message says what, and where. */
export class UnsupportedPattern extends Error {
  override name = "UnsupportedPattern";
}

/** The maximum of an unlimited repetition: more than any text has characters. */
export const ENDLESS = 2 ** 30;

/** The kind of a quantifier. */
export type Mode = "greedy" | "lazy" | "possessive";

/** An assertion about a position, by its character. */
export type Boundary = "^" | "$" | "A" | "z" | "Z" | "b" | "B";

/** A part of a regular expression. */
export type Node =
  | { readonly type: "set"; readonly ranges: Ranges }
  | { readonly type: "sequence"; readonly parts: readonly Node[] }
  | { readonly type: "alternatives"; readonly options: readonly Node[] }
  | { readonly type: "repeat"; readonly part: Node; readonly min: number; readonly max: number; readonly mode: Mode }
  | { readonly type: "look"; readonly behind: boolean; readonly negative: boolean; readonly part: Node }
  | { readonly type: "atomic"; readonly part: Node }
  | { readonly type: "boundary"; readonly kind: Boundary };

/** The number of characters of every match; undefined if it varies, or the node contains a lookaround. */
export function lengthOf(node: Node): number | undefined {
  switch (node.type) {
    case "set":
      return 1;
    case "sequence":
      return node.parts.map(lengthOf).reduce(
        (sum, part) => sum === undefined || part === undefined ? undefined : sum + part,
        0,
      );
    case "alternatives": {
      const lengths = new Set(node.options.map(lengthOf));
      return lengths.size === 1 ? [...lengths][0] : undefined;
    }
    case "repeat": {
      const each = lengthOf(node.part);
      return each === undefined || node.min !== node.max ? undefined : each * node.min;
    }
    case "boundary":
      return 0;
    case "look":
    case "atomic":
      return undefined;
  }
}

/** Whether the node contains a boundary or a lookaround. */
export function hasPlaces(node: Node): boolean {
  switch (node.type) {
    case "set":
      return false;
    case "sequence":
      return node.parts.some(hasPlaces);
    case "alternatives":
      return node.options.some(hasPlaces);
    case "repeat":
    case "atomic":
      return hasPlaces(node.part);
    case "boundary":
    case "look":
      return true;
  }
}

/** The least number of characters of a match. */
export function leastLength(node: Node): number {
  switch (node.type) {
    case "set":
      return 1;
    case "sequence":
      return node.parts.reduce((sum, part) => sum + leastLength(part), 0);
    case "alternatives":
      return node.options.map(leastLength).reduce((least, length) => Math.min(least, length));
    case "repeat":
      return node.min * leastLength(node.part);
    case "atomic":
      return leastLength(node.part);
    case "boundary":
    case "look":
      return 0;
  }
}
