/**
 * Opens a model for text generation.
 *
 * @module
 */

import { CheckpointError } from "../errors.ts";
import { checkOptions, checkPath, checkWhole, type Names, WATCH } from "../options.ts";
import { pacer, type Watch } from "../pace.ts";
import type { Activations } from "../format/blocks.ts";
import { type Checkpoint, TensorReader } from "../format/checkpoint.ts";
import { Pool } from "../kernels/pool.ts";
import { threadCount } from "../kernels/workers.ts";
import type { TextModel } from "../measure/group.ts";
import { type Config, longestContext } from "../model/config.ts";
import { BATCH, type Llama } from "../model/llama.ts";
import { openAny } from "../gguf/open.ts";
import { loadInTurns, type Model, openModel } from "../model/load.ts";
import { type ChatTemplate, type Message, readChatTemplate, renderChat } from "../text/chat.ts";
import { decoding, stopsOf } from "../text/decode.ts";
import { momentOf } from "../text/jinja/dates.ts";
import { MAX_TEMPERATURE, Sampler } from "../text/sample.ts";
import { loadTokenizer, type Tokenizer } from "../text/tokenizer.ts";
import { checkPrompt, idsOf, tokenizerOf } from "./prompt.ts";

/** The default context, unless that of the model is shorter. */
const DEFAULT_CONTEXT = 2048;

/** Options of {@link open}. Progress counts bytes of the weights. */
export interface OpenOptions extends Watch {
  /** Threads to use (default: one for each processor). */
  readonly threads?: number;
  /**
   * The maximum number of tokens of a prompt and its answer (default: 2048, or the model's context if that is shorter).
   */
  readonly context?: number;
  /**
   * The type of activations that quantized matrices are multiplied with; `f32` is exact (default: that of the width).
   */
  readonly activations?: Activations;
  /** The path of config.json (default: the one in the directory of the weights). */
  readonly config?: string;
}

/** Options of {@link LanguageModel.generate}. */
export interface GenerateOptions {
  /** 0, the default, decodes greedily; 1 samples as the model predicts; lower values give safer tokens. */
  readonly temperature?: number;
  /** Nucleus sampling: sample from the most probable tokens that together have this probability (default: 1, all). */
  readonly topP?: number;
  /** The same seed samples the same tokens (default: a random seed). */
  readonly seed?: number;
  /** The maximum number of tokens (default: until the context is full). */
  readonly maxTokens?: number;
  /** Format the prompt, a text, as a user message with the chat template. */
  readonly chat?: boolean;
  /** Token ids that end the answer, and are its last token (default: the model's EOS tokens). */
  readonly stops?: readonly number[];
  /** Aborts with the signal's reason. */
  readonly signal?: AbortSignal;
}

/** The names of {@link GenerateOptions}. */
const GENERATE: Names<GenerateOptions> = {
  ...{ temperature: true, topP: true, seed: true, maxTokens: true, chat: true, stops: true, signal: true },
};

/** A token that {@link LanguageModel.generate} yields. */
export interface GeneratedToken {
  /** The token id. */
  readonly id: number;
  /** The text that the token completes: whole characters, often none. Empty if the checkpoint has no tokenizer. */
  readonly text: string;
}

/** A prompt: a text, token ids, or the messages of a conversation, for the chat template. */
export type Prompt = string | readonly number[] | readonly Message[];

/**
 * Opens a model: a checkpoint, and the configuration and tokenizer in its directory.
 *
 * ```ts
 * import { generateModel, open } from "@rabbit/rabbit";
 *
 * const directory = Deno.makeTempDirSync();
 * generateModel(directory, { force: true });
 *
 * await using model = await open(directory, { threads: 2 });
 * for await (const { text } of model.generate("The capital of France is", { maxTokens: 8 })) console.log(text);
 * Deno.removeSync(directory, { recursive: true });
 * ```
 *
 * @param path a directory, or a safetensors or GGUF file
 * @throws {CheckpointError} a file is invalid, or the model is unsupported
 * @throws {SystemError} a file cannot be read
 * @throws the reason of the signal
 */
