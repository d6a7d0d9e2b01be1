/**
 * The operations of a decoder: {@link Reference} defines them in plain TypeScript, {@link Pool} runs WebAssembly kernels on
 * several threads. Both give the same results, bit for bit.
 *
 * ```ts
 * import { F32 } from "@rabbit/rabbit/format";
 * import { Reference } from "@rabbit/rabbit/kernels";
 *
 * const ops = new Reference();
 * const identity = ops.matrix(F32, 2, 2, (_, into) => into.set(new Uint8Array(Float32Array.of(1, 0, 0, 1).buffer)));
 * const [from, out] = [ops.buffer(1, 2), ops.buffer(1, 2)];
 * ops.embed(identity, [1], from);
 * ops.project({ from }, 1, [{ matrix: identity, out }]);
 * ops.run();
 * console.log(ops.row(out, 0)); // Float32Array [ 0, 1 ]
 * ```
 *
 * @module
 */

export type { PlacedMatrix } from "./ahead.ts";
export { BadScale } from "./operations.ts";
export type {
  ActivationBuffer,
  Attention,
  Input,
  KeyValueCache,
  Matrix,
  Norm,
  Operations,
  Place,
  Projection,
  ReadBytes,
  RopeTable,
  Vector,
} from "./operations.ts";
export { Pool } from "./pool.ts";
export type { PoolOptions } from "./pool.ts";
export { Reference } from "./reference.ts";
export type { Activations, BlockFormat, Common, FloatFormat, Format } from "../format/blocks.ts";
