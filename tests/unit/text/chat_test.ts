// Chat templates: what Jinja2 renders with the settings of transformers (fixtures/make_chat.py).

import { assertEquals, assertRejects, assertStringIncludes, assertThrows } from "@std/assert";
import { type Message, readChatTemplate, readStops, renderChat } from "../../../lib/text/chat.ts";
import { CheckpointError } from "../../../lib/errors.ts";
import { inTemporary } from "../../support/program.ts";
import { fixture, write } from "../../support/testing.ts";

interface Case {
  name: string;
  template: string;
  messages: Message[];
  text?: string;
  refused?: string;
}

const { tokens, cases } = fixture<{ tokens: Record<string, string>; cases: Case[] }>("chat.json");

for (const { name, template, messages, text, refused } of cases) {
  Deno.test(`renderChat: ${name} of ${messages.length} messages is what Jinja2 gives`, async () => {
    const chat = { path: "c.json", template, tokens };
    if (text !== undefined) return assertEquals(await renderChat(chat, messages), text);
    const error = await assertRejects(() => renderChat(chat, messages), CheckpointError);
    assertEquals(error.message, `c.json: chat template: ${refused}`);
  });
}

Deno.test("renderChat refuses a template that is wrong, in one line", async () => {
  for (
    const template of [
      "{{",
      "{% for %}",
      "{{ nothing() }}",
      "{% if x %}",
      "{{ 1 / x }}",
    ]
  ) {
    const error = await assertRejects(
      () => renderChat({ path: "c.json", template, tokens: {} }, [{ role: "user", content: "a" }]),
      CheckpointError,
      "c.json: chat template: ",
      template,
    );
    assertEquals(error.message.includes("\n"), false);
  }
});

Deno.test("readChatTemplate finds a template where transformers does", async () => {
  await inTemporary((directory) => {
    const config = (value: unknown) => write(directory, { "tokenizer_config.json": JSON.stringify(value) });
    assertEquals(readChatTemplate(directory), undefined);
    config({ eos_token: "</s>" });
    assertEquals(readChatTemplate(directory), undefined);
    config({ chat_template: null });
    assertEquals(readChatTemplate(directory), undefined);
    const path = `${directory}/tokenizer_config.json`;
    config({ chat_template: "A", bos_token: { content: "<s>", lstrip: false }, eos_token: "</s>", pad_token: null });
    const tokens = { bos_token: "<s>", eos_token: "</s>" };
    assertEquals(readChatTemplate(directory), { path, template: "A", tokens });
    config({ chat_template: [{ name: "tool_use", template: "T" }, { name: "default", template: "D" }] });
    assertEquals(readChatTemplate(directory), { path, template: "D", tokens: {} });
    // The newer file comes first.
    write(directory, { "chat_template.jinja": "J" });
    assertEquals(readChatTemplate(directory)?.template, "J");
  });
});

Deno.test("readChatTemplate and readStops refuse files that are something else", async () => {
  await inTemporary((directory) => {
    for (const text of ["", "{", "[]", "null", '"x"', '{"chat_template": 7}', '{"chat_template": [null]}']) {
      write(directory, { "tokenizer_config.json": text });
      const error = assertThrows(() => readChatTemplate(directory), CheckpointError, undefined, text);
      assertStringIncludes(error.message, `${directory}/tokenizer_config.json: `);
    }
    assertEquals(readStops(directory), []);
    for (
      const [text, stops] of [["{}", []], ['{"eos_token_id": 2}', [2]], ['{"eos_token_id": [2, 5]}', [2, 5]]] as const
    ) {
      write(directory, { "generation_config.json": text });
      assertEquals(readStops(directory), stops);
    }
    for (const text of ["{", "[]", '{"eos_token_id": "2"}', '{"eos_token_id": [1.5]}']) {
      write(directory, { "generation_config.json": text });
      assertThrows(() => readStops(directory), CheckpointError, `${directory}/generation_config.json: `, text);
    }
  });
});
