import { assertEquals } from "@std/assert";
import { decoding } from "../../../lib/text/decode.ts";
import { Sampler } from "../../../lib/text/sample.ts";
import { FakeModel } from "../../support/decoders.ts";

/** A model which says that the sum of the text, modulo 5, follows it. */
function summing(): FakeModel {
  return new FakeModel((text) => {
    const next = text.reduce((a, b) => a + b) % 5;
    return Array.from({ length: 5 }, (_, n) => n === next ? 9 : n / 10);
  });
}

Deno.test("decoding feeds the prompt and then each token, but the last", () => {
  const model = summing();
  // 1 + 2, then 3 + 3, 6 + 1, 7 + 2.
  assertEquals([...decoding(model, [1, 2], { steps: 4, stops: [] })], [3, 1, 2, 4]);
  assertEquals(model.calls, ["feed 1 2", "feed 3", "feed 1", "feed 2"]);
});

Deno.test("decoding ends with the first token that stops it", () => {
  const model = summing();
  assertEquals([...decoding(model, [1, 2], { steps: 4, stops: [4, 1] })], [3, 1]);
  assertEquals(model.calls, ["feed 1 2", "feed 3"]);
});

Deno.test("decoding takes the tokens of a sampler", () => {
  const sampler = new Sampler({ temperature: 1e-9, topP: 1, seed: 1 });
  assertEquals([...decoding(summing(), [1, 2], { steps: 3, stops: [], sampler })], [3, 1, 2]);
  const random = new Sampler({ temperature: 1e9, topP: 1, seed: 1 });
  const drawn = [...decoding(summing(), [1, 2], { steps: 200, stops: [], sampler: random })];
  assertEquals(new Set(drawn).size, 5);
});
