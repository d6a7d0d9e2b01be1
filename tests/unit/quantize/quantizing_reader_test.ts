// A checkpoint that is quantized while it is read: the bytes are those that quantize writes.

import { assertEquals, assertThrows } from "@std/assert";
import { join } from "@std/path/join";
import { CheckpointError } from "../../../lib/errors.ts";
import { WIDTHS } from "../../../lib/format/blocks.ts";
import { openCheckpoint, TensorReader } from "../../../lib/format/checkpoint.ts";
import { planQuantize } from "../../../lib/quantize/quantize.ts";
import { QuantizingReader } from "../../../lib/quantize/quantizing_reader.ts";
import { inTemporary, write } from "../../support/files.ts";
import { TINY, WEIGHTS } from "../../support/fixtures.ts";
import { quantizeTo } from "../../support/models.ts";
import { safetensors } from "../../support/safetensors.ts";

for (const format of WIDTHS) {
  Deno.test(`QuantizingReader reads what quantize writes in ${format.name}`, async () => {
    await inTemporary(async (directory) => {
      const written = openCheckpoint(await quantizeTo(join(directory, "q"), TINY, format.bits));
      const encoded = new QuantizingReader(planQuantize(openCheckpoint(TINY), format));
      const stored = new TensorReader(written);
      for (const { name, dtype, shape, bytes } of written.tensors) {
        assertEquals([encoded.find(name)?.dtype, encoded.find(name)?.shape], [dtype, shape]);
        const [a, b] = [new Uint8Array(bytes), new Uint8Array(bytes)];
        encoded.read(name, 0, a);
        stored.read(name, 0, b);
        assertEquals(a, b, name);
        // From the middle on, too: the second half of the rows.
        const half = bytes / shape[0] * Math.floor(shape[0] / 2);
        encoded.read(name, half, a.subarray(0, bytes - half));
        assertEquals(a.subarray(0, bytes - half), b.subarray(half), name);
      }
      assertEquals(encoded.find("none"), undefined);
      assertEquals(encoded.path, join(TINY, WEIGHTS));
      encoded.close();
      stored.close();
    });
  });
}

Deno.test("QuantizingReader reads more than its memory holds at once", async () => {
  await inTemporary(async (directory) => {
    // Three million bytes of binary64 are two pieces.
    const weights = Float64Array.from({ length: 375 * 1024 }, (_, n) => Math.sin(n * n));
    const shape = [weights.length / 64, 64];
    const entry = { name: "w", dtype: "F64", shape, bytes: new Uint8Array(weights.buffer) };
    write(join(directory, "float"), { "model.safetensors": safetensors([entry]) });
    for (const format of WIDTHS) {
      await quantizeTo(join(directory, format.name), join(directory, "float"), format.bits);
      const written = openCheckpoint(join(directory, format.name));
      const encoded = new QuantizingReader(planQuantize(openCheckpoint(join(directory, "float")), format));
      const stored = new TensorReader(written);
      const [a, b] = [new Uint8Array(written.tensors[0].bytes), new Uint8Array(written.tensors[0].bytes)];
      encoded.read("w", 0, a);
      stored.read("w", 0, b);
      assertEquals(a, b);
      encoded.close();
      stored.close();
    }
  });
});

Deno.test("QuantizingReader refuses a weight that is not finite, naming its place", async () => {
  await inTemporary((directory) => {
    const weights = new Float32Array(4 * 64).fill(1);
    weights[2 * 64 + 37] = NaN;
    const entry = { name: "w", dtype: "F32", shape: [4, 64], bytes: new Uint8Array(weights.buffer) };
    write(directory, { "model.safetensors": safetensors([entry]) });
    const encoded = new QuantizingReader(planQuantize(openCheckpoint(directory), WIDTHS[0]));
    const { blockBytes } = WIDTHS[0];
    encoded.read("w", 0, new Uint8Array(4 * blockBytes));
    for (const first of [0, 2, 5]) {
      assertThrows(
        () => encoded.read("w", first * blockBytes, new Uint8Array((8 - first) * blockBytes)),
        CheckpointError,
        `tensor "w": row 2 column 37 (block 1): weight is NaN`,
      );
    }
    encoded.close();
  });
});