export async function open(path: string, options: OpenOptions = {}): Promise<LanguageModel> {
  checkPath("the path", path);
  checkOptions("open", options, { ...WATCH, threads: true, context: true, activations: true, config: true });
  const model = openModel(openAny(path), options.config);
  const { checkpoint, config } = model;
  const { context = Math.min(DEFAULT_CONTEXT, longestContext(config)) } = options;
  checkWhole("context", context, 1);
  const threads = threadCount(options.threads);
  const activations = options.activations ?? checkpoint.width?.activations ?? "f32";
  const pool = new Pool({ threads, activations });
  try {
    const llama = await loadInTurns(pool, config, new TensorReader(checkpoint), context, 1, options);
    return new LanguageModel(model, pool, llama, activations);
  } catch (error) {
    pool.close();
    throw error;
  }
}

/** A model opened by {@link open}. If declared with `await using`, it is closed at the end of the block. */
export class LanguageModel implements TextModel, AsyncDisposable {
  /** The checkpoint. */
  readonly checkpoint: Checkpoint;
  /** The configuration. */
  readonly config: Config;
  /** The type of activations that quantized matrices are multiplied with. */
  readonly activations: Activations;
  readonly #pool: Pool;
  readonly #llama: Llama;
  #tokenizer?: Tokenizer | null;
  /** Whether an answer is being generated. A model has only one context. */
  #busy = false;
  #closed = false;

  /** @ignore for {@link open} */
  constructor(model: Model, pool: Pool, llama: Llama, activations: Activations) {
    this.checkpoint = model.checkpoint;
    this.config = model.config;
    this.activations = activations;
    this.#pool = pool;
    this.#llama = llama;
  }

  /** The maximum number of tokens of a prompt and its answer. */
  get context(): number {
    return this.#llama.context;
  }

  /** The number of threads. */
  get threads(): number {
    return this.#pool.threads;
  }

  /** The tokenizer; undefined if the checkpoint has none. @throws {CheckpointError} the tokenizer is unsupported */
  get tokenizer(): Tokenizer | undefined {
    const { checkpoint, config } = this;
    this.#tokenizer ??= loadTokenizer(checkpoint.directory, "encode", { vocabulary: config.vocabulary }) ?? null;
    return this.#tokenizer ?? undefined;
  }

