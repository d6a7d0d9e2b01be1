/**
 * What the program prints: result lines or one JSON object on standard output, warnings and progress on standard error.
 * Everything that it writes goes through this module, so that no name or text of a file can do anything to a terminal.
 *
 * @module
 */

import { systemError, visible } from "../errors.ts";
import { signalIsIgnored } from "../libc.ts";
import { figureOf } from "../measure/metrics.ts";
import { ClosedPipe, Interrupted } from "./errors.ts";
import type { Complaint } from "./messages.ts";

/** A number with the digits that a line shows; JSON gets the number. One that is not finite is a word in both. */
export class Fixed {
  constructor(readonly value: number, readonly digits: number) {}
}

/** A value of a line. Undefined ones are left out. */
export type Value = string | number | boolean | Fixed | readonly number[] | undefined;

/** The keys and values of one line. */
export type Fields = Readonly<Record<string, Value>>;

/** Those of a JSON object, where a key may hold an object. */
export type Nested = Readonly<Record<string, Value | Fields>>;

/** Collects or prints the results of one command. */
export class Output {
  readonly #object: Record<string, unknown> = {};
  #stream = STDOUT;

  constructor(readonly name: string, readonly json: boolean) {}

  /** From here on the results go to standard error: standard output is for something else. */
  divert(): void {
    this.#stream = STDERR;
  }

  #print(line: string): void {
    write(this.#stream, visible(line) + "\n");
  }

  /** Prints `NAME key=value …`, or adds the keys to the JSON object, those of `json` if it has others. */
  line(fields: Fields, json: Nested = fields): void {
    if (this.json) Object.assign(this.#object, plain(json));
    else this.#print([this.name, ...pairs(fields)].join(" "));
  }

  /** Prints a line that is one of many, or adds `json` to the list `list` of the JSON object. */
  item(list: string, fields: Fields, json: Nested = fields): void {
    if (this.json) ((this.#object[list] ??= []) as unknown[]).push(plain(json));
    else this.line(fields);
  }

  /** Prints `NAME WORD value value …`, or sets the key to the list. */
  list(word: string, values: readonly number[]): void {
    if (this.json) this.#object[word] = values;
    else this.#print([this.name, word, ...values].join(" "));
  }

  /** Prints `NAME word key=value …`, or adds `json` as an object of that name. */
  group(word: string, fields: Fields, json: Nested = fields): void {
    if (this.json) this.#object[word] = plain(json);
    else this.#print([this.name, word, ...pairs(fields)].join(" "));
  }

  /** Prints `NAME VERDICT`, or sets `verdict`. */
  verdict(word: string): void {
    if (this.json) this.#object.verdict = word;
    else this.#print(`${this.name} ${word}`);
  }

  /** Prints a text of several lines, or sets the key to it. */
  text(key: string, text: string): void {
    if (this.json) this.#object[key] = text;
    else printText(text);
  }

  /** Prints the JSON object, if that is what is wanted. */
  finish(): void {
    if (this.json) this.#print(JSON.stringify(this.#object));
  }
}

function plain(fields: Nested): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).map(([key, value]) => [key, plainValue(value)]));
}

