// AssemblyScript: the sums over tokens of a calibration: see tiles.as.ts. Each function does one piece of work, which
// writes to places of its own. `scratch` is the thread's.

import { at32, at64, Group, multiply, ROW32, ROW64 } from "./tiles.as";

/** Tokens of a panel: lib/quantize/calibrate/calibration.ts. */
const PANEL = 256;

/**
 * Packs a panel of tokens; a piece is 16 columns. Rows that the panel lacks become zeros.
 *
 * @param slot which of the panels
 */
export function pack_inputs(piece: u32, scratch: usize, group: Group, tokens: u32, slot: u32): i32 {
  packColumns(group, piece, group.raw, 0, group.columns, at32(group.x, group.room, piece, slot * PANEL), tokens);
  if (group.d != 0) {
    const to = at32(group.d, group.room, piece, slot * PANEL);
    packColumns(group, piece, group.raw0, group.raw, group.columns, to, tokens);
  }
  return 0;
}

/** The same of what the residual stream falls short of. */
export function pack_residual(piece: u32, scratch: usize, group: Group, tokens: u32, slot: u32): i32 {
  const to = at32(group.e, group.room, piece, slot * PANEL);
  packColumns(group, piece, group.raw0, group.raw, group.residual, to, tokens);
  return 0;
}

/** 16 columns of `from`, times the tokens' factors, less those of `minus` if that is not 0. */
@inline
function packColumns(group: Group, piece: u32, from: u32, minus: u32, width: u32, to: usize, tokens: u32): void {
  const stride = <usize> width << 2;
  let a = <usize> from + piece * ROW32, b = <usize> minus + piece * ROW32, factor = <usize> group.factors;
  const filled = to + tokens * ROW32, end = to + PANEL * ROW32;
  for (; to < filled; to += ROW32, a += stride, b += stride, factor += 4) {
    const f = v128.load32_splat(factor);
    for (let n: usize = 0; n < ROW32; n += 16) {
      const scaled = f32x4.mul(v128.load(a + n), f);
      v128.store(to + n, minus == 0 ? scaled : f32x4.sub(scaled, f32x4.mul(v128.load(b + n), f)));
    }
  }
  if (to < end) memory.fill(to, 0, end - to);
}

/**
 * Adds panels of tokens to H, C' and P. A piece is a panel of H and C' or of P; those with the most work come first. Of H
 * only the tiles on and above the diagonal are summed.
 *
 * @param panels panels of tokens
 */
export function add_products(piece: u32, scratch: usize, group: Group, panels: u32): i32 {
  const n = group.columns, room = group.room, tiles = n >> 4;
  if (piece < tiles) {
    const panel = tiles - 1 - piece;
    const b = at32(group.x, room, panel, 0);
    for (let i: u32 = 0; i <= panel; i++) {
      sumTile(at32(group.x, room, i, 0), b, panels, scratch, at64(group.h, n, panel, i << 4));
    }
    for (let k: u32 = 0; k < tiles && group.c != 0; k++) {
      sumTile(at32(group.d, room, k, 0), b, panels, scratch, at64(group.c, n, panel, k << 4));
    }
    return 0;
  }
  const panel = piece - tiles;
  const b = at32(group.e, room, panel, 0);
  for (let i: u32 = 0; i < tiles; i++) {
    sumTile(at32(group.x, room, i, 0), b, panels, scratch, at64(group.p, n, panel, i << 4));
  }
  return 0;
}

/** Adds A' B to a tile in binary64: each panel of tokens in binary32. */
@inline
function sumTile(a: usize, b: usize, panels: u32, scratch: usize, out: usize): void {
  for (let p: u32 = 0; p < panels; p++, a += PANEL * ROW32, b += PANEL * ROW32) {
    memory.fill(scratch, 0, 16 * ROW32);
    multiply(a, b, PANEL, scratch);
    for (let at = scratch, to = out; to < out + 16 * ROW64; at += 16, to += 32) {
      const v = v128.load(at);
      const low = f64x2.promote_low_f32x4(v), high = f64x2.promote_low_f32x4(v128.shuffle<i64>(v, v, 1, 0));
      v128.store(to, f64x2.add(v128.load(to), low));
      v128.store(to, f64x2.add(v128.load(to, 16), high), 16);
    }
  }
}
