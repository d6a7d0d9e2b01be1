/**
 * A thread of a {@link Pool}.
 *
 * @module
 */

/// <reference lib="deno.worker" />

import { Thread } from "./schedule.ts";
import type { Layout } from "./view.ts";

self.onmessage = ({ data }: MessageEvent<{ layout: Layout; thread: number }>) => {
  const { layout, thread } = data;
  try {
    new Thread(layout, thread).serve();
  } catch {
    // The thread that waits for this one reports it.
  }
  self.postMessage("left");
};
