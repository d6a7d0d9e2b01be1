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
  forever() {
    for (;;);
  },
  read: (path: string) => Deno.readTextFileSync(path),
  permissions: () =>
    (["read", "write", "net", "env", "run", "ffi", "sys", "import"] as const).map((name) =>
      Deno.permissions.querySync({ name }).state
    ),
});
