/**
 * Byte-pair encoding: the characters of a word become ids, and pairs of ids become one, that with the earliest merge first.
 *
 * @module
 */

import { quote } from "../errors.ts";
import { Field } from "./field.ts";

/** What becomes of characters that the vocabulary lacks, as tokenizer.json names it; otherwise they are dropped. */
export interface BpeOptions {
  /** `unk_token` */
  readonly unknown?: string;
  /** `fuse_unk`: one token for several in a row */
  readonly fuseUnknown: boolean;
  /** `byte_fallback`: a token `<0x00>` to `<0xFF>` for each byte, where all of them are there */
  readonly byteFallback: boolean;
  /** `ignore_merges`: a word that is a token is not put together from merges */
  readonly ignoreMerges: boolean;
}

/** A character that needs the `unk_token`, which the vocabulary lacks. */
export class NoUnknownToken extends Error {
  override name = "NoUnknownToken";
}

/** Words that are remembered, and their length in UTF-16 units. */
const CACHE_WORDS = 20_000;
const CACHE_LENGTH = 100;

/** Above any position in a text: a merge that waits is its rank times this, plus where it is. */
const POSITIONS = 2 ** 29;
const MAX_MERGES = 2 ** 24;

/** A BPE model. */
export class Bpe {
  readonly #ids: ReadonlyMap<string, number>;
  readonly #options: BpeOptions;
  readonly #pairs: Pairs;
  /** By rank: the id of the product. */
  readonly #products: Int32Array;
  readonly #cache = new Map<string, readonly number[]>();
  readonly #encoder = new TextEncoder();

  /**
   * @param merges pairs of tokens, as lists or separated by a space, the first merge first
   * @throws {FieldError} a merge is no pair, or of tokens that the vocabulary lacks
   */
  constructor(ids: ReadonlyMap<string, number>, merges: Field, options: BpeOptions) {
    this.#ids = ids;
    this.#options = options;
    const list = merges.rawList();
    if (list.length >= MAX_MERGES) merges.refuse(`more than ${MAX_MERGES} merges`);
    const texts = typeof list[0] === "string";
    this.#pairs = new Pairs(list.length);
    this.#products = new Int32Array(list.length);
    // A loop without closures: there are as many as a quarter of a million.
    for (let rank = 0; rank < list.length; rank++) {
      const merge = list[rank];
      let left: unknown, right: unknown;
      if (texts && typeof merge === "string") {
        // The first line of a merges.txt may be here.
        if (merge.startsWith("#version")) continue;
        const space = merge.indexOf(" ");
        left = space < 0 ? undefined : merge.slice(0, space);
        right = merge.slice(space + 1);
      } else if (!texts && Array.isArray(merge) && merge.length === 2) [left, right] = merge;
      const first = ids.get(left as string);
      const second = ids.get(right as string);
      const product = typeof left === "string" && typeof right === "string" ? ids.get(left + right) : undefined;
      if (first === undefined || second === undefined || product === undefined) {
        return new Field(merges.path, `${merges.name}[${rank}]`, merge).refuse(
          "expected a pair of tokens, written as the first one is, that are in the vocabulary as well as their product",
        );
      }
      this.#products[rank] = product;
      this.#pairs.set(first, second, rank);
    }
  }

  /** Appends the ids of a word. @throws {NoUnknownToken} */
  encode(word: string, ids: number[]): void {
    if (word === "") return;
    if (this.#options.ignoreMerges) {
      const id = this.#ids.get(word);
      if (id !== undefined) {
        ids.push(id);
        return;
      }
    }
    let found = this.#cache.get(word);
    if (found === undefined) {
      found = this.#merged(this.#symbols(word));
      if (word.length <= CACHE_LENGTH && this.#cache.size < CACHE_WORDS) this.#cache.set(word, found);
    }
    for (const id of found) ids.push(id);
  }

  /** The ids of the characters. */
  #symbols(word: string): number[] {
    const { unknown, fuseUnknown, byteFallback } = this.#options;
    const symbols: number[] = [];
    // The library keeps an unknown token back until the next known character, and bytes overtake it.
    let waiting: number | undefined;
    for (const character of word) {
      const id = this.#ids.get(character);
      if (id !== undefined) {
        if (waiting !== undefined) symbols.push(waiting);
        waiting = undefined;
        symbols.push(id);
        continue;
      }
      const bytes = byteFallback ? this.#bytes(character) : undefined;
      if (bytes !== undefined) {
        symbols.push(...bytes);
        continue;
      }
      if (unknown === undefined) continue;
      if (waiting !== undefined && fuseUnknown) continue;
      if (waiting !== undefined) symbols.push(waiting);
      waiting = this.#ids.get(unknown);
      if (waiting === undefined) {
        throw new NoUnknownToken(
          `unk_token ${quote(unknown)} is not in the vocabulary, and ${quote(character)} needs it`,
        );
      }
    }
    if (waiting !== undefined) symbols.push(waiting);
    return symbols;
  }

