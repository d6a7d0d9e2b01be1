/**
 * Values of flags, from the table of formats.
 *
 * @module
 */

import { ACTIVATIONS as KINDS, WIDTHS } from "../format/blocks.ts";
import type { Type } from "./arguments.ts";

/** The widths, narrowest first. */
export const NARROWEST_FIRST = WIDTHS.toSorted((a, b) => a.bits - b.bits);

/** The values of `--bits`. */
export const BITS = { kind: "choice", of: NARROWEST_FIRST.map(({ bits }) => bits) } as const satisfies Type;

/** The values of `--activations`. */
export const ACTIVATIONS = { kind: "choice", of: KINDS } as const satisfies Type;
