/**
 * The rules of a tokenizer.json for encoding text, as in the `tokenizers` library of Rust and Python (0.23.3). Other rules are
 * refused by name.
 *
 * | part | rules |
 * | ---- | ----- |
 * | normalizer | NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence |
 * | pre_tokenizer | ByteLevel, Digits, Metaspace, Split, Sequence |
 * | model | BPE without dropout, prefix and suffix |
 * | post_processor | ByteLevel, TemplateProcessing, Sequence |
 *
 * `truncation` and `padding` are ignored, as transformers does by default. pre_tokenizer.ts has the pre-tokenizers.
 *
 * @module
 */

import { quote } from "../errors.ts";
import { Bpe } from "./bpe.ts";
import type { Field } from "./field.ts";
import { Steps } from "./regex/machine.ts";
import { Pattern } from "./regex/pattern.ts";
import { UnsupportedPattern } from "./regex/tree.ts";
import { FORMS, normalize } from "./unicode.ts";

/** The rules make a text grow more than any known tokenizer does. */
export class TooLarge extends Error {
  override name = "TooLarge";
}

/** The limits of all rules together for one text: how much they may write, and how many steps patterns may take. */
export class Room {
  /** The steps of the patterns. */
  readonly steps = new Steps();
  #left = 10_000_000;

  constructor(text: string) {
    this.add(text.length);
  }

  /** Raises the limits for more of the text. @param units UTF-16 units */
  add(units: number): void {
    this.#left += 100 * units;
    this.steps.add(units);
  }

  /** Counts text that is about to be written. @param units UTF-16 units @throws {TooLarge} over the limit */
  take(units: number): void {
    this.#left -= units;
    if (this.#left < 0) throw new TooLarge("the rules make this text too long");
  }
}

/** Normalizes a text. */
export type Normalizer = (text: string, room: Room) => string;

/** The type of a rule. @throws {FieldError} it has none */
export function typeOf(field: Field): string {
  const type = field.get("type");
  return type.absent ? type.refuse("is missing") : type.text();
}

/** The limit for the rules of a part, and for nested sequences; known tokenizers have up to 8. */
const MAX_STEPS = 30;

/** The rules of a part: of a Sequence all of its rules, of null none. */
export function stepsOf(field: Field, list: string, depth = 0): Field[] {
  if (field.absent) return [];
  if (depth > MAX_STEPS) field.refuse("has too many nested sequences");
  if (typeOf(field) !== "Sequence") return [field];
  const steps = field.get(list).list().flatMap((part) => {
    // Only the part itself may be null.
    part.object();
    return stepsOf(part, list, depth + 1);
  });
  return steps.length <= MAX_STEPS ? steps : field.refuse(`has more than ${MAX_STEPS} rules`);
}

/** Refuses a rule because of its type. */
export function refuseType(field: Field): never {
  field.refuse(`type ${field.get("type")} is not supported`);
}

// ---------------------------------------------------------------- normalizer

/** The normalizer of a tokenizer.json. @throws {FieldError} it has an unsupported rule */
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
      if (prefix === "") field.get("prepend").refuse("an empty string is not supported");
      return (text, room) => {
        room.take(prefix.length + text.length);
        return text === "" ? text : prefix + text;
      };
    }
    case "Replace": {
      // For an empty match before the first character, the library inserts the content twice.
      const find = finderOf(field.get("pattern"), "nowhere");
      const content = field.get("content").text();
      return (text, room) => replaced(text, find(text, room), content, room);
    }
  }
  return refuseType(field);
}

/** A text with each match replaced by `content`. */
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

/** The beginning and the end of a match, in UTF-16 units. */
export type Match = readonly [number, number];

/** Finds the matches of a pattern, from left to right. */
export type Finder = (text: string, room: Room) => readonly Match[];

/**
 * The finder of a pattern.
 *
 * @param field `{String: …}` or `{Regex: …}`
 * @param empty where empty matches are allowed
 * @throws {FieldError} it is neither, or an unsupported regular expression
 */
