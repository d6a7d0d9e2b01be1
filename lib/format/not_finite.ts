/**
 * The error for a weight or a scale that is not finite.
 *
 * @module
 */

import { CheckpointError, type Place } from "../errors.ts";

/** The advice of the message. */
const REMEDY = "the file is damaged, make or download it again";

/**
 * Creates the error.
 *
 * @param place the file and the tensor
 * @param blockWeights weights in a block with a scale; 1 for a float format
 * @param columns weights in a row
 * @param index the index of the weight or the block in the tensor
 */
export function notFinite(
  place: Omit<Place, "field">,
  blockWeights: number,
  columns: number,
  index: number,
): CheckpointError {
  const perRow = columns / blockWeights;
  const [row, within] = [Math.floor(index / perRow), index % perRow];
  return blockWeights === 1
    ? new CheckpointError(place, `row ${row} column ${within}: the weight is not finite; ${REMEDY}`)
    : new CheckpointError(
      { ...place, field: "scale" },
      `row ${row} block ${within}: the scale is not finite; ${REMEDY}`,
    );
}
