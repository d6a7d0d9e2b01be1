import { assert, assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import { beginOfText, sampledWindows } from "../../../lib/calibrate/sampled.ts";
import { RabbitError } from "../../../lib/errors.ts";
import { Pool } from "../../../lib/kernels/pool.ts";
import { Reference } from "../../../lib/kernels/reference.ts";
import { openModel } from "../../../lib/model/load.ts";
import { SplitMix64 } from "../../../lib/random.ts";
import { Sampler } from "../../../lib/text/sample.ts";
import { inTemporary, write } from "../../support/files.ts";
import { json, TINY } from "../../support/fixtures.ts";
import { load, using } from "../../support/models.ts";

Deno.test("sampledWindows samples each window as a model that decodes it alone, whatever the threads", async () => {
  const model = openModel(TINY);
  const options = { count: 10, window: 33, seed: 5 };
  let sampled = 0;
  const windows = await using(
    new Pool({ threads: 2 }),
    (ops) => sampledWindows(ops, model, { ...options, progress: (tokens) => sampled += tokens }),
  );
  assertEquals([windows.length, sampled], [10, 10 * 32]);
  const random = new SplitMix64(5);
  using(new Pool({ threads: 1 }), (ops) => {
    const llama = load(ops, TINY);
    for (const ids of windows) {
      const sampler = new Sampler({ temperature: 1, topP: 1, seed: Number(random.next() >> 11n) });
      llama.rewind(0);
      const alone = [json(`${TINY}/config.json`).bos_token_id];
      while (alone.length < 33) alone.push(sampler.sample(llama.feed(alone.slice(-1))));
      assertEquals(ids, alone);
    }
  });
  assert(new Set(windows.map(String)).size === 10);
  // A part of the windows is the same as all of them from the start.
  const few = await using(new Reference(), (ops) => sampledWindows(ops, model, { count: 2, window: 9, seed: 5 }));
  assertEquals(few, windows.slice(0, 2).map((ids) => ids.slice(0, 9)));
});

Deno.test("beginOfText takes the id of config.json, then that of generation_config.json, and refuses others", () =>
  inTemporary((directory) => {
    const config = json(`${TINY}/config.json`);
    Deno.copyFileSync(`${TINY}/model.safetensors`, `${directory}/model.safetensors`);
    const of = (own: unknown, generation?: unknown) => {
      write(directory, {
        "config.json": JSON.stringify({ ...config, bos_token_id: own }),
        "generation_config.json": JSON.stringify({ bos_token_id: generation }),
      });
      return beginOfText(openModel(directory));
    };
    assertEquals([of(3, 4), of(undefined, 4), of(null, 0)], [3, 4, 0]);
    for (const bad of [320, -1, 1.5, "1", [1]]) {
      const { message } = assertThrows(() => of(bad, 1), RabbitError);
      assertStringIncludes(message, "config.json: bos_token_id: expected a token id below 320; calibrate with a text");
    }
    assertThrows(() => of(undefined), RabbitError, "name no bos_token_id");
  }));
