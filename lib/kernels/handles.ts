/**
 * Handles of matrices, vectors, buffers, caches and tables. Callers see sizes; an implementation keeps its own data for
 * each handle, such as an address.
 *
 * @module
 */

/** The handles of one kind that an implementation has created since its last reset. */
export class Handles<Handle extends object, Held> {
  #held = new WeakMap<Handle, Held>();

  /** @param kind what the handles refer to, for messages */
  constructor(readonly kind: string) {}

  /** Registers `handle` with its data. */
  add(handle: Handle, held: Held): Handle {
    this.#held.set(handle, held);
    return handle;
  }

  /**
   * The data of a handle.
   *
   * @throws {RangeError} another pool created it, or it was freed: its address may be in use for something else
   */
  of(handle: Handle): Held {
    const held = this.#held.get(handle);
    if (held === undefined) throw new RangeError(`the ${this.kind} was made by another pool, or freed by reset`);
    return held;
  }

  /** Forgets all handles. */
  clear(): void {
    this.#held = new WeakMap();
  }
}
