/**
 * A thread of {@link runChunks}.
 *
 * @module
 */

import { listen } from "../kernels/workers.ts";
import { ChunkProcessor, type FromWorker, type ToWorker } from "./chunks.ts";

/** Made with the first chunk, so that a file that can't be opened is an answer like any other. */
let processor: () => ChunkProcessor;

const post = listen<ToWorker, FromWorker>((message) => {
  if ("start" in message) {
    const { memory, files, scratch } = message.start;
    let made: ChunkProcessor | undefined;
    processor = () => made ??= new ChunkProcessor(memory, files, scratch);
    return;
  }
  const { index, slot, chunk } = message;
  try {
    post({ index, slot, result: processor().process(chunk, slot) });
  } catch (cause) {
    const { name, message, stack } = cause as Error;
    post({ index, slot, error: { name, message, stack } });
  }
});
