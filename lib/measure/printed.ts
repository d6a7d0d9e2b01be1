/**
 * The digits that figures are printed with.
 *
 * @module
 */

import type { Figure, PredictionFigures } from "./metrics.ts";

/** The digits after the point of a figure of {@link PredictionFigures}, by the word and the key of its line. */
export function digitsOf(word: keyof PredictionFigures, key: string): number {
  return word === "perplexity" && !key.startsWith("ratio") ? 4 : 6;
}

/** A figure with a number of digits, or the word for what has none. */
export function printed(figure: Figure, digits: number): string {
  return typeof figure === "number" ? figure.toFixed(digits) : figure;
}

/** All figures as they are printed. A single token has no standard errors. */
export function printedFigures(figures: PredictionFigures): Record<string, Record<string, string>> {
  return Object.fromEntries(
    Object.entries(figures).map(([word, group]: [string, Readonly<Record<string, Figure | undefined>>]) => [
      word,
      Object.fromEntries(
        Object.entries(group).flatMap(([key, figure]) => {
          return figure === undefined ? [] : [[key, printed(figure, digitsOf(word as keyof PredictionFigures, key))]];
        }),
      ),
    ]),
  );
}
