/**
 * A model whose logits tests write down.
 *
 * @module
 */

import type { TextModel } from "../../lib/measure/group.ts";

/**
 * A model whose logits are a function of the text that it was fed. It remembers what it was asked, and hands out one array
 * again and again, as real decoders may.
 */
export class FakeModel implements TextModel {
  /** The calls in their order: `feed 1 2`, `all 1 2`, `rewind 0`. */
  readonly calls: string[] = [];
  /** Every text after which logits were asked for. */
  readonly asked: string[] = [];
  #text: number[] = [];
  #logits = new Float32Array(0);

  constructor(readonly logitsOf: (text: readonly number[]) => ArrayLike<number>) {}

  #answer(): Float32Array {
    const logits = this.logitsOf(this.#text);
    if (this.#logits.length !== logits.length) this.#logits = new Float32Array(logits.length);
    this.#logits.set(logits);
    this.asked.push(this.#text.join(" "));
    return this.#logits;
  }

  feed(ids: readonly number[]): Float32Array {
    this.calls.push(`feed ${ids.join(" ")}`);
    this.#text.push(...ids);
    return this.#answer();
  }

  feedAll(ids: readonly number[], visit: (index: number, logits: Float32Array) => void): void {
    this.calls.push(`all ${ids.join(" ")}`);
    for (const [n, id] of ids.entries()) {
      this.#text.push(id);
      visit(n, this.#answer());
    }
  }

  rewind(position: number): void {
    this.calls.push(`rewind ${position}`);
    this.#text = this.#text.slice(0, position);
  }
}
