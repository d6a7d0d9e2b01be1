/**
 * Compiles a regular expression to instructions of a backtracking matcher.
 *
 * @module
 */

import { CodePoints, type Ranges } from "../unicode.ts";
import { type Boundary, ENDLESS, lengthOf, type Node, UnsupportedPattern } from "./tree.ts";

/** The limit for the instructions of a program; intervals repeat theirs. */
const MAX_INSTRUCTIONS = 50_000;

/** The instructions; the operands follow each. */
export const Op = {
  /** Ends the match. */
  Accept: 0,
  /** Matches one character. Operand: its code point. */
  Character: 1,
  /** Matches one character of a set. Operand: the index of the set. */
  Set: 2,
  /** Matches a set as often as possible, and backtracks one by one. Operands: the index of the set, minimum, maximum. */
  Greedy: 3,
  /** The same without backtracking. */
  Possessive: 4,
  /** Continues at the first address, and backtracks to the second. */
  Split: 5,
  Jump: 6,
  /** Matches a boundary. Operand: its index in {@link BOUNDARIES}. */
  Boundary: 7,
  /** Moves back in the text. Operand: the number of characters. */
  Back: 8,
  /** Looks whether the instructions up to Accept match here. Operands: 1 for a negative one, and the address after Accept. */
  Look: 9,
  /** Matches the instructions up to Accept, without backtracking into them. Operand: the address after Accept. */
  Atomic: 10,
} as const;

/** The operand of {@link Op.Boundary} is an index here. */
export const BOUNDARIES: readonly Boundary[] = ["^", "$", "A", "z", "Z", "b", "B"];

class Compiler {
  readonly code: number[] = [];
  readonly sets: CodePoints[] = [];
  readonly #known = new Map<string, number>();
  readonly #budget = { left: MAX_INSTRUCTIONS };

  compile(node: Node): void {
    if (--this.#budget.left < 0) {
      throw new UnsupportedPattern("it is too large: its intervals repeat too many instructions");
    }
    const { code } = this;
    switch (node.type) {
      case "set":
        if (node.ranges.length === 2 && node.ranges[0] === node.ranges[1]) code.push(Op.Character, node.ranges[0]);
        else code.push(Op.Set, this.#set(node.ranges));
        return;
      case "sequence":
        return node.parts.forEach((part) => this.compile(part));
      case "alternatives":
        return this.#choose(node.options.map((option) => () => this.compile(option)));
      case "repeat":
        return this.#repeat(node);
      case "boundary":
        code.push(Op.Boundary, BOUNDARIES.indexOf(node.kind));
        return;
      case "look": {
        code.push(Op.Look, node.negative ? 1 : 0, 0);
        const hole = code.length - 1;
        const options = node.part.type === "alternatives" ? node.part.options : [node.part];
        this.#choose(options.map((option) => () => {
          if (node.behind) code.push(Op.Back, lengthOf(option)!);
          this.compile(option);
        }));
        code.push(Op.Accept);
        code[hole] = code.length;
        return;
      }
      case "atomic":
        return this.#atomic(node.part);
    }
  }

  #atomic(part: Node): void {
    this.code.push(Op.Atomic, 0);
    const hole = this.code.length - 1;
    this.compile(part);
    this.code.push(Op.Accept);
    this.code[hole] = this.code.length;
  }

  #choose(options: readonly (() => void)[]): void {
    const { code } = this;
    const ends: number[] = [];
    options.forEach((option, n) => {
      if (n === options.length - 1) return option();
      code.push(Op.Split, code.length + 3, 0);
      const next = code.length - 1;
      option();
      code.push(Op.Jump, 0);
      ends.push(code.length - 1);
      code[next] = code.length;
    });
    for (const end of ends) code[end] = code.length;
  }

  #repeat({ part, min, max, mode }: Node & { type: "repeat" }): void {
    const { code } = this;
    if (part.type === "set" && mode !== "lazy") {
      code.push(mode === "greedy" ? Op.Greedy : Op.Possessive, this.#set(part.ranges), min, max);
      return;
    }
    if (mode === "possessive") return this.#atomic({ type: "repeat", part, min, max, mode: "greedy" });
    for (let n = 0; n < min; n++) this.compile(part);
    const split = (): number => {
      const at = code.length;
      code.push(Op.Split, 0, 0);
      code[at + (mode === "lazy" ? 2 : 1)] = code.length;
      // The other address is the end of the repetition.
      return at + (mode === "lazy" ? 1 : 2);
    };
    if (max === ENDLESS) {
      const start = code.length;
      const exit = split();
      this.compile(part);
      code.push(Op.Jump, start);
      code[exit] = code.length;
      return;
    }
    const exits: number[] = [];
    for (let n = min; n < max; n++) {
      exits.push(split());
      this.compile(part);
    }
    for (const exit of exits) code[exit] = code.length;
  }

  #set(ranges: Ranges): number {
    const key = ranges.join();
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    this.#known.set(key, this.sets.length);
    return this.sets.push(new CodePoints(ranges)) - 1;
  }
}

/** A compiled pattern. */
export interface Program {
  readonly code: Int32Array;
  /** The operand of {@link Op.Set} is an index here. */
  readonly sets: readonly CodePoints[];
}

/** Compiles a pattern. @throws {UnsupportedPattern} it needs too many instructions */
export function compile(node: Node): Program {
  const compiler = new Compiler();
  compiler.compile(node);
  return { code: Int32Array.from([...compiler.code, Op.Accept]), sets: compiler.sets };
}