export function finderOf(field: Field, empty: "anywhere" | "nowhere" = "anywhere"): Finder {
  const regex = field.get("Regex");
  const string = field.get("String");
  if (regex.absent === string.absent) field.refuse("expected either a Regex or a String");
  if (regex.absent) {
    const wanted = string.text();
    if (wanted === "") string.refuse("an empty string is not supported");
    return (text) => occurrences(text, wanted);
  }
  const source = regex.text();
  try {
    const pattern = new Pattern(source);
    if (empty === "nowhere" && pattern.mayBeEmpty) {
      regex.refuse(`${quote(source)}: empty matches are not supported here`);
    }
    // In the library an empty text has no matches.
    return (text, room) => text === "" ? [] : pattern.matches(text, room.steps);
  } catch (error) {
    if (!(error instanceof UnsupportedPattern)) throw error;
    return regex.refuse(`${quote(source)}: ${error.message}`);
  }
}

/** The positions of a string in a text, without overlaps. */
export function occurrences(text: string, wanted: string): Match[] {
  const found: Match[] = [];
  for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
    found.push([at, at + wanted.length]);
  }
  return found;
}

// ---------------------------------------------------------------- model

/**
 * The model of a tokenizer.json.
 *
 * @param vocabulary ids by token
 * @param tokens tokens by id
 * @throws {FieldError} it is not BPE, or uses an unsupported option
 */
export function modelOf(
  field: Field,
  vocabulary: ReadonlyMap<string, number>,
  tokens: readonly (string | undefined)[],
): Bpe {
  const dropout = field.get("dropout");
  if (!dropout.absent && dropout.value !== 0) dropout.refuse(`${dropout} is not supported`);
  for (const key of ["continuing_subword_prefix", "end_of_word_suffix"]) {
    const affix = field.get(key);
    if (!affix.absent && affix.text() !== "") affix.refuse(`${affix} is not supported`);
  }
  const unknown = field.get("unk_token");
  return new Bpe(vocabulary, tokens, field.get("merges"), {
    unknown: unknown.absent ? undefined : unknown.text(),
    fuseUnknown: field.get("fuse_unk").flag(false),
    byteFallback: field.get("byte_fallback").flag(false),
    ignoreMerges: field.get("ignore_merges").flag(false),
  });
}

// ---------------------------------------------------------------- post_processor

/** The ids that the post-processor adds before and after a text. */
export interface Template {
  readonly before: readonly number[];
  readonly after: readonly number[];
}

/**
 * The post-processor of a tokenizer.json.
 *
 * @param size the number of token ids of the model
 * @throws {FieldError} it has an unsupported rule
 */
export function templateOf(field: Field, size: number): Template {
  const steps = stepsOf(field, "processors").filter((step) => typeOf(step) !== "ByteLevel");
  if (steps.length === 0) return { before: [], after: [] };
  const [step] = steps;
  if (steps.length > 1) field.refuse("more than one rule that adds tokens is not supported");
  if (typeOf(step) !== "TemplateProcessing") return refuseType(step);
  const special = step.get("special_tokens");
  const pieces = step.get("single").list().map((piece) => {
    const sequence = piece.get("Sequence");
    if (!sequence.absent) {
      return sequence.get("id").value === "A" ? "text" as const : sequence.refuse('expected the id "A"');
    }
    const id = piece.get("SpecialToken").get("id").text();
    return special.get(id).get("ids").list().map((each) => {
      return each.count() < size
        ? each.count()
        : each.refuse(`the model's vocabulary (config.json) ends at ${size - 1}`);
    });
  });
  const text = pieces.indexOf("text");
  if (text < 0 || pieces.lastIndexOf("text") !== text) step.get("single").refuse("expected one Sequence");
  const ids = (part: typeof pieces) => part.flat() as number[];
  return { before: ids(pieces.slice(0, text)), after: ids(pieces.slice(text + 1)) };
}
