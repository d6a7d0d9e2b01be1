/**
 * `deno task bench`: times the matrix-vector product by format, shape, activations and threads. Before a case is timed,
 * its result is compared with that of reference.ts, bit for bit.
 *
 * @module
 */

import {
  ACTIVATIONS,
  type Activations,
  BF16,
  F16,
  F64,
  type Format,
  FORMATS,
  matrixBytes,
} from "../lib/format/blocks.ts";
import { f32ToBf16, f32ToF16 } from "../lib/format/floats.ts";
import { activationsFor } from "../lib/kernels/operations.ts";
import { Pool } from "../lib/kernels/pool.ts";
import { Reference } from "../lib/kernels/reference.ts";
import { Xorshift32 } from "../lib/random.ts";

/** Rows and columns: the output layer and the MLP of a 135M model, and the MLP of a 7B model. */
const SHAPES = [[49152, 576], [1536, 576], [576, 1536], [11008, 4096]] as const;

/** The number of rows that are compared, at the beginning and at the end of a matrix. */
const VERIFIED = 64;

/** Every format with every type of activations that it supports. */
const CASES = [...FORMATS.values()].flatMap((format) => {
  return [...new Set(ACTIVATIONS.map((asked) => activationsFor(format, asked)))].map((activations) => {
    return { format, activations };
  });
});

/** Random bytes of a format with finite scales and floats of about 0.01. */
function randomBytes(format: Format, count: number): Uint8Array {
  const bytes = new Uint8Array(count);
  const random = new Xorshift32(1);
  for (let n = 0; n < count; n++) bytes[n] = random.bits();
  const view = new DataView(bytes.buffer);
  for (let at = 0; at < count; at += format.blockBytes) {
    if (format.kind === "block") view.setUint16(at, f32ToF16(0.01), true);
    else if (format === BF16) view.setUint16(at, f32ToBf16(0.01 * (bytes[at] - 128) / 128), true);
    else if (format === F16) view.setUint16(at, f32ToF16(0.01 * (bytes[at] - 128) / 128), true);
    else if (format === F64) view.setFloat64(at, 0.01 * (bytes[at] - 128) / 128, true);
    else view.setFloat32(at, 0.01 * (bytes[at] - 128) / 128, true);
  }
  return bytes;
}

for (const [rows, columns] of SHAPES) {
  const x = Float32Array.from({ length: columns }, (_, n) => Math.sin(n));
  for (const { format, activations } of CASES) {
    const bytes = randomBytes(format, matrixBytes(format, rows, columns));
    for (const threads of [1, 2]) {
      const pool = new Pool({ threads, activations });
      const matrix = pool.matrix(format, rows, columns, (at, into) => into.set(bytes.subarray(at, at + into.length)));
      const [from, out] = [pool.buffer(1, columns), pool.buffer(1, rows)];
      pool.row(from, 0).set(x);
      const product = () => {
        pool.project({ from }, 1, [{ matrix, out }]);
        pool.run();
      };
      product();
      verify(format, activations, columns, bytes, x, pool.row(out, 0));
      const name = `${format.name} ${activations} ${rows}x${columns}, ${threads} thread${threads > 1 ? "s" : ""}`;
      Deno.bench({ name, group: `${rows}x${columns}`, fn: product });
    }
  }
}

function verify(
  format: Format,
  activations: Activations,
  columns: number,
  bytes: Uint8Array,
  x: Float32Array,
  y: Float32Array,
): void {
  const rowBytes = matrixBytes(format, 1, columns);
  for (const first of [0, y.length - VERIFIED]) {
    const plain = new Reference(activations);
    const part = bytes.subarray(first * rowBytes, (first + VERIFIED) * rowBytes);
    const matrix = plain.matrix(format, VERIFIED, columns, (at, into) => into.set(part.subarray(at, at + into.length)));
    const [from, out] = [plain.buffer(1, columns), plain.buffer(1, VERIFIED)];
    plain.row(from, 0).set(x);
    plain.project({ from }, 1, [{ matrix, out }]);
    plain.row(out, 0).forEach((value, n) => {
      if (!Object.is(value, y[first + n])) {
        throw new Error(
          `${format.name} ${activations}: row ${first + n} is ${y[first + n]}, the definition gives ${value}`,
        );
      }
    });
  }
}
