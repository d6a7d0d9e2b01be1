/**
 * Lets loops that never wait handle events: without a pause, no message and no signal reaches the program.
 *
 * @module
 */

/** Milliseconds of work between pauses. */
const INTERVAL_MS = 50;

/** Lets pending messages, signals and timers be handled. */
export async function nextTurn(): Promise<void> {
  // Loaded on first use: loading Node's library takes as long as reading a small model.
  const { setImmediate } = await import("node:timers");
  await new Promise((resolve) => setImmediate(resolve));
}

/**
 * A function to await in a loop. It lets events be handled every {@link INTERVAL_MS}.
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
