// AssemblyScript: exp(x), for the gate of a layer and the softmax of attention.

// Variables, which the engine keeps in registers or on the stack during a loop, unlike constants (see kernels.as.ts).
export let expLeast: f32 = -87.3;
export let expMost: f32 = 88;
export let log2e: f32 = 1.44269504088896341;
export let ln2High: f32 = 0.693359375;
export let ln2Low: f32 = -2.12194440e-4;
export let exp5: f32 = 1.9875691500e-4;
export let exp4: f32 = 1.3981999507e-3;
export let exp3: f32 = 8.3334519073e-3;
export let exp2: f32 = 4.1665795894e-2;
export let exp1: f32 = 1.6666665459e-1;
export let exp0: f32 = 5.0000001201e-1;
export let expOne: f32 = 1;
export let expBias: i32 = 127;

/**
 * exp(x) for x up to 88, by Cephes' expf: a polynomial of degree 5 on [-ln 2 / 2, ln 2 / 2], within 2 units in the last
 * place; 0 below -87.3. It uses only additions and products, so every machine gives the same bits.
 *
 * @param least,most,turns,high,low,c5,c4,c3,c2,c1,c0,one,bias the variables above, in all lanes
 */
@inline
export function exponential(
  x: v128,
  least: v128,
  most: v128,
  turns: v128,
  high: v128,
  low: v128,
  c5: v128,
  c4: v128,
  c3: v128,
  c2: v128,
  c1: v128,
  c0: v128,
  one: v128,
  bias: v128,
): v128 {
  const tiny = f32x4.lt(x, least);
  const bounded = f32x4.pmax(f32x4.pmin(x, most), least);
  const n = f32x4.nearest(f32x4.mul(bounded, turns));
  let r = f32x4.sub(bounded, f32x4.mul(n, high));
  r = f32x4.sub(r, f32x4.mul(n, low));
  let p = f32x4.add(f32x4.mul(c5, r), c4);
  p = f32x4.add(f32x4.mul(p, r), c3);
  p = f32x4.add(f32x4.mul(p, r), c2);
  p = f32x4.add(f32x4.mul(p, r), c1);
  p = f32x4.add(f32x4.mul(p, r), c0);
  p = f32x4.add(f32x4.add(f32x4.mul(f32x4.mul(r, r), p), r), one);
  const power = i32x4.shl(i32x4.add(i32x4.trunc_sat_f32x4_s(n), bias), 23);
  return v128.andnot(f32x4.mul(p, power), tiny);
}
