/**
 * Regular expressions of tokenizers, which the `tokenizers` library gives to Oniguruma. JavaScript reads many of them
 * otherwise (`\s`, `\b`, `$`, possessive quantifiers, newer Unicode), and can't stop one that takes exponential time. So the
 * part of Oniguruma's syntax that tokenizers use is matched here, by backtracking with a limit on the steps; everything else
 * is refused by name.
 *
 * | construct | as Oniguruma reads it |
 * | --------- | --------------------- |
 * | `\s` `\d` `\w` `\b` `\p{L}` `\p{Han}` `\p{^L}` | Unicode 16: {@link property}, SPACES, WORDS |
 * | `\w` in a class | without `²` `³` `¹` `¼` `½` `¾`, which it matches elsewhere |
| `.` `^` `$` | all but `\n`; the beginning and the end of each line |
 * | `\A` `\z` `\Z` | the beginning; the end; the end or before a `\n` there |
 * | `a?+` `a*+` `a++` `(?>a)` | possessive, atomic |
 * | `a{2}+` `a{1,3}+` | a group that is repeated: Oniguruma has no possessive intervals |
 * | `[a-z&&[^q]]` `[[:alpha:]]` | intersections and classes in classes; POSIX's names are refused |
 * | `(?i:…)` | literals and classes; ASCII letters, with U+017F for s and U+212A for k |
 * | `(?=…)` `(?!…)` `(?<=…)` `(?<!…)` | what looks behind has a known length |
 *
 * fixtures/tokenizers/make_regexes.py asks the library about thousands of patterns of this syntax.
 *
 * @module
 */

import { quote } from "../errors.ts";
import { CodePoints, complement, intersection, lazy, property, type Ranges, SPACES, union, WORDS } from "./unicode.ts";

/** A pattern that is not of the syntax above; the message says what, and where. */
export class UnsupportedPattern extends Error {
  override name = "UnsupportedPattern";
}

/** A pattern that takes too many steps on a text. */
export class TooManySteps extends Error {
  override name = "TooManySteps";

  constructor(source: string) {
    super(`the pattern ${quote(source)} takes too many steps on this text`);
  }
}

/** Longer than any pattern known (2,000). */
const MAX_LENGTH = 10_000;
/** Classes and properties, which take a while to make; the most known is 30. */
const MAX_CLASSES = 200;
/** Groups in groups; parsing and matching call themselves as often. */
const MAX_DEPTH = 100;
/** Instructions of a program; intervals repeat theirs. */
const MAX_INSTRUCTIONS = 50_000;

/**
 * The steps that all patterns may take for a text: about half a second of them, and a thousand for each character, where
 * known patterns take twenty.
 */
export class Steps {
  left = 100_000_000;

  /** Lets them take more, for more of the text. */
  add(characters: number): void {
    this.left += 1000 * characters;
  }
}

type Mode = "greedy" | "lazy" | "possessive";
type Boundary = "^" | "$" | "A" | "z" | "Z" | "b" | "B";
type Node =
  | { readonly type: "set"; readonly ranges: Ranges }
  | { readonly type: "sequence"; readonly parts: readonly Node[] }
  | { readonly type: "alternatives"; readonly options: readonly Node[] }
  | { readonly type: "repeat"; readonly part: Node; readonly min: number; readonly max: number; readonly mode: Mode }
  | { readonly type: "look"; readonly behind: boolean; readonly negative: boolean; readonly part: Node }
  | { readonly type: "atomic"; readonly part: Node }
  | { readonly type: "boundary"; readonly kind: Boundary };

// ---------------------------------------------------------------- syntax

const CONTROLS: Readonly<Record<string, number>> = { n: 10, t: 9, r: 13, f: 12, v: 11, a: 7, e: 27 };
const cased = lazy(() => union(property("L")!, property("M")!, property("Nl")!, property("So")!));

const classWords = lazy(() => intersection(WORDS(), complement([0xb2, 0xb3, 0xb9, 0xb9, 0xbc, 0xbe])));

const SHORTHANDS: Readonly<Record<string, (inClass: boolean) => Ranges>> = {
  s: SPACES,
  d: () => property("Nd")!,
  w: (inClass) => inClass ? classWords() : WORDS(),
};

