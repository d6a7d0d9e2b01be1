/**
 * Turns of the event loop for loops that never wait: without them no message and no signal reaches the program.
 *
 * @module
 */

/** Milliseconds of work between pauses. */
const INTERVAL_MS = 50;

/** Lets messages, signals and timers have their turn. */
export async function nextTurn(): Promise<void> {
  // Loaded when it is first needed: starting Node's library takes as long as reading a small model.
  const { setImmediate } = await import("node:timers");
  await new Promise((resolve) => setImmediate(resolve));
}

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