function plainValue(value: Value | Fields): unknown {
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
  if (value instanceof Fixed) {
    const figure = figureOf(value.value);
    return typeof figure === "number" ? figure.toFixed(value.digits) : figure;
  }
  if (Array.isArray(value)) return `[${value.join(",")}]`;
  const text = String(value);
  // A value is one word or a JSON string, whatever a path or a tensor's name contains.
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

/** Writes a text of several lines to standard output. @throws {ClosedPipe} @throws {SystemError} such as a full disk */
export function printText(text: string): void {
  write(STDOUT, visible(text, "\n\t") + "\n");
}

/** What of an answer a terminal gets as it is: line feeds, tabs, joiners and variation selectors (of emoji, say). */
const PROSE = "\n\t\u200c\u200d\ufe0e\ufe0f";

/** Whether standard output is a terminal. */
export function onTerminal(): boolean {
  return Deno.stdout.isTerminal();
}

/** The columns that lines of prose may have: the terminal's, if standard output is one that says it. */
export function columns(): number {
  return (onTerminal() ? Deno.consoleSize().columns : 0) || 80;
}

/**
 * Writes a piece of a model's answer to standard output: as it is into a file or a pipe, {@link visible} on a terminal.
 *
 * @throws {ClosedPipe}
 * @throws {SystemError} such as a full disk
 */
export function printAnswer(piece: string): void {
  write(STDOUT, onTerminal() ? visible(piece, PROSE) : piece);
}

/** A longer message is cut in the middle, since it begins with what is wrong and ends with what to do. */
const MAX_MESSAGE = 2000;
const MESSAGE_END = 600;

/** How the program speaks on standard error, for as long as it runs. */
const manner = { json: false, quiet: false };

/** Sets what goes to standard error: with `json` objects instead of lines, with `quiet` no warnings and no progress. */
export function speak({ json, quiet }: { readonly json: boolean; readonly quiet: boolean }): void {
  Object.assign(manner, { json, quiet });
}

function shortened(text: string): string {
  return text.length <= MAX_MESSAGE
    ? text
    : `${text.slice(0, MAX_MESSAGE - MESSAGE_END)} … ${text.slice(-MESSAGE_END)}`;
}

/**
 * Writes an error or a warning to standard error, in one line whatever it quotes: `rabbit: PREFIXMESSAGE`, or the JSON
 * object.
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
    // Where standard error can't be written to, the exit status is all that can be said.
  }
}

/** Writes a warning to standard error. */
export function warn(topic: string, text: string): void {
  if (!manner.quiet) complain("warning: ", { kind: "warning", message: `${topic}: ${text}` });
}

/** Bytes a second, as a bar shows them. */
function megabytes(perSecond: number): string {
  return `${(perSecond / 1e6).toFixed(0)} MB/s`;
}

/** Tokens a second, as a bar shows them. */
export function tokensPerSecond(perSecond: number): string {
  return `${perSecond.toFixed(0)} tokens/s`;
}

/** A variable of the environment; empty where it is not set or may not be read. */
export function variable(name: string): string {
  const { state } = Deno.permissions.querySync({ name: "env", variable: name });
  return state === "granted" ? Deno.env.get(name) ?? "" : "";
}

/** Whether progress is wanted, and standard error is a terminal that knows escape sequences. */
function showsBars(): boolean {
  return !manner.quiet && Deno.stderr.isTerminal() && !["", "dumb"].includes(variable("TERM"));
}

/**
 * A bar on standard error when that is a terminal: part, rate and time left. Call the result with what is done, in bytes
 * or in what `showRate` knows.
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
    // The settings of the terminal do not change, so that no signal can leave it with others.
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
 * Runs `work` under a {@link progressBar}, and with a signal that it can tidy up after ({@link interruptible}). What it
 * gets are the options that long work takes.
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

/** Signals that end the program, and the exit status of a shell for each: 128 and the signal's number. */
const SIGNALS = [["SIGHUP", 129], ["SIGINT", 130], ["SIGQUIT", 131], ["SIGTERM", 143]] as const;

/** Signals that were ignored at the start: SIGHUP under nohup, SIGINT and SIGQUIT of a script's background job. */
const IGNORED: ReadonlySet<string> = new Set(
  SIGNALS.filter(([, status]) => signalIsIgnored(status - 128)).map(([name]) => name),
);

function ignore(name: Deno.Signal): void {
  Deno.addSignalListener(name, () => {});
}

/**
 * Runs `work` with a signal that aborts on SIGHUP, SIGINT, SIGQUIT and SIGTERM, so that it can tidy up. From here on a
 * write beyond `ulimit -f` fails with an error and does not end the program.
 */
export async function interruptible<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  const handlers: [Deno.Signal, () => void][] = [];
  ignore("SIGXFSZ");
  for (const [name, status] of SIGNALS) {
    // With the first listener Deno installs handlers for other signals too, which end the program: without a listener of
    // its own a signal would not stay ignored.
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