/** Pairs of letters that one character of another case stands for: ß, ﬀ, ﬁ, ﬂ, ﬆ. */
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
    // Only a parenthesis ends it before the end.
    if (this.#at < this.#text.length) this.#refuse(")", "without a group");
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

  /** The rest of the text as far as a pattern matches it, which is taken. */
  #takeMatch(pattern: RegExp): RegExpExecArray | null {
    const match = pattern.exec(this.#text.slice(this.#at, this.#at + 40).join(""));
    if (match !== null) this.#at += Array.from(match[0]).length;
    return match;
  }

  #alternatives(): Node {
    if (++this.#depth > MAX_DEPTH) this.#refuse("(", "is in more than 100 groups");
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
      // Oniguruma joins what ignores case, also of two groups, to a text in which two letters may be one character.
      if (folded && before.startsWith("(?i:")) this.#refuse("(?i:", "after another one is not supported");
      if (this.#folding && LIGATURES.includes((before + taken).toLowerCase())) {
        this.#refuse(before + taken, "in (?i:…) is not supported: one character may stand for it");
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
    if (!this.#take(")")) this.#refuse(prefix, "has no end");
    switch (prefix) {
      case "(?=":
      case "(?!":
        return { type: "look", behind: false, negative: prefix === "(?!", part };
      case "(?<=":
      case "(?<!": {
        const options = part.type === "alternatives" ? part.options : [part];
        if (options.some((option) => lengthOf(option) === undefined)) {
          this.#refuse(prefix, "looks behind at what has no fixed length");
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
        if (odd) this.#refuse(interval![0], "is an interval that is not supported");
      }
      // Of an interval, a plus behind it repeats the whole; other quantifiers in a row have rules of their own.
      if (++count > 1 && !(count === 2 && simple?.[0] === "+" && this.#text[start - 1] === "}")) {
        this.#at = start;
        this.#refuse(this.#text[start], "after a quantifier is not supported");
      }
      if (leastLength(node) === 0 && hasPlaces(node)) {
        this.#refuse(simple?.[0] ?? interval![0], "repeats a place that has no characters, which is not supported");
      }
      if (max > 1 && leastLength(node) === 0) {
        this.#refuse(simple?.[0] ?? interval![0], "repeats what may be nothing, which is not supported");
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

  /** An escape that stands for code points; `shorthand` is one for many. */
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
      if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) this.#refuse(number[0], "is no character");
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
    if (++this.#classes > MAX_CLASSES) this.#refuse("[", `is one of more than ${MAX_CLASSES} classes`);
  }

  /** @param outside whether a class around this one is negated */
  #class(outside = false): Ranges {
    const start = this.#at;
    if (++this.#depth > MAX_DEPTH) this.#refuse("[", "is in more than 100 classes");
    this.#countClass();
    this.#at++;
    const not = this.#take("^");
    // Oniguruma has an order of its own for what is in and what is out.
    if (not && outside) this.#refuse("[^", "in a class that begins with ^ is not supported");
    if (this.#peek("]")) this.#refuse("]", "is the first character of a class, which is not supported");
    const operands: Ranges[][] = [[]];
    while (!this.#take("]")) {
      if (this.#at >= this.#text.length) {
        this.#at = start;
        this.#refuse("[", "has no end");
      }
      const operand = operands.at(-1)!;
      if (this.#take("&&")) {
        if (operand.length === 0 || this.#peek("]") || this.#peek("&")) this.#refuse("&&", "lacks a side");
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
      if (c === undefined) this.#refuse("[", "has no end");
      if (c === "\\") return this.#escaped(true);
      if (c === "[") this.#refuse("[", "is the end of a range");
      this.#at++;
      return { of: single(c.codePointAt(0)!), shorthand: false };
    };
    const dash = this.#peek("-");
    const low = one();
    if (dash && !first && !edge()) {
      this.#refuse("-", "in a class stands for itself only at an end, or after a backslash");
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
    if (high.shorthand || high.of[0] < low.of[0]) this.#refuse("-", "is no range");
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

/** The number of characters that all matches have; undefined if they differ, or what looks around is inside. */
function lengthOf(node: Node): number | undefined {
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

/** Whether a boundary or what looks around is inside. */
function hasPlaces(node: Node): boolean {
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

/** The fewest characters that a match has. */
function leastLength(node: Node): number {
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

// ---------------------------------------------------------------- programs

/** What an instruction does; its operands follow it. */
const Op = {
  /** The match ends here. */
  Accept: 0,
  /** One character: a code point. */
  Character: 1,
  /** One character of a set: its number. */
  Set: 2,
  /** A set as often as it can: its number, least, most. Gives characters back one by one. */
  Greedy: 3,
  /** The same, and gives none back. */
  Possessive: 4,
  /** Goes on at the first address; at the second one if that fails. */
  Split: 5,
  Jump: 6,
  /** A boundary: its number in {@link BOUNDARIES}. */
  Boundary: 7,
  /** Goes back so many characters. */
  Back: 8,
  /** What follows up to Accept matches here, or does not: 1 if it must not, and where to go on. */
  Look: 9,
  /** What follows up to Accept matches once: where to go on, at its end. */
  Atomic: 10,
} as const;

/** More than a text has characters. */
const ENDLESS = 2 ** 30;

const BOUNDARIES: readonly Boundary[] = ["^", "$", "A", "z", "Z", "b", "B"];

class Compiler {
  readonly code: number[] = [];
  readonly sets: CodePoints[] = [];
  readonly #known = new Map<string, number>();
  readonly #budget = { left: MAX_INSTRUCTIONS };

  compile(node: Node): void {
    if (--this.#budget.left < 0) throw new UnsupportedPattern("it is too large: its intervals repeat too much");
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
      // The other address is where the repetition ends.
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

// ---------------------------------------------------------------- matching

const wordSet = lazy(() => new CodePoints(WORDS()));

/** Places where a match ends that is none. */
const NONE = -1;

class Machine {
  readonly #code: Int32Array;
  readonly #sets: readonly CodePoints[];
  readonly #text: Int32Array;
  /** Three numbers each: address, position, and the least position to go back to. */
  readonly #stack: number[] = [];
  readonly #steps: Steps;

  constructor(
    readonly source: string,
    code: Int32Array,
    sets: readonly CodePoints[],
    text: Int32Array,
    steps: Steps,
  ) {
    this.#code = code;
    this.#sets = sets;
    this.#text = text;
    this.#steps = steps;
  }

  /** Where the match ends that begins at a position. @throws {TooManySteps} */
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

/** A regular expression of a tokenizer. */
export class Pattern {
  readonly #code: Int32Array;
  readonly #sets: readonly CodePoints[];
  /** Whether a match may have no characters. */
  readonly mayBeEmpty: boolean;

  /** @throws {UnsupportedPattern} it has something that is not supported */
  constructor(readonly source: string) {
    if (source.length > MAX_LENGTH) throw new UnsupportedPattern(`it has more than ${MAX_LENGTH} characters`);
    const compiler = new Compiler();
    const node = new Parser(source).parse();
    this.mayBeEmpty = leastLength(node) === 0;
    compiler.compile(node);
    compiler.code.push(Op.Accept);
    this.#code = Int32Array.from(compiler.code);
    this.#sets = compiler.sets;
  }

  /**
   * The matches in a text, from left to right, as pairs of where they begin and end in UTF-16 units. An empty match right behind
   * another one is none.
   *
   * @param steps are taken from
   * @throws {TooManySteps}
   */
  matches(text: string, steps: Steps): [number, number][] {
    const { codes, units } = decoded(text);
    const machine = new Machine(this.source, this.#code, this.#sets, codes, steps);
    const found: [number, number][] = [];
    let from = 0;
    let last = NONE;
    while (from <= codes.length) {
      let start = from;
      let end = NONE;
      while (start <= codes.length && (end = machine.run(0, start)) === NONE) start++;
      if (end === NONE) break;
      if (end === start && last === end) {
        from++;
        continue;
      }
      found.push([units[start], units[end]]);
      from = last = end;
    }
    return found;
  }
}

/** The code points of a text, and where each begins, and the end. */
function decoded(text: string): { codes: Int32Array; units: Int32Array } {
  const codes = new Int32Array(text.length);
  const units = new Int32Array(text.length + 1);
  let count = 0;
  for (let at = 0; at < text.length; at += codes[count++] > 0xffff ? 2 : 1) {
    codes[count] = text.codePointAt(at)!;
    units[count] = at;
  }
  units[count] = text.length;
  return { codes: codes.subarray(0, count), units: units.subarray(0, count + 1) };
}
