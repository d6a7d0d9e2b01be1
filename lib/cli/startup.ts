/**
 * What the program does before any other module is loaded: it binds the foreign functions that it calls (libc.ts) and gives
 * up the permission to bind others, for this thread and for all threads that it starts. No code that runs later, from a
 * package or made to run by a file, can call into a library.
 *
 * A program that has all permissions, as the tasks run it, keeps them: it can start any other program, so that this one
 * would protect nothing, and without it Deno refuses files below /dev/shm, which is where models are kept in memory.
 *
 * @module
 */

import { confineWorkers } from "../kernels/workers.ts";
import { keepLibc } from "../libc.ts";

keepLibc();
confineWorkers();
if (Deno.permissions.querySync({ name: "run" }).state !== "granted") Deno.permissions.revokeSync({ name: "ffi" });
