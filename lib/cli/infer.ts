/**
 * `rabbit infer`: generates text with one checkpoint.
 *
 * @module
 */

import { MAX_TEMPERATURE, Sampler } from "../text/sample.ts";
import { type ChatTemplate, type Message, readChatTemplate, renderChat } from "../text/chat.ts";
import { decoding, stopsOf } from "../text/decode.ts";
import type { Llama } from "../model/llama.ts";
import { openAny } from "../gguf/open.ts";
import { loadAhead, loadModel, type Model, openModel } from "../model/load.ts";
import type { TextStream } from "../text/detokenizer.ts";
import { loadTokenizer, type Tokenizer } from "../text/tokenizer.ts";
import { hasTokenizer } from "../text/tokenizer_files.ts";
import { CheckpointError } from "../errors.ts";
import type { Checkpoint } from "../format/checkpoint.ts";
import { storedBytes } from "../format/foreign.ts";
import { type Moment, momentOf, strftime } from "../text/jinja/dates.ts";
import type { Activations } from "../format/blocks.ts";
import { Pool } from "../kernels/pool.ts";
import { type Arguments, CHECKPOINT, command, COUNT, type Flags, TEXT, THREADS, type Values } from "./arguments.ts";
import { UsageError } from "./errors.ts";
import { memory } from "../files/memory.ts";
import { noTokenizer, PROMPT_FLAGS, promptOf, tokenizerFor } from "./model.ts";
import { Fixed, onTerminal, type Output, printAnswer, warn } from "./output.ts";
import { ACTIVATIONS, NARROWEST_FIRST } from "./widths.ts";

/** The page size that `mapped` is rounded to. */
const PAGE_BYTES = 4096;

const FLAGS = {
  ...PROMPT_FLAGS,
  chat: { help: "format --prompt as a user message with the model's chat template" },
  system: { type: TEXT, help: "the system message of the chat template" },
  date: {
    type: TEXT,
    value: "YYYY-MM-DD",
    unset: "today; printed if the template uses it",
    help: "the date for the chat template",
  },
  steps: { type: COUNT, default: 32, help: "the maximum number of tokens to decode" },
  stream: {
    help:
      "print only the text to standard output, as it is decoded, and the results to standard error; on a terminal the " +
      "text is always printed as it is decoded",
  },
  temperature: {
    type: { kind: "number", max: MAX_TEMPERATURE },
    value: "T",
    default: 0,
    unset: "0, greedy",
    help: "sample each token: 1 uses the model's distribution, less favours probable tokens",
  },
  "top-p": {
    type: { kind: "number", above: 0, max: 1 },
    value: "P",
    default: 1,
    unset: "1, all",
    help: "sample from the most probable tokens that together have probability P (nucleus sampling)",
  },
  seed: {
    type: { kind: "integer", min: 0 },
    unset: "a random seed, which is printed",
    help: "random seed of the sampling, below 2^53",
  },
  activations: {
    type: ACTIVATIONS,
    unset: [
      ...NARROWEST_FIRST.map(({ bits, activations }) => `${activations} for ${bits} bits`),
      "f32 for float checkpoints",
    ].join(", "),
    help: "f32 is exact; i16 and i8 are faster",
  },
  "ignore-eos": { help: "do not stop at an EOS token" },
  threads: THREADS,
} as const satisfies Flags;

type Args = Arguments<Values<typeof FLAGS>>;

