/**
 * Decides when the first thread should work alone: if other processes compete for the processors, a worker that is
 * preempted during a task delays all threads.
 *
 * @module
 */

/** A program is stalled if the first thread slept for more than this fraction of its time. */
const STALLED_PART = 0.25;

/**
 * A stalled program adds two strikes, any other program removes one; at this number the first thread works alone. The
 * compiler and the system cause a few stalls, for which working alone would cost more than it saves.
 */
const STRIKES = 9;

/** The number of programs to run alone, at first and at most; it doubles after each trial that was not faster. */
const LEAST_ALONE = 8;
const MOST_ALONE = 64;

/** The number of programs in a trial with all threads. */
const TRIAL = 4;

/** Decides from the times of programs whether the first thread runs the next one alone. */
export class Stalls {
  #strikes = 0;
  /** Programs left to run alone, and their number at the beginning. */
  #alone = 0;
  #penalty = 0;
  /** Programs left in a trial. */
  #trial = 0;
  /** Milliseconds of the programs that were run alone, and of those in the trial. */
  #aloneMs = 0;
  #trialMs = 0;
  #tokens = 0;

  /** Whether the first thread should run the next program alone. */
  get alone(): boolean {
    return this.#alone > 0;
  }

  /**
   * Records the time of a program.
   *
   * @param tokens its number of tokens; only programs with the same number are compared
   * @param elapsed milliseconds from its start to its end
   * @param slept milliseconds of these that the first thread slept
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
      if (this.#trialMs / TRIAL >= this.#aloneMs / this.#penalty) this.#workAlone();
      else this.#strikes = this.#penalty = 0;
    } else if (slept <= STALLED_PART * elapsed) {
      this.#strikes = Math.max(0, this.#strikes - 1);
    } else if ((this.#strikes += 2) >= STRIKES) {
      this.#workAlone();
    }
  }

  #workAlone(): void {
    this.#penalty = Math.min(MOST_ALONE, Math.max(LEAST_ALONE, 2 * this.#penalty));
    this.#alone = this.#penalty;
    this.#aloneMs = 0;
    this.#strikes = 0;
  }
}
