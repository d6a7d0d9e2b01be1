import { assertEquals, assertThrows } from "@std/assert";
import { CheckpointError } from "../../../lib/errors.ts";
import { type Config, parseConfig } from "../../../lib/model/config.ts";
import { endOfText } from "../../../lib/model/end_of_text.ts";
import { inTemporary, write } from "../../support/files.ts";

/** A Llama's configuration; without an `eos_token_id` its class has 2. */
function config(fields: Record<string, unknown>): Config {
  return parseConfig("config.json", JSON.stringify({ architectures: ["LlamaForCausalLM"], ...fields }));
}

Deno.test("endOfText has the ids of config.json and generation_config.json; the class's default counts last", async () => {
  await inTemporary((directory) => {
    const [none, one] = [config({}), config({ eos_token_id: [7, 9] })];
    assertEquals([endOfText(none, directory), endOfText(one, directory)], [[2], [7, 9]]);
    for (
      const [text, assumed, named] of [
        ["{}", [2], [7, 9]],
        ['{"eos_token_id": null}', [2], [7, 9]],
        ['{"eos_token_id": 5}', [5], [7, 9, 5]],
        ['{"eos_token_id": [5, 6]}', [5, 6], [7, 9, 5, 6]],
      ] as const
    ) {
      write(directory, { "generation_config.json": text });
      assertEquals<unknown>([endOfText(none, directory), endOfText(one, directory)], [assumed, named], text);
    }
  });
});

Deno.test("endOfText refuses a generation_config.json that is something else, naming it", async () => {
  await inTemporary((directory) => {
    for (const text of ["{", "[]", '{"eos_token_id": "2"}', '{"eos_token_id": [1.5]}', '{"eos_token_id": [[1]]}']) {
      write(directory, { "generation_config.json": text });
      const found = () => endOfText(config({}), directory);
      assertThrows(found, CheckpointError, `${directory}/generation_config.json: `, text);
    }
  });
});