/** `rabbit infer` */
export const inferCommand = command({
  name: "infer",
  summary: "generate text with one checkpoint, greedily or by sampling, and time it",
  positionals: [
    {
      name: "CHECKPOINT",
      type: CHECKPOINT,
      alias: "model",
      help: "the checkpoint, with config.json in its directory, or a GGUF file",
    },
  ],
  flags: FLAGS,
  details: [
    [
      ["pinned", "size of the tensors in the files; a width without a kernel of its own takes more in memory"],
      ["mapped", "size of the files in whole pages of 4096 bytes"],
      ["prefill, decode", "time of the prompt, and of the tokens after the first, without tokenizing and printing"],
      ["rss", "memory of the process at the end, and its peak"],
    ],
  ],
  example: 'rabbit infer SmolLM2-135M-q8 --prompt "The capital of France is"',
  async run(args, out) {
    const { steps, threads } = args.values;
    const sampler = samplerOf(args);
    const model = openModel(openAny(args.positionals[0]));
    const activations = activationsOf(args, model);
    const text = new PromptAndAnswer(args, out, model);
    // Created first, so that the other threads start and load weights while this one loads the tokenizer.
    const pool = new Pool({ threads, activations });
    try {
      loadAhead(pool, model);
      const prompt = await promptOf(args, model, (prompt) => text.encode(prompt));
      const llama = loadModel(pool, model, prompt.length + steps);
      const stops = args.values["ignore-eos"] ? [] : text.stops(model);
      const decoded = decode(llama, prompt, { steps, stops, sampler, text });
      const { tokens } = decoded;
      reportSizes(out, model.checkpoint);
      if (text.date !== undefined) out.group("chat", { date: text.date });
      if (sampler) out.group("sampling", { ...fieldsOf(sampler) });
      out.list("tokens", tokens);
      text.report(tokens.slice(0, stops.includes(tokens.at(-1)!) ? -1 : undefined));
      out.group("prefill", { tokens: prompt.length, ...rate(prompt.length, decoded.prefill) });
      out.group("decode", { tokens: tokens.length - 1, ...rate(tokens.length - 1, decoded.ms), threads, activations });
      out.group("rss", { bytes: memory().now, peak: memory().peak });
      return 0;
    } finally {
      pool.close();
    }
  },
});

/** The sampler; undefined for greedy decoding. @throws {UsageError} */
function samplerOf({ values: { temperature, "top-p": topP, seed }, given }: Args): Sampler | undefined {
  if (temperature > 0) return new Sampler({ temperature, topP, seed: seed ?? randomSeed() });
  const without = ["top-p", "seed"].find((flag) => given.has(flag));
  if (without !== undefined) {
    throw new UsageError(`--${without} needs --temperature above 0: greedy decoding samples nothing`);
  }
  return undefined;
}

/** A random seed that is short enough to type again. */
function randomSeed(): number {
  return crypto.getRandomValues(new Uint32Array(1))[0];
}

function fieldsOf({ sampling: { temperature, topP, seed } }: Sampler) {
  return { temperature, top_p: topP, seed };
}

/** The type of activations. @throws {UsageError} the checkpoint does not support it */
function activationsOf({ values: { activations: asked } }: Args, { checkpoint }: Model): Activations {
  if (asked !== undefined && asked !== "f32" && checkpoint.width === undefined) {
    throw new UsageError(
      checkpoint.foreign
        ? `--activations ${asked} is for files with matrices of one kind of blocks; ${
          checkpoint.foreign.types.join(", ")
        } are multiplied in f32`
        : `--activations ${asked} is for quantized checkpoints; a float one is multiplied in f32`,
    );
  }
  return asked ?? checkpoint.width?.activations ?? "f32";
}

/** The date of `--date`, at midnight. @throws {UsageError} it is invalid */
function dateOf(args: Args): Moment | undefined {
  const text = args.values.date;
  if (text === undefined) return undefined;
  const [year, month, day] = /^[1-9]\d{3}-\d\d-\d\d$/.test(text) ? text.split("-").map(Number) : [0, 0, 0];
  const date = new Date(Date.UTC(year, month - 1, day));
  if (year === 0 || date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) {
    throw args.invalid("date", "a day of the calendar as YYYY-MM-DD");
  }
  return { year, month, day, hour: 0, minute: 0, second: 0, microsecond: 0 };
}

interface Task {
  readonly steps: number;
  readonly stops: readonly number[];
  readonly sampler?: Sampler;
  readonly text: PromptAndAnswer;
}

/** Decodes and prints the text. The times, in milliseconds, are those of the model and the sampler only. */
function decode(llama: Llama, prompt: readonly number[], { steps, stops, sampler, text }: Task) {
  const tokens: number[] = [];
  let prefill = 0;
  let ms = 0;
  const work = decoding(llama, prompt, { steps, stops, sampler });
  for (;;) {
    const start = performance.now();
    const { value: token } = work.next();
    const took = performance.now() - start;
    if (token === undefined) break;
    if (tokens.length === 0) prefill = took;
    else ms += took;
    tokens.push(token);
    if (!stops.includes(token)) text.show(token);
  }
  text.end();
  return { tokens, prefill, ms };
}

