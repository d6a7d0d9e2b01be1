// AssemblyScript: rows of weights become levels and scales: lib/quantize/calibrate/descent.ts defines what each step
// computes. 16 rows go through at once: a lane is a row, and a matrix of 16 rows is held as a panel, column after column.

import { retarget } from "./factor.as";
import { at32, Group, multiply, ROW32 } from "./tiles.as";

/** Columns of a block, and its bytes in a panel. */
const BLOCK: u32 = 32;
const BLOCK32: usize = 32 * ROW32;
/** Bytes of a tile in binary32. */
const TILE32: usize = 16 * ROW32;
/** Sweeps of descent. */
const SWEEPS = 3;

// A thread's scratch: of a block the errors, the gradient, and the changes; then vectors of 16 rows; then panels.
const ERRORS: usize = 0;
const LOCAL: usize = BLOCK32;
const CHANGES: usize = 2 * BLOCK32;
const SCALE: usize = 3 * BLOCK32;
const LOSS: usize = SCALE + ROW32;
const LEAST: usize = LOSS + ROW32;
const PEAK: usize = LEAST + ROW32;
const BEST: usize = PEAK + ROW32;
const PANELS: usize = 4 * BLOCK32;

/** Bytes of a thread's scratch for matrices of so many columns: five panels in binary32, two in binary64, and scales. */
export function scratch_bytes(columns: u32): u32 {
  return PANELS + columns * (9 * ROW32 + 2);
}

/** 1 / x, and 0 for 0. */
@inline
function inverse(x: v128): v128 {
  return v128.and(f32x4.div(f32x4.splat(1), x), f32x4.ne(x, f32x4.splat(0)));
}

/** Rounded to binary16, to nearest, ties to even; zero is always positive. */
@inline
function half(x: v128): v128 {
  const sign = v128.and(x, i32x4.splat(0x80000000)), size = f32x4.abs(x);
  const odd = v128.and(i32x4.shr_u(size, 13), i32x4.splat(1));
  const rounded = v128.and(i32x4.add(size, i32x4.add(odd, i32x4.splat(0xfff))), i32x4.splat(0xffffe000));
  // From 0.5 on binary32 has the spacing of binary16's subnormals.
  const small = f32x4.sub(f32x4.add(size, f32x4.splat(0.5)), f32x4.splat(0.5));
  let result = v128.bitselect(small, rounded, f32x4.lt(size, f32x4.splat(0.00006103515625)));
  result = v128.bitselect(f32x4.splat(Infinity), result, f32x4.ge(size, f32x4.splat(65520)));
  result = v128.bitselect(result, size, f32x4.eq(size, size));
  return f32x4.add(v128.or(result, sign), f32x4.splat(0));
}

/** The nearest level, ties to even. */
@inline
function level(x: v128, low: v128, high: v128): v128 {
  return f32x4.nearest(f32x4.pmin(f32x4.pmax(x, low), high));
}

/** The address of row `row` of a binary32 matrix, at column `column`, which is 16 columns of it. */
@inline
function rowAt(matrix: u32, n: u32, row: u32, column: u32): usize {
  return at32(matrix, n, column >> 4, row) + ((column & 15) << 2);
}

/**
 * Quantizes 16 rows; a piece is 16 rows.
 *
 * @param factor 1 over the mean of H's diagonal
 * @returns 1 if a weight is not finite, or too large for a scale
 */