  #bytes(character: string): number[] | undefined {
    const ids = Array.from(this.#encoder.encode(character), (byte) => {
      return this.#ids.get(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
    });
    return ids.every((id) => id !== undefined) ? ids : undefined;
  }

  #merged(symbols: number[]): number[] {
    const { length } = symbols;
    if (length < 2) return symbols;
    // A list in both directions; the right one of a merged pair is out of it, with -1 as its symbol.
    const next = Int32Array.from(symbols, (_, n) => n + 1);
    const previous = Int32Array.from(symbols, (_, n) => n - 1);
    const waiting = new Heap();
    const add = (at: number) => {
      const right = next[at];
      if (at < 0 || right >= length) return;
      const rank = this.#pairs.get(symbols[at], symbols[right]);
      if (rank >= 0) waiting.push(rank * POSITIONS + at);
    };
    for (let at = 0; at < length - 1; at++) add(at);
    for (let key = waiting.pop(); key !== undefined; key = waiting.pop()) {
      const at = key % POSITIONS;
      const rank = (key - at) / POSITIONS;
      const right = next[at];
      // One of the pair may be another one meanwhile.
      if (symbols[at] < 0 || right >= length || this.#pairs.get(symbols[at], symbols[right]) !== rank) continue;
      symbols[at] = this.#products[rank];
      symbols[right] = -1;
      next[at] = next[right];
      if (next[at] < length) previous[next[at]] = at;
      add(previous[at]);
      add(at);
    }
    return symbols.filter((symbol) => symbol >= 0);
  }
}

/** Ranks by pairs of ids: a Map of so many takes several times as long to fill. */
class Pairs {
  /** Random factors: no file can be made so that its pairs are all in one place. */
  readonly #factors = crypto.getRandomValues(new Int32Array(2)).map((factor) => factor | 1);
  readonly #shift: number;
  /** Three numbers a place: the ids and the rank, which is -1 where the place is free. */
  readonly #places: Int32Array;

  constructor(count: number) {
    const bits = Math.ceil(Math.log2(2 * count + 16));
    this.#shift = 32 - bits;
    this.#places = new Int32Array(3 * 2 ** bits).fill(-1);
  }

  set(left: number, right: number, rank: number): void {
    const at = this.#place(left, right);
    this.#places[at] = left;
    this.#places[at + 1] = right;
    this.#places[at + 2] = rank;
  }

  /** -1 if there is none. */
  get(left: number, right: number): number {
    return this.#places[this.#place(left, right) + 2];
  }

  /** Where a pair is, or would be. */
  #place(left: number, right: number): number {
    const places = this.#places;
    let at = 3 * ((Math.imul(left, this.#factors[0]) + Math.imul(right, this.#factors[1])) >>> this.#shift);
    while (places[at + 2] >= 0 && (places[at] !== left || places[at + 1] !== right)) {
      at += 3;
      if (at === places.length) at = 0;
    }
    return at;
  }
}

/** Numbers, the least first. */
class Heap {
  readonly #items: number[] = [];

  push(item: number): void {
    const items = this.#items;
    let at = items.push(item) - 1;
    while (at > 0) {
      const up = (at - 1) >> 1;
      if (items[up] <= item) break;
      items[at] = items[up];
      at = up;
    }
    items[at] = item;
  }

  pop(): number | undefined {
    const items = this.#items;
    const least = items[0];
    const last = items.pop();
    if (last === undefined || items.length === 0) return least;
    let at = 0;
    for (;;) {
      let down = 2 * at + 1;
      if (down >= items.length) break;
      if (down + 1 < items.length && items[down + 1] < items[down]) down++;
      if (items[down] >= last) break;
      items[at] = items[down];
      at = down;
    }
    items[at] = last;
    return least;
  }
}
