/**
 * Runs rabbit, and kills it at the call number N of those that give files their names:
 *
 *     deno run --allow-all tests/support/killed.ts N rabbit's arguments…
 *
 * @module
 */

const fatal = Number(Deno.args[0]);
let calls = 0;

/** `call`, but for the one that never comes. */
function counted<A extends unknown[], R>(call: (...args: A) => R): (...args: A) => R {
  return (...args) => {
    if (++calls === fatal) Deno.kill(Deno.pid, "SIGKILL");
    return call(...args);
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
