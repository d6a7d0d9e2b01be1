// Matrices that the workers of a pool load ahead are those that the first thread would have loaded, and so are errors.

import { assert, assertEquals, assertThrows } from "@std/assert";
import { openRegular } from "../../../lib/files/read.ts";
import { type Format, FORMATS, matrixBytes, Q4B32, Q8B32 } from "../../../lib/format/blocks.ts";
import { BadScale, type Operations } from "../../../lib/kernels/operations.ts";
import { Pool } from "../../../lib/kernels/pool.ts";
import { inTemporary } from "../../support/files.ts";
import { assertSameBits } from "../../support/numbers.ts";

/** Columns of rows of which eight in binary32 are more than a pool reads at once. */
const LONG = 40_960;

/** A matrix in a file, from `offset` on. */
interface Filed {
  readonly format: Format;
  readonly rows: number;
  readonly columns: number;
  readonly offset: number;
}

/** Bytes of which every block has a finite scale, and no float is a NaN. */
function bytesFor({ format, rows, columns, offset }: Filed): Uint8Array {
  let seed = offset + 1;
  const bytes = new Uint8Array(matrixBytes(format, rows, columns)).map(() => {
    return (seed = Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 24;
  });
  // The upper byte of a scale, or of every float: below the exponents of infinities.
  const [first, step] = format.kind === "block" ? [1, format.blockBytes] : [format.blockBytes - 1, format.blockBytes];
  for (let at = first; at < bytes.length; at += step) bytes[at] = bytes[at] & 0x80 | 0x20;
  return bytes;
}

/** Writes matrices of all formats to a file: some of several pieces, some of rows that are padded or long. */
function writeMatrices(path: string): { matrices: Filed[]; bytes: Uint8Array } {
  const matrices: Filed[] = [];
  const parts: Uint8Array[] = [];
  let offset = 0;
  for (const format of FORMATS.values()) {
    for (const [rows, columns] of [[21, 96], [8, 32], [1501, format.kind === "block" ? 1024 : 1003], [3, LONG]]) {
      const matrix = { format, rows, columns, offset };
      matrices.push(matrix);
      parts.push(bytesFor(matrix));
      offset += parts.at(-1)!.length;
    }
  }
  const bytes = new Uint8Array(offset);
  matrices.forEach(({ offset }, n) => bytes.set(parts[n], offset));
  Deno.writeFileSync(path, bytes);
  return { matrices, bytes };
}

function placed(path: string, matrices: readonly Filed[]) {
  const { file, version } = openRegular(path);
  file.close();
  return matrices.map(({ offset, ...matrix }) => ({ ...matrix, place: { path, version, offset } }));
}

/** Some rows of each matrix, the last one too. */
function rowsOf(ops: Operations, matrices: ReturnType<typeof placed>, bytes: Uint8Array, reads = { count: 0 }) {
  const loaded = matrices.map(({ format, rows, columns, place }) => {
    const read = (offset: number, into: Uint8Array) => {
      reads.count++;
      into.set(bytes.subarray(place.offset + offset, place.offset + offset + into.length));
    };
    return ops.matrix(format, rows, columns, read, place);
  });
  const out = loaded.map(({ columns }) => ops.buffer(3, columns));
  return loaded.map((matrix, n) => {
    ops.embed(matrix, [0, matrix.rows >> 1, matrix.rows - 1], out[n]);
    ops.run();
    return [0, 1, 2].map((row) => ops.row(out[n], row).slice());
  });
}

function assertSameRows(a: ReturnType<typeof rowsOf>, b: ReturnType<typeof rowsOf>): void {
  a.forEach((rows, n) => rows.forEach((row, r) => assertSameBits(row, b[n][r], `matrix ${n}, row ${r}`)));
}

async function closing<T>(pool: Pool, action: (pool: Pool) => T | Promise<T>): Promise<T> {
  try {
    return await action(pool);
  } finally {
    pool.close();
  }
}

Deno.test("matrices that are loaded ahead are those of a pool without workers", async () => {
  await inTemporary(async (directory) => {
    const path = `${directory}/weights`;
    const { matrices, bytes } = writeMatrices(path);
    const short = matrices.filter(({ columns }) => columns < LONG);
    for (
      const [some, options] of [
        [matrices, { threads: 2 }],
        [matrices, { threads: 3, guardBytes: 1024 }],
        // Several memories.
        [short, { threads: 2, memoryBytes: 24 << 20 }],
      ] as const
    ) {
      const wanted = placed(path, some);
      const expected = await closing(new Pool({ threads: 1 }), (pool) => {
        pool.loadAhead(wanted);
        return rowsOf(pool, wanted, bytes);
      });
      await closing(new Pool(options), async (pool) => {
        // A first thread that comes at once shares the work; one that comes later finds it done.
        for (const wait of [0, 30, 200]) {
          pool.loadAhead(wanted);
          await new Promise((resolve) => setTimeout(resolve, wait));
          assertSameRows(rowsOf(pool, wanted, bytes), expected);
          pool.checkGuards();
          await pool.reset();
          // Freed while the workers are loading.
          pool.loadAhead(wanted);
          await pool.reset();
        }
      });
    }
  });
});

Deno.test("workers load all matrices but those with long rows, if they are given the time", async () => {
  await inTemporary(async (directory) => {
    const path = `${directory}/weights`;
    const { matrices, bytes } = writeMatrices(path);
    const wanted = placed(path, matrices.filter(({ columns }) => columns < LONG));
    await closing(new Pool({ threads: 2 }), async (pool) => {
      for (let wait = 500;; wait *= 2) {
        const reads = { count: 0 };
        pool.loadAhead(wanted);
        await new Promise((resolve) => setTimeout(resolve, wait));
        rowsOf(pool, wanted, bytes, reads);
        if (reads.count === 0) break;
        assert(wait < 60_000);
        await pool.reset();
      }
    });
  });
});

Deno.test("what no worker can load, the first thread loads, or reports what is wrong with it", async () => {
  await inTemporary(async (directory) => {
    const path = `${directory}/weights`;
    const { matrices, bytes } = writeMatrices(path);
    const wanted = placed(path, matrices);
    const missing = wanted.map((matrix) => ({ ...matrix, place: { ...matrix.place, path: `${path}.missing` } }));
    const changed = wanted.map((matrix) => ({ ...matrix, place: { ...matrix.place, version: "another" } }));
    const expected = await closing(new Pool({ threads: 1 }), (pool) => rowsOf(pool, wanted, bytes));
    await closing(new Pool({ threads: 2 }), async (pool) => {
      for (const wrong of [missing, changed]) {
        for (const wait of [0, 300]) {
          pool.loadAhead(wrong);
          await new Promise((resolve) => setTimeout(resolve, wait));
          assertSameRows(rowsOf(pool, wrong, bytes), expected);
          await pool.reset();
        }
      }
    });

    for (const format of [Q4B32, Q8B32]) {
      const matrix = matrices.find((matrix) => matrix.format === format && matrix.rows === 1501)!;
      const block = 32 * 1100 + 7;
      const broken = bytes.slice();
      new DataView(broken.buffer).setUint16(matrix.offset + block * format.blockBytes, 0x7c00, true);
      Deno.writeFileSync(path, broken);
      const again = placed(path, [matrix]);
      for (const wait of [0, 300]) {
        await closing(new Pool({ threads: 2 }), async (pool) => {
          pool.loadAhead(again);
          await new Promise((resolve) => setTimeout(resolve, wait));
          assertEquals(assertThrows(() => rowsOf(pool, again, broken), BadScale).block, block);
        });
      }
    }
  });
});

Deno.test("a matrix of another shape or format than the one loaded ahead is loaded from what is given", async () => {
  await inTemporary(async (directory) => {
    const path = `${directory}/weights`;
    const { matrices, bytes } = writeMatrices(path);
    const [{ rows, columns, format, offset }] = matrices;
    const wanted = placed(path, [{ rows, columns, format, offset }]);
    const others = placed(path, [{ rows: rows - 3, columns, format, offset }, { rows, columns: 32, format, offset }]);
    const expected = await closing(new Pool({ threads: 1 }), (pool) => rowsOf(pool, others, bytes));
    await closing(new Pool({ threads: 2 }), (pool) => {
      pool.loadAhead(wanted);
      assertSameRows(rowsOf(pool, others, bytes), expected);
    });
  });
});
