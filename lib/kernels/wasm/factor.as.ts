// AssemblyScript: the factors of a damped Hessian Hd = L' L, with L lower triangular, and U, the inverse of L'. All in
// binary64 and without fusing: see tiles.as.ts, and lib/quantize/calibrate/definition.ts for the order of sums.

import { add64, at32, at64, Group, ROW32, ROW64, subtract64 } from "./tiles.as";

/** Bytes of a tile in binary64. */
const TILE64: usize = 16 * ROW64;

/**
 * Hd from H, which has its tiles on and above the diagonal: those below become Hd's, for L, and h32 all of it. A piece is
 * a panel.
 *
 * @param factor 1 over the mean of H's diagonal
 */
export function damp(piece: u32, scratch: usize, group: Group, factor: f64, damping: f64): i32 {
  const n = group.columns;
  const diagonal = <usize> group.diagonal + piece * TILE64;
  for (let row: u32 = 0, first = piece << 4; row < first + 16; row++) {
    const from = at64(group.h, n, piece, row);
    const to = at32(group.h32, n, piece, row);
    // Column `row` of the matrix, in the panel that it belongs to, from row `first` on.
    const mirror = at64(group.h, n, row >> 4, first) + ((row & 15) << 3);
    const mirror32 = at32(group.h32, n, row >> 4, first) + ((row & 15) << 2);
    for (let j: u32 = 0; j < 16; j++) {
      let value = load<f64>(from + (j << 3)) * factor;
      if (first + j == row) {
        value += damping;
        store<f32>(<usize> group.hInverse + (row << 2), <f32> 1 / <f32> value);
      }
      store<f32>(to + (j << 2), <f32> value);
      if (row >= first) store<f64>(diagonal + ((row - first) * 16 + j << 3), value);
      else {
        store<f64>(mirror + j * ROW64, value);
        store<f32>(mirror32 + j * ROW32, <f32> value);
      }
    }
  }
  return 0;
}

/** The tile of L's diagonal at tile `k`, once all rows below are done. @returns 0, or 1 + the column of a pivot that is not positive */
export function factor_diagonal(piece: u32, scratch: usize, group: Group, k: u32): i32 {
  const n = group.columns, first = k << 4;
  const tile = <usize> group.diagonal + k * TILE64;
  const below = at64(group.h, n, k, first + 16);
  subtract64(below, below, n - first - 16, tile);
  for (let row = 15; row >= 0; row--) {
    for (let i = row; i >= 0; i--) {
      let sum = load<f64>(tile + (row * 16 + i << 3));
      for (let m = row + 1; m < 16; m++) {
        sum -= load<f64>(tile + (m * 16 + row << 3)) * load<f64>(tile + (m * 16 + i << 3));
      }
      if (i == row) {
        if (!(sum > 0)) return first + row + 1;
        sum = Math.sqrt(sum);
        store<f64>(<usize> group.pivots + (first + row << 3), 1 / sum);
      } else sum *= load<f64>(<usize> group.pivots + (first + row << 3));
      store<f64>(tile + (row * 16 + i << 3), sum);
    }
  }
  return 0;
}

/** The other tiles of 16 rows of L; a piece is a tile. */
export function factor_rows(piece: u32, scratch: usize, group: Group, k: u32): i32 {
  const n = group.columns, next = k + 1 << 4;
  const tile = at64(group.h, n, piece, k << 4);
  subtract64(at64(group.h, n, k, next), at64(group.h, n, piece, next), n - next, tile);
  substituteTile(group, k, tile);
  return 0;
}

/** Solves L' Y = B for a tile of L's diagonal, in place. */
@inline
function substituteTile(group: Group, k: u32, tile: usize): void {
  const lower = <usize> group.diagonal + k * TILE64;
  const pivots = <usize> group.pivots + (k << 7);
  for (let row = 15; row >= 0; row--) {
    const pivot = v128.load64_splat(pivots + (row << 3));
    for (let side: usize = 0; side < ROW64; side += 16) {
      const at = tile + side + row * ROW64;
      let sum = v128.load(at);
      for (let m = row + 1; m < 16; m++) {
        const l = v128.load64_splat(lower + (m * 16 + row << 3));
        sum = f64x2.sub(sum, f64x2.mul(l, v128.load(tile + side + m * ROW64)));
      }
      v128.store(at, f64x2.mul(sum, pivot));
    }
  }
}

/** Solves L' Y = B for a panel, in place, from tile `last` up; B is zero in the tiles after that. */
function substitute(group: Group, panel: usize, last: u32): void {
  const n = group.columns;
  for (let k = <i32> last; k >= 0; k--) {
    const next = k + 1 << 4;
    const tile = panel + k * TILE64;
    subtract64(at64(group.h, n, k, next), tile + TILE64, (last << 4) + 16 - next, tile);
    substituteTile(group, k, tile);
  }
}

/** U, in the place of H's tiles on and above the diagonal, and in binary32. A piece is a panel, the longest first. */
export function invert(piece: u32, scratch: usize, group: Group): i32 {
  const n = group.columns;
  const panel = (n >> 4) - 1 - piece, count = (panel << 4) + 16;
  const from = at64(group.h, n, panel, 0);
  memory.fill(from, 0, count * ROW64);
  for (let row: u32 = 0; row < 16; row++) store<f64>(from + panel * TILE64 + (row * 17 << 3), 1);
  substitute(group, from, panel);
  const to = at32(group.u32, n, panel, 0);
  for (let n: usize = 0; n < count * ROW64; n += 16) {
    v128.store64_lane(to + (n >> 1), f32x4.demote_f64x2_zero(v128.load(from + n)), 0);
  }
  for (let row: u32 = 0; row < 16; row++) {
    const value = load<f32>(to + (count - 16 + row) * ROW32 + (row << 2));
    store<f32>(<usize> group.uInverse + ((panel << 4) + row << 2), <f32> 1 / value);
  }
  return 0;
}

/**
 * What 16 rows of weights are to come near to, W*: `aim` has W, in binary32, and gets W*.
 *
 * @param piece which 16 rows
 * @param sums,products room for two panels in binary64
 * @param factor 1 over the mean of H's diagonal
 */
export function retarget(piece: u32, group: Group, aim: usize, sums: usize, products: usize, factor: f64): void {
  const n = group.columns;
  for (let at: usize = 0; at < n * ROW32; at += 8) {
    v128.store(products + 2 * at, f64x2.promote_low_f32x4(v128.load64_zero(aim + at)));
  }
  if (group.p != 0) memory.copy(sums, at64(group.p, n, group.firstPanel + piece, 0), n * ROW64);
  else memory.fill(sums, 0, n * ROW64);
  if (group.c != 0) {
    for (let i: u32 = 0; i < n >> 4; i++) add64(at64(group.c, n, i, 0), products, n, sums + i * TILE64);
  }
  for (let at = sums; at < sums + n * ROW64; at += 16) {
    v128.store(at, f64x2.mul(v128.load(at), f64x2.splat(factor)));
  }
  substitute(group, sums, (n >> 4) - 1);
  memory.fill(products, 0, n * ROW64);
  for (let i: u32 = 0; i < n >> 4; i++) {
    add64(at64(group.h, n, i, 0), sums, (i << 4) + 16, products + i * TILE64);
  }
  for (let at: usize = 0; at < n * ROW32; at += 8) {
    const sum = f64x2.add(f64x2.promote_low_f32x4(v128.load64_zero(aim + at)), v128.load(products + 2 * at));
    v128.store64_lane(aim + at, f32x4.demote_f64x2_zero(sum), 0);
  }
}
