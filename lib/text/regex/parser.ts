/**
 * Parses the regular expressions of tokenizers, with Oniguruma's meaning (see pattern.ts).
 *
 * @module
 */

import { quote } from "../../errors.ts";
import { complement, intersection, lazy, property, type Ranges, SPACES, union, WORDS } from "../unicode.ts";
import {
  type Boundary,
  ENDLESS,
  hasPlaces,
  leastLength,
  lengthOf,
  type Mode,
  type Node,
  UnsupportedPattern,
} from "./tree.ts";

/** The limit for classes and properties, which take a while to build; known patterns have up to 30. */
const MAX_CLASSES = 200;
/** The limit for nested groups, and thereby for the recursion of parsing and matching. */
const MAX_DEPTH = 100;

const CONTROLS: Readonly<Record<string, number>> = { n: 10, t: 9, r: 13, f: 12, v: 11, a: 7, e: 27 };
const cased = lazy(() => union(property("L")!, property("M")!, property("Nl")!, property("So")!));

const classWords = lazy(() => intersection(WORDS(), complement([0xb2, 0xb3, 0xb9, 0xb9, 0xbc, 0xbe])));

const SHORTHANDS: Readonly<Record<string, (inClass: boolean) => Ranges>> = {
  s: SPACES,
  d: () => property("Nd")!,
  w: (inClass) => inClass ? classWords() : WORDS(),
};

/** Pairs of letters that equal one character if case is ignored: ß, ﬀ, ﬁ, ﬂ, ﬆ. */
const LIGATURES = ["ss", "ff", "fi", "fl", "st"];

class Parser {
  readonly #text: readonly string[];
  #at = 0;
  #depth = 0;
  #classes = 0;
  /** Inside (?i:…). */
  #folding = false;

  constructor(source: string) {
    this.#text = Array.from(source);
  }

  parse(): Node {
    const node = this.#alternatives();
    // Only a closing parenthesis stops it before the end.
    if (this.#at < this.#text.length) this.#refuse(")", "does not close a group");
    return node;
  }

  #refuse(what: string, why = "is not supported"): never {
    throw new UnsupportedPattern(`${quote(what)} at character ${this.#at} ${why}`);
  }

  #peek(text: string): boolean {
    return Array.from(text).every((c, n) => this.#text[this.#at + n] === c);
  }

  #take(text: string): boolean {
    if (!this.#peek(text)) return false;
    this.#at += Array.from(text).length;
    return true;
  }

  /** Takes the match of a pattern at this position. */
  #takeMatch(pattern: RegExp): RegExpExecArray | null {
    const match = pattern.exec(this.#text.slice(this.#at, this.#at + 40).join(""));
    if (match !== null) this.#at += Array.from(match[0]).length;
    return match;
  }

