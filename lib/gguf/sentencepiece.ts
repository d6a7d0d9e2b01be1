/**
 * SentencePiece's BPE, as in Llama 1 and 2, Mistral and others. tokenizer.json lists the merges in order; GGUF has a
 * score for each token, and the merge whose result has the highest score comes first. Each can be derived from the
 * other if every pair of tokens that forms a token is a merge.
 *
 * @module
 */

import { CheckpointError, quote } from "../errors.ts";
import { at } from "./untyped.ts";

/** The character that replaces spaces. */
const SPACE = "\u2581";

/** A token for one byte. */
export const BYTE = /^<0x[0-9A-F]{2}>$/;

/**
 * Whether the tokenizer adds a space before a text.
 *
 * @throws {CheckpointError} its normalization can't be expressed in GGUF
 */
export function spacePrefix(path: string, json: unknown): boolean {
  const steps: unknown[] = [
    at(json, "normalizer", "normalizers") ?? at(json, "normalizer") ?? [],
    at(json, "pre_tokenizer", "pretokenizers") ?? at(json, "pre_tokenizer") ?? [],
  ].flat();
  let spaces = false;
  let prefix = false;
  for (const step of steps) {
    const is = (key: string, wanted: unknown) => at(step, key) === wanted;
    if (is("type", "Prepend") && is("prepend", SPACE)) prefix = true;
    else if (is("type", "Replace") && at(step, "pattern", "String") === " " && is("content", SPACE)) spaces = true;
    else if (is("type", "Metaspace") && is("replacement", SPACE) && !is("split", true)) {
      spaces = true;
      prefix = is("prepend_scheme", undefined) ? !is("add_prefix_space", false) : !is("prepend_scheme", "never");
    } else {
      throw new CheckpointError(
        { path, field: "normalizer" },
        `llama.cpp has no equivalent of ${
          quote(JSON.stringify(step))
        }; move the tokenizer's files elsewhere to export the weights`,
      );
    }
  }
  if (!spaces) {
    throw new CheckpointError({ path, field: "normalizer" }, "spaces are not replaced; llama.cpp replaces them");
  }
  return prefix;
}

/**
 * A score for each token, higher for the results of earlier merges.
 *
 * @param merges pairs of tokens, separated by a space, in order
 * @throws {CheckpointError} no scores give these merges
 */
export function scoresOf(
  path: string,
  tokens: readonly string[],
  mergeable: (id: number) => boolean,
  merges: readonly string[],
): number[] {
  const place = { path, field: "merges" };
  const ranks = new Map<string, number>();
  let last = "";
  for (const merge of merges) {
    const product = merge.replace(" ", "");
    if (product !== last && ranks.has(product)) {
      throw new CheckpointError(place, `those that give ${quote(product)} are not adjacent, as SentencePiece's are`);
    }
    if (!ranks.has(product)) ranks.set(product, ranks.size);
    last = product;
  }
  const scores = tokens.map((token) => ranks.has(token) ? -ranks.get(token)! : -tokens.length);
  const waysOf = ways(tokens, mergeable);
  const missing = [...tokens.keys()].find((id) => mergeable(id) && !ranks.has(tokens[id]) && waysOf(id).length > 0);
  if (missing !== undefined) {
    throw new CheckpointError(place, `none gives ${quote(tokens[missing])}, which SentencePiece would merge`);
  }
  return scores;
}

/** The merges that scores give, in order: every pair of tokens that forms a token, the highest score first. */
export function mergesOf(
  tokens: readonly string[],
  mergeable: (id: number) => boolean,
  scores: readonly number[],
): string[] {
  const waysOf = ways(tokens, mergeable);
  const ids = [...tokens.keys()].filter(mergeable).sort((a, b) => scores[b] - scores[a] || a - b);
  return ids.flatMap((id) => waysOf(id).map(([left, right]) => `${tokens[left]} ${tokens[right]}`));
}

/** The pairs of ids that form a token, in the order of the ids. */
function ways(tokens: readonly string[], mergeable: (id: number) => boolean): (id: number) => [number, number][] {
  const known = new Map([...tokens.entries()].filter(([id]) => mergeable(id)).map(([id, token]) => [token, id]));
  return (id) => {
    const token = tokens[id];
    const pairs: [number, number][] = [];
    for (let at = 1; at < token.length; at++) {
      const left = known.get(token.slice(0, at));
      const right = known.get(token.slice(at));
      if (left !== undefined && right !== undefined) pairs.push([left, right]);
    }
    return pairs.sort(([a, b], [c, d]) => a - c || b - d);
  };
}

/** A tokenizer.json without its vocabulary. */
export function sentencePieceJson(prefix: boolean, unknown: string | null) {
  const replace = { type: "Replace", pattern: { String: " " }, content: SPACE };
  const back = { type: "Replace", pattern: { String: SPACE }, content: " " };
  const strip = prefix ? [{ type: "Strip", content: " ", start: 1, stop: 0 }] : [];
  return {
    normalizer: prefix ? { type: "Sequence", normalizers: [{ type: "Prepend", prepend: SPACE }, replace] } : replace,
    pre_tokenizer: null,
    decoder: { type: "Sequence", decoders: [back, { type: "ByteFallback" }, { type: "Fuse" }, ...strip] },
    model: {
      type: "BPE",
      dropout: null,
      unk_token: unknown,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: true,
      byte_fallback: true,
      ignore_merges: false,
    },
  };
}
