/**
 * What a template may use. A template is a stranger's program: its text, what it prints and what it makes on the way are
 * bounded, so that it cannot fill the memory before the deadline of the worker that renders it (lib/text/deadline.ts).
 *
 * @module
 */

/** The template raised an error, or is none; the message is for the user. */
export class TemplateError extends Error {
  override name = "TemplateError";
}

/** Jinja2 has a meaning for it, which this implementation does not have. */
export class Unsupported extends TemplateError {
  override name = "Unsupported";

  /** @param what a noun, such as `the filter pprint` */
  constructor(what: string) {
    super(`${what} is not supported`);
  }
}

/** UTF-16 units of a template. The largest known ones have 50,000. */
export const MAX_TEMPLATE = 1 << 20;

/** UTF-16 units of one text, also of the whole output. */
export const MAX_TEXT = 4 << 20;

/** Items of one list. */
const MAX_ITEMS = 1_000_000;

/** UTF-16 units of all texts that are made while a template is rendered, each counted once; an item counts as several. */
const MAX_MADE = 64 << 20;

/** What an item of a list, or another small object, counts as. */
const ITEM_UNITS = 16;

/** Bits of an integer. Python prints at most 4,300 digits, which are 14,285 bits. */
export const MAX_BITS = 20_000;

/** How many steps pass between two looks at the clock. */
const STEPS = 1000;

/** Rendering is synchronous, so that one tally serves all. */
let made = 0;
let steps = 0;
let end = Infinity;

/**
 * Sets the tally to zero, before a template is rendered.
 *
 * @param milliseconds the time that it has
 */
export function resetLimits(milliseconds: number): void {
  made = 0;
  steps = 0;
  end = performance.now() + milliseconds;
}

/** Counts a step. @throws {TemplateError} the time is over */
export function step(): void {
  if (++steps % STEPS === 0 && performance.now() > end) throw new TemplateError("is not finished in time");
}

/** Counts a text that is about to be made. @throws {TemplateError} it is too long, or there were too many */
export function spendText(units: number): void {
  if (units > MAX_TEXT) throw new TemplateError(`makes a text of more than ${MAX_TEXT} characters`);
  spend(units);
}

/** Counts a text that was made. @returns the text @throws {TemplateError} it is too long, or there were too many */
export function counted(text: string): string {
  spendText(text.length);
  return text;
}

/** Counts a list that is about to be made. @throws {TemplateError} it is too long, or there were too many */
export function spendItems(count: number): void {
  if (count > MAX_ITEMS) throw new TemplateError(`makes a list of more than ${MAX_ITEMS} items`);
  spend(ITEM_UNITS * (count + 1));
}

function spend(units: number): void {
  step();
  made += units;
  if (made > MAX_MADE) throw new TemplateError("makes more text and lists than a chat needs");
}
