/**
 * `rabbit matmul`: times the matrix-vector product.
 *
 * @module
 */

import { type Activations, BF16, BLOCK, DEFAULT_WIDTH, matrixBytes, WIDTHS } from "../format/blocks.ts";
import { f32ToBf16, f32ToF16 } from "../format/floats.ts";
import { Pool } from "../kernels/pool.ts";
import { Xorshift32 } from "../random.ts";
import { command, THREADS } from "./arguments.ts";
import { Fixed } from "./output.ts";
import { list } from "./help.ts";
import { ACTIVATIONS, BITS, NARROWEST_FIRST } from "./widths.ts";

/** The number of timed passes. */
const PASSES = 30;

/** The value of `--bits` for bfloat16. */
const BF16_BITS = 8 * BF16.blockBytes;

/** `rabbit matmul` */
export const matmulCommand = command({
  name: "matmul",
  group: "development",
  summary: "time the product of a random matrix and a vector, without a model",
  positionals: [],
  flags: {
    bits: {
      type: { kind: "choice", of: [...BITS.of, BF16_BITS] },
      default: DEFAULT_WIDTH.bits,
      help: `bits of a weight: ${list([...NARROWEST_FIRST, BF16].map(({ name }) => name))}`,
    },
    rows: { type: { kind: "integer", min: 1, max: 1 << 24 }, value: "R", default: 49152, help: "rows of the matrix" },
    columns: {
      type: { kind: "integer", min: BLOCK, max: 1 << 20 },
      value: "C",
      default: 576,
      help: `columns of the matrix, a multiple of ${BLOCK}`,
    },
    activations: { type: ACTIVATIONS, default: "f32", help: "f32 is exact; i16 and i8 are faster" },
    threads: THREADS,
  },
  details: ["bytes and gb_per_s count the matrix as a file holds it."],
  example: "rabbit matmul --bits 8 --rows 4096 --columns 4096 --threads 1",
  // deno-lint-ignore require-await
  async run(args, out) {
    const { bits, rows, columns, activations, threads } = args.values;
    if (columns % BLOCK !== 0) throw args.invalid("columns", `a multiple of ${BLOCK}`);
    const format = WIDTHS.find((format) => format.bits === bits) ?? BF16;
    if (format === BF16 && activations !== "f32") throw args.invalid("activations", `f32 for --bits ${bits}`);
    const times = timeProduct(format, rows, columns, threads, activations);
    const median = times[times.length >> 1];
    const bytes = matrixBytes(format, rows, columns);
    out.line({ format: format.name, rows, columns, bytes, threads, activations, passes: PASSES });
    out.line({
      ms_median: new Fixed(median, 3),
      ms_min: new Fixed(times[0], 3),
      ms_max: new Fixed(times.at(-1)!, 3),
      gb_per_s: new Fixed(bytes / median / 1e6, 2),
      weights_per_s: new Fixed(rows * columns / median * 1000, 0),
    });
    return 0;
  },
});

/** The time of each pass in milliseconds, in ascending order. */
function timeProduct(
  format: typeof BF16 | typeof WIDTHS[number],
  rows: number,
  columns: number,
  threads: number,
  activations: Activations,
): number[] {
  const pool = new Pool({ threads, activations });
  try {
    const random = new Xorshift32(1);
    const matrix = pool.matrix(format, rows, columns, (_, into) => {
      const words = new Uint8Array(into.length);
      for (let n = 0; n < words.length; n++) words[n] = random.bits();
      setFloats(format, words);
      into.set(words);
    });
    const x = pool.buffer(1, columns);
    const y = pool.buffer(1, rows);
    pool.row(x, 0).forEach((_, n, x) => x[n] = Math.sin(n));
    return Array.from({ length: PASSES + 3 }, () => {
      pool.project({ from: x }, 1, [{ matrix, out: y }]);
      const start = performance.now();
      pool.run();
      return performance.now() - start;
    }).slice(3).sort((a, b) => a - b);
  } finally {
    pool.close();
  }
}

/** Replaces random scales and exponents, which may be NaN: scales become 0.01, bfloat16 values about 0.01. */
function setFloats(format: typeof BF16 | typeof WIDTHS[number], bytes: Uint8Array): void {
  const view = new DataView(bytes.buffer);
  const [step, value] = format.kind === "block" ? [format.blockBytes, f32ToF16(0.01)] : [2, f32ToBf16(0.01) & 0xff80];
  for (let at = 0; at < bytes.length; at += step) {
    view.setUint16(at, format.kind === "block" ? value : value | (bytes[at] & 0x7f), true);
  }
}
