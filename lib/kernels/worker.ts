/**
 * A thread of a {@link Pool}.
 *
 * @module
 */

/// <reference lib="deno.worker" />

import { type Layout, Machine } from "./machine.ts";

self.onmessage = ({ data }: MessageEvent<{ layout: Layout; thread: number }>) => {
  const { layout, thread } = data;
  try {
    new Machine(layout, thread).serve();
  } catch {
    // The thread that waits for this one reports it.
  }
  self.postMessage("left");
};
