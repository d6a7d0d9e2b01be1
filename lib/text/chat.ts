/**
 * What a chat model expects around a message: the checkpoint's chat template, a Jinja template that
 * tokenizer_config.json or chat_template.jinja has, rendered over @huggingface/jinja.
 *
 * @module
 */

import { join } from "@std/path/join";
import { CheckpointError } from "../errors.ts";
import { readJsonObject } from "../format/json.ts";
import { exists, readText } from "../files/read.ts";

/** A file of templates larger than this is another file. */
const MAX_BYTES = 10_000_000;

/** One message of a conversation. */
export interface Message {
  readonly role: "system" | "user" | "assistant";
  readonly content: string;
}

/** A chat template and the tokens that it names. */
export interface ChatTemplate {
  /** The file that the template is from. */
  readonly path: string;
  readonly template: string;
  /** bos_token, eos_token and the like of tokenizer_config.json. */
  readonly tokens: Readonly<Record<string, string>>;
}

/**
 * Reads the template of a checkpoint directory; chat_template.jinja comes before tokenizer_config.json.
 *
 * @returns undefined if it has none
 * @throws {CheckpointError} a file can't be read as what it should be
 */
export function readChatTemplate(directory: string): ChatTemplate | undefined {
  const config = join(directory, "tokenizer_config.json");
  const alone = join(directory, "chat_template.jinja");
  const json = exists(config) ? readJsonObject(config, MAX_BYTES) : {};
  const tokens = tokensOf(json);
  if (exists(alone)) return { path: alone, template: readText(alone, MAX_BYTES), tokens };
  const field = json.chat_template;
  if (field === undefined || field === null) return undefined;
  // A list has templates for several uses, each with a name.
  const template = Array.isArray(field) ? field.find((each) => each?.name === "default")?.template : field;
  if (typeof template !== "string") {
    throw new CheckpointError({ path: config, field: "chat_template" }, "expected a text, or a list with a default");
  }
  return { path: config, template, tokens };
}

/**
 * The text of a conversation, up to where the model's answer begins.
 *
 * @throws {CheckpointError} the template is wrong, or refuses the messages
 */
export async function renderChat(chat: ChatTemplate, messages: readonly Message[]): Promise<string> {
  const { Template } = await import("@huggingface/jinja");
  try {
    const values = { messages, add_generation_prompt: true, tools: null, documents: null, ...chat.tokens };
    return new Template(chat.template).render(values);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new CheckpointError({ path: chat.path, field: "chat template" }, reason.split("\n")[0].slice(0, 300));
  }
}

/** Ids that generation_config.json ends a text at; none where the file or the field is not there. @throws {CheckpointError} */
export function readStops(directory: string): number[] {
  const path = join(directory, "generation_config.json");
  if (!exists(path)) return [];
  const value = readJsonObject(path, MAX_BYTES).eos_token_id ?? [];
  const ids = Array.isArray(value) ? value : [value];
  if (!ids.every((id) => Number.isSafeInteger(id))) {
    throw new CheckpointError({ path, field: "eos_token_id" }, "expected ids");
  }
  return ids;
}

function tokensOf(json: Record<string, unknown>): Record<string, string> {
  const text = (value: unknown) =>
    typeof value === "object" && value !== null && "content" in value ? value.content : value;
  const found = Object.entries(json).filter(([key]) => key.endsWith("_token")).map((
    [key, value],
  ) => [key, text(value)]);
  return Object.fromEntries(found.filter(([, value]) => typeof value === "string"));
}
