/**
 * Numbers as a page shows them, and the scales of its charts.
 *
 * @module
 */

/** A whole number with its thousands set apart: 142,985,696. */
export function grouped(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** Bytes in the largest decimal unit that leaves 1 or more, with the unit's size. */
export function inUnit(bytes: number): { text: string; unit: string; size: number } {
  const units = [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]] as const;
  const [unit, size] = units.find(([, size]) => bytes >= size) ?? ["bytes", 1] as const;
  return { text: size === 1 ? String(bytes) : (bytes / size).toFixed(1), unit, size };
}

/** A large count in words: 134.5 million. */
export function counted(value: number): string {
  const units = [["billion", 1e9], ["million", 1e6]] as const;
  const [word, size] = units.find(([, size]) => value >= size) ?? [undefined, 1] as const;
  return word === undefined ? grouped(value) : `${(value / size).toFixed(1)} ${word}`;
}

/** A part as per cent in at most five characters: 12.3, 9.12, 0.546, 0. */
export function percent(part: number): string {
  const value = part * 100;
  if (value === 0) return "0";
  if (value < 0.0005) return "<.001";
  return value.toFixed(value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3);
}

/** The smallest of 1, 2, 5 times a power of ten that is not below `value`, which is above zero. */
export function niceCeiling(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([1, 2, 5].find((n) => n * power >= value * (1 - 1e-12)) ?? 10);
}

/** A coordinate of a chart, short. */
export function coordinate(value: number): string {
  return String(Math.round(value * 100) / 100);
}
