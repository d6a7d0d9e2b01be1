/**
 * Threads of the system: workers of Deno, or of node:worker_threads. A message is what the structured clone algorithm
 * takes, memories that are shared among them.
 *
 * @module
 */

import { IN_DENO } from "../files/system.ts";
import { builtin } from "../files/system_node.ts";

/** A thread, as the one that has started it sees it. */
export interface SystemWorker<To, From> {
  /** Called with each message of the thread. */
  onMessage?: (message: From) => void;
  /** Called with what the thread fails with; without it the error is one of the whole program. */
  onError?: (error: string) => void;
  /** Sends it a message. */
  post(message: To): void;
  /** Ends it. */
  end(): void;
}

let confines = false;

/**
 * Says that this program was started with --unstable-worker-options: Deno ends one that was not as soon as it asks for a
 * thread without permissions.
 */
export function confineWorkers(): void {
  confines = true;
}

/**
 * Starts a thread that runs a module.
 *
 * @param confined without permissions, where {@link confineWorkers} says that this can be had
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
 * In a thread: calls `handle` with each message.
 *
 * @returns a function that sends a message to who has started the thread
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
