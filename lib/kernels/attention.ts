/**
 * Attention: rotates heads, appends to the cache, and attends over it.
 *
 * @module
 */

import type { Work } from "./execute.ts";
import { ATTENTION_TOP } from "./operations.ts";
import type { Fields } from "./program.ts";
import { MOST_HEADS, type View } from "./view.ts";
import * as layout from "./wasm/layout.ts";

type Attend = Fields<"attend">;

/** The kernels, by the size of a value in the cache in bytes, then by the number of heads (from 1). */
const KERNELS: Readonly<Record<number, readonly string[]>> = {
  1: ["attend_i8_1", "attend_i8_2", "attend_i8_3"],
  2: ["attend_i16_1", "attend_i16_2", "attend_i16_3"],
  4: ["attend_f32_1", "attend_f32_2", "attend_f32_3"],
};

/** For several tokens, one task per token: rotates its heads and appends its keys and values to the cache. */
export function storeWork(view: View, command: Fields<"store">): Work {
  const { tokens, q, qStride, qNorm, qEps, heads, kvHeads, headDim } = command;
  const task = (t: number) => {
    for (let h = 0; h < heads; h++) {
      const at = q + t * qStride + h * headDim * 4;
      rotate(view, command, at, qNorm, qEps, t, at);
    }
    for (let g = 0; g < kvHeads; g++) append(view, command, t, g);
  };
  return { tasks: tokens, task };
}

/**
 * One task per token and key head: attends with the query heads that share the key head. For a single token, the task
 * also rotates them and appends to the cache.
 */
export function attendWork(view: View, command: Attend): Work {
  return { tasks: command.tokens * command.kvHeads, task: (n) => attend(view, command, n) };
}

/** Normalizes (if `norm` is not 0) and rotates a head of token t; `to` may be `x`. */
function rotate(view: View, a: Attend, x: number, norm: number, eps: number, t: number, to: number): void {
  const { rms_norm, rope } = view.wasm[0];
  // Other threads may read what is written to the cache, so only final values may go there.
  const { normal } = view.rooms;
  if (norm !== 0) rms_norm(x, norm, normal, a.headDim, a.headDim, eps);
  rope(norm !== 0 ? normal : x, to, a.headDim / 2, a.table + (a.position + t) * a.headDim * 4);
}

/** Appends the key and the value of token t, key head g, to the cache. */
function append(view: View, a: Attend, t: number, g: number): void {
  const { copy, quantize_key, quantize_value } = view.wasm[0];
  const { headDim, size, rowBytes } = a;
  const row = g * a.capacity + a.position + t;
  const offset = t * a.kvStride + g * headDim * 4;
  const [key, value] = [a.k + offset, a.v + offset];
  if (size === 4) {
    rotate(view, a, key, a.kNorm, a.kEps, t, a.keys + row * rowBytes);
    copy(a.values + row * rowBytes, value, headDim * 4);
    return;
  }
  const rotated = view.rooms.key;
  rotate(view, a, key, a.kNorm, a.kEps, t, rotated);
  const top = size === 1 ? ATTENTION_TOP.i8 : ATTENTION_TOP.i16;
  // Keys are stored in blocks of positions, pair by pair; the values of two positions are interleaved (layout.ts).
  const [keyPlace, valuePlace] = [row % layout.KEY_POSITIONS, row % layout.VALUE_POSITIONS];
  const keyAt = a.keys + (row - keyPlace) * rowBytes + keyPlace * 2 * size;
  const valueAt = a.values + (row - valuePlace) * rowBytes + valuePlace * size;
  view.floats[(a.keyScales >>> 2) + row] = quantize_key(size, rotated, headDim, top, keyAt);
  view.floats[(a.valueScales >>> 2) + row] = quantize_value(size, value, headDim, top, valueAt);
}

function attend(view: View, a: Attend, n: number): void {
  const { headDim, size, rowBytes } = a;
  const wasm = view.wasm[0];
  const scale = Math.fround(1 / Math.sqrt(headDim));
  const { queries, integers, sums, factors } = view.rooms;
  const each = a.heads / a.kvHeads;
  const length = rowBytes / size;
  const t = Math.floor(n / a.kvHeads);
  const g = n % a.kvHeads;
  if (a.tokens === 1) append(view, a, 0, g);
  const row = g * a.capacity;
  const { attend: params, scores } = view.scratch[0];
  const set = (place: number, value: number) => view.words[(params + place) >>> 2] = value;
  for (let h = g * each, end = h + each; h < end;) {
    // Split four heads into 2 + 2, not 3 + 1.
    const heads = end - h === 4 ? 2 : Math.min(MOST_HEADS, end - h);
    const offset = t * a.qStride + h * headDim * 4;
    let q = a.q + offset;
    if (a.tokens === 1) {
      for (let j = 0; j < heads; j++) {
        rotate(view, a, q + j * headDim * 4, a.qNorm, a.qEps, 0, queries + j * headDim * 4);
      }
      q = queries;
    }
    for (let j = 0; j < heads; j++) {
      view.floats[(factors >>> 2) + j] = size === 4 ? scale : scale *
        wasm.quantize_head(q + j * headDim * 4, headDim, ATTENTION_TOP.query, integers + j * length * 2);
    }
    set(layout.ATTEND_Q, size === 4 ? q : integers);
    set(layout.ATTEND_FACTORS, factors);
    set(layout.ATTEND_KEYS, a.keys + row * rowBytes);
    set(layout.ATTEND_KEY_SCALES, a.keyScales + row * 4);
    set(layout.ATTEND_VALUES, a.values + row * rowBytes);
    set(layout.ATTEND_VALUE_SCALES, a.valueScales + row * 4);
    set(layout.ATTEND_COUNT, a.position + t + 1);
    set(layout.ATTEND_LENGTH, length);
    set(layout.ATTEND_SCORES, scores);
    set(layout.ATTEND_SCORE_ROW, view.layout.scoreBytes / MOST_HEADS);
    set(layout.ATTEND_SUMS, sums);
    set(layout.ATTEND_HEAD_DIM, headDim);
    set(layout.ATTEND_OUT, a.out + offset);
    wasm[KERNELS[size][heads - 1]](params);
    h += heads;
  }
}
