// AssemblyScript: products of tiles, for calibration (lib/quantize/calibrate).
//
// A matrix is held in panels of 16 columns, one after the other; a panel has the 16 values of its first row, then those of
// the next. So a tile of 16 rows is one piece of memory, and the product A' B of two panels, over as many rows as one
// likes, reads both as streams. All products of calibration are such ones: each value of a result is one chain of
// additions, in the order of rows, and the kernels keep many chains going at once.

/** Bytes of a row of a panel, in binary32 and binary64. */
export const ROW32: usize = 64;
/** See {@link ROW32}. */
export const ROW64: usize = 128;

/** sum + a b, rounded twice: so it is as fast where the processor can't fuse. */
@inline
function sumOf(sum: v128, a: v128, b: v128): v128 {
  return f32x4.add(sum, f32x4.mul(a, b));
}

/**
 * Adds A' M to a tile in binary32: y[i][c] += a[k][i] * m[k][c], k from 0 to count - 1.
 *
 * @param a,m `count` rows of panels
 * @param y a tile
 */
@inline
export function multiply(a: usize, m: usize, count: i32, y: usize): void {
  const end = a + <usize> count * ROW32;
  for (let quad = 0; quad < 4; quad++, a += 16, y += 4 * ROW32) {
    let p0 = v128.load(y), q0 = v128.load(y, 16), r0 = v128.load(y, 32), s0 = v128.load(y, 48);
    let p1 = v128.load(y, 64), q1 = v128.load(y, 80), r1 = v128.load(y, 96), s1 = v128.load(y, 112);
    let p2 = v128.load(y, 128), q2 = v128.load(y, 144), r2 = v128.load(y, 160), s2 = v128.load(y, 176);
    let p3 = v128.load(y, 192), q3 = v128.load(y, 208), r3 = v128.load(y, 224), s3 = v128.load(y, 240);
    for (let at = a, x = m; at < end; at += ROW32, x += ROW32) {
      const t = v128.load(x), u = v128.load(x, 16), v = v128.load(x, 32), z = v128.load(x, 48);
      let o = v128.load32_splat(at);
      p0 = sumOf(p0, t, o), q0 = sumOf(q0, u, o);
      r0 = sumOf(r0, v, o), s0 = sumOf(s0, z, o);
      o = v128.load32_splat(at, 4);
      p1 = sumOf(p1, t, o), q1 = sumOf(q1, u, o);
      r1 = sumOf(r1, v, o), s1 = sumOf(s1, z, o);
      o = v128.load32_splat(at, 8);
      p2 = sumOf(p2, t, o), q2 = sumOf(q2, u, o);
      r2 = sumOf(r2, v, o), s2 = sumOf(s2, z, o);
      o = v128.load32_splat(at, 12);
      p3 = sumOf(p3, t, o), q3 = sumOf(q3, u, o);
      r3 = sumOf(r3, v, o), s3 = sumOf(s3, z, o);
    }
    v128.store(y, p0), v128.store(y, q0, 16), v128.store(y, r0, 32), v128.store(y, s0, 48);
    v128.store(y, p1, 64), v128.store(y, q1, 80), v128.store(y, r1, 96), v128.store(y, s1, 112);
    v128.store(y, p2, 128), v128.store(y, q2, 144), v128.store(y, r2, 160), v128.store(y, s2, 176);
    v128.store(y, p3, 192), v128.store(y, q3, 208), v128.store(y, r3, 224), v128.store(y, s3, 240);
  }
}

@inline
function step(subtract: bool, sum: v128, a: v128, b: v128): v128 {
  const product = f64x2.mul(a, b);
  return subtract ? f64x2.sub(sum, product) : f64x2.add(sum, product);
}

