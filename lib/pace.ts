/**
 * Pauses long loops, so that the program can handle messages and signals.
 *
 * @module
 */

/** Called with the amount of work done and the total, in bytes or tokens. */
export type Progress = (done: number, total: number) => void;

/** Options of long calls. */
export interface Watch {
  /** Aborts with the signal's reason; no partial output is left. */
  readonly signal?: AbortSignal;
  /** Reports the progress. */
  readonly progress?: Progress;
}

/** Work that can pause at each yield. */
export type Work<T> = Generator<void, T>;

/** Runs work without pauses. */
export function finish<T>(work: Work<T>): T {
  for (let step = work.next();; step = work.next()) if (step.done) return step.value;
}

/**
 * Runs work with pauses in which events are handled.
 *
 * @param yielded called at each yield
 * @throws the reason of `signal`, once that is aborted
 */
export async function inTurns<T>(work: Work<T>, signal: AbortSignal | undefined, yielded?: () => void): Promise<T> {
  const pause = pacer(signal);
  for (let step = work.next();; step = work.next()) {
    if (step.done) return step.value;
    yielded?.();
    await pause();
  }
}

/** Work that can pause at each yield, and yields how much of it is done. */
export type Counted<T> = Generator<number, T>;

/**
 * Runs work with pauses in which events are handled, and reports its progress.
 *
 * @param total how much there is to do
 * @throws the reason of the signal, once that is aborted
 */
export async function counted<T>(work: Counted<T>, total: number, { signal, progress }: Watch): Promise<T> {
  const pause = pacer(signal);
  for (let step = work.next();; step = work.next()) {
    if (step.done) return step.value;
    progress?.(step.value, total);
    await pause();
  }
}

/** Milliseconds of work between pauses. */
const INTERVAL_MS = 50;

/** Lets pending messages, signals and timers be handled. */
export async function nextTurn(): Promise<void> {
  // Loaded on first use: loading Node's library takes as long as reading a small model.
  const { setImmediate } = await import("node:timers");
  await new Promise((resolve) => setImmediate(resolve));
}

/**
 * Returns a function to await in a loop. It handles events every {@link INTERVAL_MS}.
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
