/**
 * The formats with kernels: how their matrices are packed, and how activations are prepared for them. A format without
 * kernels is converted to one of {@link PACKINGS} when it is loaded, with the same values and the same results.
 *
 * @module
 */

import { type Activations, BF16, F16, F32, type Format, Q4B32, Q8B32 } from "../format/blocks.ts";
import * as layout from "./wasm/layout.ts";

/**
 * How activations are prepared. `f32`: unchanged. `i8`, `i16`: as blocks of integers in the order of the columns.
 * `i16paired`: as blocks of int16 with columns j and 16+j adjacent. `i16paired127`: the same, with magnitudes of at
 * most 127.
 */
export const MODE = { f32: 0, i8: 1, i16: 2, i16paired: 3, i16paired127: 4 } as const;

/** The properties of a mode. */
interface Mode {
  /** The prefix of the names of its kernels. */
  readonly kernel: "f32" | "i8" | "i16";
  /** Bytes of a block of prepared activations, including its scale and its sum. */
  readonly blockBytes: number;
  /** Arguments of quantize_i16. */
  readonly top?: number;
  readonly paired?: boolean;
}

/** The modes, by {@link MODE}. */
export const MODES: readonly Mode[] = [
  { kernel: "f32", blockBytes: layout.BLOCK_F32 },
  { kernel: "i8", blockBytes: layout.BLOCK_I8 },
  { kernel: "i16", blockBytes: layout.BLOCK_I16, top: 32767, paired: false },
  { kernel: "i16", blockBytes: layout.BLOCK_I16, top: 32767, paired: true },
  { kernel: "i16", blockBytes: layout.BLOCK_I16, top: 127, paired: true },
];

/** How the matrices of a format are packed. */
export interface Packing {
  readonly format: Format;
  /** The format's number in the kernels. */
  readonly kind: number;
  /** The suffix of the names of its kernels. */
  readonly name: string;
  /** The name of the kernel that packs groups of rows. */
  readonly pack: string;
  /** Bytes of a block of a group, including its scales. */
  readonly groupBytes: number;
  /** The MODE for each type of requested activations. */
  readonly modes: Readonly<Record<Activations, number>>;
}

const FLOAT = { f32: MODE.f32, i16: MODE.f32, i8: MODE.f32 };

/** The formats with kernels, by kind. */
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
 * The packing of a format. A format without kernels is converted: a float format to binary32, in which its weights are
 * used anyway; a block format to Q8B32, which has room for its levels and the same scales.
 *
 * @throws {RangeError} the format is of an unknown kind
 */
export function packingOf(format: Format): Packing {
  const packing = heldAs(format) ?? heldAs(WIDER[format.kind]);
  if (packing === undefined) throw new RangeError(`${format.name} is of an unknown kind: ${format.kind}`);
  return packing;
}

/** The target formats of that conversion, by kind. */
const WIDER = { float: F32, block: Q8B32 } as const;

function heldAs(format: Format): Packing | undefined {
  return PACKINGS.find((packing) => packing.format === format);
}

/** The names of kernels, by mode and kind: those for several tokens. The suffix `_far` names those for one token. */
export const KERNELS: readonly (readonly string[])[] = MODES.map(({ kernel }) => {
  return PACKINGS.map(({ name }) => `${kernel}_${name}`);
});

/** Bytes of one token's prepared activations. */
export function preparedBytes(mode: number, blocks: number): number {
  return blocks * MODES[mode].blockBytes;
}
