/**
 * Ids to text, a piece at a time. A token may end within a character: a piece is given when it is complete, and all
 * pieces together are the text. What ids mean is what the `decoder` of tokenizer.json says, as the `tokenizers` library
 * of Python and Rust computes it.
 *
 * @module
 */

import { type Part, type TokenizerFile, UnknownRule } from "./rules.ts";

/** Turns tokens into text, in their order. */
export interface TextStream {
  /** The text that is complete with this token; often none. */
  push(id: number): string;
  /** The rest: U+FFFD for the bytes of a character that has not come to its end. */
  end(): string;
}

/** One step of a decoder: takes text of a token, gives text. */
interface Step {
  push(text: string): string;
  end(): string;
}

/** Makes streams of the text of ids. */
export class Detokenizer {
  readonly #contents: readonly (string | undefined)[];
  readonly #make: () => Step;

  /** @throws {UnknownRule} the file has a decoder that is not known */
  constructor(file: TokenizerFile) {
    const contents: (string | undefined)[] = [];
    const vocab = file.model.vocab as Record<string, number>;
    // Object.entries of a whole vocabulary takes several times as long.
    for (const content in vocab) contents[vocab[content]] = content;
    for (const { id, content } of file.added_tokens ?? []) contents[id] = content;
    this.#contents = contents;
    this.#make = stepsOf(file.decoder);
  }

  /** A text that begins. */
  stream(): TextStream {
    const step = this.#make();
    return {
      // A vocabulary may be padded: ids past the tokenizer's have no text.
      push: (id) => {
        const content = this.#contents[id];
        return content === undefined ? "" : step.push(content);
      },
      end: () => step.end(),
    };
  }

  /** The text of ids. */
  decode(ids: readonly number[]): string {
    const stream = this.stream();
    return ids.map((id) => stream.push(id)).join("") + stream.end();
  }

  /** The id of a token, as it is written in the vocabulary. */
  idOf(content: string): number | undefined {
    const id = this.#contents.indexOf(content);
    return id < 0 ? undefined : id;
  }
}

function stepsOf(decoder: Part | null | undefined): () => Step {
  if (!decoder) throw new UnknownRule("decoder", "none");
  const parts = decoder.type === "Sequence" ? decoder.decoders as Part[] : [decoder];
  if (!Array.isArray(parts)) throw new UnknownRule("decoder", "decoders: expected a list");
  const makers = parts.map(makerOf);
  // Strip looks at the whole text, which Fuse makes of the tokens; before Fuse it would look at each token.
  const kinds = parts.map(({ type }) => type);
  const strip = kinds.indexOf("Strip");
  if (strip >= 0 && !kinds.slice(0, strip).includes("Fuse")) throw new UnknownRule("decoder", "Strip without Fuse");
  if (kinds.includes("ByteLevel") && kinds.length > 1) throw new UnknownRule("decoder", "ByteLevel in a Sequence");
  return () => chain(makers.map((make) => make()));
}

function chain(steps: readonly Step[]): Step {
  const from = (first: number, text: string) => {
    // Nothing is no token: it must not reach a step that counts them.
    for (let n = first; n < steps.length && text !== ""; n++) text = steps[n].push(text);
    return text;
  };
  return {
    push: (text) => from(0, text),
    end: () => steps.map((step, n) => from(n + 1, step.end())).join(""),
  };
}

function makerOf(part: Part): () => Step {
  const each = (change: (text: string) => string) => () => ({ push: change, end: () => "" });
  switch (part.type) {
    case "ByteLevel":
      return byteLevel;
    case "ByteFallback":
      return byteFallback;
    case "Fuse":
      return each((text) => text);
    case "Replace": {
      const from = (part.pattern as Part | undefined)?.String;
      if (typeof from !== "string") throw new UnknownRule("decoder", "Replace with a pattern that is not a String");
      return each((text) => text.replaceAll(from, () => String(part.content)));
    }
    case "Strip":
      if (part.stop) throw new UnknownRule("decoder", "stop of Strip");
      return () => stripped(String(part.content), Number(part.start));
    case "Metaspace":
      return () => metaspace(part.prepend_scheme !== "never" && part.add_prefix_space !== false);
  }
  throw new UnknownRule("decoder", `type ${JSON.stringify(part.type)?.slice(0, 80)}`);
}

/** Code points to bytes: printable Latin-1 stands for itself, the other bytes follow from U+0100 on (GPT-2). */
const BYTES: ReadonlyMap<string, number> = (() => {
  const plain = (byte: number) => (byte > 32 && byte < 127) || (byte > 160 && byte < 256 && byte !== 173);
  let next = 256;
  const all = Array.from({ length: 256 }, (_, byte) => byte);
  return new Map(all.map((byte) => [String.fromCodePoint(plain(byte) ? byte : next++), byte]));
})();

function byteLevel(): Step {
  const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
  const encoder = new TextEncoder();
  return {
    push(token) {
      const bytes = Array.from(token, (c) => BYTES.get(c));
      // An added token may have characters that stand for no byte.
      const known = bytes.every((byte) => byte !== undefined);
      return utf8.decode(known ? Uint8Array.from(bytes as number[]) : encoder.encode(token), { stream: true });
    },
    end: () => utf8.decode(),
  };
}

/** Tokens `<0x00>` to `<0xFF>` are bytes. A run of them is UTF-8, or each is U+FFFD. */
function byteFallback(): Step {
  const utf8 = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });
  let run: number[] = [];
  const end = () => {
    const bytes = Uint8Array.from(run);
    run = [];
    try {
      return utf8.decode(bytes);
    } catch {
      return "\ufffd".repeat(bytes.length);
    }
  };
  return {
    push(token) {
      const byte = /^<0x([0-9A-Fa-f]{2})>$/.exec(token)?.[1];
      if (byte === undefined) return end() + token;
      run.push(parseInt(byte, 16));
      return "";
    },
    end,
  };
}

/** Leaves out up to `count` characters `content` at the beginning of the text. */
function stripped(content: string, count: number): Step {
  let left = count;
  return {
    push(text) {
      while (left > 0 && text.startsWith(content)) {
        text = text.slice(content.length);
        left--;
      }
      if (text !== "") left = 0;
      return text;
    },
    end: () => "",
  };
}

/** ▁ is a space; in the first token it is nothing where one was put before the text. */
function metaspace(prepended: boolean): Step {
  let first = prepended;
  return {
    push(token) {
      const text = token.replaceAll("▁", first ? "" : " ");
      first = false;
      return text;
    },
    end: () => "",
  };
}
