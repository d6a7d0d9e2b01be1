/**
 * Byte-pair encoding: each character of a word becomes an id, then pairs of ids are merged, the earliest merge first.
 *
 * @module
 */

import { quote } from "../errors.ts";
import { Field } from "./field.ts";

/** How characters outside of the vocabulary are encoded, by fields of tokenizer.json. Without options they are dropped. */
export interface BpeOptions {
  /** `unk_token` */
  readonly unknown?: string;
  /** `fuse_unk`: one token for several unknown characters in a row */
  readonly fuseUnknown: boolean;
  /** `byte_fallback`: a token `<0x00>` to `<0xFF>` for each byte, if the vocabulary has them all */
  readonly byteFallback: boolean;
  /** `ignore_merges`: a word in the vocabulary is encoded as its token, without merges */
  readonly ignoreMerges: boolean;
}

/** A character needs the `unk_token`, which the vocabulary lacks. */
export class NoUnknownToken extends Error {
  override name = "NoUnknownToken";
}

/** The limits of the cache: words, and UTF-16 units of a word. */
const CACHE_WORDS = 20_000;
const CACHE_LENGTH = 100;

/** More than any position in a text: a pending merge is its rank times this, plus its position. */
const POSITIONS = 2 ** 29;
const MAX_MERGES = 2 ** 24;

/** A BPE model. */
export class Bpe {
  readonly #ids: ReadonlyMap<string, number>;
  readonly #options: BpeOptions;
  readonly #pairs: Pairs;
  /** The id of the merged token, by rank. */
  readonly #products: Int32Array;
  readonly #cache = new Map<string, readonly number[]>();
  readonly #encoder = new TextEncoder();

  /**
   * @param tokens tokens by id
   * @param merges pairs of tokens, as lists or separated by a space, by rank
   * @throws {FieldError} a merge is not a pair, or the vocabulary lacks one of its tokens
   */
  constructor(
    ids: ReadonlyMap<string, number>,
    tokens: readonly (string | undefined)[],
    merges: Field,
    options: BpeOptions,
  ) {
    this.#ids = ids;
    this.#options = options;
    const list = merges.rawList();
    if (list.length >= MAX_MERGES) merges.refuse(`more than ${MAX_MERGES} merges`);
    const texts = typeof list[0] === "string";
    this.#pairs = new Pairs(list.length);
    this.#products = new Int32Array(list.length);
    let product: number | undefined;
    // A loop without closures, for up to a quarter of a million merges.
    for (let rank = 0; rank < list.length; rank++) {
      const merge = list[rank];
      let left: unknown, right: unknown;
      if (texts && typeof merge === "string") {
        // Some files contain the first line of a merges.txt.
        if (merge.startsWith("#version")) continue;
        const space = merge.indexOf(" ");
        left = space < 0 ? undefined : merge.slice(0, space);
        right = merge.slice(space + 1);
      } else if (!texts && Array.isArray(merge) && merge.length === 2) [left, right] = merge;
      const first = ids.get(left as string);
      const second = ids.get(right as string);
      if (typeof left === "string" && typeof right === "string") {
        // In most files the merged tokens have consecutive ids. A comparison takes less time than finding a new string.
        const merged = left + right;
        product = product !== undefined && tokens[product + 1] === merged ? product + 1 : ids.get(merged);
      } else product = undefined;
      if (first === undefined || second === undefined || product === undefined) {
        return new Field(merges.path, `${merges.name}[${rank}]`, merge).refuse(
          "expected a pair of tokens, in the form of the first merge; both and the merged token must be in the vocabulary",
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

  /** The ids of the characters of a word. */
  #symbols(word: string): number[] {
    const { unknown, fuseUnknown, byteFallback } = this.#options;
    const symbols: number[] = [];
    // The library holds an unknown token back until the next known character, and puts bytes before it.
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
          `the vocabulary lacks the unk_token ${quote(unknown)}, which ${quote(character)} needs`,
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
    // A doubly linked list. The right element of a merged pair is removed, and its symbol set to -1.
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
      // An earlier merge may have changed the pair.
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

/** A hash table of ranks by pairs of ids; filling a Map would take several times as long. */
class Pairs {
  /** Random factors, so that no file can be crafted to make all pairs collide. */
  readonly #factors = crypto.getRandomValues(new Int32Array(2)).map((factor) => factor | 1);
  readonly #shift: number;
  /** Three numbers for each slot: the ids and the rank, which is -1 if the slot is free. */
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

  /** The slot of a pair, or the free one for it. */
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

/** A binary heap of numbers, the least first. */
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
