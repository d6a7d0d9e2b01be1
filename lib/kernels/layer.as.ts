// AssemblyScript: what a transformer layer does between its matrix products. reference.ts defines each result, down to
// the order of the additions.

/**
 * exp(x) for x of at most 88, by Cephes' expf: a polynomial of degree 5 on [-ln 2 / 2, ln 2 / 2], within 2 units in the
 * last place. Additions and products only, so that every machine gives the same bits. 0 below -87.3.
 */
@inline
function exp4(x: v128): v128 {
  const tiny = f32x4.lt(x, f32x4.splat(-87.3));
  const bounded = f32x4.max(f32x4.min(x, f32x4.splat(88)), f32x4.splat(-87.3));
  const n = f32x4.nearest(f32x4.mul(bounded, f32x4.splat(1.44269504088896341)));
  let r = f32x4.sub(bounded, f32x4.mul(n, f32x4.splat(0.693359375)));
  r = f32x4.sub(r, f32x4.mul(n, f32x4.splat(-2.12194440e-4)));
  let p = f32x4.splat(1.9875691500e-4);
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(1.3981999507e-3));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(8.3334519073e-3));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(4.1665795894e-2));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(1.6666665459e-1));
  p = f32x4.add(f32x4.mul(p, r), f32x4.splat(5.0000001201e-1));
  p = f32x4.add(f32x4.add(f32x4.mul(f32x4.mul(r, r), p), r), f32x4.splat(1));
  const power = i32x4.shl(i32x4.add(i32x4.trunc_sat_f32x4_s(n), i32x4.splat(127)), 23);
  return v128.andnot(f32x4.mul(p, power), tiny);
}

/** (lane 0 + lane 2) + (lane 1 + lane 3) */
@inline
function across(v: v128): f32 {
  const t = f32x4.add(v, v128.shuffle<i64>(v, v, 1, 0));
  return f32x4.extract_lane(t, 0) + f32x4.extract_lane(t, 1);
}

/** The largest lane. */
@inline
function largest(v: v128): f32 {
  const m = f32x4.max(v, v128.shuffle<i64>(v, v, 1, 0));
  return max(f32x4.extract_lane(m, 0), f32x4.extract_lane(m, 1));
}

/**
 * out = x / sqrt(mean(x^2) + eps) * weight over one token.
 *
 * @param length binary32 in memory, a multiple of 4; those after `width` are zero
 */
export function rms_norm(x: usize, weight: usize, out: usize, length: i32, width: i32, eps: f64): void {
  let low = f64x2.splat(0), high = f64x2.splat(0);
  const bytes = <usize> length << 2;
  for (let n: usize = 0; n < bytes; n += 16) {
    const v = v128.load(x + n);
    const a = f64x2.promote_low_f32x4(v), b = f64x2.promote_low_f32x4(v128.shuffle<i64>(v, v, 1, 0));
    low = f64x2.add(low, f64x2.mul(a, a));
    high = f64x2.add(high, f64x2.mul(b, b));
  }
  const sum = (f64x2.extract_lane(low, 0) + f64x2.extract_lane(low, 1)) +
    (f64x2.extract_lane(high, 0) + f64x2.extract_lane(high, 1));
  const scale = f32x4.splat(<f32> (1 / sqrt<f64>(sum / <f64> width + eps)));
  for (let n: usize = 0; n < bytes; n += 16) {
    v128.store(out + n, f32x4.mul(f32x4.mul(v128.load(x + n), scale), v128.load(weight + n)));
  }
}

/** to += from, over `length` binary32, a multiple of 4. */
export function add(to: usize, from: usize, length: i32): void {
  for (let n: usize = 0, bytes = <usize> length << 2; n < bytes; n += 16) {
    v128.store(to + n, f32x4.add(v128.load(to + n), v128.load(from + n)));
  }
}

/** out = silu(gate) * up, over `length` binary32, a multiple of 4; silu(g) = g / (1 + exp(-g)). */
export function gated(gate: usize, up: usize, out: usize, length: i32): void {
  for (let n: usize = 0, bytes = <usize> length << 2; n < bytes; n += 16) {
    const g = v128.load(gate + n);
    const s = f32x4.div(g, f32x4.add(f32x4.splat(1), exp4(f32x4.neg(g))));
    v128.store(out + n, f32x4.mul(s, v128.load(up + n)));
  }
}

