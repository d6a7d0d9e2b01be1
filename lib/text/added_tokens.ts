/**
 * Finds added tokens in a text, before the rest of it is normalized, split and encoded.
 *
 * @module
 */

import { quote } from "../errors.ts";
import type { Field } from "./field.ts";
import type { AddedToken } from "./special_tokens.ts";
import { CodePoints, lazy, SPACES } from "./unicode.ts";

/** Longer than any known token (80); a search takes up to this many steps for each character. */
const MAX_LENGTH = 1000;

/** The limit for all tokens together: enough for a hundred thousand. */
const MAX_CHARACTERS = 4_000_000;

/** A part of a text: a token, or the text between tokens and its position. */
export type Part = { readonly token: AddedToken } | { readonly text: string; readonly start: number };

interface Node {
  token?: AddedToken;
  readonly next: Map<number, Node>;
}

const spaceSet = lazy(() => new CodePoints(SPACES()));

/** Finds tokens in a text: at each position the longest one. */
export class AddedTokens {
  readonly #root: Node = { next: new Map() };

  /**
   * @param field the field of the tokens, for messages
   * @param tokens each with the text by which it is found
   * @throws {FieldError} they are too long, or two have the same text
   */
  constructor(field: Field, tokens: readonly (readonly [AddedToken, string])[]) {
    let characters = 0;
    for (const [token, text] of tokens) {
      characters += text.length;
      const refuse = (problem: string) => field.refuse(`${quote(token.content)} ${problem}`);
      if (text.length > MAX_LENGTH) refuse(`has more than ${MAX_LENGTH} characters`);
      if (characters > MAX_CHARACTERS) refuse(`and the tokens before it have more than ${MAX_CHARACTERS} characters`);
      if (text === "") refuse("is empty after normalization");
      let node = this.#root;
      for (let at = 0; at < text.length; at++) {
        const unit = text.charCodeAt(at);
        let next = node.next.get(unit);
        if (next === undefined) node.next.set(unit, next = { next: new Map() });
        node = next;
      }
      if (node.token !== undefined) refuse(`and ${quote(node.token.content)} are the same after normalization`);
      node.token = token;
    }
  }

  /** Splits a text into tokens and the text between them. */
  split(text: string): Part[] {
    if (this.#root.next.size === 0) return [{ text, start: 0 }];
    const parts: Part[] = [];
    let done = 0;
    for (let at = 0; at < text.length;) {
      const token = this.#longest(text, at);
      if (token === undefined) {
        at++;
        continue;
      }
      let start = at;
      let end = at += token[1];
      if (token[0].lstrip) start = beforeSpaces(text, start, done);
      if (token[0].rstrip) end = afterSpaces(text, Math.max(end, done));
      if (done < start) parts.push({ text: text.slice(done, start), start: done });
      // The token itself may be white space that the previous token includes.
      if (start < end) parts.push({ token: token[0] });
      done = end;
    }
    if (done !== text.length) parts.push({ text: text.slice(done), start: done });
    return parts;
  }

  #longest(text: string, start: number): [AddedToken, number] | undefined {
    let found: [AddedToken, number] | undefined;
    let node = this.#root.next.get(text.charCodeAt(start));
    for (let at = start + 1; node !== undefined; at++) {
      if (node.token !== undefined) found = [node.token, at - start];
      node = at < text.length ? node.next.get(text.charCodeAt(at)) : undefined;
    }
    return found;
  }
}

// All white space is below U+10000.
function beforeSpaces(text: string, end: number, least: number): number {
  if (end < least) return least;
  while (end > least && spaceSet().has(text.charCodeAt(end - 1))) end--;
  return end;
}

function afterSpaces(text: string, start: number): number {
  while (start < text.length && spaceSet().has(text.charCodeAt(start))) start++;
  return start;
}
