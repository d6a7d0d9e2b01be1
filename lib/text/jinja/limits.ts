/**
 * The limits of a template, which is an untrusted program: its length, its output and the values that it creates are bounded,
 * so that it can't exhaust the memory before the deadline of its worker (lib/text/deadline.ts).
 *
 * @module
 */

/** The template is invalid or raised an error; the message is for the user. */
export class TemplateError extends Error {
  override name = "TemplateError";
}

/** The template uses a feature of Jinja2 that this implementation lacks. */
export class Unsupported extends TemplateError {
  override name = "Unsupported";

  /** @param what a noun phrase such as `the filter pprint` */
  constructor(what: string) {
    super(`${what} is not supported`);
  }
}

/** The limit for a template, in UTF-16 units. The largest known templates have 50,000. */
export const MAX_TEMPLATE = 1 << 20;

/** The limit for a string and for the output, in UTF-16 units. */
export const MAX_TEXT = 4 << 20;

/** The limit for the items of a list. */
const MAX_ITEMS = 1_000_000;

/** The limit for all strings and items that are created during a rendering, in UTF-16 units. */
const MAX_MADE = 64 << 20;

/** The UTF-16 units that an item of a list, or another small object, counts as. */
const ITEM_UNITS = 16;

/** The limit for an integer, in bits. Python prints at most 4,300 digits, which is 14,285 bits. */
export const MAX_BITS = 20_000;

/** Steps between two readings of the clock. */
const STEPS = 1000;

/** Rendering is synchronous, so that one set of counters is enough. */
let made = 0;
let steps = 0;
let end = Infinity;

/**
 * Resets the counters before a template is rendered.
 *
 * @param milliseconds the limit for rendering
 */
export function resetLimits(milliseconds: number): void {
  made = 0;
  steps = 0;
  end = performance.now() + milliseconds;
}

/** Counts a step. @throws {TemplateError} the time is exceeded */
export function step(): void {
  if (++steps % STEPS === 0 && performance.now() > end) throw new TemplateError("took too long");
}

/** Counts a string before it is created. @throws {TemplateError} a limit is exceeded */
export function spendText(units: number): void {
  if (units > MAX_TEXT) throw new TemplateError(`makes a string of more than ${MAX_TEXT} characters`);
  spend(units);
}

/** Counts a new string, and returns it. @throws {TemplateError} a limit is exceeded */
export function counted(text: string): string {
  spendText(text.length);
  return text;
}

/** Counts a list before it is created. @throws {TemplateError} a limit is exceeded */
export function spendItems(count: number): void {
  if (count > MAX_ITEMS) throw new TemplateError(`makes a list of more than ${MAX_ITEMS} items`);
  spend(ITEM_UNITS * (count + 1));
}

function spend(units: number): void {
  step();
  made += units;
  if (made > MAX_MADE) throw new TemplateError("makes too many strings and lists");
}
