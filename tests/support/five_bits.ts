/**
 * A width that rabbit does not have, as one row of FORMATS: five bits, of which the low four of a level are where Q4B32
 * has them, and the fifth ones follow. fixtures/make_width.py describes it, and computes what it must give.
 *
 * @module
 */

import type { BlockRow } from "../../lib/format/blocks.ts";

/** The row. */
export const ROW: BlockRow = {
  bits: 5,
  label: "the middle",
  activations: "i8",
  level(bytes, payload, n) {
    const low = (bytes.getUint8(payload + (n >> 1)) >> (4 * (n & 1))) & 15;
    const fifth = (bytes.getUint32(payload + 16, true) >>> n) & 1;
    return ((low | fifth << 4) ^ 16) - 16;
  },
  pack(levels, out) {
    out.fill(0, 0, 20);
    levels.forEach((level, n) => {
      out[n >> 1] |= (level & 15) << (4 * (n & 1));
      out[16 + (n >> 3)] |= ((level >> 4) & 1) << (n & 7);
    });
  },
};
