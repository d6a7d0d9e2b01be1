/**
 * Handles of matrices, vectors, buffers, caches and tables: callers see sizes, and an implementation keeps what it knows
 * of each, such as its address.
 *
 * @module
 */

/** The handles of one kind that an implementation of the operations has given out since its last reset. */
export class Handles<Handle extends object, Held> {
  #held = new WeakMap<Handle, Held>();

  /** @param kind what the handles stand for, for messages */
  constructor(readonly kind: string) {}

  /** Makes `handle` stand for `held`. */
  add(handle: Handle, held: Held): Handle {
    this.#held.set(handle, held);
    return handle;
  }

  /**
   * What a handle stands for.
   *
   * @throws {RangeError} another pool gave it out, or it was freed: its address would be that of something else
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
