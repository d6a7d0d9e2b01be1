/**
 * Runs rabbit, and kills it at the call number N of those that give files their names; with -N it stops after
 * that call until somebody kills it:
 *
 *     deno run --allow-all tests/support/killed.ts N rabbit's arguments…
 *
 * @module
 */

const fatal = Number(Deno.args[0]);
let calls = 0;

/** `call`, but for the one that never comes, or never ends. */
function counted<A extends unknown[], R>(call: (...args: A) => R): (...args: A) => R {
  return (...args) => {
    if (++calls === fatal) Deno.kill(Deno.pid, "SIGKILL");
    const result = call(...args);
    if (calls === -fatal) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
    return result;
  };
}

Deno.renameSync = counted(Deno.renameSync);
Deno.removeSync = counted(Deno.removeSync);
const { openSync } = Deno;
const create = counted(openSync);
Deno.openSync = (path, options) => (options?.createNew ? create : openSync)(path, options);

// What main.ts takes for the arguments of the program.
Object.defineProperty(Deno, "args", { value: Deno.args.slice(1) });
await import("../../main.ts");