/** Rotates one head: the pair of element n is n + half. `table` is half cosines, then half sines. */
export function rope(x: usize, out: usize, half: i32, table: usize): void {
  const pair = <usize> half << 2;
  let n: usize = 0;
  for (; n + 16 <= pair; n += 16) {
    const a = v128.load(x + n), b = v128.load(x + n + pair);
    const c = v128.load(table + n), s = v128.load(table + n + pair);
    v128.store(out + n, f32x4.sub(f32x4.mul(a, c), f32x4.mul(b, s)));
    v128.store(out + n + pair, f32x4.add(f32x4.mul(b, c), f32x4.mul(a, s)));
  }
  for (; n < pair; n += 4) {
    const a = load<f32>(x + n), b = load<f32>(x + n + pair);
    const c = load<f32>(table + n), s = load<f32>(table + n + pair);
    store<f32>(out + n, a * c - b * s);
    store<f32>(out + n + pair, b * c + a * s);
  }
}

/** Copies bytes. */
export function copy(to: usize, from: usize, bytes: usize): void {
  memory.copy(to, from, bytes);
}

/** A score for each of four positions, lanes in the order of the positions. */
@inline
function scores4(q: usize, k: usize, bytes: usize, scale: v128): v128 {
  let a = f32x4.splat(0), b = f32x4.splat(0), c = f32x4.splat(0), d = f32x4.splat(0);
  const k1 = k + bytes, k2 = k1 + bytes, k3 = k2 + bytes;
  for (let n: usize = 0; n < bytes; n += 16) {
    const v = v128.load(q + n);
    a = f32x4.add(a, f32x4.mul(v, v128.load(k + n)));
    b = f32x4.add(b, f32x4.mul(v, v128.load(k1 + n)));
    c = f32x4.add(c, f32x4.mul(v, v128.load(k2 + n)));
    d = f32x4.add(d, f32x4.mul(v, v128.load(k3 + n)));
  }
  const ab0 = v128.shuffle<i32>(a, b, 0, 4, 1, 5), ab1 = v128.shuffle<i32>(a, b, 2, 6, 3, 7);
  const cd0 = v128.shuffle<i32>(c, d, 0, 4, 1, 5), cd1 = v128.shuffle<i32>(c, d, 2, 6, 3, 7);
  const even = f32x4.add(v128.shuffle<i64>(ab0, cd0, 0, 2), v128.shuffle<i64>(ab1, cd1, 0, 2));
  const odd = f32x4.add(v128.shuffle<i64>(ab0, cd0, 1, 3), v128.shuffle<i64>(ab1, cd1, 1, 3));
  return f32x4.mul(f32x4.add(even, odd), scale);
}

/**
 * Attention of one head of one token: out = sum over positions of softmax(q k / sqrt(d)) v.
 *
 * @param q d binary32
 * @param k,v the cache of the head's group: `count` positions of d binary32; k is readable to a multiple of 4 positions
 * @param d a multiple of 4
 * @param scores room for count binary32, rounded up to a multiple of 4
 */
export function attend(q: usize, k: usize, v: usize, count: i32, d: i32, scale: f32, scores: usize, out: usize): void {
  const row = <usize> d << 2;
  const factor = f32x4.splat(scale);
  let top = f32x4.splat(-Infinity);
  for (let p = 0; p < count; p += 4) {
    let s = scores4(q, k + p * row, row, factor);
    if (p + 4 > count) {
      const lanes = i32x4.add(i32x4.splat(p), i32x4(0, 1, 2, 3));
      s = v128.bitselect(s, f32x4.splat(-Infinity), i32x4.lt_s(lanes, i32x4.splat(count)));
    }
    top = f32x4.max(top, s);
    v128.store(scores + (<usize> p << 2), s);
  }
  top = f32x4.splat(largest(top));
  let sum = f32x4.splat(0);
  for (let p = 0; p < count; p += 4) {
    const e = exp4(f32x4.sub(v128.load(scores + (<usize> p << 2)), top));
    v128.store(scores + (<usize> p << 2), e);
    sum = f32x4.add(sum, e);
  }
  const inverse = f32x4.splat(<f32> 1 / across(sum));
  let n: usize = 0;
  for (; n + 64 <= row; n += 64) {
    let a = f32x4.splat(0), b = f32x4.splat(0), c = f32x4.splat(0), e = f32x4.splat(0);
    for (let p = 0, at = v + n; p < count; p++, at += row) {
      const w = v128.load32_splat(scores + (<usize> p << 2));
      a = f32x4.add(a, f32x4.mul(w, v128.load(at)));
      b = f32x4.add(b, f32x4.mul(w, v128.load(at, 16)));
      c = f32x4.add(c, f32x4.mul(w, v128.load(at, 32)));
      e = f32x4.add(e, f32x4.mul(w, v128.load(at, 48)));
    }
    v128.store(out + n, f32x4.mul(a, inverse));
    v128.store(out + n, f32x4.mul(b, inverse), 16);
    v128.store(out + n, f32x4.mul(c, inverse), 32);
    v128.store(out + n, f32x4.mul(e, inverse), 48);
  }
  for (; n < row; n += 16) {
    let a = f32x4.splat(0);
    for (let p = 0, at = v + n; p < count; p++, at += row) {
      a = f32x4.add(a, f32x4.mul(v128.load32_splat(scores + (<usize> p << 2)), v128.load(at)));
    }
    v128.store(out + n, f32x4.mul(a, inverse));
  }
}

