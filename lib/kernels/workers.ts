/**
 * Threads: workers of Deno, or of node:worker_threads. A message is any structured-cloneable value, including shared
 * memories.
 *
 * @module
 */

import { IN_DENO } from "../files/system.ts";
import { builtin } from "../files/system_node.ts";

/** The limit on the number of threads; each costs memory. */
export const MAX_THREADS = 256;

/** The default number of threads: one for each processor. */
export const DEFAULT_THREADS: number = Math.min(navigator.hardwareConcurrency, MAX_THREADS);

/** Checks a number of threads. @throws {RangeError} it is out of range */
export function threadCount(asked: number = DEFAULT_THREADS): number {
  if (Number.isInteger(asked) && asked >= 1 && asked <= MAX_THREADS) return asked;
  throw new RangeError(`the number of threads is ${asked}, expected a whole number from 1 to ${MAX_THREADS}`);
}

/** A thread, as seen by the thread that started it. */
export interface SystemWorker<To, From> {
  /** Called with each message of the thread. */
  onMessage?: (message: From) => void;
  /** Called if the thread fails. If it is not set, the error is uncaught. */
  onError?: (error: string) => void;
  /** Sends a message to the thread. */
  post(message: To): void;
  /** Terminates the thread. */
  end(): void;
}

let confines = false;

/**
 * Declares that the program was started with --unstable-worker-options. Without that flag Deno exits when it starts a
 * worker without permissions.
 */
export function confineWorkers(): void {
  confines = true;
}

/**
 * Starts a thread that runs a module.
 *
 * @param confined start it without permissions, if {@link confineWorkers} was called
 */
export function startWorker<To, From>(module: URL, confined = false): SystemWorker<To, From> {
  if (!IN_DENO) return startNodeWorker(module);
  const options = confined && confines ? { deno: { permissions: "none" as const } } : {};
  const worker = new Worker(module, { type: "module", ...options });
  const started: SystemWorker<To, From> = {
    post: (message) => worker.postMessage(message),
    end: () => worker.terminate(),
  };
  worker.onmessage = ({ data }) => started.onMessage?.(data);
  worker.onerror = (event) => {
    if (started.onError === undefined) return;
    event.preventDefault();
    started.onError(event.message);
  };
  return started;
}

function startNodeWorker<To, From>(module: URL): SystemWorker<To, From> {
  const { Worker } = builtin("worker_threads");
  const worker = new Worker(module);
  const started: SystemWorker<To, From> = {
    post: (message) => worker.postMessage(message),
    end: () => void worker.terminate(),
  };
  worker.on("message", (message) => started.onMessage?.(message));
  worker.on("error", (error) => {
    if (started.onError === undefined) throw error;
    started.onError(error.message);
  });
  return started;
}

/**
 * Calls `handle` with each message; for use in a thread.
 *
 * @returns a function that sends a message to the thread that started this one
 */
export function listen<To, From>(handle: (message: To) => void): (message: From) => void {
  if (!IN_DENO) {
    const port = builtin("worker_threads").parentPort!;
    port.on("message", handle);
    return (message) => port.postMessage(message);
  }
  const scope = globalThis as unknown as { onmessage(event: MessageEvent<To>): void; postMessage(message: From): void };
  scope.onmessage = ({ data }) => handle(data);
  return (message) => scope.postMessage(message);
}
