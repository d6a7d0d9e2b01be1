// AssemblyScript: what two rows of logits say of one place. lib/measure/distribution.ts defines the results, down to the order
// of the additions.

// Variables, for the reason in exponential.as.ts.
export let wideLeast: f64 = -708;
export let wideLog2e: f64 = 1.4426950408889634073599;
export let wideShift: f64 = 6755399441055744;
export let wideLn2High: f64 = 6.93145751953125e-1;
export let wideLn2Low: f64 = 1.42860682030941723212e-6;
export let wideP0: f64 = 1.26177193074810590878e-4;
export let wideP1: f64 = 3.02994407707441961300e-2;
export let wideP2: f64 = 9.99999999999999999910e-1;
export let wideQ0: f64 = 3.00198505138664455042e-6;
export let wideQ1: f64 = 2.52448340349684104192e-3;
export let wideQ2: f64 = 2.27265548208155028766e-1;
export let wideQ3: f64 = 2.00000000000000000009;
export let wideOne: f64 = 1;
export let wideBias: i64 = 1023;
export let magnitudeBits: i32 = 0x7fffffff;

/** exp(x) of two x of at most 0. */
@inline
function exponential(x: v128): v128 {
  const bounded = f64x2.pmax(x, f64x2.splat(wideLeast));
  // The sum's last bits are the nearest integer.
  const turns = f64x2.add(f64x2.mul(bounded, f64x2.splat(wideLog2e)), f64x2.splat(wideShift));
  const n = f64x2.sub(turns, f64x2.splat(wideShift));
  let r = f64x2.sub(bounded, f64x2.mul(n, f64x2.splat(wideLn2High)));
  r = f64x2.sub(r, f64x2.mul(n, f64x2.splat(wideLn2Low)));
  const s = f64x2.mul(r, r);
  let p = f64x2.add(f64x2.mul(f64x2.splat(wideP0), s), f64x2.splat(wideP1));
  p = f64x2.mul(r, f64x2.add(f64x2.mul(p, s), f64x2.splat(wideP2)));
  let q = f64x2.add(f64x2.mul(f64x2.splat(wideQ0), s), f64x2.splat(wideQ1));
  q = f64x2.add(f64x2.mul(q, s), f64x2.splat(wideQ2));
  q = f64x2.add(f64x2.mul(q, s), f64x2.splat(wideQ3));
  const e = f64x2.div(p, f64x2.sub(q, p));
  const power = i64x2.shl(i64x2.add(turns, i64x2.splat(wideBias)), 52);
  return f64x2.mul(f64x2.add(f64x2.add(e, e), f64x2.splat(wideOne)), power);
}

/** The second pair of four binary32, in the first place. */
@inline
function upper(v: v128): v128 {
  return v128.shuffle<i64>(v, v, 1, 0);
}

/** The index of the largest of `width` binary32, the lowest of equal ones; -1 if one is NaN or an infinity. */
function largest(row: usize, width: i32): i32 {
  const end = row + (<usize> width << 2), whole = row + (<usize> (width & -4) << 2);
  const magnitude = i32x4.splat(magnitudeBits);
  let most = v128.load32_splat(row), bits = v128.and(most, magnitude);
  let at = row;
  for (; at < whole; at += 16) {
    const v = v128.load(at);
    most = f32x4.pmax(most, v);
    bits = i32x4.max_s(bits, v128.and(v, magnitude));
  }
  for (; at < end; at += 4) {
    const v = v128.load32_splat(at);
    most = f32x4.pmax(most, v);
    bits = i32x4.max_s(bits, v128.and(v, magnitude));
  }
  if (v128.any_true(i32x4.ge_s(bits, i32x4.splat(0x7f800000)))) return -1;
  most = f32x4.pmax(most, upper(most));
  const top = max<f32>(f32x4.extract_lane(most, 0), f32x4.extract_lane(most, 1));
  most = f32x4.splat(top);
  at = row;
  while (at < whole && !v128.any_true(f32x4.eq(v128.load(at), most))) at += 16;
  while (load<f32>(at) != top) at += 4;
  return <i32> ((at - row) >> 2);
}