export function solve_rows(piece: u32, scratch: usize, group: Group, factor: f64): i32 {
  const n = group.columns;
  const size = n * ROW32;
  const aim = scratch + PANELS, weights = aim + size, q = weights + size, g = q + size, d = g + size;
  const sums = d + size, products = sums + 2 * size, scales = products + 2 * size;
  transpose(group, piece, weights);
  memory.copy(aim, weights, size);
  if ((group.c | group.p) != 0) retarget(piece, group, aim, sums, products, factor);
  const present = min<u32>(group.rows - (piece << 4), 16);
  const losses = <usize> group.losses + (piece * 16 * 24);

  for (let at: usize = 0; at < size; at += 16) v128.store(d + at, f32x4.neg(v128.load(aim + at)));
  gradient(group, d, g);
  dot(n, d, g, losses, present);
  if (!byRule(group, weights, aim, d)) return 1;
  gradient(group, d, g);
  dot(n, d, g, losses + 8, present);

  memory.copy(g, aim, size);
  for (let b: u32 = 0; b < n; b += BLOCK) {
    if (!search(group, scratch, b, g + b * ROW32, q + b * ROW32, scales + (b << 1), present)) return 1;
    for (let i = b + BLOCK; i < n; i += 16) {
      multiply(at32(group.u32, n, i >> 4, b), scratch + ERRORS, BLOCK, g + i * ROW32);
    }
  }
  differences(n, q, scales, aim, d);
  gradient(group, d, g);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    for (let b: u32 = 0; b < n; b += BLOCK) {
      if (!descend(group, scratch, b, g + b * ROW32, q + b * ROW32, scales + (b << 1))) continue;
      for (let i: u32 = 0; i < n; i += 16) {
        multiply(at32(group.h32, n, i >> 4, b), scratch + CHANGES, BLOCK, g + i * ROW32);
      }
    }
  }
  differences(n, q, scales, aim, d);
  dot(n, d, g, losses + 16, present);
  give(group, piece, q, scales, present);
  return 0;
}

/** The weights of 16 rows as a panel; rows that there are not are zero. */
function transpose(group: Group, piece: u32, to: usize): void {
  const n = group.columns;
  for (let row: u32 = 0; row < 16; row++) {
    const from = <usize> group.weights + (<usize> (piece * 16 + row) * n << 2);
    const there = piece * 16 + row < group.rows;
    for (let j: u32 = 0; j < n; j++) {
      store<f32>(to + j * ROW32 + (row << 2), there ? load<f32>(from + (j << 2)) : 0);
    }
  }
}

/** Hd d. */
function gradient(group: Group, d: usize, g: usize): void {
  const n = group.columns;
  memory.fill(g, 0, n * ROW32);
  for (let i: u32 = 0; i < n; i += 16) multiply(at32(group.h32, n, i >> 4, 0), d, n, g + i * ROW32);
}

/** d' g of each row, in binary64, 24 bytes apart. */
function dot(n: u32, d: usize, g: usize, out: usize, present: u32): void {
  for (let row: u32 = 0; row < present; row++, out += 24) {
    let sum: f64 = 0;
    for (let at: usize = row << 2; at < n * ROW32; at += ROW32) sum += <f64> load<f32>(d + at) * <f64> load<f32>(g + at);
    store<f64>(out, sum);
  }
}

/** d = q * scale - aim */
function differences(n: u32, q: usize, scales: usize, aim: usize, d: usize): void {
  for (let j: u32 = 0; j < n; j++) {
    for (let v: usize = 0; v < ROW32; v += 16) {
      const at = j * ROW32 + v;
      const value = f32x4.mul(v128.load(q + at), v128.load(scales + (j >> 5) * ROW32 + v));
      v128.store(d + at, f32x4.sub(value, v128.load(aim + at)));
    }
  }
}

