// AssemblyScript: the WebAssembly module that `deno task kernels` builds. Sizes in memory are in layout.ts.
//
// A lane is a row of a matrix, so nothing is summed across lanes. How the kernels are written is determined by the engine
// (V8) and the compiler's optimizer (Binaryen):
// - V8 merges the same operation on both halves of a group into one 256-bit operation (engine_flags.ts), if their loads
//   and stores are adjacent and no store comes between the loads. Adjacent means one address at two literal offsets: a sum
//   like w + 16 is another address to V8, and it merges such loads with three instructions;
// - V8 merges two extending loads only if both have an offset, so the kernels load a whole vector and extend it;
// - Binaryen moves a computation to the use of its result, past others that share its operands, which then don't fit the
//   registers. It does not move across iterations of a loop, so loops are short;
// - without the flags V8 checks the address of each load, so loads are wide, at few distinct offsets;
// - V8 rebuilds a constant vector at each use, with three instructions. It can't know that an exported variable never
//   changes, so vectors made of such variables stay in registers.

export * from "./encode.as";
export * from "./exact.as";
export { f32_bf16_far, f32_f16_far, f32_f32_far, f32_q4_far, f32_q8_far } from "./far.as";
export { fused } from "./fused.as";
export * from "./q4.as";
export * from "./q8.as";
export * from "./activations.as";
export * from "./pack.as";
export * from "./layer.as";
export * from "./attention.as";
export * from "./compare.as";
export { add_products, pack_inputs, pack_residual } from "./sums.as";
export { damp, factor_diagonal, factor_rows, invert } from "./factor.as";
export { scratch_bytes, solve_rows } from "./solve.as";
export { highBias, highNibble, highPower, lowBias, lowNibble, lowPower, upper } from "./decode.as";
export {
  exp0, exp1, exp2, exp3, exp4, exp5, expBias, expLeast, expMost, expOne, ln2High, ln2Low, log2e,
} from "./exponential.as";
export { halfBits, halfPower, nibbles, ones } from "./lanes.as";
