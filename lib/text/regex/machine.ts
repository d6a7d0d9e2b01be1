/**
 * Matches a compiled regular expression by backtracking, with a limit on the steps.
 *
 * @module
 */

import { quote } from "../../errors.ts";
import { CodePoints, lazy, WORDS } from "../unicode.ts";
import { BOUNDARIES, Op, type Program } from "./program.ts";
import type { Boundary } from "./tree.ts";

/** A pattern takes too many steps on a text. */
export class TooManySteps extends Error {
  override name = "TooManySteps";

  constructor(source: string) {
    super(`the pattern ${quote(source)} takes too many steps on this text`);
  }
}

/**
 * The steps that all patterns together may take for a text: about half a second, and a thousand more for each character.
 * Known patterns take about twenty for each character.
 */
export class Steps {
  left = 100_000_000;

  /** Allows more steps for more of the text. */
  add(characters: number): void {
    this.left += 1000 * characters;
  }
}

const wordSet = lazy(() => new CodePoints(WORDS()));

/** The result of a failed match. */
export const NONE = -1;

/** Matches one program in one text. */
export class Machine {
  readonly #code: Int32Array;
  readonly #sets: readonly CodePoints[];
  readonly #text: Int32Array;
  /** Three numbers for each alternative: the address, the position, and the least position for backtracking. */
  readonly #stack: number[] = [];
  readonly #steps: Steps;

  /**
   * @param source the pattern, for messages
   * @param text code points
   * @param steps the remaining steps, which are counted down
   */
  constructor(readonly source: string, { code, sets }: Program, text: Int32Array, steps: Steps) {
    this.#code = code;
    this.#sets = sets;
    this.#text = text;
    this.#steps = steps;
  }

  /** The end of the match that begins at a position, or {@link NONE}. @throws {TooManySteps} */
  run(address: number, position: number): number {
    const code = this.#code, sets = this.#sets, text = this.#text, stack = this.#stack, steps = this.#steps;
    const bottom = stack.length;
    let at = address;
    let here = position;
    for (;;) {
      if (--steps.left < 0) throw new TooManySteps(this.source);
      let good = true;
      switch (code[at]) {
        case Op.Accept:
          stack.length = bottom;
          return here;
        case Op.Character:
          good = here < text.length && text[here] === code[at + 1];
          here++;
          at += 2;
          break;
        case Op.Set:
          good = here < text.length && sets[code[at + 1]].has(text[here]);
          here++;
          at += 2;
          break;
        case Op.Greedy:
        case Op.Possessive: {
          const set = sets[code[at + 1]];
          const least = here + code[at + 2];
          const most = Math.min(text.length, here + code[at + 3]);
          const start = here;
          while (here < most && set.has(text[here])) here++;
          steps.left -= here - start;
          good = here >= least;
          const greedy = code[at] === Op.Greedy;
          at += 4;
          if (good && greedy && here > least) stack.push(at, here - 1, least);
          break;
        }
        case Op.Split:
          stack.push(code[at + 2], here, here);
          at = code[at + 1];
          break;
        case Op.Jump:
          at = code[at + 1];
          break;
        case Op.Boundary:
          good = this.#boundary(BOUNDARIES[code[at + 1]], here);
          at += 2;
          break;
        case Op.Back:
          here -= code[at + 1];
          good = here >= 0;
          at += 2;
          break;
        case Op.Look:
          good = (this.run(at + 3, here) === NONE) === (code[at + 1] === 1);
          at = code[at + 2];
          break;
        case Op.Atomic: {
          const end = this.run(at + 2, here);
          good = end !== NONE;
          here = end;
          at = code[at + 1];
          break;
        }
      }
      if (good) continue;
      if (stack.length === bottom) return NONE;
      const low = stack.pop()!;
      here = stack.pop()!;
      at = stack.pop()!;
      if (here > low) stack.push(at, here - 1, low);
    }
  }

  #boundary(kind: Boundary, here: number): boolean {
    const text = this.#text;
    const end = text.length;
    switch (kind) {
      case "A":
        return here === 0;
      case "z":
        return here === end;
      case "Z":
        return here === end || (here === end - 1 && text[here] === 10);
      case "^":
        return here === 0 || (here < end && text[here - 1] === 10);
      case "$":
        return here === end || text[here] === 10;
      case "b":
      case "B": {
        const before = here > 0 && wordSet().has(text[here - 1]);
        const after = here < end && wordSet().has(text[here]);
        return (before !== after) === (kind === "b");
      }
    }
  }
}
