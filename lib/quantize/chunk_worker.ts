/**
 * A thread of {@link runChunks}.
 *
 * @module
 */

/// <reference lib="deno.worker" />

import { ChunkProcessor, type FromWorker, type ToWorker } from "./chunks.ts";

/** Made with the first chunk, so that a file that can't be opened is an answer like any other. */
let processor: () => ChunkProcessor;

self.onmessage = ({ data }: MessageEvent<ToWorker>) => {
  if ("start" in data) {
    const { memory, files, scratch } = data.start;
    let made: ChunkProcessor | undefined;
    processor = () => made ??= new ChunkProcessor(memory, files, scratch);
    return;
  }
  const { index, slot, chunk } = data;
  let answer: FromWorker;
  try {
    answer = { index, slot, result: processor().process(chunk, slot) };
  } catch (cause) {
    const { name, message, stack } = cause as Error;
    answer = { index, slot, error: { name, message, stack } };
  }
  self.postMessage(answer);
};