/** d = v - aim, where v are the values of the blocks that the format's rule gives. @returns false: a scale is not finite */
function byRule(group: Group, weights: usize, aim: usize, d: usize): bool {
  const n = group.columns;
  const high = f32x4.splat(<f32> group.highest), low = f32x4.splat(-1 - <f32> group.highest);
  let finite = true;
  for (let b: usize = 0; b < n * ROW32; b += BLOCK32) {
    for (let v = b; v < b + ROW32; v += 16) {
      let peak = f32x4.splat(0);
      for (let at = v; at < v + BLOCK32; at += ROW32) peak = f32x4.pmax(peak, f32x4.abs(v128.load(weights + at)));
      const scale = half(f32x4.div(peak, high));
      finite = finite && !v128.any_true(f32x4.eq(scale, f32x4.splat(Infinity)));
      const some = f32x4.ne(scale, f32x4.splat(0));
      for (let at = v; at < v + BLOCK32; at += ROW32) {
        const x = v128.and(f32x4.div(v128.load(weights + at), scale), some);
        const whole = f32x4.trunc(x);
        const up = f32x4.ge(f32x4.abs(f32x4.sub(x, whole)), f32x4.splat(0.5));
        const one = v128.or(v128.and(x, i32x4.splat(0x80000000)), f32x4.splat(1));
        const rounded = f32x4.pmin(f32x4.pmax(f32x4.add(whole, v128.and(up, one)), low), high);
        v128.store(d + at, f32x4.sub(f32x4.mul(rounded, scale), v128.load(aim + at)));
      }
    }
  }
  return finite;
}

/**
 * The scales of the block at column b, its levels, and its errors, with the other sign.
 *
 * @param t what is left of the weights
 * @returns false: there is no scale
 */
function search(group: Group, scratch: usize, b: u32, t: usize, q: usize, scales: usize, present: u32): bool {
  for (let v: usize = 0; v < ROW32; v += 16) {
    let peak = f32x4.splat(0);
    for (let at = t + v; at < t + BLOCK32; at += ROW32) {
      const x = v128.load(at);
      peak = v128.bitselect(x, peak, f32x4.gt(f32x4.abs(x), f32x4.abs(peak)));
    }
    v128.store(scratch + PEAK + v, peak);
    v128.store(scratch + LEAST + v, f32x4.splat(Infinity));
    v128.store(scratch + BEST + v, f32x4.splat(0));
  }
  for (let c: u32 = 0; c < group.divisorCount; c++) {
    const divisor = v128.load32_splat(<usize> group.divisors + (c << 2));
    for (let v: usize = 0; v < ROW32; v += 16) {
      v128.store(scratch + SCALE + v, half(f32x4.div(v128.load(scratch + PEAK + v), divisor)));
    }
    attempt(group, scratch, b, t, q);
    better(scratch);
  }
  memory.copy(scratch + PEAK, scratch + BEST, ROW32);
  for (let c: u32 = 0; c < group.finerCount; c++) {
    const times = v128.load32_splat(<usize> group.finer + (c << 2));
    for (let v: usize = 0; v < ROW32; v += 16) {
      v128.store(scratch + SCALE + v, half(f32x4.mul(v128.load(scratch + PEAK + v), times)));
    }
    attempt(group, scratch, b, t, q);
    better(scratch);
  }
  for (let row: u32 = 0; row < present; row++) {
    if (load<f32>(scratch + LEAST + (row << 2)) == Infinity) return false;
  }
  memory.copy(scratch + SCALE, scratch + BEST, ROW32);
  memory.copy(scales, scratch + BEST, ROW32);
  attempt(group, scratch, b, t, q);
  for (let at = scratch + ERRORS; at < scratch + ERRORS + BLOCK32; at += 16) v128.store(at, f32x4.neg(v128.load(at)));
  return true;
}

/** Keeps the scales that were tried where they are the best so far. */
@inline
function better(scratch: usize): void {
  for (let v: usize = 0; v < ROW32; v += 16) {
    const loss = v128.load(scratch + LOSS + v), least = v128.load(scratch + LEAST + v);
    const less = f32x4.lt(loss, least);
    v128.store(scratch + LEAST + v, v128.bitselect(loss, least, less));
    const scale = v128.load(scratch + SCALE + v), best = v128.load(scratch + BEST + v);
    v128.store(scratch + BEST + v, v128.bitselect(scale, best, less));
  }
}

