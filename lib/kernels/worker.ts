/**
 * A thread of a {@link Pool}.
 *
 * @module
 */

/// <reference lib="deno.worker" />

import { type Layout, Machine } from "./machine.ts";

self.onmessage = ({ data }: MessageEvent<{ layout: Layout; thread: number }>) => {
  const { layout, thread } = data;
  // A layout's control area begins as zeros, so that the first program has the number 1.
  new Machine(layout, thread).serve(0);
  self.postMessage("left");
};
