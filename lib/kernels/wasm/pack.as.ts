// AssemblyScript: packs the rows of a matrix into groups (layout.ts), and unpacks single rows.

import { blockBytes, halfBits, halfPower, halves, hasScales, payloadBytes } from "./lanes.as";
import {
  BF16, COLUMNS, F32, GROUP, GROUP_16, GROUP_F32, GROUP_Q4, GROUP_Q8, GROUP_SCALES, Q4, Q4_BLOCK, Q4_PAYLOAD, Q8, Q8_BLOCK, Q8_PAYLOAD,
} from "./layout";

/** Prefetches two cache lines of each of four streams, `step` bytes apart. */
export function touch(at: usize, step: usize): i32 {
  let seen = load<i32>(at) | load<i32>(at, 64);
  at += step;
  seen |= load<i32>(at) | load<i32>(at, 64);
  at += step;
  seen |= load<i32>(at) | load<i32>(at, 64);
  at += step;
  return seen | load<i32>(at) | load<i32>(at, 64);
}

/** Copies the scales of 8 rows, the first at `src`, to adjacent places. */
@inline
function packScales(src: usize, rowBytes: usize, out: usize): void {
  for (const end = out + GROUP_SCALES; out < end; out += 2, src += rowBytes) store<u16>(out, load<u16>(src));
}

/** Stores words k of a, b, c, d as the lanes of vector k; vectors are `step` bytes apart. */
@inline
function transpose(a: v128, b: v128, c: v128, d: v128, out: usize, step: usize): void {
  const ab0 = v128.shuffle<i32>(a, b, 0, 4, 1, 5), ab1 = v128.shuffle<i32>(a, b, 2, 6, 3, 7);
  const cd0 = v128.shuffle<i32>(c, d, 0, 4, 1, 5), cd1 = v128.shuffle<i32>(c, d, 2, 6, 3, 7);
  v128.store(out, v128.shuffle<i64>(ab0, cd0, 0, 2));
  v128.store(out + step, v128.shuffle<i64>(ab0, cd0, 1, 3));
  v128.store(out + 2 * step, v128.shuffle<i64>(ab1, cd1, 0, 2));
  v128.store(out + 3 * step, v128.shuffle<i64>(ab1, cd1, 1, 3));
}