// ---------------------------------------------------------------- attention over integers

/** 2^-100: numbers that are all smaller count as zeros, since the reciprocal of the largest could overflow. */
const TINY: f32 = 7.888609052210118e-31;

/** Positions whose products with integer values are summed before they become binary32: 32 * 32767 * 2047 < 2^31. */
const CHUNK: i32 = 32;

@inline
function peak(x: usize, d: i32): f32 {
  let m = f32x4.splat(0);
  for (const end = x + (<usize> d << 2); x < end; x += 16) m = f32x4.max(m, f32x4.abs(v128.load(x)));
  return largest(m);
}

@inline
function toIntegers(x: v128, inverse: v128): v128 {
  return i32x4.trunc_sat_f32x4_s(f32x4.nearest(f32x4.mul(x, inverse)));
}

/**
 * A head as integers of at most `top`. @returns their scale
 *
 * @param size bytes of an integer: 1 or 2
 * @param x d binary32, d a multiple of 4
 */
export function quantize_head(size: i32, x: usize, d: i32, top: f32, out: usize): f32 {
  const m = peak(x, d);
  const inverse = f32x4.splat(m >= TINY ? top / m : 0);
  for (const end = x + (<usize> d << 2); x < end; x += 16, out += 4 * size) {
    const words = toIntegers(v128.load(x), inverse);
    const halves = i16x8.narrow_i32x4_s(words, words);
    if (size == 1) v128.store32_lane(out, i8x16.narrow_i16x8_s(halves, halves), 0);
    else v128.store64_lane(out, halves, 0);
  }
  return m / top;
}

/**
 * A value as {@link quantize_head}, stored as every second of the integers at `out`: two positions stand side by side.
 */
export function quantize_value(size: i32, x: usize, d: i32, top: f32, out: usize): f32 {
  const m = peak(x, d);
  const inverse: f32 = m >= TINY ? top / m : 0;
  for (const end = x + (<usize> d << 2); x < end; x += 4, out += 2 * size) {
    const level = <i32> nearest<f32>(load<f32>(x) * inverse);
    if (size == 1) store<i8>(out, <i8> level);
    else store<i16>(out, <i16> level);
  }
  return m / top;
}

@inline
function eight(size: i32, at: usize): v128 {
  return size == 1 ? v128.load_ext<i8>(at) : v128.load(at);
}