/** Encodes the prompt, and prints the text of the answer. */
class PromptAndAnswer {
  readonly #args: Args;
  readonly #out: Output;
  readonly #model: Model;
  readonly #chat?: ChatTemplate;
  /** The time for the chat template, and whether the template used it. */
  readonly #now: Moment;
  #dated = false;
  /** Whether the text is printed while it is decoded, and whether to a terminal, which also gets the result lines. */
  readonly #live: boolean;
  readonly #terminal: boolean;
  #tokenizer?: Tokenizer;
  /** Undefined until the first token; null if there is no usable tokenizer. */
  #stream?: TextStream | null;

  /** @throws {UsageError} a flag needs a missing file or another flag */
  constructor(args: Args, out: Output, model: Model) {
    const { directory, foreign } = model.checkpoint;
    this.#args = args;
    this.#out = out;
    this.#model = model;
    const { stream: asked, chat, prompt } = args.values;
    if (asked && !hasTokenizer(directory)) {
      throw noTokenizer("stream", model.checkpoint, foreign ? "leave --stream out" : "copy them there");
    }
    this.#terminal = onTerminal();
    this.#live = asked || (this.#terminal && !out.json && hasTokenizer(directory));
    if (asked) out.divert();
    for (const flag of ["system", "date"]) {
      if (args.given.has(flag) && !chat) throw new UsageError(`--${flag} needs --chat`);
    }
    this.#now = dateOf(args) ?? momentOf(new Date());
    if (!chat) return;
    if (prompt === undefined) throw new UsageError("--chat needs --prompt");
    this.#chat = readChatTemplate(directory);
    if (this.#chat === undefined) {
      throw new UsageError(
        foreign
          ? `--chat needs a chat template, and ${directory} has none`
          : `--chat needs a chat template: chat_template in tokenizer_config.json, or chat_template.jinja, in ${directory}`,
      );
    }
  }

  /** The ids of the prompt, formatted with the chat template if requested. */
  async encode(prompt: string): Promise<number[]> {
    this.#tokenizer = tokenizerFor("prompt", this.#model, "use --ids");
    if (this.#chat === undefined) return this.#tokenizer.encode(prompt, true);
    const system = this.#args.values.system;
    const messages: Message[] = system === undefined ? [] : [{ role: "system", content: system }];
    const { text, dated } = await renderChat(this.#chat, [...messages, { role: "user", content: prompt }], this.#now);
    this.#dated = dated;
    // The template includes the BOS token.
    return this.#tokenizer.encode(text);
  }

  /** The date, if the template used it. */
  get date(): string | undefined {
    return this.#dated ? strftime(this.#now, "%Y-%m-%d") : undefined;
  }

  /** Ids that end the answer: the EOS tokens of the model, and the token with which the template ends a turn. */
  stops({ config, checkpoint }: Model): number[] {
    return stopsOf(config, checkpoint.directory, this.#chat, this.#tokenizer);
  }

  /** Prints the characters that a token completes. The tokenizer is loaded after the first token has been timed. */
  show(token: number): void {
    if (!this.#live) return;
    if (this.#stream === undefined) this.#stream = this.#decoder()?.stream() ?? null;
    printAnswer(this.#stream?.push(token) ?? "");
  }

  /** Prints the remaining characters. */
  end(): void {
    if (this.#live) printAnswer((this.#stream?.end() ?? "") + (this.#terminal ? "\n" : ""));
  }

  /** Prints the text as a result line, unless it was printed while it was decoded. */
  report(tokens: readonly number[]): void {
    const tokenizer = this.#live ? undefined : this.#decoder();
    if (tokenizer) this.#out.group("text", { text: tokenizer.decode(tokens) });
  }

  /** The tokenizer, if any. An unsupported one is only a warning, since the ids do not depend on it. */
  #decoder(): Tokenizer | undefined {
    try {
      const { checkpoint, config } = this.#model;
      return this.#tokenizer ??= loadTokenizer(checkpoint.directory, "decode", config);
    } catch (error) {
      if (!(error instanceof CheckpointError)) throw error;
      warn("infer", `no text: ${error.message}`);
      return undefined;
    }
  }
}

function reportSizes(out: Output, { tensors, files }: Checkpoint): void {
  out.group("pinned", { bytes: tensors.reduce((sum, tensor) => sum + storedBytes(tensor), 0) });
  out.group("mapped", {
    bytes: files.reduce((sum, { bytes }) => sum + Math.floor(bytes / PAGE_BYTES) * PAGE_BYTES, 0),
  });
}

function rate(tokens: number, ms: number) {
  return { ms: new Fixed(ms, 1), tokens_per_s: new Fixed(tokens === 0 ? 0 : tokens / ms * 1000, 1) };
}