/** {@link multiply} in binary64, a quarter of a tile at a time. */
@inline
function multiply64(subtract: bool, a: usize, m: usize, count: i32, y: usize): void {
  const end = a + <usize> count * ROW64;
  for (let quad = 0; quad < 4; quad++, a += 32, y += 4 * ROW64) {
    for (let side: usize = 0; side < ROW64; side += 64) {
      const to = y + side;
      let p0 = v128.load(to), q0 = v128.load(to, 16), r0 = v128.load(to, 32), s0 = v128.load(to, 48);
      let p1 = v128.load(to, 128), q1 = v128.load(to, 144), r1 = v128.load(to, 160), s1 = v128.load(to, 176);
      let p2 = v128.load(to, 256), q2 = v128.load(to, 272), r2 = v128.load(to, 288), s2 = v128.load(to, 304);
      let p3 = v128.load(to, 384), q3 = v128.load(to, 400), r3 = v128.load(to, 416), s3 = v128.load(to, 432);
      for (let at = a, x = m + side; at < end; at += ROW64, x += ROW64) {
        const t = v128.load(x), u = v128.load(x, 16), v = v128.load(x, 32), z = v128.load(x, 48);
        let o = v128.load64_splat(at);
        p0 = step(subtract, p0, t, o), q0 = step(subtract, q0, u, o);
        r0 = step(subtract, r0, v, o), s0 = step(subtract, s0, z, o);
        o = v128.load64_splat(at, 8);
        p1 = step(subtract, p1, t, o), q1 = step(subtract, q1, u, o);
        r1 = step(subtract, r1, v, o), s1 = step(subtract, s1, z, o);
        o = v128.load64_splat(at, 16);
        p2 = step(subtract, p2, t, o), q2 = step(subtract, q2, u, o);
        r2 = step(subtract, r2, v, o), s2 = step(subtract, s2, z, o);
        o = v128.load64_splat(at, 24);
        p3 = step(subtract, p3, t, o), q3 = step(subtract, q3, u, o);
        r3 = step(subtract, r3, v, o), s3 = step(subtract, s3, z, o);
      }
      v128.store(to, p0), v128.store(to, q0, 16), v128.store(to, r0, 32), v128.store(to, s0, 48);
      v128.store(to, p1, 128), v128.store(to, q1, 144), v128.store(to, r1, 160), v128.store(to, s1, 176);
      v128.store(to, p2, 256), v128.store(to, q2, 272), v128.store(to, r2, 288), v128.store(to, s2, 304);
      v128.store(to, p3, 384), v128.store(to, q3, 400), v128.store(to, r3, 416), v128.store(to, s3, 432);
    }
  }
}

/** Adds A' M to a tile in binary64. */
export function add64(a: usize, m: usize, count: i32, y: usize): void {
  multiply64(false, a, m, count, y);
}

/** Subtracts A' M from a tile in binary64. */
export function subtract64(a: usize, m: usize, count: i32, y: usize): void {
  multiply64(true, a, m, count, y);
}

/** What the threads of a calibration share; the engine (engine.ts) writes it, in the same order. Addresses and sizes. */
@unmanaged
export class Group {
  /** Columns of the matrices. */
  columns: u32;
  /** A panel of tokens row by row: inputs of the quantized model and of the float model, and the tokens' factors. */
  raw: u32;
  raw0: u32;
  factors: u32;
  /** Panels of X, X0 - X and R, in binary32, of `room` tokens. */
  room: u32;
  x: u32;
  d: u32;
  e: u32;
  /** Columns of R. */
  residual: u32;
  /** H, C' and P, [columns, …] in binary64. In H's place, when it is factored: U on and above the diagonal, L below it. */
  h: u32;
  c: u32;
  p: u32;
  /** The tiles of L's diagonal, and 1 over the values of its diagonal. */
  diagonal: u32;
  pivots: u32;
  /** Hd and U in binary32, and 1 over the values of their diagonals. */
  h32: u32;
  u32: u32;
  hInverse: u32;
  uInverse: u32;
  /** Rows to be quantized: how many, the weights row by row, the panel of P that is the first one's. */
  rows: u32;
  weights: u32;
  firstPanel: u32;
  /** Of these rows: levels row by row, scales of blocks in binary32, three losses in binary64. */
  levels: u32;
  scales: u32;
  losses: u32;
  /** The format's largest level, and what is tried for scales, in binary32. */
  highest: u32;
  divisors: u32;
  divisorCount: u32;
  finer: u32;
  finerCount: u32;
}

/** The address of row `row` of panel `panel` of a matrix of `rows` rows, in binary32. */
@inline
export function at32(matrix: u32, rows: u32, panel: u32, row: u32): usize {
  return <usize> matrix + (<usize> panel * rows + row) * ROW32;
}

/** The same in binary64. */
@inline
export function at64(matrix: u32, rows: u32, panel: u32, row: u32): usize {
  return <usize> matrix + (<usize> panel * rows + row) * ROW64;
}
