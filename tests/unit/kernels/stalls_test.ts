/**
 * When the first thread goes alone: sequences of times, and what is to come of them.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { Stalls } from "../../../lib/kernels/stalls.ts";

/** Adds `count` programs for one token. @returns how many of them were run alone */
function add(stalls: Stalls, count: number, elapsed: number, slept = 0): number {
  let alone = 0;
  for (let n = 0; n < count; n++) {
    if (stalls.alone) alone++;
    stalls.add(1, elapsed, slept);
  }
  return alone;
}

/** Five stalled programs in a row. */
function stalled(): Stalls {
  const stalls = new Stalls();
  assertEquals(add(stalls, 5, 20, 10), 0);
  assert(stalls.alone);
  return stalls;
}

Deno.test("Stalls: programs that do not sleep, or rarely, are never run alone", () => {
  const stalls = new Stalls();
  for (let n = 0; n < 100; n++) {
    assertEquals(add(stalls, 2, 10), 0);
    assertEquals(add(stalls, 1, 20, 10), 0);
  }
  assertEquals(add(stalls, 3, 20, 10), 0);
  assertEquals(add(stalls, 100, 10, 2), 0);
});

Deno.test("Stalls: after five stalled programs 8 are run alone, then 4 as a trial", () => {
  const stalls = stalled();
  assertEquals(add(stalls, 8, 12), 8);
  assert(!stalls.alone);
  assertEquals(add(stalls, 4, 10), 0);
  assert(!stalls.alone);
});

Deno.test("Stalls: a trial that is not faster is followed by twice as many alone, up to 64", () => {
  const stalls = stalled();
  for (const count of [8, 16, 32, 64, 64]) {
    assertEquals(add(stalls, count, 12), count);
    assertEquals(add(stalls, 4, 13), 0);
  }
});

Deno.test("Stalls: after a faster trial the next time begins with 8 again", () => {
  const stalls = stalled();
  add(stalls, 8, 12);
  add(stalls, 4, 13);
  add(stalls, 16, 12);
  add(stalls, 4, 8);
  assertEquals(add(stalls, 20, 8), 0);
  assertEquals(add(stalls, 5, 20, 10), 0);
  assertEquals(add(stalls, 8, 12), 8);
  assert(!stalls.alone);
});

Deno.test("Stalls: programs for another number of tokens are not compared", () => {
  const stalls = stalled();
  stalls.add(32, 400, 0);
  assert(!stalls.alone);
  assertEquals(add(stalls, 2, 20, 10), 0);
});
