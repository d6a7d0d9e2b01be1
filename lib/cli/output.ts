/**
 * What the program prints: result lines or one JSON object on standard output, warnings and progress on standard error.
 *
 * @module
 */

import { systemError } from "../errors.ts";

/** A number with the digits that a line shows; JSON gets the number. */
export class Fixed {
  constructor(readonly value: number, readonly digits: number) {}
}

/** A value of a line. Undefined ones are left out. */
export type Value = string | number | boolean | Fixed | readonly number[] | undefined;

/** The keys and values of one line. */
export type Fields = Readonly<Record<string, Value>>;

/** Thrown when the reader of standard output has gone: nothing is left to do, and nothing is wrong. */
export class ClosedPipe extends Error {
  override name = "ClosedPipe";
}

/** Collects or prints the results of one command. */
export class Output {
  readonly #object: Record<string, unknown> = {};
  #print = writeLine;

  constructor(readonly name: string, readonly json: boolean) {}

  /** From here on the results go to standard error: standard output is for something else. */
  divert(): void {
    this.#print = (text) => writeTo(Deno.stderr, "standard error", text + "\n");
  }

  /** Prints `NAME key=value …`, or adds the keys to the JSON object. */
  line(fields: Fields): void {
    if (this.json) Object.assign(this.#object, plain(fields));
    else this.#print([this.name, ...pairs(fields)].join(" "));
  }

  /** Prints a line that is one of many, or adds an object to the list `list` of the JSON object. */
  item(list: string, fields: Fields): void {
    if (this.json) ((this.#object[list] ??= []) as unknown[]).push(plain(fields));
    else this.line(fields);
  }

  /** Prints `NAME WORD value value …`, or sets the key to the list. */
  list(word: string, values: readonly number[]): void {
    if (this.json) this.#object[word] = values;
    else this.#print([this.name, word, ...values].join(" "));
  }

  /** Prints `NAME word key=value …`, or adds the keys as an object of that name. */
  group(word: string, fields: Fields): void {
    if (this.json) this.#object[word] = plain(fields);
    else this.#print([this.name, word, ...pairs(fields)].join(" "));
  }

  /** Prints `NAME VERDICT`, or sets `verdict`. */
  verdict(word: string): void {
    if (this.json) this.#object.verdict = word;
    else this.#print(`${this.name} ${word}`);
  }

  /** Prints a text as it is, or sets the key to it. */
  text(key: string, text: string): void {
    if (this.json) this.#object[key] = text;
    else this.#print(text);
  }

  /** Prints the JSON object, if that is what is wanted. */
  finish(): void {
    if (this.json) this.#print(JSON.stringify(this.#object));
  }
}

function plain(fields: Fields): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).map(([key, value]) => [key, value instanceof Fixed ? value.value : value]),
  );
}

function pairs(fields: Fields): string[] {
  return Object.entries(fields).filter(([, value]) => value !== undefined).map(([key, value]) =>
    `${key}=${show(value)}`
  );
}

function show(value: Value): string {
  if (value instanceof Fixed) return value.value.toFixed(value.digits);
  if (Array.isArray(value)) return `[${value.join(",")}]`;
  const text = String(value);
  // A value is one word, whatever stands in a path or a tensor's name.
  // deno-lint-ignore no-control-regex
  return /^[^\s"\u0000-\u001f\u007f-\u009f]+$/.test(text) ? text : JSON.stringify(text);
}

/** Writes a line to standard output. @throws {ClosedPipe} @throws {SystemError} such as a full disk */
export function writeLine(text: string): void {
  write(text + "\n");
}

/** Writes to standard output. @throws {ClosedPipe} @throws {SystemError} such as a full disk */
export function write(text: string): void {
  writeTo(Deno.stdout, "standard output", text);
}

function writeTo(stream: { writeSync(bytes: Uint8Array): number }, name: string, text: string): void {
  const bytes = new TextEncoder().encode(text);
  try {
    for (let done = 0; done < bytes.length;) done += stream.writeSync(bytes.subarray(done));
  } catch (error) {
    if (error instanceof Deno.errors.BrokenPipe) throw new ClosedPipe();
    throw systemError(`cannot write to ${name}`, error);
  }
}

/** Writes a warning to standard error, in one line whatever it quotes. */
export function warn(command: string, text: string): void {
  console.error(`rabbit: warning: ${command}: ${text.replaceAll("\n", " ")}`);
}

/** Bytes a second, as a bar shows them. */
function megabytes(perSecond: number): string {
  return `${(perSecond / 1e6).toFixed(0)} MB/s`;
}

/** Tokens a second, as a bar shows them. */
export function tokensPerSecond(perSecond: number): string {
  return `${perSecond.toFixed(0)} tokens/s`;
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
  if (!Deno.stderr.isTerminal() || total === 0) return { update() {}, stop() {} };
  const { default: progress } = await import("cli-progress");
  const bar = new progress.SingleBar({
    format: `${label} [{bar}] {percentage}%  {rate}  {eta_formatted} left`,
    barCompleteChar: "=",
    barIncompleteChar: " ",
    barsize: 30,
    clearOnComplete: true,
    hideCursor: true,
    noTTYOutput: false,
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

/** A signal asked the program to end. */
export class Interrupted extends Error {
  override name = "Interrupted";

  /** @param status the exit status that a shell gives a program that died of the signal */
  constructor(signal: string, readonly status: number) {
    super(`interrupted by ${signal}; nothing was written`);
  }
}

/** Runs `work` with a signal that aborts on SIGINT and SIGTERM, so that it can tidy up. */
export async function interruptible<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  const handlers = ([["SIGINT", 130], ["SIGTERM", 143]] as const).map(([name, status]) => {
    const handler = () => controller.abort(new Interrupted(name, status));
    Deno.addSignalListener(name, handler);
    return () => Deno.removeSignalListener(name, handler);
  });
  try {
    return await work(controller.signal);
  } finally {
    for (const remove of handlers) remove();
  }
}
