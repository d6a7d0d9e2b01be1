/**
 * A worker thread of a {@link Pool}.
 *
 * @module
 */

import { Thread } from "./schedule.ts";
import type { Assigned } from "./view.ts";
import { listen } from "./workers.ts";

const post = listen<Assigned, "left">(({ layout, thread }) => {
  try {
    new Thread(layout, thread).serve();
  } catch {
    // The calling thread reports the error.
  }
  post("left");
});
