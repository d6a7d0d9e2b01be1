/**
 * The rules of a tokenizer.json by which a text becomes pieces and pieces become ids, as the `tokenizers` library of Python
 * and Rust (0.23.3) has them. What is not written here is refused by name.
 *
 * | part | rules |
 * | ---- | ----- |
 * | normalizer | NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence |
 * | pre_tokenizer | ByteLevel, Digits, Metaspace, Split, Sequence |
 * | model | BPE without dropout, prefix and suffix |
 * | post_processor | ByteLevel, TemplateProcessing, Sequence |
 *
 * `truncation` and `padding` are left out, as transformers does it where nothing else is asked for.
 *
 * @module
 */

import { BYTE_LETTERS } from "./byte_letters.ts";
import { quote } from "../errors.ts";
import { Bpe } from "./bpe.ts";
import type { Field } from "./field.ts";
import { Steps } from "./regex/machine.ts";
import { Pattern } from "./regex/pattern.ts";
import { UnsupportedPattern } from "./regex/tree.ts";
import { CodePoints, FORMS, lazy, normalize, NUMERICS } from "./unicode.ts";

/** A text, or the rest of one, grows more than anything that is not made to fill the memory. */
export class TooLarge extends Error {
  override name = "TooLarge";
}

/** What all rules together may write of one text: several times the text, and some more for a short one. */
export class Room {
  /** The same for the patterns. */
  readonly steps = new Steps();
  #left = 10_000_000;

  constructor(text: string) {
    this.add(text.length);
  }

  /** Makes room for more of the text. */
  add(units: number): void {
    this.#left += 100 * units;
    this.steps.add(units);
  }

  /** @throws {TooLarge} more than there is room for */
  take(units: number): void {
    this.#left -= units;
    if (this.#left < 0) throw new TooLarge("the rules make too much of this text");
  }
}

/** Changes a text. */
export type Normalizer = (text: string, room: Room) => string;

/** A piece of a text; `first` is the one that the whole text begins with. */
export interface Piece {
  readonly text: string;
  readonly first: boolean;
}

/** Cuts pieces. */
export type Splitter = (pieces: readonly Piece[], room: Room) => Piece[];

function typeOf(field: Field): string {
  const type = field.get("type");
  return type.absent ? type.refuse("is missing") : type.text();
}

/** Steps of a part, and sequences in sequences; the most known are 8. */
const MAX_STEPS = 30;

/** The steps of a part that may be a sequence of parts; none where it is null. */
export function stepsOf(field: Field, list: string, depth = 0): Field[] {
  if (field.absent) return [];
  if (depth > MAX_STEPS) field.refuse("has too many sequences in one another");
  if (typeOf(field) !== "Sequence") return [field];
  const steps = field.get(list).list().flatMap((part) => {
    // Only the whole part may be null.
    part.object();
    return stepsOf(part, list, depth + 1);
  });
  return steps.length <= MAX_STEPS ? steps : field.refuse(`has more than ${MAX_STEPS} steps`);
}

/** Refuses the type of a part. */
export function refuseType(field: Field): never {
  field.refuse(`type ${field.get("type")} is not supported`);
}

// ---------------------------------------------------------------- normalizer

/** @throws {FieldError} it has a rule that is not known */
export function normalizerOf(field: Field): Normalizer {
  const steps = stepsOf(field, "normalizers").map(normalizer);
  return (text, room) => steps.reduce((text, step) => step(text, room), text);
}

function normalizer(field: Field): Normalizer {
  const type = typeOf(field);
  const form = FORMS.find((form) => form === type);
  if (form !== undefined) {
    return (text, room) => {
      const found = normalize(text, form);
      room.take(found.length);
      return found;
    };
  }
  switch (type) {
    case "Prepend": {
      const prefix = field.get("prepend").text();
      if (prefix === "") field.get("prepend").refuse("is empty, which is not supported");
      return (text, room) => {
        room.take(prefix.length + text.length);
        return text === "" ? text : prefix + text;
      };
    }
    case "Replace": {
      // The library doubles what is put before the first character.
      const find = finderOf(field.get("pattern"), "nowhere");
      const content = field.get("content").text();
      return (text, room) => replaced(text, find(text, room), content, room);
    }
  }
  return refuseType(field);
}

/** A text with `content` in place of each match. */
export function replaced(text: string, matches: readonly Match[], content: string, room: Room): string {
  if (matches.length === 0) return text;
  room.take(text.length + matches.length * content.length);
  let found = "";
  let last = 0;
  for (const [start, end] of matches) {
    found += text.slice(last, start) + content;
    last = end;
  }
  return found + text.slice(last);
}

// ---------------------------------------------------------------- patterns

/** Where something begins and ends in a text, in UTF-16 units. */
export type Match = readonly [number, number];

/** Finds what a pattern matches, from left to right. */
export type Finder = (text: string, room: Room) => readonly Match[];

/**
 * @param field `{String: …}` or `{Regex: …}`
 * @param empty whether a match may be empty
 * @throws {FieldError} it is neither, or a regular expression that is not supported
 */
export function finderOf(field: Field, empty: "anywhere" | "nowhere" = "anywhere"): Finder {
  const regex = field.get("Regex");
  const string = field.get("String");
  if (regex.absent === string.absent) field.refuse("expected either a Regex or a String");
  if (regex.absent) {
    const wanted = string.text();
    if (wanted === "") string.refuse("is empty, which is not supported");
    return (text) => occurrences(text, wanted);
  }
  const source = regex.text();
  try {
    const pattern = new Pattern(source);
    if (empty === "nowhere" && pattern.mayBeEmpty) {
      regex.refuse(`${quote(source)}: matches of nothing are not supported here`);
    }
    // An empty text has no match, whatever the pattern.
    return (text, room) => text === "" ? [] : pattern.matches(text, room.steps);
  } catch (error) {
    if (!(error instanceof UnsupportedPattern)) throw error;
    return regex.refuse(`${quote(source)}: ${error.message}`);
  }
}

/** Where a text stands in another one; none of them overlap. */
function occurrences(text: string, wanted: string): Match[] {
  const found: Match[] = [];
  for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
    found.push([at, at + wanted.length]);
  }
  return found;
}

