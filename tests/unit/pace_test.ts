import { assert, assertEquals, assertRejects } from "@std/assert";
import { finish, inTurns, pacer, type Work } from "../../lib/pace.ts";

/** Work of `steps` yields, each of which takes some milliseconds. */
function* work(steps: number, milliseconds: number): Work<string> {
  for (let n = 0; n < steps; n++) {
    for (const end = performance.now() + milliseconds; performance.now() < end;);
    yield;
  }
  return "done";
}

Deno.test("finish gives what the work returns", () => {
  assertEquals([finish(work(3, 0)), finish(work(0, 0))], ["done", "done"]);
});

Deno.test("inTurns gives what the work returns, calls at each yield, and lets timers run meanwhile", async () => {
  let [yields, ticks] = [0, 0];
  const timer = setInterval(() => ticks++, 1);
  assertEquals(await inTurns(work(20, 10), undefined, () => yields++), "done");
  clearInterval(timer);
  assertEquals(yields, 20);
  assert(ticks > 0, "no timer ran");
});

Deno.test("inTurns and pacer throw the reason of a signal, also of one that comes within the work", async () => {
  const reason = new Error("enough");
  await assertRejects(pacer(AbortSignal.abort(reason)), Error, "enough");
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(reason), 1);
  let yields = 0;
  await assertRejects(() => inTurns(work(1000, 10), controller.signal, () => yields++), Error, "enough");
  clearTimeout(timer);
  assert(yields < 1000);
});
