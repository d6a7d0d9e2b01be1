/**
 * Work on what a file from a stranger asks for (a template, a regular expression), in a worker without permissions that
 * is terminated at a deadline: nothing else interrupts JavaScript that does not return.
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
 * Deno 2.9 fails to stop the thread of a terminated worker that loops (Deno 2.6 stops it): the call fails in time all the
 * same, and the thread ends with the program.
 *
 * `deno compile` embeds such a module where bench/compile.ts names it.
 *
 * @module
 */

/// <reference lib="deno.worker" />

/** A call did not return in time. Its worker was terminated. */
export class DeadlineError extends Error {
  override name = "DeadlineError";

  /** @param milliseconds the time that it had */
  constructor(readonly milliseconds: number) {
    super(`not finished after ${milliseconds / 1000} s`);
  }
}

/** A function of a worker threw, or the worker itself failed. */
export class ServiceError extends Error {
  override name = "ServiceError";

  /**
   * @param kind the name of the error that was thrown, or `Worker` where the worker could not be loaded or ran out of memory
   */
  constructor(readonly kind: string, message: string) {
    super(message);
  }
}

interface Request {
  readonly name: string;
  readonly argument: unknown;
}

/** A worker says first that it is ready; then each request has one answer. */
type Answer = { readonly value: unknown } | { readonly kind: string; readonly message: string };

/**
 * In a worker: answers the calls of a {@link Service}.
 *
 * @param functions by name; what they take and return must be structured-cloneable
 */
export function serve(functions: Readonly<Record<string, (argument: never) => unknown>>): void {
  self.onmessage = async ({ data: { name, argument } }: MessageEvent<Request>) => {
    let answer: Answer;
    try {
      answer = { value: await functions[name](argument as never) };
    } catch (error) {
      const { name: kind, message } = error instanceof Error ? error : new Error(String(error));
      answer = { kind, message };
    }
    self.postMessage(answer);
  };
  self.postMessage({ value: undefined } satisfies Answer);
}

/** A worker that runs {@link serve}. It starts at once, and again with the first call after one that failed to return. */
export class Service implements Disposable {
  readonly #module: URL;
  readonly #closed = Promise.withResolvers<never>();
  /** The end of the call before: calls wait for each other. */
  #turn: Promise<unknown> = Promise.resolve();
  #started?: { readonly worker: Worker; readonly ready: Promise<Answer> };

  /** @param module the worker's module: `new URL("./work.ts", import.meta.url)` */
  constructor(module: URL) {
    this.#module = module;
    this.#started = start(module);
    handled(this.#closed.promise);
  }

  /**
   * Calls a function of the worker, after the calls before.
   *
   * @param argument is copied (structured clone)
   * @param milliseconds the time that it has, once the worker's module has loaded
   * @throws {DeadlineError} it did not return in time
   * @throws {ServiceError} it threw
   */
  call<T>(name: string, argument: unknown, milliseconds: number): Promise<T> {
    const call = () => this.#call({ name, argument }, milliseconds) as Promise<T>;
    const turn = this.#turn.then(call, call);
    this.#turn = turn;
    return turn;
  }

  /** Terminates the worker; calls that wait for it fail. */
  close(): void {
    this.#started?.worker.terminate();
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
      worker.postMessage(request);
      answer = await Promise.race([nextMessage(worker), late.promise, this.#closed.promise]);
    } catch (error) {
      worker.terminate();
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
  const worker = new Worker(module, { type: "module", deno: { permissions: "none" } });
  return { worker, ready: handled(nextMessage(worker)) };
}

/** The next message of a worker; rejected where the worker fails. */
function nextMessage(worker: Worker): Promise<Answer> {
  return new Promise((resolve, reject) => {
    worker.onmessage = ({ data }: MessageEvent<Answer>) => resolve(data);
    worker.onerror = (event) => {
      // Without this the error ends the program.
      event.preventDefault();
      reject(new ServiceError("Worker", event.message));
    };
  });
}

/** A promise whose rejection is no error where nobody waits for it. */
function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}