/** Quantizes the block at column b with the scales at SCALE: levels to q, errors to ERRORS, their squares to LOSS. */
function attempt(group: Group, scratch: usize, b: u32, t: usize, q: usize): void {
  const n = group.columns;
  const errors = scratch + ERRORS, at = scratch + SCALE;
  const high = f32x4.splat(<f32> group.highest), low = f32x4.splat(-1 - <f32> group.highest);
  const s0 = v128.load(at), s1 = v128.load(at, 16), s2 = v128.load(at, 32), s3 = v128.load(at, 48);
  const i0 = inverse(s0), i1 = inverse(s1), i2 = inverse(s2), i3 = inverse(s3);
  let l0 = f32x4.splat(0), l1 = l0, l2 = l0, l3 = l0;
  for (let j: u32 = 0; j < BLOCK; j++, t += ROW32, q += ROW32) {
    let a0 = v128.load(t), a1 = v128.load(t, 16), a2 = v128.load(t, 32), a3 = v128.load(t, 48);
    let u = rowAt(group.u32, n, b, b + j);
    const end = errors + j * ROW32;
    for (let e = errors; e < end; e += ROW32, u += ROW32) {
      const o = v128.load32_splat(u);
      const e0 = v128.load(e), e1 = v128.load(e, 16), e2 = v128.load(e, 32), e3 = v128.load(e, 48);
      a0 = f32x4.sub(a0, f32x4.mul(e0, o)), a1 = f32x4.sub(a1, f32x4.mul(e1, o));
      a2 = f32x4.sub(a2, f32x4.mul(e2, o)), a3 = f32x4.sub(a3, f32x4.mul(e3, o));
    }
    const o = v128.load32_splat(<usize> group.uInverse + (b + j << 2));
    const k0 = level(f32x4.mul(a0, i0), low, high), k1 = level(f32x4.mul(a1, i1), low, high);
    const k2 = level(f32x4.mul(a2, i2), low, high), k3 = level(f32x4.mul(a3, i3), low, high);
    a0 = f32x4.mul(f32x4.sub(a0, f32x4.mul(k0, s0)), o), a1 = f32x4.mul(f32x4.sub(a1, f32x4.mul(k1, s1)), o);
    a2 = f32x4.mul(f32x4.sub(a2, f32x4.mul(k2, s2)), o), a3 = f32x4.mul(f32x4.sub(a3, f32x4.mul(k3, s3)), o);
    l0 = f32x4.add(l0, f32x4.mul(a0, a0)), l1 = f32x4.add(l1, f32x4.mul(a1, a1));
    l2 = f32x4.add(l2, f32x4.mul(a2, a2)), l3 = f32x4.add(l3, f32x4.mul(a3, a3));
    v128.store(q, k0), v128.store(q, k1, 16), v128.store(q, k2, 32), v128.store(q, k3, 48);
    v128.store(end, a0), v128.store(end, a1, 16), v128.store(end, a2, 32), v128.store(end, a3, 48);
  }
  const out = scratch + LOSS;
  v128.store(out, l0), v128.store(out, l1, 16), v128.store(out, l2, 32), v128.store(out, l3, 48);
}

/**
 * A step of descent at the block at column b; what its values change by goes to CHANGES.
 *
 * @param g the gradient at the block
 * @returns whether a value changes
 */
