import { assert } from "@std/assert";
import { chunkMemory } from "../../../lib/quantize/chunks.ts";
import { MARGIN_BYTES, MAX_PAGES, PAGE } from "../../../lib/kernels/codec_wasm.ts";
import { MAX_THREADS } from "../../../lib/kernels/workers.ts";

Deno.test("the chunks of any number of threads fit into a shared memory, and none is without work", () => {
  let last = 0;
  for (let threads = 1; threads <= MAX_THREADS; threads++) {
    const bytes = chunkMemory(threads);
    assert(bytes <= MAX_PAGES * PAGE - MARGIN_BYTES, `${threads} threads take ${bytes} bytes`);
    // A slot of 6 MiB for each chunk in a queue, and two for the calling thread.
    const slots = Math.floor(bytes / (6 << 20));
    assert(slots >= threads + 1, `${threads} threads have ${slots} slots`);
    if (threads <= 64) assert(bytes > last);
    last = bytes;
  }
});
