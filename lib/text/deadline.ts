/**
 * Runs functions on untrusted input (a template) in a worker without permissions (see confineWorkers), which is terminated
 * at a deadline: nothing else interrupts JavaScript that does not return.
 *
 * The worker is a module that calls {@link serve}; the program calls its functions through {@link Service}:
 *
 * ```ts ignore
 * // work.ts
 * serve({ double: (value: number) => 2 * value });
 *
 * // elsewhere
 * using service = new Service(new URL("./work.ts", import.meta.url));
 * const four = await service.call<number>("double", 2, 10_000);
 * ```
 *
 * Deno 2.9 does not stop the thread of a terminated worker that loops (Deno 2.6 does). The call still fails in time, and
 * the thread ends with the program.
 *
 * `deno compile` embeds such a module only if tools/compile.ts lists it.
 *
 * @module
 */

import { listen, startWorker, type SystemWorker } from "../kernels/workers.ts";

/** A call did not return in time, and its worker was terminated. */
export class DeadlineError extends Error {
  override name = "DeadlineError";

  /** @param milliseconds the limit */
  constructor(readonly milliseconds: number) {
    super(`not finished after ${milliseconds / 1000} s`);
  }
}

/** A function of a worker threw, or the worker itself failed. */
export class ServiceError extends Error {
  override name = "ServiceError";

  /**
   * @param kind the name of the thrown error, or `Worker` if the worker failed to load or ran out of memory
   */
  constructor(readonly kind: string, message: string) {
    super(message);
  }
}

interface Request {
  readonly name: string;
  readonly argument: unknown;
}

/** The first message says that the worker is ready; each later one answers a request. */
type Answer = { readonly value: unknown } | { readonly kind: string; readonly message: string };

/**
 * Answers the calls of a {@link Service}; for use in a worker.
 *
 * @param functions by name; arguments and results must be structured-cloneable
 */
export function serve(functions: Readonly<Record<string, (argument: never) => unknown>>): void {
  const post = listen<Request, Answer>(async ({ name, argument }) => {
    let answer: Answer;
    try {
      answer = { value: await functions[name](argument as never) };
    } catch (error) {
      const { name: kind, message } = error instanceof Error ? error : new Error(String(error));
      answer = { kind, message };
    }
    post(answer);
  });
  post({ value: undefined });
}

type Started = SystemWorker<Request, Answer>;

/** A worker that runs {@link serve}. It starts immediately, and again at the next call after a timeout. */
export class Service implements Disposable {
  readonly #module: URL;
  readonly #closed = Promise.withResolvers<never>();
  /** Settles when the previous call ends: calls run one after the other. */
  #turn: Promise<unknown> = Promise.resolve();
  #started?: { readonly worker: Started; readonly ready: Promise<Answer> };

  /** @param module the worker's module: `new URL("./work.ts", import.meta.url)` */
  constructor(module: URL) {
    this.#module = module;
    this.#started = start(module);
    handled(this.#closed.promise);
  }

  /**
   * Calls a function of the worker, once the previous calls have ended.
   *
   * @param argument is cloned (structured clone)
   * @param milliseconds the limit, from when the worker's module has loaded
   * @throws {DeadlineError} it did not return in time
   * @throws {ServiceError} it threw
   */
  call<T>(name: string, argument: unknown, milliseconds: number): Promise<T> {
    const call = () => this.#call({ name, argument }, milliseconds) as Promise<T>;
    const turn = this.#turn.then(call, call);
    this.#turn = turn;
    return turn;
  }

  /** Terminates the worker; pending calls fail. */
  close(): void {
    this.#started?.worker.end();
    this.#closed.reject(new ServiceError("Worker", "closed"));
  }

  /** Terminates the worker at the end of the block that declares the service with `using`. */
  [Symbol.dispose](): void {
    this.close();
  }

  async #call(request: Request, milliseconds: number): Promise<unknown> {
    const { worker, ready } = this.#started ??= start(this.#module);
    const late = Promise.withResolvers<never>();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let answer: Answer;
    try {
      await Promise.race([ready, this.#closed.promise]);
      timer = setTimeout(() => late.reject(new DeadlineError(milliseconds)), milliseconds);
      worker.post(request);
      answer = await Promise.race([nextMessage(worker), late.promise, this.#closed.promise]);
    } catch (error) {
      worker.end();
      this.#started = undefined;
      throw error;
    } finally {
      clearTimeout(timer);
    }
    if ("kind" in answer) throw new ServiceError(answer.kind, answer.message);
    return answer.value;
  }
}

function start(module: URL) {
  const worker = startWorker<Request, Answer>(module, true);
  return { worker, ready: handled(nextMessage(worker)) };
}

/** The next message of a worker; rejects if the worker fails. */
function nextMessage(worker: Started): Promise<Answer> {
  return new Promise((resolve, reject) => {
    worker.onMessage = resolve;
    worker.onError = (error) => reject(new ServiceError("Worker", error));
  });
}

/** Marks the rejection of a promise as handled, so that it is not reported as uncaught. */
function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}
