/**
 * Prints result lines or one JSON object to standard output, and warnings, errors and progress to standard error. All
 * output goes through this module, which escapes control characters of names and texts from files.
 *
 * @module
 */

import { systemError, visible } from "../errors.ts";
import { signalIsIgnored } from "../libc.ts";
import { figureOf } from "../measure/metrics.ts";
import { printed } from "../measure/printed.ts";
import { ClosedPipe, Interrupted } from "./errors.ts";
import type { Complaint } from "./messages.ts";

/** A number with a fixed number of digits in a line, and all digits in JSON. If it is not finite, both print a word. */
export class Fixed {
  constructor(readonly value: number, readonly digits: number) {}
}

/** A value of a line. Undefined values are left out. */
export type Value = string | number | boolean | Fixed | readonly number[] | undefined;

/** The keys and values of one line. */
export type Fields = Readonly<Record<string, Value>>;

/** The keys and values of a JSON object, which may be nested. */
export type Nested = Readonly<Record<string, Value | Fields | readonly string[]>>;

/** Collects or prints the results of one command. */
export class Output {
  readonly #object: Record<string, unknown> = {};
  #stream = STDOUT;
  /** Whether the reader has closed the pipe. */
  #unread = false;
  /** Whether to print a JSON object at the end. */
  #json: boolean;

  constructor(public name: string, json: boolean) {
    this.#json = json;
  }

  /** Whether a JSON object is printed instead of lines. */
  get json(): boolean {
    return this.#json;
  }

  /** Prints the results that follow to standard error. */
  divert(): void {
    this.#stream = STDERR;
  }

