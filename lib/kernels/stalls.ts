/**
 * When the first thread is better off without the others: other processes are at work on the processors, and a thread
 * that the system has put aside with a piece of work in hand holds up all.
 *
 * @module
 */

/** A program is stalled when the first thread has slept for more than this part of its time. */
const STALLED_PART = 0.25;

/**
 * Each stalled program counts two strikes, each other one takes one back; with so many the first thread goes alone. A few
 * stalls come from the compiler and the system, and going alone for those costs more than it saves.
 */
const STRIKES = 9;

/** For so many programs at first, and at most; twice as many after each trial that was no faster than being alone. */
const LEAST_ALONE = 8;
const MOST_ALONE = 64;

/** Programs of a trial. */
const TRIAL = 4;

/** Decides from the times of programs whether the next one is run by the first thread alone. */
export class Stalls {
  #strikes = 0;
  /** Programs that are still to be run alone, and how many they were. */
  #alone = 0;
  #penalty = 0;
  /** Programs that are left of a trial. */
  #trial = 0;
  /** Milliseconds of the programs that were run alone, and of the trial. */
  #aloneMs = 0;
  #trialMs = 0;
  #tokens = 0;

  /** Whether the next program is to be run by the first thread alone. */
  get alone(): boolean {
    return this.#alone > 0;
  }

  /**
   * Takes note of a program.
   *
   * @param tokens how many it was for: only programs for as many are compared
   * @param elapsed milliseconds from its start to its end
   * @param slept milliseconds of those that the first thread slept
   */
  add(tokens: number, elapsed: number, slept: number): void {
    if (tokens !== this.#tokens) {
      this.#tokens = tokens;
      this.#strikes =
        this.#alone =
        this.#trial =
        this.#penalty =
          0;
    }
    if (this.#alone > 0) {
      this.#aloneMs += elapsed;
      if (--this.#alone === 0) [this.#trial, this.#trialMs] = [TRIAL, 0];
    } else if (this.#trial > 0) {
      this.#trialMs += elapsed;
      if (--this.#trial > 0) return;
      if (this.#trialMs / TRIAL >= this.#aloneMs / this.#penalty) this.#goAlone();
      else this.#strikes = this.#penalty = 0;
    } else if (slept <= STALLED_PART * elapsed) {
      this.#strikes = Math.max(0, this.#strikes - 1);
    } else if ((this.#strikes += 2) >= STRIKES) {
      this.#goAlone();
    }
  }

  #goAlone(): void {
    this.#penalty = Math.min(MOST_ALONE, Math.max(LEAST_ALONE, 2 * this.#penalty));
    this.#alone = this.#penalty;
    this.#aloneMs = 0;
    this.#strikes = 0;
  }
}
