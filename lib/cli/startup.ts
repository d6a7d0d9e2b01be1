/**
 * What the program does before any other module is loaded: it binds the foreign functions that it calls (libc.ts) and gives
 * up the permission to bind others, for this thread and for all threads that it starts. No code that runs later, from a
 * package or made to run by a file, can call into a library.
 *
 * @module
 */

import { keepLibc } from "../libc.ts";

keepLibc();
Deno.permissions.revokeSync({ name: "ffi" });