  /** Prints a line. Without a reader the command goes on, since its exit status may be its answer. */
  #print(line: string): void {
    if (this.#unread) return;
    try {
      write(this.#stream, visible(line) + "\n");
    } catch (error) {
      if (!(error instanceof ClosedPipe)) throw error;
      this.#unread = true;
    }
  }

  /** Sets a key of the JSON object. Two lines may have one key, but the object has one value for it. */
  #set(key: string, value: unknown): void {
    if (value === undefined) return;
    if (Object.hasOwn(this.#object, key)) throw new Error(`${this.name}: the JSON object has "${key}" already`);
    this.#object[key] = value;
  }

  /** Prints `NAME key=value …`, or adds the keys of `json` to the JSON object. */
  line(fields: Fields, json: Nested = fields): void {
    if (!this.#json) return this.#print([this.name, ...pairs(fields)].join(" "));
    for (const [key, value] of Object.entries(plain(json))) this.#set(key, value);
  }

  /** Prints `NAME key=value …`, or appends `json` to a list of the JSON object. */
  item(list: string, fields: Fields, json: Nested = fields): void {
    if (!this.#json) return this.line(fields);
    const items = this.#object[list];
    if (Array.isArray(items)) items.push(plain(json));
    else this.#set(list, [plain(json)]);
  }

  /** Prints `NAME WORD value value …`, or sets the key to the list. */
  list(word: string, values: readonly number[]): void {
    if (this.#json) this.#set(word, values);
    else this.#print([this.name, word, ...values].join(" "));
  }

  /** Prints `NAME word key=value …`, or adds `json` as an object of that name. */
  group(word: string, fields: Fields, json: Nested = fields): void {
    if (this.#json) this.#set(word, plain(json));
    else this.#print([this.name, word, ...pairs(fields)].join(" "));
  }

  /** Prints `NAME VERDICT`, or sets `verdict`. */
  verdict(word: string): void {
    if (this.#json) this.#set("verdict", word);
    else this.#print(`${this.name} ${word}`);
  }

  /** Prints lines of JSON as they are, in place of the JSON object. */
  records(lines: readonly string[]): void {
    this.#json = false;
    for (const line of lines) this.#print(line);
  }

  /** Prints a text of several lines, or sets the key to it. */
  text(key: string, text: string): void {
    if (this.#json) this.#set(key, text);
    else printText(text);
  }

  /** Prints the JSON object, if requested. */
  finish(): void {
    if (this.#json) this.#print(JSON.stringify(this.#object));
  }
}

function plain(fields: Nested): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).map(([key, value]) => [key, plainValue(value)]));
}

function plainValue(value: Nested[string]): unknown {
  if (value instanceof Fixed) return figureOf(value.value);
  if (typeof value === "number") return figureOf(value);
  return typeof value === "object" && !Array.isArray(value) ? plain(value as Fields) : value;
}

function pairs(fields: Fields): string[] {
  return Object.entries(fields).filter(([, value]) => value !== undefined).map(([key, value]) =>
    `${key}=${show(value)}`
  );
}

function show(value: Value): string {
  if (value instanceof Fixed) return printed(figureOf(value.value), value.digits);
  if (Array.isArray(value)) return `[${value.join(",")}]`;
  const text = String(value);
  // A value is a single word or a JSON string, whatever a path or the name of a tensor contains.
  return text !== "" && !/[\s"]/.test(text) && visible(text) === text ? text : visible(JSON.stringify(text));
}

interface Stream {
  readonly name: string;
  readonly to: { writeSync(bytes: Uint8Array): number };
}

const STDOUT: Stream = { name: "standard output", to: Deno.stdout };
const STDERR: Stream = { name: "standard error", to: Deno.stderr };

function write({ name, to }: Stream, text: string): void {
  const bytes = new TextEncoder().encode(text);
  try {
    for (let done = 0; done < bytes.length;) done += to.writeSync(bytes.subarray(done));
  } catch (error) {
    if (error instanceof Deno.errors.BrokenPipe) throw new ClosedPipe();
    throw systemError(`cannot write to ${name}`, error);
  }
}

/**
 * Writes a text of several lines to standard output. @throws {ClosedPipe} @throws {SystemError} for example disk full
 */
export function printText(text: string): void {
  write(STDOUT, visible(text, "\n\t") + "\n");
}

/**
 * Characters of an answer that are not escaped on a terminal: newlines, tabs, joiners and variation selectors of emoji.
 */
const PROSE = "\n\t\u200c\u200d\ufe0e\ufe0f";

/** Whether standard output is a terminal. */
export function onTerminal(): boolean {
  return Deno.stdout.isTerminal();
}

/** The width of the terminal in columns; 80 if unknown. */
export function columns(): number {
  return (onTerminal() ? Deno.consoleSize().columns : 0) || 80;
}

/**
 * Writes a part of an answer to standard output. On a terminal control characters are escaped, see {@link visible}.
 *
 * @throws {ClosedPipe}
 * @throws {SystemError} for example disk full
 */
export function printAnswer(piece: string): void {
  write(STDOUT, onTerminal() ? visible(piece, PROSE) : piece);
}

/** A longer message is shortened in the middle, since it begins with the problem and ends with the remedy. */
const MAX_MESSAGE = 2000;
const MESSAGE_END = 600;

/** The style of standard error, for the whole run. */
const manner = { json: false, quiet: false };

/** Sets the style of standard error: `json` prints objects instead of lines, `quiet` no warnings and no progress. */
export function speak({ json, quiet }: { readonly json: boolean; readonly quiet: boolean }): void {
  Object.assign(manner, { json, quiet });
}

function shortened(text: string): string {
  return text.length <= MAX_MESSAGE
    ? text
    : `${text.slice(0, MAX_MESSAGE - MESSAGE_END)} … ${text.slice(-MESSAGE_END)}`;
}

/**
 * Writes an error or a warning to standard error on one line: `rabbit: PREFIXMESSAGE`, or the JSON object.
 */
export function complain(prefix: string, complaint: Omit<Complaint, "kind"> & { readonly kind: string }): void {
  if (!manner.json) {
    return printError(`rabbit: ${visible(shortened(prefix + complaint.message).replace(/\r?\n/g, " "))}`);
  }
  printError(JSON.stringify(complaint, (_, text) => typeof text === "string" ? shortened(text) : text));
}

/** Writes a text of several lines to standard error. */
export function printError(text: string): void {
  try {
    write(STDERR, visible(text, "\n\t") + "\n");
  } catch {
    // If standard error cannot be written, only the exit status reports the error.
  }
}

/** Writes a warning to standard error. */
export function warn(topic: string, text: string): void {
  if (!manner.quiet) complain("warning: ", { kind: "warning", message: `${topic}: ${text}` });
}

/** Formats a rate in bytes per second. */
function megabytes(perSecond: number): string {
  return `${(perSecond / 1e6).toFixed(0)} MB/s`;
}

/** Formats a rate in tokens per second. */
export function tokensPerSecond(perSecond: number): string {
  return `${perSecond.toFixed(0)} tokens/s`;
}

/** An environment variable; empty if it is not set or may not be read. */
export function variable(name: string): string {
  const { state } = Deno.permissions.querySync({ name: "env", variable: name });
  return state === "granted" ? Deno.env.get(name) ?? "" : "";
}

/** Whether to show progress: it is not switched off, and standard error is a terminal with escape sequences. */
function showsBars(): boolean {
  return !manner.quiet && Deno.stderr.isTerminal() && !["", "dumb"].includes(variable("TERM"));
}

/**
 * Shows a progress bar with rate and remaining time on standard error, if it is a terminal. `update` takes the amount
 * done in the unit of `total` and `showRate`.
 */
export async function progressBar(
  label: string,
  total: number,
  showRate = megabytes,
): Promise<{ update(done: number): void; stop(): void }> {
  if (total === 0 || !showsBars()) return { update() {}, stop() {} };
  const { default: progress } = await import("cli-progress");
  const bar = new progress.SingleBar({
    format: `${label} [{bar}] {percentage}%  {rate}  {eta_formatted} left`,
    barCompleteChar: "=",
    barIncompleteChar: " ",
    barsize: 30,
    clearOnComplete: true,
    noTTYOutput: false,
    // The bar does not change the settings of the terminal, which a signal would leave changed.
    hideCursor: false,
    linewrap: true,
  });
  const start = performance.now();
  bar.start(total, 0, { rate: "" });
  return {
    update(done) {
      const seconds = (performance.now() - start) / 1000;
      bar.update(done, { rate: showRate(done / seconds) });
    },
    stop: () => bar.stop(),
  };
}

/**
 * Runs `work` with a {@link progressBar} and with a signal (see {@link interruptible}).
 */
export async function withBar<T>(
  label: string,
  total: number,
  work: (watch: { signal: AbortSignal; progress: (done: number) => void }) => Promise<T>,
  showRate = megabytes,
): Promise<T> {
  const bar = await progressBar(label, total, showRate);
  return await interruptible((signal) => work({ signal, progress: bar.update })).finally(() => bar.stop());
}

/** Signals that end the program, and their exit status: 128 plus the number of the signal. */
const SIGNALS = [["SIGHUP", 129], ["SIGINT", 130], ["SIGQUIT", 131], ["SIGTERM", 143]] as const;

/** Signals that are ignored at the start: SIGHUP under nohup, SIGINT and SIGQUIT in a background job of a script. */
const IGNORED: ReadonlySet<string> = new Set(
  SIGNALS.filter(([, status]) => signalIsIgnored(status - 128)).map(([name]) => name),
);

function ignore(name: Deno.Signal): void {
  Deno.addSignalListener(name, () => {});
}

/**
 * Runs `work` with a signal that aborts on SIGHUP, SIGINT, SIGQUIT and SIGTERM, so that it can clean up. From then on a
 * write beyond `ulimit -f` fails with an error and does not end the program.
 */
export async function interruptible<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  const handlers: [Deno.Signal, () => void][] = [];
  ignore("SIGXFSZ");
  for (const [name, status] of SIGNALS) {
    // Deno's first listener also installs handlers for other signals that end the program. An ignored signal stays
    // ignored only with a listener of its own.
    if (IGNORED.has(name)) ignore(name);
    else handlers.push([name, () => controller.abort(new Interrupted(name, status))]);
  }
  for (const [name, handler] of handlers) Deno.addSignalListener(name, handler);
  try {
    return await work(controller.signal);
  } finally {
    for (const [name, handler] of handlers) Deno.removeSignalListener(name, handler);
  }
}
