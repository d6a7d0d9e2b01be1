/**
 * The `pre_tokenizer` of a tokenizer.json: cuts a text into the pieces that the model encodes one by one.
 *
 * @module
 */

import { quote } from "../errors.ts";
import { BYTE_LETTERS } from "./byte_letters.ts";
import type { Field } from "./field.ts";
import { Pattern } from "./regex/pattern.ts";
import { finderOf, type Match, occurrences, refuseType, type Room, stepsOf, typeOf } from "./rules.ts";
import { CodePoints, lazy, NUMERICS } from "./unicode.ts";

/** A piece of a text; `first` if the text begins with it. */
export interface Piece {
  readonly text: string;
  readonly first: boolean;
}

/** Splits pieces. */
export type Splitter = (pieces: readonly Piece[], room: Room) => Piece[];

/** GPT-2's pattern, which ByteLevel uses. */
const GPT2 = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;

/**
 * The pre-tokenizer of a tokenizer.json.
 *
 * @param normalizers the normalizer before it
 * @throws {FieldError} it has an unsupported rule
 */
export function splitterOf(field: Field, normalizers: Field): Splitter {
  const steps = stepsOf(field, "pretokenizers");
  // The position of a piece in the text is known only if no earlier rule changed the text.
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

/** The settings of a Metaspace, as a pre-tokenizer or a decoder. @throws {FieldError} */
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
    field.get("prepend_scheme").refuse('"first" is not supported after other rules that change or split the text');
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

/** How matches are split from the text between them. */
type Behavior = typeof BEHAVIORS[number];

function behaviorOf(field: Field): Behavior {
  const text = field.text();
  return BEHAVIORS.find((behavior) => behavior === text) ?? field.refuse(`${quote(text)} is not supported`);
}

/** Splits a piece at matches. */
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
