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

import { quote } from "../errors.ts";
import { Bpe } from "./bpe.ts";
import type { Field } from "./field.ts";
import { Steps } from "./regex/machine.ts";
import { Pattern } from "./regex/pattern.ts";
import { UnsupportedPattern } from "./regex/tree.ts";
import { FORMS, normalize } from "./unicode.ts";

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

/** The type of a part. @throws {FieldError} it has none */
export function typeOf(field: Field): string {
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
export function occurrences(text: string, wanted: string): Match[] {
  const found: Match[] = [];
  for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
    found.push([at, at + wanted.length]);
  }
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
