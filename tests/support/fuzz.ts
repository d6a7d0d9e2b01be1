/**
 * How long tests of random inputs run, and what became of the inputs.
 *
 * @module
 */

/** How often a test of random input does `count` rounds: RABBIT_FUZZ times as many, for a long run. */
export function rounds(count: number): number {
  return count * Number(Deno.env.get("RABBIT_FUZZ") ?? 1);
}

/** Counts what became of random inputs; a long run prints it. */
export class Tally {
  #accepted = 0;
  #refused = 0;
  #slowest = 0;

  constructor(readonly what: string) {}

  /** How many were accepted. */
  get accepted(): number {
    return this.#accepted;
  }

  /** Counts an input that was accepted or not, and that took since `start` (performance.now). */
  add(accepted: boolean, start: number): void {
    if (accepted) this.#accepted++;
    else this.#refused++;
    const took = performance.now() - start;
    this.#slowest = Math.max(this.#slowest, took);
    // Generous, for machines that do other things; what hangs takes longer.
    if (took > 20_000) throw new Error(`${this.what}: one input took ${took} ms`);
  }

  /** Prints the counts of a long run. */
  print(): void {
    if (!Deno.env.has("RABBIT_FUZZ")) return;
    const tried = this.#accepted + this.#refused;
    console.log(
      `${this.what}: ${tried} tried, ${this.#accepted} right, ${this.#refused} refused, slowest ${this.#slowest.toFixed()} ms`,
    );
  }
}
