/**
 * The worker of {@link runChunks}.
 *
 * @module
 */

import { listen } from "../kernels/workers.ts";
import { ChunkProcessor, type FromWorker, type ToWorker } from "./chunks.ts";

/** Creates the processor for the first chunk, so that a file that cannot be opened is the error of that chunk. */
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
