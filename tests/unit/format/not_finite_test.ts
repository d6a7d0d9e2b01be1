import { assertEquals } from "@std/assert";
import { notFinite } from "../../../lib/format/not_finite.ts";

Deno.test("notFinite says in which row a weight or the scale of a block is", () => {
  const message = (blockWeights: number, columns: number, index: number) =>
    notFinite({ path: "m", tensor: "t" }, blockWeights, columns, index).message;
  const remedy = "is not finite; the file is damaged, make or download it again";
  assertEquals(message(1, 64, 0), `m: tensor "t": row 0 column 0: the weight ${remedy}`);
  assertEquals(message(1, 64, 3 * 64 + 63), `m: tensor "t": row 3 column 63: the weight ${remedy}`);
  // Two blocks of 32 weights in a row of 64.
  assertEquals(message(32, 64, 5), `m: tensor "t": scale: row 2 block 1: the scale ${remedy}`);
  assertEquals(message(32, 32, 5), `m: tensor "t": scale: row 5 block 0: the scale ${remedy}`);
});
