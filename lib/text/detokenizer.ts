/**
 * Decodes token ids to text incrementally, by the `decoder` of tokenizer.json, as the `tokenizers` library of Rust and
 * Python does. A token may end within a character: text is returned once it is complete.
 *
 * @module
 */

import { BYTE_LETTERS } from "./byte_letters.ts";
import type { Field } from "./field.ts";
import { metaspaceOf } from "./pre_tokenizer.ts";
import { finderOf, refuseType, replaced, Room, stepsOf } from "./rules.ts";

/** Decodes the tokens of one text, in order. */
export interface TextStream {
  /** Returns the text that this token completes, which may be empty. */
  push(id: number): string;
  /** Returns the rest of the text: U+FFFD for an incomplete character. */
  end(): string;
}

/** One rule of a decoder: takes a token, and returns the tokens that it completes. */
interface Step {
  push(token: string): readonly string[];
  end(): readonly string[];
}

/** The UTF-16 units by which each token raises the limits of {@link Room}. */
const ROOM_EACH = 100;

/** Decodes token ids. */
export class Detokenizer {
  readonly #contentOf: (id: number) => string | undefined;
  readonly #make: (room: Room) => Step;

  /**
   * @param decoder the field of tokenizer.json
   * @param contentOf the token of an id; undefined if it has none, as the padding of a vocabulary
   * @throws {FieldError} the decoder has an unsupported rule
   */
  constructor(decoder: Field, contentOf: (id: number) => string | undefined) {
    this.#contentOf = contentOf;
    this.#make = decoderOf(decoder);
  }

  /** Begins a text. */
  stream(): TextStream {
    const room = new Room("");
    const step = this.#make(room);
    return {
      push: (id) => {
        const content = this.#contentOf(id);
        room.add(ROOM_EACH);
        return content === undefined ? "" : step.push(content).join("");
      },
      end: () => step.end().join(""),
    };
  }

  /** Decodes a whole text. */
  decode(ids: readonly number[]): string {
    const stream = this.stream();
    return ids.map((id) => stream.push(id)).join("") + stream.end();
  }
}

function decoderOf(decoder: Field): (room: Room) => Step {
  if (decoder.absent) return () => spaced();
  const parts = stepsOf(decoder, "decoders");
  // Fuse joins all tokens to one; after it, only a rule for the beginning of a token can work incrementally.
  let fused = false;
  const makers = parts.map((part) => {
    const type = part.get("type").text();
    if (type === "ByteLevel" && parts.length > 1) part.refuse("ByteLevel in a Sequence is not supported");
    if (fused && type !== "Strip") part.refuse(`${type} after Fuse is not supported`);
    fused ||= type === "Fuse";
    return makerOf(part, type, fused);
  });
  return (room) => chain(makers.map((make) => make(room)));
}

function chain(steps: readonly Step[]): Step {
  const from = (first: number, tokens: readonly string[]) => {
    for (let n = first; n < steps.length; n++) tokens = tokens.flatMap((token) => steps[n].push(token));
    return tokens;
  };
  return {
    push: (token) => from(0, [token]),
    end: () => steps.flatMap((step, n) => from(n + 1, step.end())),
  };
}

/** Without a decoder, tokens are separated by spaces. */
function spaced(): Step {
  let space = "";
  return {
    push(token) {
      const text = space + token;
      space = " ";
      return [text];
    },
    end: () => [],
  };
}

/** @param fused whether the rule gets one token in pieces */
function makerOf(part: Field, type: string, fused: boolean): (room: Room) => Step {
  const each = (change: (token: string) => string) => () => ({
    push: (token: string) => [change(token)],
    end: () => [],
  });
  switch (type) {
    case "ByteLevel":
      return byteLevel;
    case "ByteFallback":
      return byteFallback;
    case "Fuse":
      return each((token) => token);
    case "Replace": {
      const find = finderOf(part.get("pattern"));
      const content = part.get("content").text();
      return (room) => each((token) => replaced(token, find(token, room), content, room))();
    }
    case "Strip": {
      const content = part.get("content").character();
      if (part.get("stop").count() !== 0) part.get("stop").refuse("expected 0; other values are not supported");
      const count = part.get("start").count();
      const make = () => stripped(content, count);
      return fused ? make : each((token) => make().push(token).join(""));
    }
    case "Metaspace": {
      const { replacement, scheme } = metaspaceOf(part);
      return () => metaspace(replacement, scheme !== "never");
    }
  }
  return refuseType(part);
}

const BYTES: ReadonlyMap<string, number> = new Map(BYTE_LETTERS.map((letter, byte) => [letter, byte]));

function byteLevel(): Step {
  const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
  const encoder = new TextEncoder();
  return {
    push(token) {
      const bytes = Array.from(token, (c) => BYTES.get(c));
      // An added token may contain characters that are not byte letters.
      const known = bytes.every((byte) => byte !== undefined);
      return [utf8.decode(known ? Uint8Array.from(bytes as number[]) : encoder.encode(token), { stream: true })];
    },
    end: () => [utf8.decode()],
  };
}

/** Tokens `<0x00>` to `<0xFF>` are bytes. A run of them is decoded as UTF-8; if it is invalid, each byte is U+FFFD. */
function byteFallback(): Step {
  const utf8 = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });
  let run: number[] = [];
  const end = (): string[] => {
    const bytes = Uint8Array.from(run);
    run = [];
    if (bytes.length === 0) return [];
    try {
      return [utf8.decode(bytes)];
    } catch {
      return Array.from(bytes, () => "\ufffd");
    }
  };
  return {
    push(token) {
      // Rust's parser accepts a plus sign.
      const byte = /^<0x([0-9A-Fa-f]{2}|\+[0-9A-Fa-f])>$/.exec(token)?.[1];
      if (byte === undefined) return [...end(), token];
      run.push(parseInt(byte, 16));
      return [];
    },
    end,
  };
}

/** Removes up to `count` characters `content` from the beginning of a text that arrives in pieces. */
function stripped(content: string, count: number): Step {
  let left = count;
  return {
    push(text) {
      let start = 0;
      for (; left > 0 && text.startsWith(content, start); left--) start += content.length;
      if (start < text.length) left = 0;
      return [text.slice(start)];
    },
    end: () => [],
  };
}

/** Replaces the replacement character by a space; in the first token by nothing, if one was prepended to the text. */
function metaspace(replacement: string, prepended: boolean): Step {
  let first = prepended;
  return {
    push(token) {
      const text = token.replaceAll(replacement, first ? "" : " ");
      first = false;
      return [text];
    },
    end: () => [],
  };
}