  #alternatives(): Node {
    if (++this.#depth > MAX_DEPTH) this.#refuse("(", "is nested in more than 100 groups");
    const options = [this.#sequence()];
    while (this.#take("|")) options.push(this.#sequence());
    this.#depth--;
    return options.length === 1 ? options[0] : { type: "alternatives", options };
  }

  #sequence(): Node {
    const parts: Node[] = [];
    let before = "";
    while (this.#at < this.#text.length && !this.#peek("|") && !this.#peek(")")) {
      const start = this.#at;
      const c = this.#text[start];
      const folded = this.#peek("(?i:");
      const atom = this.#atom();
      const taken = this.#text.slice(start, this.#at).join("");
      // Oniguruma joins adjacent case-insensitive characters, also of two groups, to a string in which two letters may match
      // one character.
      if (folded && before.startsWith("(?i:")) this.#refuse("(?i:", "after another one is not supported");
      if (this.#folding && LIGATURES.includes((before + taken).toLowerCase())) {
        this.#refuse(before + taken, "in (?i:…) is not supported: it may match one character");
      }
      before = taken;
      const quantified = this.#quantified(atom);
      if (this.#folding && quantified !== atom && c !== "[") this.#refuse(c, "repeated in (?i:…) is not supported");
      parts.push(quantified);
    }
    return parts.length === 1 ? parts[0] : { type: "sequence", parts };
  }

  #atom(): Node {
    const c = this.#text[this.#at];
    switch (c) {
      case "(":
        return this.#group();
      case "[":
        return { type: "set", ranges: this.#class() };
      case "\\":
        return this.#escape();
      case ".":
        this.#at++;
        return { type: "set", ranges: complement([10, 10]) };
      case "^":
      case "$":
        this.#at++;
        return { type: "boundary", kind: c };
      case "*":
      case "+":
      case "?":
      case "{":
        this.#refuse(c, "has nothing to repeat");
    }
    this.#at++;
    return { type: "set", ranges: this.#fold(single(c.codePointAt(0)!)) };
  }

  #group(): Node {
    const start = this.#at;
    const prefix = this.#takeMatch(/^\((?:\?(?:[:=!>]|<[=!]|i:))?/)![0];
    if (this.#peek("?")) {
      this.#at = start;
      this.#refuse(this.#text.slice(start, start + 4).join(""));
    }
    if (this.#folding) this.#refuse(prefix, "in (?i:…) is not supported");
    if (prefix === "(?i:") this.#folding = true;
    const part = this.#alternatives();
    this.#folding = false;
    if (!this.#take(")")) this.#refuse(prefix, "is not closed");
    switch (prefix) {
      case "(?=":
      case "(?!":
        return { type: "look", behind: false, negative: prefix === "(?!", part };
      case "(?<=":
      case "(?<!": {
        const options = part.type === "alternatives" ? part.options : [part];
        if (options.some((option) => lengthOf(option) === undefined)) {
          this.#refuse(prefix, "is a lookbehind without a fixed length");
        }
        return { type: "look", behind: true, negative: prefix === "(?<!", part };
      }
      case "(?>":
        return { type: "atomic", part };
    }
    return part;
  }

  #quantified(atom: Node): Node {
    let node = atom;
    let count = 0;
    for (;;) {
      const start = this.#at;
      const simple = this.#takeMatch(/^([*+?])([?+]?)/);
      const interval = simple ? null : this.#takeMatch(/^\{(\d{0,6})(,?)(\d{0,6})\}(\??)/);
      if (simple === null && interval === null) return node;
      let min: number, max: number, mode: Mode;
      if (simple) {
        min = simple[1] === "+" ? 1 : 0;
        max = simple[1] === "?" ? 1 : ENDLESS;
        mode = simple[2] === "?" ? "lazy" : simple[2] === "+" ? "possessive" : "greedy";
      } else {
        const [, low, comma, high, lazy] = interval!;
        min = Number(low);
        max = comma === "" ? min : high === "" ? ENDLESS : Number(high);
        mode = lazy === "?" ? "lazy" : "greedy";
        const odd = low + high === "" || min > max || (comma === "" && lazy !== "");
        if (odd) this.#refuse(interval![0], "is an unsupported interval");
      }
      // A plus after an interval repeats it; other consecutive quantifiers have special rules.
      if (++count > 1 && !(count === 2 && simple?.[0] === "+" && this.#text[start - 1] === "}")) {
        this.#at = start;
        this.#refuse(this.#text[start], "after a quantifier is not supported");
      }
      if (leastLength(node) === 0 && hasPlaces(node)) {
        this.#refuse(simple?.[0] ?? interval![0], "repeats an assertion, which is not supported");
      }
      if (max > 1 && leastLength(node) === 0) {
        this.#refuse(simple?.[0] ?? interval![0], "repeats a possibly empty match, which is not supported");
      }
      node = { type: "repeat", part: node, min, max, mode };
    }
  }

  /** An escape outside of a class. */
  #escape(): Node {
    const kind = this.#text[this.#at + 1];
    if (kind !== undefined && "bBAzZ".includes(kind)) {
      this.#at += 2;
      return { type: "boundary", kind: kind as Boundary };
    }
    const ranges = this.#escaped(false);
    return { type: "set", ranges: ranges.shorthand ? ranges.of : this.#fold(ranges.of) };
  }

  /** An escape for code points; `shorthand` if it is a class. */
  #escaped(inClass: boolean): { of: Ranges; shorthand: boolean } {
    const property_ = this.#takeMatch(/^\\([pP])\{(\^?)(\w+)\}/);
    if (property_) {
      const [whole, kind, not, name] = property_;
      const found = property(name);
      if (found === undefined || this.#folding) this.#refuse(whole);
      this.#countClass();
      return { of: (kind === "P") === (not === "^") ? found : complement(found), shorthand: true };
    }
    const number = this.#takeMatch(/^\\(?:x([0-7][0-9A-Fa-f])|x\{([0-9A-Fa-f]{1,6})\}|u([0-9A-Fa-f]{4}))/);
    if (number) {
      const code = parseInt(number[1] ?? number[2] ?? number[3], 16);
      if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) this.#refuse(number[0], "is not a character");
      if (this.#folding) this.#refuse(number[0], "in (?i:…) is not supported");
      return { of: single(code), shorthand: false };
    }
    const c = this.#text[this.#at + 1] ?? "";
    const lower = c.toLowerCase();
    if (Object.hasOwn(SHORTHANDS, lower)) {
      if (this.#folding) this.#refuse("\\" + c, "in (?i:…) is not supported");
      this.#countClass();
      this.#at += 2;
      const found = SHORTHANDS[lower](inClass);
      return { of: c === lower ? found : complement(found), shorthand: true };
    }
    const code = Object.hasOwn(CONTROLS, c) ? CONTROLS[c] : /^[!-/:-@[-`{-~ ]$/.test(c) ? c.charCodeAt(0) : undefined;
    if (code === undefined) this.#refuse("\\" + c);
    this.#at += 2;
    return { of: single(code), shorthand: false };
  }

  #countClass(): void {
    if (++this.#classes > MAX_CLASSES) this.#refuse("[", `exceeds the limit of ${MAX_CLASSES} classes`);
  }

  /** @param outside whether a class around this one is negated */
  #class(outside = false): Ranges {
    const start = this.#at;
    if (++this.#depth > MAX_DEPTH) this.#refuse("[", "is nested in more than 100 classes");
    this.#countClass();
    this.#at++;
    const not = this.#take("^");
    // Oniguruma combines negated classes in an order of its own.
    if (not && outside) this.#refuse("[^", "in a class that begins with ^ is not supported");
    if (this.#peek("]")) this.#refuse("]", "is the first character of a class, which is not supported");
    const operands: Ranges[][] = [[]];
    while (!this.#take("]")) {
      if (this.#at >= this.#text.length) {
        this.#at = start;
        this.#refuse("[", "is not closed");
      }
      const operand = operands.at(-1)!;
      if (this.#take("&&")) {
        if (operand.length === 0 || this.#peek("]") || this.#peek("&")) this.#refuse("&&", "lacks an operand");
        operands.push([]);
      } else if (this.#peek("[")) {
        if (this.#peek("[:")) this.#refuse(this.#text.slice(this.#at, this.#at + 9).join(""));
        operand.push(this.#class(outside || not));
      } else operand.push(this.#fold(this.#member(operand.length === 0)));
    }
    this.#depth--;
    const found = operands.map((operand) => union(...operand)).reduce(intersection);
    return not ? complement(found) : found;
  }

  /** A character, a range or a shorthand in a class. */
  #member(first: boolean): Ranges {
    const edge = () => this.#peek("]") || this.#peek("&&");
    const one = (): { of: Ranges; shorthand: boolean } => {
      const c = this.#text[this.#at];
      if (c === undefined) this.#refuse("[", "is not closed");
      if (c === "\\") return this.#escaped(true);
      if (c === "[") this.#refuse("[", "is the end of a range");
      this.#at++;
      return { of: single(c.codePointAt(0)!), shorthand: false };
    };
    const dash = this.#peek("-");
    const low = one();
    if (dash && !first && !edge()) {
      this.#refuse("-", "in a class is a literal only at an end, or after a backslash");
    }
    if (low.shorthand) {
      if (this.#peek("-") && this.#text[this.#at + 1] !== "]") this.#refuse("-", "after a class is not supported");
      return low.of;
    }
    if (!this.#take("-")) return low.of;
    if (edge()) {
      this.#at--;
      return low.of;
    }
    if (dash) this.#refuse("-", "is the beginning of a range");
    const high = one();
    if (high.shorthand || high.of[0] < low.of[0]) this.#refuse("-", "is not a valid range");
    if (this.#peek("-") && this.#text[this.#at + 1] !== "]") this.#refuse("-", "after a range is not supported");
    return [low.of[0], high.of[0]];
  }

  /** Adds the other case inside (?i:…). */
  #fold(ranges: Ranges): Ranges {
    if (!this.#folding) return ranges;
    const others = intersection(ranges, [0x80, 0x10ffff]);
    if (intersection(others, cased()).length > 0) {
      this.#refuse(String.fromCodePoint(others[0]), "and its other case in (?i:…) are not supported");
    }
    const letters = Array.from({ length: 26 }, (_, n) => n).filter((n) => {
      return intersection(ranges, union(single(65 + n), single(97 + n))).length > 0;
    });
    const both = letters.flatMap((n) => [single(65 + n), single(97 + n)]);
    const signs = letters.flatMap((n) => n === 10 ? [single(0x212a)] : n === 18 ? [single(0x17f)] : []);
    return union(ranges, ...both, ...signs);
  }
}

function single(code: number): Ranges {
  return [code, code];
}

/** Parses a pattern. @throws {UnsupportedPattern} it uses syntax that is not supported */
export function parsePattern(source: string): Node {
  return new Parser(source).parse();
}
