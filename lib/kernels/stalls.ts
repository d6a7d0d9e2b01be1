/**
 * Decides when the first thread should work alone: if other processes compete for the processors, a worker that is
 * preempted during a task delays all threads.
 *
 * @module
 */

/** A program is stalled if the first thread slept for more than this fraction of its time. */
const STALLED_PART = 0.25;

/**
 * A stalled program adds so many strikes, any other program removes one; at this number the first thread works alone. So
 * five stalls in a row are enough, or one in thirty programs for a while, which is what another busy process causes. The
 * compiler and the system cause fewer.
 */
const STRIKES_EACH = 32;
const STRIKES = 5 * STRIKES_EACH;

/** Milliseconds to work alone, at first and at most; they double after each trial that was not faster. */
const LEAST_ALONE_MS = 32;
const MOST_ALONE_MS = 1000;

/** The most programs in a trial with all threads; it ends as soon as it can't be faster any more. */
const TRIAL = 4;

/**
 * The most milliseconds of a trial, which ends with the program that reaches them. A program that takes longer is never
 * run alone: it would take too long to see that the processors are free again.
 */
const TRIAL_MS = 250;

/** Decides from the times of programs whether the first thread runs the next one alone. */
export class Stalls {
  #strikes = 0;
  /** Milliseconds to work alone, 0 for all threads; and their number the last time. */
  #alone = 0;
  #penalty = 0;
  /** Whether this is a trial. */
  #trial = false;
  /** Programs that were run alone and their milliseconds, and those in the trial. */
  #alonePrograms = 0;
  #aloneMs = 0;
  #trialPrograms = 0;
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
    if (tokens !== this.#tokens || elapsed > TRIAL_MS) {
      this.#tokens = tokens;
      this.#strikes = this.#alone = this.#penalty = 0;
      this.#trial = false;
    }
    if (elapsed > TRIAL_MS) return;
    if (this.#alone > 0) {
      this.#alonePrograms++;
      this.#aloneMs += elapsed;
      if (this.#aloneMs < this.#alone) return;
      this.#alone = this.#trialPrograms = this.#trialMs = 0;
      this.#trial = true;
    } else if (this.#trial) {
      this.#trialPrograms++;
      this.#trialMs += elapsed;
      const each = this.#aloneMs / this.#alonePrograms;
      if (this.#trialPrograms < TRIAL && this.#trialMs < Math.min(TRIAL_MS, TRIAL * each)) return;
      this.#trial = false;
      if (this.#trialMs >= this.#trialPrograms * each) this.#workAlone();
      else this.#strikes = this.#penalty = 0;
    } else if (slept <= STALLED_PART * elapsed) {
      this.#strikes = Math.max(0, this.#strikes - 1);
    } else if ((this.#strikes += STRIKES_EACH) >= STRIKES) {
      this.#workAlone();
    }
  }

  #workAlone(): void {
    this.#penalty = Math.min(MOST_ALONE_MS, Math.max(LEAST_ALONE_MS, 2 * this.#penalty));
    this.#alone = this.#penalty;
    this.#alonePrograms = this.#aloneMs = 0;
    this.#strikes = 0;
  }
}
