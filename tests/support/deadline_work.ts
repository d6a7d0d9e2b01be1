/**
 * A worker for deadline_test.ts.
 *
 * @module
 */

import { serve } from "../../lib/text/deadline.ts";

serve({
  double: (value: number) => 2 * value,
  later: (value: number) => Promise.resolve(value),
  refuse(value: string) {
    throw new RangeError(value);
  },
  /** For much longer than its caller waits; not for ever, since Deno 2.9 does not stop a thread that loops. */
  forever() {
    for (const end = performance.now() + 3000; performance.now() < end;);
  },
  read: (path: string) => Deno.readTextFileSync(path),
  permissions: () =>
    (["read", "write", "net", "env", "run", "ffi", "sys", "import"] as const).map((name) =>
      Deno.permissions.querySync({ name }).state
    ),
});
