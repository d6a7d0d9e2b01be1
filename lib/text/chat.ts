/**
 * Chat templates: finds the template of a checkpoint, and formats a conversation with it as transformers does. Templates
 * are Jinja programs; lib/text/jinja runs them, in a worker with a deadline.
 *
 * @module
 */

import { join } from "@std/path/join";
import { readJsonObject } from "../format/json.ts";
import { exists, readText } from "../files/read.ts";
import { system } from "../files/system.ts";
import { DeadlineError, Service, ServiceError } from "./deadline.ts";
import { CheckpointError, quote, systemError } from "../errors.ts";
import type { Moment } from "./jinja/dates.ts";
import type { Plain, Rendered } from "./jinja/render.ts";
import { readSpecialTokens } from "./special_tokens.ts";

/** Larger than any known file of templates. */
const MAX_BYTES = 10_000_000;

/** The limit for rendering; the slowest known templates take some milliseconds. */
const DEADLINE_MS = 10_000;

/** How much later the worker itself gives up: by then the call has failed. */
const GRACE_MS = 1000;

/** One message of a conversation. */
export interface Message {
  /** Who says it. */
  readonly role: "system" | "user" | "assistant";
  /** What is said. */
  readonly content: string;
}

/** A chat template and the special tokens that it can read. */
export interface ChatTemplate {
  /** The file that contains it. */
  readonly path: string;
  readonly template: string;
  /** By name: bos_token, eos_token and so on. */
  readonly tokens: Readonly<Record<string, string>>;
}

/**
 * Reads the template of a checkpoint directory as transformers does: chat_template.jinja and additional_chat_templates/
 * take precedence over tokenizer_config.json; of several templates the one named `default` is used. chat_template.json,
 * which transformers uses for processors, comes last.
 *
 * @returns undefined if there is none
 * @throws {CheckpointError} a file is invalid
 */
export function readChatTemplate(directory: string): ChatTemplate | undefined {
  const config = join(directory, "tokenizer_config.json");
  const json = objectIn(config);
  const found = templateFile(directory) ?? templateOf(config, json) ?? oldTemplate(directory);
  return found && { ...found, tokens: readSpecialTokens(directory) };
}

interface Found {
  readonly path: string;
  readonly template: string;
}

/** The template in a file of its own. */
function templateFile(directory: string): Found | undefined {
  const alone = join(directory, "chat_template.jinja");
  const more = join(directory, "additional_chat_templates");
  const names = namesIn(more).filter((name) => name.endsWith(".jinja"));
  const path = names.includes("default.jinja") ? join(more, "default.jinja") : alone;
  if (path !== alone || exists(alone)) return { path, template: readText(path, MAX_BYTES) };
  if (names.length > 0) throw withoutDefault({ path: more }, names.map((name) => name.slice(0, -".jinja".length)));
  return undefined;
}

/** The template in tokenizer_config.json: a string, or one of several with names. */
function templateOf(path: string, { chat_template: field }: Record<string, unknown>): Found | undefined {
  if (field === undefined || field === null) return undefined;
  if (typeof field === "string") return { path, template: field };
  const place = { path, field: "chat_template" };
  const pairs = Array.isArray(field) ? field.map((each) => [each?.name, each?.template]) : Object.entries(field);
  const texts = pairs.every((pair) => pair.every((text) => typeof text === "string"));
  if (!texts || typeof field !== "object") {
    throw new CheckpointError(place, "expected a string, or strings with names");
  }
  const template = new Map(pairs as [string, string][]).get("default");
  if (template === undefined) throw withoutDefault(place, pairs.map(([name]) => name as string));
  return { path, template };
}

function oldTemplate(directory: string): Found | undefined {
  const path = join(directory, "chat_template.json");
  const field = objectIn(path).chat_template;
  if (field === undefined || field === null) return undefined;
  if (typeof field === "string") return { path, template: field };
  throw new CheckpointError({ path, field: "chat_template" }, "expected a string");
}

function withoutDefault(place: { path: string; field?: string }, names: readonly string[]): CheckpointError {
  return new CheckpointError(
    place,
    `expected a template named "default", found ${names.map(quote).join(", ") || "none"}`,
  );
}

function objectIn(path: string): Record<string, unknown> {
  return exists(path) ? readJsonObject(path, MAX_BYTES) : {};
}

function namesIn(directory: string): string[] {
  try {
    return exists(directory) ? system.list(directory).map(({ name }) => name).sort() : [];
  } catch (cause) {
    throw systemError(`cannot read ${directory}`, cause, directory);
  }
}

/** A formatted conversation, up to the beginning of the model's answer. */
export interface Conversation {
  readonly text: string;
  /** Whether the template asked for the date. */
  readonly dated: boolean;
}

/** The message that {@link renderChat} sends to chat_worker.ts. */
export interface RenderRequest {
  readonly template: string;
  readonly variables: Readonly<Record<string, Plain>>;
  readonly now: Moment;
  /** The limit at which the worker itself gives up, so that its thread ends (see deadline.ts). */
  readonly milliseconds: number;
}

/**
 * Formats a conversation with a template.
 *
 * @param now the time that strftime_now gives
 * @param milliseconds the limit for rendering
 * @throws {CheckpointError} the template is invalid, rejects the messages, exceeds a limit, or is not supported
 */
export async function renderChat(
  chat: ChatTemplate,
  messages: readonly Message[],
  now: Moment,
  milliseconds = DEADLINE_MS,
): Promise<Conversation> {
  const variables = {
    ...chat.tokens,
    messages: messages.map((message) => ({ ...message })),
    tools: null,
    documents: null,
    add_generation_prompt: true,
  };
  const request: RenderRequest = { template: chat.template, variables, now, milliseconds: milliseconds + GRACE_MS };
  using service = new Service(new URL("./chat_worker.ts", import.meta.url));
  try {
    return await service.call<Rendered>("render", request, milliseconds);
  } catch (error) {
    const place = { path: chat.path, field: "chat template" };
    throw new CheckpointError(place, reasonOf(error), cannotRender(error) ? "chat-template" : undefined);
  }
}

/** Whether another way to the prompt's text helps: the template itself is not known to be wrong. */
function cannotRender(error: unknown): boolean {
  return error instanceof DeadlineError || (error instanceof ServiceError && error.kind === "Unsupported");
}

function reasonOf(error: unknown): string {
  if (error instanceof DeadlineError) return error.message;
  if (!(error instanceof ServiceError)) throw error;
  const [line] = error.message.split("\n");
  const reason = line.length > 300 ? `${line.slice(0, 300)}…` : line;
  if (["Unsupported", "TemplateError", "Raised"].includes(error.kind)) return reason;
  throw error;
}
