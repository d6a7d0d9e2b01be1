/**
 * A pause now and then, for loops that never wait: without it no signal reaches the program.
 *
 * @module
 */

import { nextTurn } from "./node.ts";

/** Milliseconds of work between pauses. */
const INTERVAL_MS = 50;

/**
 * A function to await in a loop: it lets events be handled when the last time is a while ago.
 *
 * @throws the reason of `signal`, once that is aborted
 */
export function pacer(signal: AbortSignal | undefined): () => Promise<void> {
  let last = performance.now();
  return async () => {
    if (performance.now() - last >= INTERVAL_MS) {
      await nextTurn();
      last = performance.now();
    }
    signal?.throwIfAborted();
  };
}
