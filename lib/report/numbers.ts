/**
 * Formats the numbers of a page, and chooses the scales of its charts.
 *
 * @module
 */

import type { Figure } from "../measure/metrics.ts";

/** A whole number with thousands separators: 142,985,696. */
export function grouped(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** A figure with `digits` digits after the decimal point, or its word. */
export function digitsOf(value: Figure, digits: number): string {
  return typeof value === "number" ? value.toFixed(digits) : value;
}

/** A number in a unit that needs few digits: the text, the unit, and the unit's size. */
export interface Scaled {
  readonly text: string;
  readonly unit: string;
  readonly size: number;
}

function scaled(value: number, units: readonly (readonly [string, number])[], plain: string): Scaled {
  const found = units.find(([, size]) => value >= size);
  if (found === undefined) return { text: grouped(value), unit: plain, size: 1 };
  const [unit, size] = found;
  return { text: (value / size).toFixed(1), unit, size };
}

/** Bytes: 143.0 MB. */
export function inBytes(value: number): Scaled {
  return scaled(value, [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]], "bytes");
}

/** A count in words: 134.5 million. */
export function inWords(value: number): Scaled {
  return scaled(value, [["billion", 1e9], ["million", 1e6]], "");
}

/** A fraction as a percentage of at most five characters: 12.3, 9.12, 0.546, 0. */
export function percent(part: number): string {
  // Rounded first, so that 9.996 is 10.0 and not 10.00.
  const value = Number((part * 100).toPrecision(3));
  if (value === 0) return "0";
  if (value < 0.0005) return "<.001";
  return value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3);
}

/** Possible ends of an axis; their halves are short numbers too. */
const ENDS = [1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8];

/** The smallest short number that is at least `value`, which must be positive. */
export function niceCeiling(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * (ENDS.find((end) => end * power >= value * (1 - 1e-12)) ?? 10);
}

/** A coordinate in a chart, rounded. */
export function coordinate(value: number): string {
  return String(Math.round(value * 100) / 100);
}
