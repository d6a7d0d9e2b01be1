/**
 * Loads the matrices of a pool: reads rows, converts formats without kernels to a format with kernels, and packs the
 * rows.
 *
 * @module
 */

import { type BlockFormat, F16, type Format, matrixBytes } from "../format/blocks.ts";
import { type Arena, type Arenas, STAGING_BYTES } from "./arena.ts";
import { BadScale, COLUMNS, type Matrix, padded, type ReadBytes } from "./operations.ts";
import { packingOf } from "./packings.ts";
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
  /** Where its weights are, unless it was loaded ahead. */
  readonly parts?: readonly LoadedPart[];
}

/** A part of a matrix in one memory. */
interface LoadedPart extends Segment {
  /** The address of an area into which its rows are read, before they are packed. */
  readonly room: number;
}

/** The bytes that a matrix takes in a pool. */
export function packedBytes({ format, rows, columns }: Matrix): number {
  return Math.ceil(rows / GROUP) * groupBytesOf({ format, rows, columns });
}

/**
 * Loads a matrix.
 *
 * @returns the address of its record in the main memory, and where its weights are
 * @throws {BadScale}
 * @throws {LimitError} there is no room for it
 */
export function loadMatrix(
  arenas: Arenas,
  matrix: Matrix,
  read: ReadBytes,
): { readonly record: number; readonly parts: readonly LoadedPart[] } {
  const parts: LoadedPart[] = [];
  for (const segment of placeMatrix(arenas, matrix)) {
    const arena = arenas.all[segment.memory];
    // Rows that are too long for the staging area get an area of their own.
    const room = isLong(matrix) ? arena.take(GROUP * heldRowBytes(matrix)) : arena.staging;
    pack(arena, matrix, read, segment, room);
    parts.push({ ...segment, room });
  }
  return { record: recordMatrix(arenas, matrix, parts), parts };
}

/** Gives a loaded matrix other weights. @throws {BadScale} */
export function reloadMatrix(arenas: Arenas, matrix: Matrix, parts: readonly LoadedPart[], read: ReadBytes): void {
  for (const part of parts) pack(arenas.all[part.memory], matrix, read, part, part.room);
}

/** Takes the areas of a matrix, one after the other. @throws {LimitError} there is no room for it */
export function* placeMatrix(arenas: Arenas, matrix: Matrix): Generator<Segment, void> {
  const groups = Math.ceil(matrix.rows / GROUP);
  const groupBytes = groupBytesOf(matrix);
  for (let first = 0; first < groups;) {
    const memory = arenas.roomFor(groupBytes);
    const arena = arenas.all[memory];
    const count = Math.min(groups - first, Math.floor(arena.free / groupBytes));
    yield { memory, first, groups: count, address: arena.take(count * groupBytes, false) };
    first += count;
  }
}

/** Writes the record of a matrix. @returns its address in the main memory */
export function recordMatrix({ main }: Arenas, matrix: Matrix, segments: readonly Segment[]): number {
  const record = main.take(recordBytes(segments.length));
  const { kind } = packingOf(matrix.format);
  writeRecord(main.memory.buffer, record, { kind, blocks: padded(matrix.columns) / COLUMNS, segments });
  return record;
}

/** Bytes of a group in a pool. */
export function groupBytesOf({ format, columns }: Matrix): number {
  return padded(columns) / COLUMNS * packingOf(format).groupBytes;
}

/** Bytes of a row that is read and not packed yet. */
function heldRowBytes({ format, columns }: Matrix): number {
  return matrixBytes(packingOf(format).format, 1, padded(columns));
}

/** Whether a group of rows is too long for an area of {@link STAGING_BYTES}. */
export function isLong(matrix: Matrix): boolean {
  return GROUP * heldRowBytes(matrix) > STAGING_BYTES;
}

/**
 * Reads and packs groups of a matrix.
 *
 * @param memory the one that has the groups
 * @param room the address of an area into which rows are read
 * @throws {BadScale}
 */
export function pack(
  memory: Pick<Arena, "bytes" | "wasm">,
  matrix: Matrix,
  read: ReadBytes,
  { first, groups: count, address }: Pick<Segment, "first" | "groups" | "address">,
  room: number,
): void {
  const { rows, columns } = matrix;
  const { format: held, pack } = packingOf(matrix.format);
  const blocks = padded(columns) / COLUMNS;
  const groupBytes = groupBytesOf(matrix);
  const rowBytes = heldRowBytes(matrix);
  const step = Math.max(1, Math.floor(STAGING_BYTES / (GROUP * rowBytes)));
  for (let done = 0; done < count; done += step) {
    const groups = Math.min(step, count - done);
    const row = (first + done) * GROUP;
    const present = Math.min(groups * GROUP, rows - row);
    readRows(matrix, held, read, row, present, memory.bytes(room, groups * GROUP * rowBytes));
    if (held.kind === "block" || held === F16) {
      // In a binary16 matrix every weight is checked; its padding is zero.
      const perRow = rowBytes / held.blockBytes;
      const bad = memory.wasm.check_scales(room, held.blockBytes, present * perRow);
      if (bad >= 0) {
        throw new BadScale((row + Math.floor(bad / perRow)) * (columns / held.blockWeights) + bad % perRow);
      }
    }
    memory.wasm[pack](room, rowBytes, blocks, groups, address + done * groupBytes);
  }
}

/**
 * Reads rows of a matrix, converts them to the packed format, and pads them with zeros.
 *
 * @param held the packed format
 * @param first the first row
 * @param out room for at least `rows` rows; the rest of it becomes zeros
 */
function readRows(
  { format, columns }: Matrix,
  held: Format,
  read: ReadBytes,
  first: number,
  rows: number,
  out: Uint8Array,
): void {
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