/**
 * Compares two rows of `width` binary32.
 *
 * @param out gets, in binary64, the index of the largest logit of p and of q, or -1; and if neither is -1 the sum of
 *   exp(p[i] - largest), that of q, and the sum of exp(p[i] - largest) * (p[i] - q[i])
 */
export function compare_rows(p: usize, q: usize, width: i32, out: usize): void {
  const topP = largest(p, width), topQ = largest(q, width);
  store<f64>(out, <f64> topP);
  store<f64>(out, <f64> topQ, 8);
  store<f64>(out, 0, 16);
  store<f64>(out, 0, 24);
  store<f64>(out, 0, 32);
  if (topP < 0 || topQ < 0) return;
  const mostP = f64x2.splat(<f64> load<f32>(p + (<usize> topP << 2)));
  const mostQ = f64x2.splat(<f64> load<f32>(q + (<usize> topQ << 2)));
  let pLow = f64x2.splat(0), pHigh = pLow, qLow = pLow, qHigh = pLow, low = pLow, high = pLow;
  let n: usize = 0;
  for (const whole = <usize> (width & -4) << 2; n < whole; n += 16) {
    const a = v128.load(p + n), b = v128.load(q + n);
    const aLow = f64x2.promote_low_f32x4(a), aHigh = f64x2.promote_low_f32x4(upper(a));
    const bLow = f64x2.promote_low_f32x4(b), bHigh = f64x2.promote_low_f32x4(upper(b));
    const eLow = exponential(f64x2.sub(aLow, mostP)), eHigh = exponential(f64x2.sub(aHigh, mostP));
    pLow = f64x2.add(pLow, eLow);
    pHigh = f64x2.add(pHigh, eHigh);
    low = f64x2.add(low, f64x2.mul(eLow, f64x2.sub(aLow, bLow)));
    high = f64x2.add(high, f64x2.mul(eHigh, f64x2.sub(aHigh, bHigh)));
    qLow = f64x2.add(qLow, exponential(f64x2.sub(bLow, mostQ)));
    qHigh = f64x2.add(qHigh, exponential(f64x2.sub(bHigh, mostQ)));
  }
  // The last one to three, one a lane of the first three.
  for (let lane = 0, end = <usize> width << 2; n < end; n += 4, lane++) {
    const none = f64x2.splat(0);
    const own = lane == 1 ? f64x2.replace_lane(none, 1, 1) : f64x2.replace_lane(none, 0, 1);
    const a = f64x2.splat(<f64> load<f32>(p + n)), b = f64x2.splat(<f64> load<f32>(q + n));
    const e = f64x2.mul(exponential(f64x2.sub(a, mostP)), own);
    const f = f64x2.mul(exponential(f64x2.sub(b, mostQ)), own);
    const d = f64x2.mul(e, f64x2.sub(a, b));
    if (lane < 2) {
      pLow = f64x2.add(pLow, e), qLow = f64x2.add(qLow, f), low = f64x2.add(low, d);
    } else {
      pHigh = f64x2.add(pHigh, e), qHigh = f64x2.add(qHigh, f), high = f64x2.add(high, d);
    }
  }
  store<f64>(out, sum(pLow, pHigh), 16);
  store<f64>(out, sum(qLow, qHigh), 24);
  store<f64>(out, sum(low, high), 32);
}

/** (lane 0 + lane 1) + (lane 2 + lane 3) */
@inline
function sum(low: v128, high: v128): f64 {
  return (f64x2.extract_lane(low, 0) + f64x2.extract_lane(low, 1)) +
    (f64x2.extract_lane(high, 0) + f64x2.extract_lane(high, 1));
}
