/**
 * Runs before any other module is loaded: binds the foreign functions of libc.ts and revokes --allow-ffi, for this
 * thread and all threads that it starts. Code that runs later, even malicious code of a package, cannot call a library.
 *
 * With --allow-all, as in the tasks, the permission is kept: revoking it would protect nothing, since the program could
 * start any other program, and Deno would then refuse files in /dev/shm, a common place for models in memory.
 *
 * @module
 */

import { confineWorkers } from "../kernels/workers.ts";
import { keepLibc } from "../libc.ts";

keepLibc();
confineWorkers();
if (Deno.permissions.querySync({ name: "run" }).state !== "granted") Deno.permissions.revokeSync({ name: "ffi" });