  /**
   * Generates the continuation of a prompt, token by token; leaving the loop ends it. A model generates one answer at a
   * time.
   *
   * @throws {CheckpointError} the prompt needs a tokenizer or a chat template, and the checkpoint has none
   * @throws {RabbitError} the prompt is empty, or an id is not in the vocabulary
   * @throws {RangeError} an option is out of range, or the prompt and maxTokens exceed the context
   * @throws the reason of the signal
   */
  async *generate(prompt: Prompt, options: GenerateOptions = {}): AsyncGenerator<GeneratedToken, void> {
    checkPrompt(prompt);
    checkOptions("generate", options, GENERATE);
    const { signal } = options;
    this.#checkOpen();
    if (this.#busy) throw new TypeError("the model is still generating another answer");
    this.#busy = true;
    try {
      const sampler = samplerOf(options);
      const chat = this.#chatOf(prompt, options.chat ?? false);
      const ids = await this.#idsOf(prompt, chat);
      const room = this.context - ids.length;
      const { maxTokens = room } = options;
      checkWhole("maxTokens", maxTokens, room === 0 ? 0 : 1);
      if (maxTokens > room || room < 1) {
        throw new RangeError(
          `a prompt of ${ids.length} tokens and ${maxTokens} more exceed the context of ${this.context}`,
        );
      }
      const tokenizer = this.tokenizer;
      const stops = options.stops ?? stopsOf(this.config, this.checkpoint.directory, chat, tokenizer);
      const stream = tokenizer?.stream();
      const pause = pacer(signal);
      signal?.throwIfAborted();
      this.rewind(0);
      // In batches, so that a signal does not wait for the whole prompt.
      const last = Math.floor((ids.length - 1) / BATCH) * BATCH;
      for (let at = 0; at < last; at += BATCH) {
        this.feed(ids.slice(at, at + BATCH));
        await pause();
      }
      let count = 0;
      for (const id of decoding(this, ids.slice(last), { steps: maxTokens, stops, sampler })) {
        const ended = stops.includes(id);
        const text = ended ? "" : stream?.push(id) ?? "";
        const rest = ended || ++count === maxTokens ? stream?.end() ?? "" : "";
        yield { id, text: text + rest };
        await pause();
        this.#checkOpen();
      }
    } finally {
      this.#busy = false;
    }
  }

  /**
   * Feeds tokens, which are appended to the context.
   *
   * @returns the logits after the last token, valid until the next call
   */
  feed(ids: readonly number[]): Float32Array {
    this.#checkOpen();
    return this.#llama.feed(ids);
  }

  /** Feeds tokens and calls `visit` with the logits after each, which are valid during the call. */
  feedAll(ids: readonly number[], visit: (index: number, logits: Float32Array) => void): void {
    this.#checkOpen();
    this.#llama.feedAll(ids, visit);
  }

  /** Forgets the tokens from `position` on. */
  rewind(position: number): void {
    this.#llama.rewind(position);
  }

  /** Stops the threads and frees the weights. An answer that is being generated fails. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#pool.reset();
    this.#pool.close();
  }

  /** Closes the model, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #checkOpen(): void {
    if (this.#closed) throw new TypeError("the model is closed");
  }

  /** The chat template to use, if any. */
  #chatOf(prompt: Prompt, asked: boolean): ChatTemplate | undefined {
    if (typeof prompt !== "string" && !isConversation(prompt)) {
      if (asked) throw new TypeError("a chat needs a text or messages, not token ids");
      return undefined;
    }
    if (typeof prompt === "string" && !asked) return undefined;
    const { directory } = this.checkpoint;
    const chat = readChatTemplate(directory);
    if (chat !== undefined) return chat;
    throw new CheckpointError(
      { path: directory },
      "no chat template: chat_template in tokenizer_config.json, or chat_template.jinja",
    );
  }

  async #idsOf(prompt: Prompt, chat: ChatTemplate | undefined): Promise<number[]> {
    if (chat === undefined) return idsOf(prompt as string | readonly number[], this, () => this.tokenizer);
    const messages = typeof prompt === "string" ? [{ role: "user" as const, content: prompt }] : prompt;
    const { text } = await renderChat(chat, messages as readonly Message[], momentOf(new Date()));
    // The template includes the BOS token.
    return tokenizerOf(this, () => this.tokenizer).encode(text);
  }
}

function isConversation(prompt: readonly number[] | readonly Message[]): prompt is readonly Message[] {
  return typeof prompt[0] === "object";
}

/** The sampler; undefined for greedy decoding. */
function samplerOf({ temperature = 0, topP = 1, seed }: GenerateOptions): Sampler | undefined {
  if (!(temperature >= 0 && temperature <= MAX_TEMPERATURE)) {
    throw new RangeError(`temperature ${temperature}: expected a number from 0 to ${MAX_TEMPERATURE}`);
  }
  if (!(topP > 0 && topP <= 1)) throw new RangeError(`topP ${topP}: expected a number above 0 and at most 1`);
  if (seed !== undefined) checkWhole("seed", seed, 0);
  if (temperature === 0) {
    const stray = topP !== 1 ? "topP" : seed !== undefined ? "seed" : undefined;
    if (stray === undefined) return undefined;
    throw new TypeError(`${stray} needs a temperature above 0: greedy decoding samples nothing`);
  }
  return new Sampler({ temperature, topP, seed: seed ?? crypto.getRandomValues(new Uint32Array(1))[0] });
}
