// AssemblyScript: the WebAssembly module that `deno task kernels` builds. Sizes in memory are in layout.ts.
//
// A lane is a row of a matrix, so nothing is ever summed across lanes. What the engine (V8) and the compiler (Binaryen)
// make of the kernels decides how they are written:
// - V8 makes one 256-bit operation of the same operation on both halves of a group (engine_flags.ts), if they load and
//   store side by side and no store comes between the loads; side by side for V8 is one address at two literal offsets, a
//   sum like w + 16 is another address, so that two loads are put together, in three instructions;
// - V8 makes one of two loads that extend only where both have an offset, so a whole vector is loaded and extended;
// - Binaryen moves a computation to where its result is used, past others that share its operands, which then don't fit
//   the registers. It doesn't do so across the turns of a loop, so loops are short;
// - without the flags V8 checks the address of each load, so loads are wide, at few distinct offsets;
// - V8 builds a constant vector anew at each use, in three instructions. It can't know that an exported variable never
//   changes, so vectors made of those stay in registers.

export * from "./encode.as";
export * from "./exact.as";
export * from "./q4.as";
export * from "./q8.as";
export * from "./activations.as";
export * from "./pack.as";
export * from "./layer.as";
export * from "./attention.as";
export { highBias, highNibble, highPower, lowBias, lowNibble, lowPower, upper } from "./decode.as";
export {
  exp0, exp1, exp2, exp3, exp4, exp5, expBias, expLeast, expMost, expOne, ln2High, ln2Low, log2e,
} from "./exponential.as";
export { halfBits, halfPower, nibbles, ones } from "./lanes.as";
