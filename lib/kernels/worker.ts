/**
 * A worker thread of a {@link Pool}.
 *
 * @module
 */

import { type LoadAhead, loadAhead } from "./ahead.ts";
import { Thread } from "./schedule.ts";
import type { Assigned } from "./view.ts";
import { listen } from "./workers.ts";

const post = listen<Assigned | LoadAhead, "left">((message) => {
  if ("pieces" in message) return loadAhead(message);
  try {
    new Thread(message.layout, message.thread).serve();
  } catch {
    // The calling thread reports the error.
  }
  post("left");
});
