import { assertEquals, assertMatch } from "@std/assert";
import { Interrupted, NotSound, UsageError } from "../../../lib/cli/errors.ts";
import { complaintOf, statusOf } from "../../../lib/cli/messages.ts";
import { CheckpointError, LimitError, NumericError, RabbitError, Refusal, SystemError } from "../../../lib/errors.ts";

Deno.test("complaintOf says kind, place and what to do of every kind of error", () => {
  const bad = new CheckpointError({ path: "a; b", tensor: 'w"; x', field: "shape" }, 'found "; y"; use another');
  assertEquals(complaintOf(bad), {
    kind: "checkpoint",
    file: "a; b",
    tensor: 'w"; x',
    field: "shape",
    message: bad.message,
    advice: "use another",
  });
  assertEquals(complaintOf(new NotSound(bad)), complaintOf(bad));
  const file = { file: "f", tensor: undefined, field: undefined };
  const rest = (error: unknown) => {
    const { kind, file, message, advice } = complaintOf(error);
    return [kind, file, message, advice];
  };
  assertEquals(rest(new CheckpointError({ path: "f" }, "1 overflows F16", "overflow")), [
    ...["checkpoint", file.file, "f: 1 overflows F16; use --dtype f32", "use --dtype f32"],
  ]);
  assertEquals(rest(new Refusal("exists", "f", "f exists already")), [
    ...["output", "f", "f exists already; --force replaces it", "--force replaces it"],
  ]);
  assertEquals(rest(new Refusal("incomplete", "d", "a write was interrupted")).slice(2), [
    ...["a write was interrupted; --force writes it again", "--force writes it again"],
  ]);
  assertEquals(
    rest(new CheckpointError({ path: "d" }, "interrupted; write it again", "incomplete"))[3],
    "write it again",
  );
  assertEquals(rest(new LimitError("too long; use less")), ["limit", undefined, "too long; use less", "use less"]);
  assertEquals(rest(new NumericError("not finite")), ["numeric", undefined, "not finite", undefined]);
  assertEquals(rest(new UsageError("wrong")), ["usage", undefined, "wrong", undefined]);
  assertEquals(rest(new RabbitError("has 1 token; use a longer text")), [
    ...["usage", undefined, "has 1 token; use a longer text", "use a longer text"],
  ]);
  assertEquals(rest(new SystemError("cannot open f: no", "f")), ["system", "f", "cannot open f: no", undefined]);
  assertEquals(rest(new Interrupted("SIGINT", 130))[0], "interrupted");
  assertEquals(rest(new TypeError("oops"))[0], "internal");
  assertMatch(complaintOf("thrown").message, /^internal error, please report it: thrown$/);
  // What Deno refuses where nobody said what was tried.
  assertEquals(rest(new Error("x (os error 28)"))[0], "system");
});

Deno.test("statusOf is 1 for the answer no, the shell's status for a signal, and 2 for the rest", () => {
  const bad = new CheckpointError({ path: "f" }, "bad");
  assertEquals(
    [new NotSound(bad), bad, new Interrupted("SIGINT", 130), new UsageError(""), new TypeError(), "x"].map(statusOf),
    [1, 2, 130, 2, 2, 2],
  );
});
