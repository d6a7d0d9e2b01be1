/**
 * Loads the matrices of a pool: reads rows, converts formats without kernels to a format with kernels, and packs the
 * rows.
 *
 * @module
 */

import { type BlockFormat, F16, type Format, matrixBytes } from "../format/blocks.ts";
import { type Arenas, STAGING_BYTES } from "./arena.ts";
import { BadScale, COLUMNS, type Matrix, padded, type ReadBytes } from "./operations.ts";
import { type Packing, packingOf } from "./packings.ts";
import { recordBytes, type Segment, writeRecord } from "./view.ts";
import { GROUP } from "./wasm/layout.ts";

/** The data of a matrix in a pool. */
export interface PackedMatrix {
  /** The address of the record that the threads read. */
  readonly record: number;
  /** Rows rounded up to whole groups. */
  readonly rowsHeld: number;
  /** The MODE of the activations it is multiplied with. */
  readonly mode: number;
}

/** A matrix that is being loaded. */
interface Loading extends Matrix {
  readonly packing: Packing;
  readonly read: ReadBytes;
}

/** The bytes that a matrix takes in a pool. */
export function packedBytes({ format, rows, columns }: Matrix): number {
  return Math.ceil(rows / GROUP) * padded(columns) / COLUMNS * packingOf(format).groupBytes;
}

/**
 * Loads a matrix.
 *
 * @returns the address of its record in the main memory
 * @throws {BadScale}
 * @throws {LimitError} there is no room for it
 */
export function loadMatrix(arenas: Arenas, matrix: Matrix, read: ReadBytes): number {
  const packing = packingOf(matrix.format);
  const blocks = padded(matrix.columns) / COLUMNS;
  const groups = Math.ceil(matrix.rows / GROUP);
  const groupBytes = blocks * packing.groupBytes;
  const loading = { ...matrix, packing, read };
  const segments: Segment[] = [];
  for (let first = 0; first < groups;) {
    const memory = arenas.roomFor(groupBytes);
    const count = Math.min(groups - first, Math.floor(arenas.all[memory].free / groupBytes));
    segments.push({ memory, first, groups: count, address: pack(arenas, memory, loading, first, count) });
    first += count;
  }
  const record = arenas.main.take(recordBytes(segments.length));
  writeRecord(arenas.main.memory.buffer, record, { kind: packing.kind, blocks, segments });
  return record;
}

/** Reads and packs `count` groups, starting with group `first`. @returns their address in the memory */
function pack(arenas: Arenas, memory: number, matrix: Loading, first: number, count: number): number {
  const { rows, columns, packing } = matrix;
  const { format: held } = packing;
  const arena = arenas.all[memory];
  const blocks = padded(columns) / COLUMNS;
  const groupBytes = blocks * packing.groupBytes;
  const payload = arena.take(count * groupBytes, false);
  const rowBytes = matrixBytes(held, 1, padded(columns));
  // Rows that are too long for the staging area get an area of their own.
  const room = GROUP * rowBytes > STAGING_BYTES ? arena.take(GROUP * rowBytes) : arena.staging;
  const step = Math.max(1, Math.floor(STAGING_BYTES / (GROUP * rowBytes)));
  for (let done = 0; done < count; done += step) {
    const groups = Math.min(step, count - done);
    const row = (first + done) * GROUP;
    const present = Math.min(groups * GROUP, rows - row);
    readRows(matrix, row, present, arena.bytes(room, groups * GROUP * rowBytes));
    if (held.kind === "block" || held === F16) {
      // In a binary16 matrix every weight is checked; its padding is zero.
      const perRow = rowBytes / held.blockBytes;
      const bad = arena.wasm.check_scales(room, held.blockBytes, present * perRow);
      if (bad >= 0) {
        throw new BadScale((row + Math.floor(bad / perRow)) * (columns / held.blockWeights) + bad % perRow);
      }
    }
    arena.wasm[packing.pack](room, rowBytes, blocks, groups, payload + done * groupBytes);
  }
  return payload;
}

/**
 * Reads rows of a matrix, converts them to the packed format, and pads them with zeros.
 *
 * @param first the first row
 * @param out room for at least `rows` rows; the rest of it becomes zeros
 */
function readRows({ format, columns, packing, read }: Loading, first: number, rows: number, out: Uint8Array): void {
  const { format: held } = packing;
  const rowBytes = matrixBytes(format, 1, columns);
  const heldBytes = matrixBytes(held, 1, padded(columns));
  if (format === held && columns === padded(columns)) {
    read(first * rowBytes, out.subarray(0, rows * rowBytes));
    out.fill(0, rows * rowBytes);
    return;
  }
  const row = new Uint8Array(rowBytes);
  out.fill(0);
  for (let r = 0; r < rows; r++) {
    read((first + r) * rowBytes, row);
    out.set(format === held ? row : widened(format, held, row, columns), r * heldBytes);
  }
}

/**
 * Converts a row to a wider format, with the same values: a float format to binary32, blocks to blocks of more bits.
 */
function widened(format: Format, held: Format, row: Uint8Array<ArrayBuffer>, columns: number): Uint8Array {
  if (format.kind === "block" && held.kind === "block") return widenedBlocks(format, held, row);
  const values = new Float32Array(columns);
  format.decode(new DataView(row.buffer), 0, columns, values);
  return new Uint8Array(values.buffer);
}

/** Converts blocks: copies the scales, and packs the levels in the payload of another format. */
function widenedBlocks(format: BlockFormat, held: BlockFormat, row: Uint8Array<ArrayBuffer>): Uint8Array {
  const count = row.length / format.blockBytes;
  const out = new Uint8Array(count * held.blockBytes);
  const view = new DataView(row.buffer);
  const levels = new Int8Array(COLUMNS);
  for (let b = 0; b < count; b++) {
    const [from, to] = [b * format.blockBytes, b * held.blockBytes];
    out.set(row.subarray(from, from + 2), to);
    format.unpack(view, from + 2, levels);
    held.pack(levels, out.subarray(to + 2));
  }
  return out;
}