// ---------------------------------------------------------------- pre_tokenizer

/** GPT-2's pattern, as ByteLevel has it. */
const GPT2 = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;

/**
 * @param normalizers the steps before it
 * @throws {FieldError} it has a rule that is not known
 */
export function splitterOf(field: Field, normalizers: Field): Splitter {
  const steps = stepsOf(field, "pretokenizers");
  // Where a piece stands in the text is only known as long as nothing has changed it.
  const plain = stepsOf(normalizers, "normalizers").every((step) => typeOf(step) === "NFC");
  const splitters = steps.map((step, n) => splitter(step, plain && n === 0));
  return (pieces, room) => {
    return splitters.reduce((pieces, split) => split(pieces, room), pieces as Piece[]).filter(({ text }) =>
      text !== ""
    );
  };
}

function splitter(field: Field, first: boolean): Splitter {
  switch (typeOf(field)) {
    case "ByteLevel": {
      const prefix = field.get("add_prefix_space").flag();
      const pattern = field.get("use_regex").flag(true) ? new Pattern(GPT2) : undefined;
      return (pieces, room) => {
        return pieces.flatMap((piece) => {
          const text = prefix && !piece.text.startsWith(" ") ? " " + piece.text : piece.text;
          return pattern
            ? cut({ ...piece, text }, pattern.matches(text, room.steps), "Isolated", false, room)
            : [{ ...piece, text }];
        }).map((piece) => ({ ...piece, text: byteLetters(piece.text, room) }));
      };
    }
    case "Digits": {
      const behavior = field.get("individual_digits").flag() ? "Isolated" : "Contiguous";
      return each((piece, room) => cut(piece, numerics(piece.text), behavior, false, room));
    }
    case "Metaspace":
      return metaspace(field, first);
    case "Split": {
      const find = finderOf(field.get("pattern"));
      const behavior = behaviorOf(field.get("behavior"));
      const invert = field.get("invert").flag();
      return each((piece, room) => cut(piece, find(piece.text, room), behavior, invert, room));
    }
  }
  return refuseType(field);
}

function each(split: (piece: Piece, room: Room) => Piece[]): Splitter {
  return (pieces, room) => pieces.flatMap((piece) => split(piece, room));
}

const SCHEMES = ["always", "first", "never"] as const;

/** What a Metaspace says, as a pre_tokenizer and as a decoder. */
export function metaspaceOf(field: Field): { replacement: string; scheme: typeof SCHEMES[number] } {
  const given = field.get("prepend_scheme");
  const scheme = given.absent ? "always" : SCHEMES.find((scheme) => scheme === given.value);
  if (scheme === undefined) return given.refuse(`${given} is not supported`);
  if (field.get("add_prefix_space").value === false && scheme !== "never") given.refuse("contradicts add_prefix_space");
  return { replacement: field.get("replacement").character(), scheme };
}

function metaspace(field: Field, known: boolean): Splitter {
  const { replacement, scheme } = metaspaceOf(field);
  if (scheme === "first" && !known) {
    field.get("prepend_scheme").refuse('"first" is not supported behind other rules that change or cut the text');
  }
  const split = field.get("split").flag(true);
  return each((piece, room) => {
    let text = piece.text.replaceAll(" ", () => replacement);
    const prepend = scheme === "always" || (scheme === "first" && piece.first);
    if (prepend && !text.startsWith(replacement)) text = replacement + text;
    room.take(text.length);
    return split
      ? cut({ ...piece, text }, occurrences(text, replacement), "MergedWithNext", false, room)
      : [{ ...piece, text }];
  });
}

const BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"] as const;

/** What becomes of what a pattern matches. */
type Behavior = typeof BEHAVIORS[number];

function behaviorOf(field: Field): Behavior {
  const text = field.text();
  return BEHAVIORS.find((behavior) => behavior === text) ?? field.refuse(`${quote(text)} is not supported`);
}

/** Cuts a piece at matches. */
function cut(piece: Piece, matches: readonly Match[], behavior: Behavior, invert: boolean, room: Room): Piece[] {
  room.take(piece.text.length);
  const spans: { start: number; end: number; match: boolean }[] = [];
  let last = 0;
  for (const [start, end] of matches) {
    if (start > last) spans.push({ start: last, end: start, match: invert });
    spans.push({ start, end, match: !invert });
    last = end;
  }
  if (last < piece.text.length) spans.push({ start: last, end: piece.text.length, match: invert });
  return merged(spans, behavior).filter(({ start, end }) => end > start).map(({ start, end }) => {
    return { text: piece.text.slice(start, end), first: piece.first && start === 0 };
  });
}

interface Span {
  start: number;
  end: number;
  readonly match: boolean;
}

function merged(spans: Span[], behavior: Behavior): Span[] {
  if (behavior === "Isolated") return spans;
  if (behavior === "Removed") return spans.filter(({ match }) => !match);
  const back = behavior === "MergedWithNext";
  const found: Span[] = [];
  let previous = false;
  for (const span of back ? spans.reverse() : spans) {
    const joins = behavior === "Contiguous" ? span.match === previous : span.match && !previous;
    const before = found.at(-1);
    if (!joins || before === undefined) found.push({ ...span });
    else if (back) before.start = span.start;
    else before.end = span.end;
    previous = span.match;
  }
  return back ? found.reverse() : found;
}

const numericSet = lazy(() => new CodePoints(NUMERICS()));

function numerics(text: string): Match[] {
  const found: Match[] = [];
  const numeric = numericSet();
  let at = 0;
  for (const character of text) {
    if (numeric.has(character.codePointAt(0)!)) found.push([at, at + character.length]);
    at += character.length;
  }
  return found;
}

const encoder = new TextEncoder();

function byteLetters(text: string, room: Room): string {
  const bytes = encoder.encode(text);
  room.take(bytes.length);
  let found = "";
  for (const byte of bytes) found += BYTE_LETTERS[byte];
  return found;
}

// ---------------------------------------------------------------- model

/**
 * @param vocabulary the ids, by token
 * @throws {FieldError} it is no BPE, or has a rule that is not known
 */
export function modelOf(field: Field, vocabulary: ReadonlyMap<string, number>): Bpe {
  const dropout = field.get("dropout");
  if (!dropout.absent && dropout.value !== 0) dropout.refuse(`${dropout} is not supported`);
  for (const key of ["continuing_subword_prefix", "end_of_word_suffix"]) {
    const affix = field.get(key);
    if (!affix.absent && affix.text() !== "") affix.refuse(`${affix} is not supported`);
  }
  const unknown = field.get("unk_token");
  return new Bpe(vocabulary, field.get("merges"), {
    unknown: unknown.absent ? undefined : unknown.text(),
    fuseUnknown: field.get("fuse_unk").flag(false),
    byteFallback: field.get("byte_fallback").flag(false),
    ignoreMerges: field.get("ignore_merges").flag(false),
  });
}

// ---------------------------------------------------------------- post_processor

/** What a whole text gets: ids before it and behind it. */
export interface Template {
  readonly before: readonly number[];
  readonly behind: readonly number[];
}

/**
 * @param size ids that the model has
 * @throws {FieldError} it does something else
 */
export function templateOf(field: Field, size: number): Template {
  const steps = stepsOf(field, "processors").filter((step) => typeOf(step) !== "ByteLevel");
  if (steps.length === 0) return { before: [], behind: [] };
  const [step] = steps;
  if (steps.length > 1) field.refuse("more than one of its parts adds tokens, which is not supported");
  if (typeOf(step) !== "TemplateProcessing") return refuseType(step);
  const special = step.get("special_tokens");
  const pieces = step.get("single").list().map((piece) => {
    const sequence = piece.get("Sequence");
    if (!sequence.absent) {
      return sequence.get("id").value === "A" ? "text" as const : sequence.refuse("expected the sequence A");
    }
    const id = piece.get("SpecialToken").get("id").text();
    return special.get(id).get("ids").list().map((each) => {
      return each.count() < size
        ? each.count()
        : each.refuse(`the model's vocabulary (config.json) ends at ${size - 1}`);
    });
  });
  const text = pieces.indexOf("text");
  if (text < 0 || pieces.lastIndexOf("text") !== text) step.get("single").refuse("expected the text once");
  const ids = (part: typeof pieces) => part.flat() as number[];
  return { before: ids(pieces.slice(0, text)), behind: ids(pieces.slice(text + 1)) };
}
