/**
 * A thread of {@link Threads}.
 *
 * @module
 */

import { listen } from "../../kernels/workers.ts";
import { finish } from "../../pace.ts";
import { type FromThread, Thread, type ToThread } from "./threads.ts";

let thread: Thread;

const post = listen<ToThread, FromThread>((message) => {
  try {
    if ("memory" in message) thread = new Thread(message.memory, message.thread);
    else post({ result: finish(thread.pieces(message)) });
  } catch (error) {
    post({ error: String(error) });
  }
});
