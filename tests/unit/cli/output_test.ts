// The JSON object of a command.

import { assertThrows } from "@std/assert";
import { Output } from "../../../lib/cli/output.ts";

Deno.test("the JSON object has each key once: another value for it is an error, whatever prints it", () => {
  const prints: ((out: Output) => void)[] = [
    (out) => out.line({ size: 1 }),
    (out) => out.list("size", [1]),
    (out) => out.group("size", { bytes: 1 }),
    (out) => out.text("size", "1"),
    (out) => out.item("size", { bytes: 1 }),
  ];
  for (const [n, first] of prints.entries()) {
    for (const second of prints.slice(0, -1)) {
      const out = new Output("TEST", true);
      first(out);
      assertThrows(() => second(out), Error, 'the JSON object has "size" already', `${n}`);
    }
  }
  const out = new Output("TEST", true);
  out.line({ size: undefined });
  out.item("list", { size: 1 });
  out.item("list", { size: 2 });
  out.line({ size: 1 });
});

Deno.test("an item is not appended to a value that is no list", () => {
  const out = new Output("TEST", true);
  out.line({ list: 1 });
  assertThrows(() => out.item("list", { size: 1 }), Error, 'the JSON object has "list" already');
});
