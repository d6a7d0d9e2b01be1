// AssemblyScript: the operations of a transformer layer between its matrix products. reference.ts defines each result,
// down to the order of the additions.

import {
  exp0, exp1, exp2, exp3, exp4, exp5, expBias, expLeast, expMost, expOne, exponential, ln2High, ln2Low, log2e,
} from "./exponential.as";

/**
 * out = x / sqrt(mean(x^2) + eps) * weight for one token.
 *
 * @param length binary32 in memory, a multiple of 4; those from `width` on are zero
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
  const least = f32x4.splat(expLeast), most = f32x4.splat(expMost), turns = f32x4.splat(log2e);
  const high = f32x4.splat(ln2High), low = f32x4.splat(ln2Low), c5 = f32x4.splat(exp5), c4 = f32x4.splat(exp4);
  const c3 = f32x4.splat(exp3), c2 = f32x4.splat(exp2), c1 = f32x4.splat(exp1), c0 = f32x4.splat(exp0);
  const one = f32x4.splat(expOne), bias = i32x4.splat(expBias);
  for (let n: usize = 0, bytes = <usize> length << 2; n < bytes; n += 16) {
    const g = v128.load(gate + n);
    const e = exponential(f32x4.neg(g), least, most, turns, high, low, c5, c4, c3, c2, c1, c0, one, bias);
    const s = f32x4.div(g, f32x4.add(one, e));
    v128.store(out + n, f32x4.mul(s, v128.load(up + n)));
  }
}

/** Rotates one head: element n is paired with n + half. `table` has `half` cosines, then `half` sines. */
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
