/**
 * A thread of {@link runChunks}.
 *
 * @module
 */

/// <reference lib="deno.worker" />

import { ChunkProcessor, type FromWorker, type ToWorker } from "./chunks.ts";

let processor: ChunkProcessor | undefined;

self.onmessage = ({ data }: MessageEvent<ToWorker>) => {
  if ("start" in data) {
    processor = new ChunkProcessor(data.start.memory, data.start.files, data.start.scratch);
    return;
  }
  const { index, slot, chunk } = data;
  let answer: FromWorker;
  try {
    answer = { index, slot, result: processor!.process(chunk, slot) };
  } catch (cause) {
    const { name, message, stack } = cause as Error;
    answer = { index, slot, error: { name, message, stack } };
  }
  self.postMessage(answer);
};
