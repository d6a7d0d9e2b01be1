import { assert, assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path/join";
import { exportCompressedTensors, pack } from "../../../lib/compressed/export.ts";
import { blockFormat } from "../../../lib/format/blocks.ts";
import { inTemporary, tree, write } from "../../support/files.ts";
import { ROW } from "../../support/five_bits.ts";
import { fixture, TINY } from "../../support/fixtures.ts";
import { quantizeTo, variant } from "../../support/models.ts";
import type { Entry } from "../../support/safetensors.ts";

Deno.test("config.json keeps its numbers as they are written, and has one dtype", async () => {
  await inTemporary(async (directory) => {
    const quant = await quantizeTo(join(directory, "quant"), TINY, 4);
    const text = Deno.readTextFileSync(join(quant, "config.json")).replace(/"torch_dtype": *"\w+",/, "")
      .replace("{", '{"dtype": "bfloat16", "partial": 1.0, "small": 1e-05, "large": 12345678901234567890,');
    write(quant, { "config.json": text });
    await exportCompressedTensors(quant, join(directory, "out"));
    const config = Deno.readTextFileSync(join(directory, "out", "config.json"));
    for (const number of ['"partial": 1.0,', '"small": 1e-05,', '"large": 12345678901234567890,']) {
      assertEquals(config.includes(number), true, number);
    }
    assertEquals([JSON.parse(config).dtype, JSON.parse(config).torch_dtype], [undefined, "float32"]);
  });
});

Deno.test("a head that equals the embedding is not written where they are one", async () => {
  await inTemporary(async (directory) => {
    const tensors = (entries: Entry[]) => {
      return [...entries, { ...entries.find(({ name }) => name.includes("embed"))!, name: "lm_head.weight" }];
    };
    const quant = await quantizeTo(join(directory, "quant"), variant(join(directory, "float"), TINY, { tensors }), 4);
    const digest = await exportCompressedTensors(quant, join(directory, "out")).then(({ digest }) => digest);
    assertEquals(digest, fixture("compressed_tensors.json").cases[0].sha256);
  });
});

Deno.test("levels of five bits go over the border of a byte", () => {
  const format = blockFormat(ROW);
  const block = new Uint8Array(format.blockBytes);
  // -16, -15, … 15: plus 16, 0 to 31, each in five bits from the lowest bit on.
  format.pack(Int8Array.from({ length: 32 }, (_, n) => n - 16), block.subarray(2));
  const bits = Array.from({ length: 32 }, (_, n) => n.toString(2).padStart(5, "0")).reverse().join("");
  const number = BigInt(`0b${bits}`);
  const wanted = Uint8Array.from({ length: 20 }, (_, n) => Number((number >> BigInt(8 * n)) & 255n));
  assertEquals(pack(format, new DataView(block.buffer)), wanted);
});

Deno.test("an export reports its progress, and a signal ends it without a trace", async () => {
  await inTemporary(async (directory) => {
    const quant = await quantizeTo(join(directory, "quant"), TINY, 4);
    const before = tree(directory);
    const controller = new AbortController();
    const reason = new Error("enough");
    const progress = (done: number, total: number) => {
      assert(done <= total);
      controller.abort(reason);
    };
    const out = join(directory, "out");
    const error = await assertRejects(() =>
      exportCompressedTensors(quant, out, { signal: controller.signal, progress })
    );
    assertEquals([error, tree(directory)], [reason, before]);
    // deno-lint-ignore no-explicit-any
    await assertRejects(() => exportCompressedTensors(quant, out, { pre: "x" } as any), TypeError, "unknown option");
  });
});