@inline
function attendIntegers(
  size: i32,
  q: usize,
  qScale: f32,
  k: usize,
  kScales: usize,
  v: usize,
  vScales: usize,
  count: i32,
  length: i32,
  scores: usize,
  sums: usize,
  d: i32,
  out: usize,
): void {
  const row = <usize> (length * size);
  const factor = f32x4.splat(qScale);
  let top = f32x4.splat(-Infinity);
  for (let p = 0, k0 = k; p < count; p += 4, k0 += 4 * row) {
    let a = i32x4.splat(0), b = a, c = a, e = a;
    for (let at = k0, from = q, end = k0 + row; at < end; at += 8 * size, from += 16) {
      const x = v128.load(from);
      a = i32x4.add(a, i32x4.dot_i16x8_s(x, eight(size, at)));
      b = i32x4.add(b, i32x4.dot_i16x8_s(x, eight(size, at + row)));
      c = i32x4.add(c, i32x4.dot_i16x8_s(x, eight(size, at + 2 * row)));
      e = i32x4.add(e, i32x4.dot_i16x8_s(x, eight(size, at + 3 * row)));
    }
    const ab = i32x4.add(v128.shuffle<i32>(a, b, 0, 4, 1, 5), v128.shuffle<i32>(a, b, 2, 6, 3, 7));
    const ce = i32x4.add(v128.shuffle<i32>(c, e, 0, 4, 1, 5), v128.shuffle<i32>(c, e, 2, 6, 3, 7));
    const dot = i32x4.add(v128.shuffle<i64>(ab, ce, 0, 2), v128.shuffle<i64>(ab, ce, 1, 3));
    let s = f32x4.mul(f32x4.mul(f32x4.convert_i32x4_s(dot), v128.load(kScales + (<usize> p << 2))), factor);
    if (p + 4 > count) {
      const lanes = i32x4.add(i32x4.splat(p), i32x4(0, 1, 2, 3));
      s = v128.bitselect(s, f32x4.splat(-Infinity), i32x4.lt_s(lanes, i32x4.splat(count)));
    }
    top = f32x4.max(top, s);
    v128.store(scores + (<usize> p << 2), s);
  }
  top = f32x4.splat(largest(top));
  let sum = f32x4.splat(0), most = f32x4.splat(0);
  const whole = (count + CHUNK - 1) & -CHUNK;
  for (let p = 0; p < whole; p += 4) {
    const at = <usize> p << 2;
    const e = p < count ? exp4(f32x4.sub(v128.load(scores + at), top)) : f32x4.splat(0);
    const weight = f32x4.mul(e, v128.load(vScales + at));
    sum = f32x4.add(sum, e);
    most = f32x4.max(most, weight);
    v128.store(scores + at, weight);
  }
  const m = largest(most);
  const inverse = f32x4.splat(m >= TINY ? <f32> 32767 / m : 0);
  // The weights as int16 take the place of the scores.
  for (let from = scores, to = scores, end = scores + (<usize> whole << 2); from < end; from += 32, to += 16) {
    const low = toIntegers(v128.load(from), inverse), high = toIntegers(v128.load(from, 16), inverse);
    v128.store(to, i16x8.narrow_i32x4_s(low, high));
  }
  for (let n: usize = 0, end = <usize> length << 2; n < end; n += 16) v128.store(sums + n, f32x4.splat(0));
  for (let p = 0; p < count; p += CHUNK) {
    const pairs = <usize> min((count - p + 1) >> 1, CHUNK >> 1);
    const chunk = v + <usize> p * row;
    const weights = scores + (<usize> p << 1);
    for (let at = chunk, to = sums, end = chunk + 2 * row; at < end; at += 32 * size, to += 64) {
      let a = i32x4.splat(0), b = a, c = a, e = a;
      for (let from = at, w = weights, last = weights + (pairs << 2); w < last; w += 4, from += 2 * row) {
        const x = v128.load32_splat(w);
        a = i32x4.add(a, i32x4.dot_i16x8_s(x, eight(size, from)));
        b = i32x4.add(b, i32x4.dot_i16x8_s(x, eight(size, from + 8 * size)));
        c = i32x4.add(c, i32x4.dot_i16x8_s(x, eight(size, from + 16 * size)));
        e = i32x4.add(e, i32x4.dot_i16x8_s(x, eight(size, from + 24 * size)));
      }
      v128.store(to, f32x4.add(v128.load(to), f32x4.convert_i32x4_s(a)));
      v128.store(to, f32x4.add(v128.load(to, 16), f32x4.convert_i32x4_s(b)), 16);
      v128.store(to, f32x4.add(v128.load(to, 32), f32x4.convert_i32x4_s(c)), 32);
      v128.store(to, f32x4.add(v128.load(to, 48), f32x4.convert_i32x4_s(e)), 48);
    }
  }
  const scale = f32x4.splat(m / 32767 * (<f32> 1 / across(sum)));
  for (let n: usize = 0, end = <usize> d << 2; n < end; n += 16) {
    v128.store(out + n, f32x4.mul(v128.load(sums + n), scale));
  }
}

/**
 * Attention of one head of one token over int8 keys and values; reference.ts (attendIntegers) defines it.
 *
 * @param q `length` int16, their scale times 1 / sqrt(d) in qScale
 * @param k,kScales the cache of the head's group: positions of `length` integers, a multiple of 16, and their scales
 * @param v,vScales the same for the values, two positions side by side, readable to a multiple of 32 positions
 * @param scores room for count binary32, rounded up to a multiple of 32
 * @param sums room for `length` binary32
 * @param out d binary32
 */
export function attend_i8(
  q: usize,
  qScale: f32,
  k: usize,
  kScales: usize,
  v: usize,
  vScales: usize,
  count: i32,
  length: i32,
  scores: usize,
  sums: usize,
  d: i32,
  out: usize,
): void {
  attendIntegers(1, q, qScale, k, kScales, v, vScales, count, length, scores, sums, d, out);
}

/** As {@link attend_i8}, over int16. */
export function attend_i16(
  q: usize,
  qScale: f32,
  k: usize,
  kScales: usize,
  v: usize,
  vScales: usize,
  count: i32,
  length: i32,
  scores: usize,
  sums: usize,
  d: i32,
  out: usize,
): void {
  attendIntegers(2, q, qScale, k, kScales, v, vScales, count, length, scores, sums, d, out);
}
