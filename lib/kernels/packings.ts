/**
 * What the kernels know of formats: how the matrices of one are held, and how the activations are prepared that they are
 * multiplied with. A format with kernels is a row of {@link PACKINGS}; any other is held in one that has them, with the
 * same values and the same results.
 *
 * @module
 */

import { type Activations, BF16, F16, F32, type Format, Q4B32, Q8B32 } from "../format/blocks.ts";
import * as layout from "./wasm/layout.ts";

/**
 * How activations are prepared: `f32` as they are; as blocks of int8 or int16 in the order of the columns; as blocks of
 * int16 with columns j and 16+j side by side, of at most 32767 or of at most 127.
 */
export const MODE = { f32: 0, i8: 1, i16: 2, i16paired: 3, i16paired127: 4 } as const;

/** What there is to know of a mode. */
interface Mode {
  /** The first part of the names of its kernels. */
  readonly kernel: "f32" | "i8" | "i16";
  /** Bytes of a block of prepared activations, with its scale and its sum. */
  readonly blockBytes: number;
  /** What quantize_i16 needs to know. */
  readonly top?: number;
  readonly paired?: boolean;
}

/** By {@link MODE}. */
export const MODES: readonly Mode[] = [
  { kernel: "f32", blockBytes: layout.BLOCK_F32 },
  { kernel: "i8", blockBytes: layout.BLOCK_I8 },
  { kernel: "i16", blockBytes: layout.BLOCK_I16, top: 32767, paired: false },
  { kernel: "i16", blockBytes: layout.BLOCK_I16, top: 32767, paired: true },
  { kernel: "i16", blockBytes: layout.BLOCK_I16, top: 127, paired: true },
];

/** How the matrices of a format are held. */
export interface Packing {
  readonly format: Format;
  /** The format's number in the kernels. */
  readonly kind: number;
  /** The last part of the names of its kernels. */
  readonly name: string;
  /** The name of the kernel that packs groups of rows. */
  readonly pack: string;
  /** Bytes of a group and a block of columns, scales and all. */
  readonly groupBytes: number;
  /** The MODE of each sort of activations that can be asked for. */
  readonly modes: Readonly<Record<Activations, number>>;
}

const FLOAT = { f32: MODE.f32, i16: MODE.f32, i8: MODE.f32 };

/** The formats that there are kernels for, by their kind. */
export const PACKINGS: readonly Packing[] = [
  {
    format: Q4B32,
    kind: layout.Q4,
    name: "q4",
    pack: "pack_q4",
    groupBytes: layout.GROUP_Q4,
    modes: { f32: MODE.f32, i16: MODE.i16, i8: MODE.i8 },
  },
  {
    format: Q8B32,
    kind: layout.Q8,
    name: "q8",
    pack: "pack_q8",
    groupBytes: layout.GROUP_Q8,
    modes: { f32: MODE.f32, i16: MODE.i16paired, i8: MODE.i16paired127 },
  },
  { format: BF16, kind: layout.BF16, name: "bf16", pack: "pack_16", groupBytes: layout.GROUP_16, modes: FLOAT },
  { format: F16, kind: layout.F16, name: "f16", pack: "pack_16", groupBytes: layout.GROUP_16, modes: FLOAT },
  { format: F32, kind: layout.F32, name: "f32", pack: "pack_f32", groupBytes: layout.GROUP_F32, modes: FLOAT },
];

/**
 * How a format is held. One without kernels becomes another one when it is loaded: a float format binary32, which is what
 * its weights count as, a block format Q8B32, which has room for its integers and for its scales as they are.
 *
 * @throws {RangeError} it is neither
 */
export function packingOf(format: Format): Packing {
  const packing = heldAs(format) ?? heldAs(WIDER[format.kind]);
  if (packing === undefined) throw new RangeError(`${format.name} is of an unknown kind: ${format.kind}`);
  return packing;
}

/** What formats without kernels are held as, by their kind. */
const WIDER = { float: F32, block: Q8B32 } as const;

function heldAs(format: Format): Packing | undefined {
  return PACKINGS.find((packing) => packing.format === format);
}

/** The kernels by mode and kind: those for several tokens, and with `_far` after the name those for one. */
export const KERNELS: readonly (readonly string[])[] = MODES.map(({ kernel }) => {
  return PACKINGS.map(({ name }) => `${kernel}_${name}`);
});

/** Bytes of one token's prepared activations. */
export function preparedBytes(mode: number, blocks: number): number {
  return blocks * MODES[mode].blockBytes;
}
