import { assert, assertEquals, assertThrows } from "@std/assert";
import { CheckpointError } from "../../../lib/errors.ts";
import { openCheckpoint } from "../../../lib/format/checkpoint.ts";
import { divide, serializeIndex, shardName, wholeHeader } from "../../../lib/format/shards.ts";
import { DECLARED } from "../../support/blocks.ts";
import { inTemporary, write } from "../../support/files.ts";
import { WEIGHTS } from "../../support/fixtures.ts";
import { Random } from "../../support/random.ts";
import { f32, quantizedFile, safetensors } from "../../support/safetensors.ts";

Deno.test("divide keeps the order, fills each shard as far as the limit allows, and gives a larger tensor its own", () => {
  const random = new Random(17);
  for (let n = 0; n < 500; n++) {
    const sizes = Array.from({ length: random.below(20) }, () => random.below(12));
    const limit = 1 + random.below(20);
    const shards = divide(sizes.map((bytes) => ({ bytes })), limit).map((shard) => shard.map(({ bytes }) => bytes));
    assertEquals(shards.flat(), sizes);
    for (const [n, shard] of shards.entries()) {
      const size = shard.reduce((a, b) => a + b, 0);
      assert(size <= limit || shard.filter((bytes) => bytes > 0).length === 1, `${sizes} ${limit}`);
      if (n > 0) assert(shards[n - 1].reduce((a, b) => a + b, 0) + shard[0] > limit, `${sizes} ${limit}`);
    }
  }
  assertEquals(divide([], 5), [[]]);
});

Deno.test("shardName numbers as Hugging Face's tools do", () => {
  assertEquals(shardName(1, 30), "model-00001-of-00030.safetensors");
  assertEquals(shardName(12345, 99999), "model-12345-of-99999.safetensors");
});

Deno.test("serializeIndex places every tensor, whatever its name", () => {
  const names = ["w", "__proto__", "7", "é\n", "constructor"];
  const bytes = serializeIndex([
    { name: "a", tensors: names.map((name) => ({ name, bytes: 3 })) },
    { name: "b", tensors: [{ name: "last", bytes: 2 }] },
  ]);
  const { metadata, weight_map } = JSON.parse(new TextDecoder().decode(bytes));
  assertEquals(metadata, { total_size: 17 });
  assertEquals(Object.entries(weight_map).sort(), [...names.map((name) => [name, "a"]), ["last", "b"]].sort());
});

Deno.test("wholeHeader is the header of the one file, for shards and for a file of another layout", () =>
  inTemporary((directory) => {
    const [a, b] = [f32("a", [3], (n) => n), f32("b", [], () => 1)];
    write(directory, { [WEIGHTS]: safetensors([a, b], { ...DECLARED[4], more: "x" }) });
    const whole = quantizedFile(4, [a, b]);
    const header = wholeHeader(openCheckpoint(directory));
    assertEquals(header, whole.slice(0, whole.length - 16));
    write(directory, { [WEIGHTS]: safetensors([a]) });
    assertThrows(() => wholeHeader(openCheckpoint(directory)), CheckpointError, "declares no width");
  }));