/** The 16 bytes of a q4 row in the packed order of nibbles, as level + 8. */
@inline
function nibbles16(payload: usize): v128 {
  const p = v128.load(payload);
  const even = v128.and(p, i8x16.splat(15)), odd = v128.and(i16x8.shr_u(p, 4), i8x16.splat(15));
  const low = v128.shuffle<i8>(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const high = v128.shuffle<i8>(even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  return v128.xor(v128.or(low, i16x8.shl(high, 4)), i8x16.splat(<i8> 0x88));
}

/**
 * Packs groups of 8 rows of q4 blocks.
 *
 * @param src the rows in the order of the file, rowBytes apart
 */
export function pack_q4(src: usize, rowBytes: usize, blocks: i32, groups: i32, w: usize): void {
  for (let g = 0; g < groups; g++, src += GROUP * rowBytes) {
    for (let n = 0; n < blocks; n++, w += GROUP_Q4) {
      const first = src + n * Q4_BLOCK;
      for (let h: usize = 0; h < 2; h++) {
        const a = first + (h << 2) * rowBytes + 2, b = a + rowBytes, c = b + rowBytes, d = c + rowBytes;
        transpose(nibbles16(a), nibbles16(b), nibbles16(c), nibbles16(d), w + (h << 4), 32);
      }
      packScales(first, rowBytes, w + Q4_PAYLOAD);
    }
  }
}

/** Stores the 16-bit a[k], b[k], c[k], d[k] together, for k in 0..7: 8 bytes each, 16 bytes apart. */
@inline
function transpose16(a: v128, b: v128, c: v128, d: v128, out: usize): void {
  const ab0 = v128.shuffle<i16>(a, b, 0, 8, 1, 9, 2, 10, 3, 11),
    ab1 = v128.shuffle<i16>(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  const cd0 = v128.shuffle<i16>(c, d, 0, 8, 1, 9, 2, 10, 3, 11),
    cd1 = v128.shuffle<i16>(c, d, 4, 12, 5, 13, 6, 14, 7, 15);
  const k0 = v128.shuffle<i32>(ab0, cd0, 0, 4, 1, 5), k2 = v128.shuffle<i32>(ab0, cd0, 2, 6, 3, 7);
  const k4 = v128.shuffle<i32>(ab1, cd1, 0, 4, 1, 5), k6 = v128.shuffle<i32>(ab1, cd1, 2, 6, 3, 7);
  v128.store64_lane(out, k0, 0);
  v128.store64_lane(out, k0, 1, 16);
  v128.store64_lane(out, k2, 0, 32);
  v128.store64_lane(out, k2, 1, 48);
  v128.store64_lane(out, k4, 0, 64);
  v128.store64_lane(out, k4, 1, 80);
  v128.store64_lane(out, k6, 0, 96);
  v128.store64_lane(out, k6, 1, 112);
}

/** Eight pairs of bytes (j, 16+j) of a q8 row, j from 8 * part. */
@inline
function pairs(payload: usize, part: i32): v128 {
  const a = v128.load(payload), b = v128.load(payload, 16);
  return part
    ? v128.shuffle<i8>(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
    : v128.shuffle<i8>(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

/** Packs groups of 8 rows of q8 blocks. */
export function pack_q8(src: usize, rowBytes: usize, blocks: i32, groups: i32, w: usize): void {
  for (let g = 0; g < groups; g++, src += GROUP * rowBytes) {
    for (let n = 0; n < blocks; n++, w += GROUP_Q8) {
      const first = src + n * Q8_BLOCK;
      for (let h: usize = 0; h < 2; h++) {
        const a = first + (h << 2) * rowBytes + 2, b = a + rowBytes, c = b + rowBytes, d = c + rowBytes;
        const out = w + (h << 3);
        transpose16(pairs(a, 0), pairs(b, 0), pairs(c, 0), pairs(d, 0), out);
        transpose16(pairs(a, 1), pairs(b, 1), pairs(c, 1), pairs(d, 1), out + 128);
      }
      packScales(first, rowBytes, w + Q8_PAYLOAD);
    }
  }
}

/** Four pairs of 16-bit floats (j, 16+j) of a row, j from 4 * part. */
@inline
function pairs16(row: usize, part: i32): v128 {
  const at = row + (<usize> part << 3);
  return v128.shuffle<i16>(v128.load64_zero(at), v128.load64_zero(at, 32), 0, 8, 1, 9, 2, 10, 3, 11);
}

/** Packs groups of 8 rows of 16-bit floats; the rows have 32 * blocks columns. */
export function pack_16(src: usize, rowBytes: usize, blocks: i32, groups: i32, w: usize): void {
  for (let g = 0; g < groups; g++, src += GROUP * rowBytes) {
    for (let n = 0; n < blocks; n++, w += GROUP_16) {
      for (let h: usize = 0; h < 2; h++) {
        const a = src + (h << 2) * rowBytes + (n << 6), b = a + rowBytes, c = b + rowBytes, d = c + rowBytes;
        for (let part = 0, out = w + (h << 4); part < 4; part++, out += 128) {
          transpose(pairs16(a, part), pairs16(b, part), pairs16(c, part), pairs16(d, part), out, 32);
        }
      }
    }
  }
}

/** Packs groups of 8 rows of binary32. */
export function pack_f32(src: usize, rowBytes: usize, blocks: i32, groups: i32, w: usize): void {
  for (let g = 0; g < groups; g++, src += GROUP * rowBytes) {
    for (let n = 0; n < blocks; n++, w += GROUP_F32) {
      for (let h: usize = 0; h < 2; h++) {
        const a = src + (h << 2) * rowBytes + (n << 7), b = a + rowBytes, c = b + rowBytes, d = c + rowBytes;
        for (let j: usize = 0; j < 16; j += 4) {
          const low = j << 2, high = low + 64, out = w + (j << 6) + (h << 4);
          transpose(v128.load(a + low), v128.load(b + low), v128.load(c + low), v128.load(d + low), out, 64);
          transpose(v128.load(a + high), v128.load(b + high), v128.load(c + high), v128.load(d + high), out + 32, 64);
        }
      }
    }
  }
}

/** Level n of a packed q4 payload, the row's first byte of word 0 at `at`. */
@inline
function levelOf(at: usize, n: i32): i32 {
  const byte = <i32> load<u8>(at + (<usize> ((n & 15) >> 2) << 5) + (n & 3));
  return (n < 16 ? byte & 15 : byte >> 4) - 8;
}

/** A finite binary16 as binary32. */
@inline
function half(bits: u32): f32 {
  return f32x4.extract_lane(halves(i32x4.splat((<i32> <i16> bits) << 13), i32x4.splat(halfBits), f32x4.splat(halfPower)), 0);
}

/**
 * Row `row` (0 to 7) of a packed group as binary32: the inverse of pack_*, with scales applied.
 *
 * @param kind one of layout.ts
 */
export function unpack_row(kind: i32, w: usize, row: i32, blocks: i32, out: usize): void {
  const lane = <usize> row;
  for (let b = 0; b < blocks; b++, w += blockBytes(kind)) {
    const scale = hasScales(kind) ? half(load<u16>(w + payloadBytes(kind) + (lane << 1))) : 1;
    for (let n = 0; n < COLUMNS; n++, out += 4) {
      const j = <usize> (n & 15), second = <usize> (n >> 4);
      let value: f32;
      if (kind == Q4) value = <f32> levelOf(w + (lane << 2), n) * scale;
      else if (kind == Q8) value = <f32> load<i8>(w + (j << 4) + (lane << 1) + second) * scale;
      else if (kind == F32) value = load<f32>(w + (j << 6) + (second << 5) + (lane << 2));
      else {
        const bits = <u32> load<u16>(w + (j << 5) + (lane << 2) + (second << 1));
        value = kind == BF16 ? reinterpret<f32>(bits << 16) : half(bits);
      }
      store<f32>(out, value);
    }
  }
}
