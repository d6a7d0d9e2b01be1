/**
 * The tokens that a model is calibrated with: windows of texts.
 *
 * @module
 */

import { LimitError, RabbitError } from "../errors.ts";
import { SplitMix64 } from "../random.ts";

/** A text as token ids. */
export interface TextIds {
  /** What it is called in messages. */
  readonly name: string;
  readonly ids: readonly number[];
}

/**
 * Cuts texts into windows and chooses some of them: of each text in an order that the seed shuffles, of the texts in turn.
 * So the windows come from all places of all texts, and every text has as many of them as the others, as far as it goes.
 *
 * @param tokens the most tokens of all windows
 * @returns windows of `window` ids; fewer than were asked for, where the texts have no more
 * @throws {RabbitError} a text is shorter than a window
 * @throws {LimitError} there are more texts than windows, so that some would have none
 */
export function windowsOfTexts(texts: readonly TextIds[], tokens: number, window: number, seed: number): number[][] {
  const random = new SplitMix64(seed);
  const cut = texts.map(({ name, ids }) => {
    if (ids.length < window) {
      const tokens = ids.length === 1 ? "1 token" : `${ids.length} tokens`;
      throw new RabbitError(`${name} has ${tokens}, a window has ${window}; use a longer text`);
    }
    const windows = Array.from({ length: Math.floor(ids.length / window) }, (_, n) => n * window);
    return shuffled(windows, random).map((start) => ids.slice(start, start + window));
  });
  const most = Math.floor(tokens / window);
  if (most < texts.length) {
    throw new LimitError(
      `${tokens} tokens are ${most} ${
        most === 1 ? "window" : "windows"
      } of ${window}, fewer than the ${texts.length} ` +
        "texts; use more tokens, a smaller window, or fewer texts",
    );
  }
  const chosen: number[][] = [];
  for (let round = 0; chosen.length < most; round++) {
    const left = cut.filter(({ length }) => length > round);
    if (left.length === 0) break;
    chosen.push(...left.map((windows) => windows[round]));
  }
  return chosen.slice(0, most);
}

/** A permutation (Fisher and Yates). */
function shuffled<T>(values: readonly T[], random: SplitMix64): T[] {
  const out = [...values];
  for (let n = out.length - 1; n > 0; n--) {
    const other = Number(random.next() % BigInt(n + 1));
    [out[n], out[other]] = [out[other], out[n]];
  }
  return out;
}

/** Tokens of a stretch by which two texts are told to overlap. */
const STRETCH = 32;

/** Whether two texts have a long stretch of tokens in common: surely one of 63, and possibly one of 32. */
export function overlap(a: readonly number[], b: readonly number[]): boolean {
  const stretches = new Set<string>();
  for (let at = 0; at + STRETCH <= a.length; at += STRETCH) stretches.add(a.slice(at, at + STRETCH).join());
  for (let at = 0; at + STRETCH <= b.length; at++) if (stretches.has(b.slice(at, at + STRETCH).join())) return true;
  return false;
}

/** Token ids as bytes: little-endian 32-bit numbers, one window after the other. */
export function bytesOfIds(windows: readonly (readonly number[])[]): Uint8Array<ArrayBuffer> {
  return new Uint8Array(Int32Array.from(windows.flat()).buffer);
}
