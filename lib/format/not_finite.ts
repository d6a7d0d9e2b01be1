/**
 * The error of every reader that finds a weight or a scale that is not finite.
 *
 * @module
 */

import { CheckpointError, type Place } from "../errors.ts";

/** What to do about it. */
const REMEDY = "the file is damaged, make or download it again";

/**
 * Says where in a tensor a weight or a scale is not finite.
 *
 * @param place the file and the tensor
 * @param blockWeights weights of a block, each of which has a scale; 1 for a float format
 * @param columns weights of a row
 * @param index the weight or the block, counted from the tensor's first row
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
