import { assertEquals, assertRejects } from "@std/assert";
import { confineWorkers } from "../../../lib/kernels/workers.ts";
import { DeadlineError, Service, ServiceError } from "../../../lib/text/deadline.ts";

confineWorkers();

const work = new URL("../../support/deadline_work.ts", import.meta.url);
const LONG = 60_000;

Deno.test("Service.call returns what the function returns, or throws what it throws", async () => {
  using service = new Service(work);
  assertEquals(await service.call("double", 21, LONG), 42);
  assertEquals(await service.call("later", 5, LONG), 5);
  assertEquals(await Promise.all([1, 2, 3].map((n) => service.call("double", n, LONG))), [2, 4, 6]);
  const error = await assertRejects(() => service.call("refuse", "too far", LONG), ServiceError, "too far");
  assertEquals(error.kind, "RangeError");
  await assertRejects(() => service.call("nothing", 1, LONG), ServiceError);
});

Deno.test("Service.call ends a function that does not return, and the next call has a new worker", async () => {
  using service = new Service(work);
  const error = await assertRejects(() => service.call("forever", 0, 300), DeadlineError, "not finished after 0.3 s");
  assertEquals(error.milliseconds, 300);
  assertEquals(await service.call("double", 4, LONG), 8);
});

Deno.test("Service.call waits for the calls before, each of which has its own time", async () => {
  using service = new Service(work);
  const first = assertRejects(() => service.call("forever", 0, 200), DeadlineError);
  assertEquals(await service.call("double", 1, LONG), 2);
  await first;
});

Deno.test("Service.close fails the call that waits, and those that follow", async () => {
  const service = new Service(work);
  const waiting = assertRejects(() => service.call("forever", 0, LONG), ServiceError, "closed");
  service.close();
  await waiting;
  await assertRejects(() => service.call("double", 1, LONG), ServiceError, "closed");
});

Deno.test("Service gives its worker no permission", async () => {
  using service = new Service(work);
  await assertRejects(() => service.call("read", "/etc/hostname", LONG), ServiceError, "read access");
  assertEquals(await service.call("permissions", 0, LONG), Array(8).fill("prompt"));
});

Deno.test("Service.call fails where the worker's module fails", async () => {
  using service = new Service(new URL("data:text/javascript,throw new Error('broken')"));
  const error = await assertRejects(() => service.call("double", 1, LONG), ServiceError, "broken");
  assertEquals(error.kind, "Worker");
});