function descend(group: Group, scratch: usize, b: u32, g: usize, q: usize, scales: usize): bool {
  const n = group.columns;
  const local = scratch + LOCAL, changes = scratch + CHANGES;
  const high = f32x4.splat(<f32> group.highest), low = f32x4.splat(-1 - <f32> group.highest);
  memory.copy(local, g, BLOCK32);
  for (let at: usize = 0; at < BLOCK32; at += 16) {
    v128.store(changes + at, f32x4.mul(v128.load(q + at), v128.load(scales + (at & 63))));
  }
  for (let j: u32 = 0; j < BLOCK; j++) {
    const pivot = v128.load32_splat(<usize> group.hInverse + (b + j << 2));
    const steps = scratch + SCALE;
    let any = i32x4.splat(0);
    for (let v: usize = 0; v < ROW32; v += 16) {
      const at = j * ROW32 + v;
      const scale = v128.load(scales + v), old = v128.load(q + at);
      const move = f32x4.mul(f32x4.mul(v128.load(local + at), pivot), inverse(scale));
      const now = level(f32x4.sub(old, move), low, high);
      const step = f32x4.mul(f32x4.sub(now, old), scale);
      any = v128.or(any, f32x4.ne(step, f32x4.splat(0)));
      v128.store(q + at, now);
      v128.store(steps + v, step);
    }
    if (!v128.any_true(any)) continue;
    const s0 = v128.load(steps), s1 = v128.load(steps, 16), s2 = v128.load(steps, 32), s3 = v128.load(steps, 48);
    for (let i: u32 = 0; i < BLOCK; i++) {
      const at = local + i * ROW32;
      const h = v128.load32_splat(rowAt(group.h32, n, b + j, b + i));
      const g0 = v128.load(at), g1 = v128.load(at, 16), g2 = v128.load(at, 32), g3 = v128.load(at, 48);
      v128.store(at, f32x4.add(g0, f32x4.mul(s0, h))), v128.store(at, f32x4.add(g1, f32x4.mul(s1, h)), 16);
      v128.store(at, f32x4.add(g2, f32x4.mul(s2, h)), 32), v128.store(at, f32x4.add(g3, f32x4.mul(s3, h)), 48);
    }
  }
  for (let v: usize = 0; v < ROW32; v += 16) rescale(group, b, local + v, q + v, scales + v);
  let any = i32x4.splat(0);
  for (let at: usize = 0; at < BLOCK32; at += 16) {
    const value = f32x4.mul(v128.load(q + at), v128.load(scales + (at & 63)));
    const change = f32x4.sub(value, v128.load(changes + at));
    any = v128.or(any, f32x4.ne(change, f32x4.splat(0)));
    v128.store(changes + at, change);
  }
  return v128.any_true(any);
}

/** The best scales of four rows, where they lower the loss. */
@inline
function rescale(group: Group, b: u32, local: usize, q: usize, scales: usize): void {
  const n = group.columns;
  let slope = f32x4.splat(0), curvature = slope;
  for (let j: u32 = 0; j < BLOCK; j++) {
    const own = v128.load(q + j * ROW32);
    let product = f32x4.splat(0);
    for (let i: u32 = 0; i < BLOCK; i++) {
      const h = v128.load32_splat(rowAt(group.h32, n, b + j, b + i));
      product = f32x4.add(product, f32x4.mul(h, v128.load(q + i * ROW32)));
    }
    slope = f32x4.add(slope, f32x4.mul(own, v128.load(local + j * ROW32)));
    curvature = f32x4.add(curvature, f32x4.mul(product, own));
  }
  const scale = v128.load(scales);
  const next = half(f32x4.sub(scale, f32x4.div(slope, curvature)));
  const change = f32x4.sub(next, scale);
  const gain = f32x4.mul(
    change,
    f32x4.add(f32x4.mul(change, curvature), f32x4.mul(f32x4.splat(2), slope)),
  );
  const zero = f32x4.splat(0);
  const taken = v128.and(v128.and(f32x4.lt(gain, zero), f32x4.gt(curvature, zero)), f32x4.ne(next, zero));
  v128.store(scales, v128.bitselect(next, scale, taken));
}

/** Writes the levels and scales of the rows that there are. */
function give(group: Group, piece: u32, q: usize, scales: usize, present: u32): void {
  const n = group.columns;
  for (let row: u32 = 0; row < present; row++) {
    const levels = <usize> group.levels + <usize> (piece * 16 + row) * n;
    const own = <usize> group.scales + (<usize> (piece * 16 + row) * (n >> 5) << 2);
    for (let j: u32 = 0; j < n; j++) store<i8>(levels + j, <i8> load<f32>(q + j * ROW32 + (row << 2)));
    for (let b: u32 = 0; b < n >> 5; b++) store<f32>(own + (b << 2), load<f32>(scales + b * ROW32 + (row << 2)));
  }
}
